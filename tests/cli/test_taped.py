"""`--record` and `--replay` as a person meets them: one question, a conversation, a batch, and Python."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import hermes as package
from hermes.core.errors import OperatorError, UsageError
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import Request, serve_in_thread
from tests.cli.conftest import Ran
from tests.cli.test_chat import Program


@pytest.fixture
def program(hermes_home: Path, tmp_path: Path) -> Program:
    """A program that finds no key and no server of its own."""
    folder = tmp_path / "work"
    folder.mkdir()
    made = Program(hermes_home, folder)
    for name in [name for name in made.environ if name.endswith(("_API_KEY", "_BASE_URL"))]:
        del made.environ[name]
    return made


def tree(request: Request) -> Reply:
    """A parent with two children, of which one runs a command."""
    if "count the files" in request.first_user:
        look = call("terminal", command="touch ran; ls | wc -l")
        return reply("two files") if request.turn else reply(calls=[look])
    if "say hello" in request.first_user:
        return reply("hello")
    if request.turn:
        return reply("audited", thinking="both are back")
    return reply(calls=[call("spawn_parallel", tasks=[{"prompt": "count the files"}, {"prompt": "say hello"}])])


def recorded(program: Program, *args: str, **more: str) -> Ran:
    """Record with a key and a server that are both gone afterwards."""
    alone = dict(program.environ)
    with serve_in_thread(tree) as server:
        ran = program.use(server).chat("--record", "tape.jsonl", *args, **more)
    program.environ = alone
    assert ran.code == 0, ran.err
    return ran


def run(program: Program, *args: str, text: str = "") -> Ran:
    done = subprocess.run(
        program.command(*args),
        input=text.encode(),
        capture_output=True,
        cwd=program.folder,
        env=program.environ,
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_a_question_is_answered_again_without_key_server_and_commands(program: Program) -> None:
    ran = recorded(program, "-q", "audit this")
    assert "recorded 5 replies and 2 calls to " in ran.err
    (program.folder / "ran").unlink()
    again = run(program, "chat", "-q", "audit this", "--replay", "tape.jsonl", "--json")
    assert again.code == 0, again.err
    events = [json.loads(line) for line in again.out.splitlines()]
    assert events[-1]["type"] == "result" and events[-1]["summary"] == "audited"
    assert sum(event["type"] == "task.ended" for event in events) == 3
    assert not (program.folder / "ran").exists()
    plain = run(program, "chat", "-q", "audit this", "--replay", "tape.jsonl")
    assert (plain.code, plain.out) == (0, ran.out)
    assert (
        "none needed (replayed from tape.jsonl)" in plain.err and "replayed 7 of 7 entries of tape.jsonl" in plain.err
    )


def test_minus_z_records_and_replays(program: Program) -> None:
    alone = dict(program.environ)
    with serve_in_thread(tree) as server:
        program.use(server)
        first = run(program, "-m", "test-model", "--record", "tape.jsonl", "-z", "audit this")
    program.environ = alone
    assert (first.code, first.out) == (0, "audited\n"), first.err
    again = run(program, "-z", "audit this", "--replay", "tape.jsonl")
    assert (again.code, again.out) == (0, "audited\n"), again.err
    other = run(program, "-z", "audit that", "--replay", "tape.jsonl")
    assert other.code == 1 and "audit this" in other.err
    misplaced = run(program, "--replay", "tape.jsonl", "doctor")
    assert misplaced.code == 2 and "stand after chat or batch run, or go with -z" in misplaced.err


def test_another_question_and_another_model_end_with_1_and_what_differs(program: Program) -> None:
    recorded(program, "-q", "audit this")
    other = run(program, "chat", "-q", "audit that", "--replay", "tape.jsonl")
    assert other.code == 1 and 'What was: "audit this"' in other.err
    model = run(program, "-m", "big-model", "chat", "-q", "audit this", "--replay", "tape.jsonl")
    assert model.code == 1 and "the model asked for is big-model, not test-model" in model.err


def test_a_reply_that_is_missing_in_a_child_ends_the_run_with_1(program: Program) -> None:
    recorded(program, "-q", "audit this")
    tape = program.folder / "tape.jsonl"
    tape.write_text("".join(line for line in tape.read_text().splitlines(keepends=True) if '"hello"' not in line))
    ran = run(program, "chat", "-q", "audit this", "--replay", "tape.jsonl")
    assert ran.code == 1 and ran.out == "audited\n"
    assert "the replay is not the recording" in ran.err and '1.0.1 ("' in ran.err and "used up" in ran.err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--record", "a", "--replay", "b"), "--record and --replay exclude each other"),
        (("--record", "a", "--resume"), "--record and --resume exclude each other"),
        (("--replay", "a", "--detach"), "--replay and --detach exclude each other"),
        (("--replay", "none.jsonl"), "none.jsonl cannot be read: No such file"),
        (("--record", "no/such/folder/tape"), "tape cannot be written: No such file"),
        (("--record", "."), "is a folder. Name a file."),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(program: Program, args: tuple[str, ...], says: str) -> None:
    with serve_in_thread(lambda request: reply("never")) as server:
        ran = program.use(server).chat("-q", "audit this", *args)
        assert (ran.code, ran.out) == (2, "") and says in ran.err, ran.err
        assert not server.requests


def test_a_conversation_in_lines_replays(program: Program) -> None:
    lines = "audit this\nthank you\n"
    recorded(program, "--cli", stdin=lines)
    again = run(program, "chat", "--cli", "--replay", "tape.jsonl", text=lines)
    assert again.code == 0, again.err
    assert again.out.count("audited") == 2
    short = run(program, "chat", "--cli", "--replay", "tape.jsonl", text="audit this\n")
    assert short.code == 1 and 'main:d85c3e19 ("audit this"): reply 3 was recorded and never asked for' in short.err


def test_a_batch_replays_with_other_workers(program: Program) -> None:
    prompts = ["audit 0", "audit 1", "audit 2", "audit 3", "audit 0"]
    rows = [{"prompt": prompt, "toolsets": ["terminal", "delegation"]} for prompt in prompts]
    (program.folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    batch = ("batch", "run", "--dataset_file=prompts.jsonl", "--batch_size=2")
    alone = dict(program.environ)
    with serve_in_thread(tree) as server:
        program.use(server)
        first = run(program, "-m", "m", *batch, "--run_name=first", "--num_workers=3", "--record=tape.jsonl")
    program.environ = alone
    assert first.code == 0, first.err
    again = run(program, *batch, "--run_name=again", "--num_workers=1", "--replay=tape.jsonl")
    assert again.code == 0, again.err

    def kept(name: str) -> list[object]:
        text = (program.folder / "data" / name / "trajectories.jsonl").read_text()
        return [(row["prompt_index"], row["completed"]) for row in map(json.loads, text.splitlines())]

    assert kept("again") == kept("first") and len(kept("again")) == 5
    few = run(program, *batch, "--run_name=few", "--max_samples=3", "--replay=tape.jsonl")
    assert few.code == 1 and "never asked for" in few.err
    refused = run(program, *batch, "--run_name=again", "--resume", "--replay=tape.jsonl")
    assert refused.code == 2 and "--replay and --resume exclude each other" in refused.err


def test_python_records_and_replays(home: Path, tmp_path: Path) -> None:
    tape = str(tmp_path / "tape.jsonl")
    with serve_in_thread(tree) as server:
        options = {"model": "m", "base_url": server.base_url, "api_key": "a-key-12345", "memory": True}
        with package.open(record=tape, workspace=str(tmp_path), **options) as h:
            assert h.delegate("audit this")["summary"] == "audited"
    with package.open(replay=tape, workspace=str(tmp_path), memory=True) as h:
        assert h.delegate("audit this")["summary"] == "audited"
    with (
        pytest.raises(OperatorError, match="the replay is not the recording:\n.* was not recorded"),
        package.open(replay=tape, workspace=str(tmp_path), memory=True) as h,
    ):
        assert h.delegate("audit that")["status"] == "failed"
    with pytest.raises(UsageError, match="exclude each other"), package.open(record=tape, replay=tape):
        pytest.fail("both at once")
