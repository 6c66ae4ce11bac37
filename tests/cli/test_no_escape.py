"""What models, files and servers write acts on no terminal: escape sequences, control characters and turned directions
are gone from everything that is made for people, whatever command shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import Request, serve_in_thread
from tests.cli.program import Program

HOSTILE = "a\x1b]0;owned\x07b\x1b[2Jc\x9b31md\u202ee\u2066f\u200bg\x08h\x00i\u3164j\x1bPq\x1b\\k\rl"
HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def program(tmp_path: Path, home: Path) -> Program:
    program = Program(tmp_path)
    (program.folder / "hostile.txt").write_text(HOSTILE)
    (program.folder / "AGENTS.md").write_text(HOSTILE)
    agents = program.folder / ".hermes" / "agents"
    agents.mkdir(parents=True)
    (agents / "a.md").write_text(f"---\nname: helper\ndescription: x {HOSTILE[1:20]} y\n---\n{HOSTILE}\n")
    return program


def hostile(request: Request) -> Reply:
    if request.first_user.startswith("child"):
        return reply(f"report {HOSTILE}", thinking=HOSTILE)
    steps = (
        reply(
            HOSTILE,
            thinking=HOSTILE,
            calls=[call("terminal", command=f"cat hostile.txt; : '{HOSTILE}'".replace("\0", ""))],
        ),
        reply(calls=[call("spawn_parallel", tasks=[f"child {HOSTILE}"]), call(f"none{HOSTILE}", text=HOSTILE)]),
        reply(calls=[call("read_file", path=f"none {HOSTILE}"), call("todo", todos=[{"content": HOSTILE}])]),
    )
    return steps[request.turn] if request.turn < len(steps) else reply(f"the end {HOSTILE}", thinking="t")


def check(**streams: str) -> None:
    for name, text in streams.items():
        found = HARMFUL.search(text)
        assert found is None, f"{name}: {text[max(0, found.start() - 80) : found.start() + 20]!r}"


@pytest.mark.fault("B127")
def test_nothing_that_is_made_for_people_acts_on_a_terminal(program: Program) -> None:
    with serve_in_thread(hostile) as server:
        ran = program.use(server).run("-m", "test-model", "chat", "-v", "-q", f"go {HOSTILE}".replace("\0", ""))
        assert ran.code == 0, ran.err
        check(notes=ran.err)
    session = next(line.split()[1] for line in ran.err.splitlines() if line.startswith("session:"))
    rows = json.loads(program.run("tasks", "list", "--all", "--json").out)
    tasks = [row["task_id"] for row in rows["tasks"]]
    assert len(tasks) == 2
    commands = [
        ("sessions", "list"), ("sessions", "list", "--json"), ("sessions", "show", session),
        ("sessions", "show", session, "--json"), ("tasks", "list", "--all"), ("agents", "list"),
        ("agents", "show", "helper"),
        *(("tasks", "show", task) for task in tasks), *(("tasks", "show", task, "--json") for task in tasks),
        ("tasks", "tail", tasks[0]), ("usage",),
    ]  # fmt: skip
    for command in commands:
        more = program.run(*command)
        assert "Usage:" not in more.err, more.err
        check(**{" ".join(command): more.out + more.err})


def test_nor_does_what_a_batch_tells(program: Program) -> None:
    data = json.dumps({"prompt": f"go {HOSTILE}"}).encode() + b"\n"
    with serve_in_thread(hostile) as server:
        ran = program.use(server).batch(f"--dataset_file={program.dataset(data)}", "--run_name=r", "--batch_size=1")
    check(batch=ran.out + ran.err)
    for which in ("rejected", "kept"):
        shown = program.run("batch", "show", "r", *(["--rejected"] if which == "rejected" else []))
        check(**{which: shown.out + shown.err})


def test_nor_an_error_of_a_server(program: Program) -> None:
    with serve_in_thread(lambda request: reply("never")) as server:
        ran = program.use(server).run(
            "-m", HOSTILE.replace("\0", ""), "--provider", f"x{HOSTILE}".replace("\0", ""), "chat", "-q", "x"
        )
    assert ran.code != 0
    check(error=ran.err)
