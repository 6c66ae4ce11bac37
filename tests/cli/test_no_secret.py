"""Keys of every known kind lie in the working directory, and agents want to show them: no stream and no file of the run
has one, whatever face and format it goes through."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from hermes.chat.render import Cleaner
from hermes.credentials.redact import Redactor
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import Request, serve_in_thread
from tests.cli.program import Program
from tests.credentials.kinds import KINDS

PLANTED = "planted.txt"
TEXT = "\n".join(f"{name}: {sample.text}" for name, sample in KINDS.items()) + "\n"
#: The inside of a private key, away from its first line, is not known as one.
LINES = "\n".join(sample.text for sample in KINDS.values() if "\n" not in sample.text)
ALL = {name: sample.secret for name, sample in KINDS.items()}


@pytest.fixture
def program(tmp_path: Path, home: Path) -> Program:
    program = Program(tmp_path)
    (program.folder / PLANTED).write_text(TEXT)
    program.configure("approvals: allow\ndelegation: {max_spawn_depth: 2}\n")
    return program


def shown(request: Request) -> str:
    """All that the model was shown, and the keys as it might have made them up."""
    return "|".join(str(message.get("content")) for message in request.messages) + TEXT


def leaky(request: Request) -> Reply:
    """Reads the file in three ways, has a child do the same, and says all of it."""
    looks = [
        call("terminal", command=f"cat {PLANTED}; base64 -w0 {PLANTED}; env"),
        call("read_file", path=PLANTED),
        call("search_files", pattern=".", path=PLANTED, limit=500),
    ]
    if request.first_user.startswith("child"):
        return reply(calls=looks[:2]) if request.turn == 0 else reply(shown(request), thinking=TEXT)
    steps: Sequence[Reply] = (
        reply(TEXT, thinking=TEXT, calls=looks),
        reply(calls=[call("spawn_parallel", tasks=[f"child {TEXT}", "child two"])]),
        reply(
            calls=[call("terminal", command=f"cat {PLANTED} >&2; for i in $(seq 300); do cat {PLANTED}; done; false")]
        ),
        reply(calls=[call("write_file", path="copy.txt", content=TEXT), call("todo", todos=[{"content": TEXT[:900]}])]),
        reply(calls=[call("terminal", command=LINES), call("nothing", text=TEXT), call("read_file", path=TEXT[:300])]),
    )
    if request.turn >= len(steps):
        return reply(shown(request), thinking=TEXT)
    step = steps[request.turn]
    if "todo" in request.tools:
        return step
    # a row counts only where every tool was offered
    kept = [one for one in step.calls if one.name in request.tools]
    return reply(step.text, thinking=step.thinking or TEXT, calls=kept or looks[:1])


def leaks(text: str) -> list[str]:
    return [name for name, secret in ALL.items() if secret in text or json.dumps(secret)[1:-1] in text]


def check(program: Program, streams: dict[str, str]) -> None:
    for name, text in streams.items():
        assert len(text) > 20, f"{name} is empty"
        assert not leaks(text), f"{name}: {leaks(text)}"
    files = [path for root in (program.home, program.folder) for path in root.rglob("*") if path.is_file()]
    own = {program.folder / PLANTED, program.folder / "copy.txt"}
    looked = [path for path in files if path not in own and path.name != "prompts.jsonl"]
    assert len(looked) > 3
    for path in looked:
        assert not leaks(path.read_text(errors="replace")), f"{path}: {leaks(path.read_text(errors='replace'))}"


def test_at_least_twenty_kinds_are_planted() -> None:
    assert len(KINDS) >= 20 and all(len(secret) > 12 for secret in ALL.values())


@pytest.mark.fault("B137")
@pytest.mark.parametrize("flags", [("-v",), ("--json",), ("-Q",)])
def test_no_key_is_in_a_stream_or_a_file_of_a_conversation(program: Program, flags: tuple[str, ...]) -> None:
    with serve_in_thread(leaky) as server:
        ran = program.use(server).run(
            "-m", "test-model", "chat", "--record", "tape.jsonl", *flags, "-q", f"look {TEXT}"
        )
        asked = json.dumps([request.body["messages"][2:] for request in server.requests[1:]])
    assert ran.code == 0, ran.err
    session = next(
        line.split()[1] for line in (ran.err + '\nsession: {"x"').splitlines() if line.startswith("session:")
    )
    streams = {"stdout": ran.out, "stderr": ran.err + " " * 20}
    if flags == ("-v",):
        for name, args in {
            "show": ("sessions", "show", session),
            "show json": ("sessions", "show", session, "--json"),
            "export": ("sessions", "export", "-", "--session-id", session),
            "tasks": ("tasks", "list", "--all"),
        }.items():
            more = program.run(*args)
            streams[name] = more.out + more.err
    check(program, streams)
    assert "[redacted:" in asked


def test_no_key_is_in_a_row_a_record_or_a_statistic_of_a_batch(program: Program) -> None:
    data = "".join(json.dumps({"prompt": f"{number} {TEXT}"}) + "\n" for number in range(3)).encode()
    with serve_in_thread(leaky) as server:
        ran = program.use(server).batch(f"--dataset_file={program.dataset(data)}", "--run_name=leak", "--batch_size=2")
    assert ran.code == 0, ran.err
    assert len(program.rows("leak")) == 3
    shown = program.run("batch", "show", "leak")
    exported = program.run("batch", "export", "leak", "--to", "openai")
    assert exported.code == 0, exported.err
    check(program, {"stdout and stderr": ran.out + ran.err, "show": shown.out + shown.err + " " * 20})


@pytest.mark.parametrize("size", [1, 3, 17])
def test_no_key_is_shown_while_it_streams(size: int) -> None:
    cleaner = Cleaner(Redactor().text)
    text = f"Here they are:\n{TEXT}That is all."
    shown = [cleaner.feed(text[start : start + size]) for start in range(0, len(text), size)]
    whole = "".join(shown) + cleaner.end()
    assert not leaks(whole), leaks(whole)
    assert whole.startswith("Here they are:\n") and whole.endswith("That is all.")


def test_ordinary_text_streams_word_by_word_and_whole() -> None:
    cleaner = Cleaner(Redactor().text)
    assert (
        cleaner.feed("One wo") == "One " and cleaner.feed("rd\x1b[3") == "" and cleaner.feed("1m more ") == "word more "
    )
    assert cleaner.feed("x" * 5_000) == "x" * 5_000  # a word without end is not waited for
    assert cleaner.feed("last") == "" and cleaner.end() == "last" and cleaner.end() == ""


def test_no_key_is_in_the_message_of_an_error(program: Program) -> None:
    with serve_in_thread(lambda request: reply("never")) as server:
        program.use(server)
        ran = program.run("-m", "test-model", "--provider", KINDS["github_classic"].text, "chat", "-q", "x")
    assert ran.code != 0 and "[redacted:github_token]" in ran.err and not leaks(ran.err)
