"""`hermes chat` as a program: what is on stdout and stderr, and the exit code, against a loopback provider."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from hermes.testing.faults import Fault, Stall, bad_key, no_credit, rate_limited
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import ProviderServer, Request, serve_in_thread
from tests.cli.conftest import Ran

KEY = "sk-test-0123456789abcdef0123456789"


class Program:
    """Runs `hermes chat` in a folder of its own, with a home and a server."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home = home
        self.folder = folder
        self.environ = {**os.environ, "HERMES_HOME": str(home), "PYTHONWARNINGS": "default", "COLUMNS": "100"}

    def use(self, server: ProviderServer, key: str = KEY) -> Program:
        self.environ |= {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": key}
        return self

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "hermes.cli.main", *args]

    def chat(self, *args: str, stdin: str | bytes = "", model: str = "test-model") -> Ran:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            self.command("-m", model, "chat", *args),
            input=data,
            capture_output=True,
            cwd=self.folder,
            env=self.environ,
            timeout=60,
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def state(self, goal: str) -> str:
        """The stored state of a task."""
        with contextlib.closing(sqlite3.connect(f"file:{self.home / 'runtime.db'}?mode=ro", uri=True)) as database:
            found = database.execute("SELECT state FROM tasks WHERE goal = ?", (goal,)).fetchone()
        return str(found[0]) if found else ""

    def files(self) -> dict[str, bytes]:
        return {str(p.relative_to(self.home)): p.read_bytes() for p in self.home.rglob("*") if p.is_file()}


@pytest.fixture
def program(hermes_home: Path, tmp_path: Path) -> Program:
    folder = tmp_path / "work"
    folder.mkdir()
    return Program(hermes_home, folder)


def kids(request: Request) -> Reply | Fault:
    """A conversation with two children, and a command."""
    if request.first_user.startswith("child"):
        return reply(f"report of {request.first_user}")
    steps: Sequence[Reply] = (
        reply("I look.", calls=[call("terminal", command="echo out; pwd")]),
        reply(calls=[call("spawn_parallel", tasks=["child one", "child two"])]),
        reply("Ответ: 42\nas \x1b[31mwritten"),
    )
    return steps[request.turn]


def test_the_answer_alone_is_on_stdout(program: Program) -> None:
    async def first_one_slower(request: Request) -> Reply | Fault:
        while request.first_user.startswith("child one") and program.state("child two") != "completed":
            await anyio.sleep(0.01)
        return kids(request)

    with serve_in_thread(first_one_slower) as server:
        ran = program.use(server).chat("-q", "count", "--usage-file", str(program.folder / "usage.json"))
    assert (ran.code, ran.out) == (0, "Ответ: 42\nas \x1b[31mwritten\n")
    for words in ('💻 terminal "echo out; pwd"', "🔀 [1/2] child one", "✓ [1/2] child one", "✓ [2/2] child two"):
        assert words in ran.err
    assert ran.err.index("✓ [2/2]") < ran.err.index("✓ [1/2]")
    assert "key: OPENAI_API_KEY (environment)" in ran.err and KEY not in ran.err + ran.out
    assert ran.err.splitlines()[-1].startswith("session: 20")
    usage = json.loads((program.folder / "usage.json").read_text())
    assert usage["api_calls"] == 5 and usage["input_tokens"] == 50 and usage["total_tokens"] == 75
    assert usage["completed"] is True and usage["failed"] is False and usage["session_id"] in ran.err
    assert set(usage) == {
        "estimated_cost_usd", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
        "reasoning_tokens", "total_tokens", "api_calls", "model", "provider", "session_id", "service_tier",
        "completed", "failed",
    }  # fmt: skip


def test_quiet_prints_answer_and_session_and_json_prints_events(program: Program) -> None:
    with serve_in_thread(kids) as server:
        quiet = program.use(server).chat("-Q", "-q", "count")
        events = program.chat("--json", "-q", "count")
    assert quiet.out == "Ответ: 42\nas \x1b[31mwritten\n"
    assert [line.split(":")[0] for line in quiet.err.splitlines()] == ["session"]
    lines = [json.loads(line) for line in events.out.splitlines()]
    assert events.code == 0 and all(line["schema"] == 1 for line in lines)
    types = {line["type"] for line in lines}
    assert types >= {"task.queued", "turn.ended", "tool.started", "text.delta", "task.ended", "entry.added"}
    roots = {line["task_id"] for line in lines if line["type"] == "text.delta"}
    assert len(roots) == 1 and roots == {lines[0]["task_id"]}
    result = lines[-1]
    assert result["type"] == "result" and result["exit_code"] == 0 and result["summary"].startswith("Ответ")
    assert result["status"] == "completed" and result["session_id"] == lines[0]["session_id"]
    assert len(result["children"]) == 2


@pytest.mark.fault("B045")
def test_a_background_child_is_waited_for(program: Program) -> None:
    def script(request: Request) -> Reply:
        if request.first_user == "dig":
            return reply("GOLD", delay=0.5)
        if request.turn == 0:
            return reply(calls=[call("delegate_task_async", goal="dig")])
        return reply("dug: GOLD" if "GOLD" in request.last else "digging")

    with serve_in_thread(script) as server:
        ran = program.use(server).chat("-q", "go")
    assert (ran.code, ran.out) == (0, "dug: GOLD\n")
    states = sqlite3.connect(program.home / "runtime.db").execute("SELECT kind, state FROM tasks").fetchall()
    assert sorted(states) == [("async", "completed"), ("main", "completed")]


@pytest.mark.fault("B108")
@pytest.mark.parametrize(
    ("step", "code", "words"),
    [
        (bad_key(), 1, "Incorrect API key"),
        (no_credit(), 75, "Insufficient credits"),
        (rate_limited("3600"), 75, "Rate limit"),
    ],
)
def test_refusals_of_the_provider(program: Program, step: Fault, code: int, words: str) -> None:
    (program.home / "config.yaml").write_text("agent: {api_max_retries: 1}\n")
    usage = program.folder / "u.json"
    with serve_in_thread(lambda request: step) as server:
        ran = program.use(server).chat("-q", "hi", "--usage-file", str(usage))
    assert (ran.code, ran.out) == (code, "")
    said = [line for line in ran.err.splitlines() if line.startswith("hermes: ")]
    assert len(said) == 1 and words in said[0] and "Traceback" not in ran.err and KEY not in ran.err
    assert json.loads(usage.read_text())["failed"] is True


def test_out_of_time_prints_what_there_is(program: Program) -> None:
    def script(request: Request) -> Fault:
        return Stall(reply=reply("one two three four", pieces=9), events=5)

    with serve_in_thread(script) as server:
        ran = program.use(server).chat("-q", "hi", "--timeout", "10")
    assert ran.code == 124
    assert ran.out.startswith("one") and "four" not in ran.out
    assert "--timeout" in ran.err and "session: 20" in ran.err


def test_turns_and_budget(program: Program) -> None:
    def script(request: Request) -> Reply:
        if not request.tools or request.body.get("tool_choice") == "none":
            return reply("as far as I came")
        return reply(calls=[call("terminal", command="sleep 0.1")])

    with serve_in_thread(script) as server:
        turns = program.use(server).chat("-q", "hi", "--max-turns", "2")
        budget = program.chat("-q", "hi", "--run-budget", "1")
    assert (turns.code, turns.out) == (0, "as far as I came\n") and "incomplete" in turns.err
    assert budget.code == 75 and "session: 20" in budget.err


def test_ctrl_c_stops_once_and_everything_is_recorded(program: Program) -> None:
    def script(request: Request) -> Reply:
        if request.turn == 0:
            return reply("first words", calls=[call("terminal", command="echo begun; sleep 300")])
        return reply("never")

    with serve_in_thread(script) as server:
        program.use(server)
        process = subprocess.Popen(
            program.command("-m", "test-model", "chat", "-q", "hi"),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=program.folder, env=program.environ,
        )  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if b"terminal" in line:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out.decode() == "first words\n"
    assert "interrupted" in err.decode() and "session: 20" in err.decode()
    with sqlite3.connect(program.home / "runtime.db") as database:
        assert database.execute("SELECT state FROM tasks").fetchall() == [("cancelled",)]
    assert server.count == 1


def test_questions_come_from_flags_files_and_pipes(program: Program) -> None:
    (program.folder / "q.md").write_bytes("\ufeffпо-русски\r\n".encode())
    asked: list[str] = []

    def script(request: Request) -> Reply:
        asked.append(request.first_user)
        return reply("ok")

    with serve_in_thread(script) as server:
        program.use(server)
        assert program.chat("--query-file", "q.md").code == 0
        assert program.chat("-q", "Review", "--query-file", "-", stdin="diff\n").code == 0
        assert program.chat(stdin="piped").out == "ok\n"
        big = program.chat("--query-file", "-", stdin="x" * 1_000_000)
        assert big.code == 0, big.err
    assert asked[:3] == ["по-русски\r\n", "Review\n\ndiff\n", "piped"] and len(asked[3]) == 1_000_000


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-q", "  "], "the question is empty"),
        (["--query-file", "none.md"], "none.md: No such file"),
        (["-q", "x", "--usage-file", "/nowhere/u.json"], "--usage-file /nowhere/u.json cannot be written"),
        (["-q", "x", "--worktree", "--resume"], "--worktree begins something new"),
        (["-q", "x", "-s", "a"], "--skills is not supported in this release"),
        (["-q", "x", "--timeout", "0"], "--timeout"),
        (["-q", "x", "--in", "nowhere"], "--in nowhere"),
        (["--cli", "--json"], "--json belongs to a single question"),
    ],
)
def test_wrong_usage_is_refused_before_anything_runs(
    hermes: Callable[..., Ran], program: Program, args: list[str], words: str
) -> None:
    ran = hermes("chat", *args)
    assert ran.code == 2 and ran.out == "" and words in ran.err and "Traceback" not in ran.err
    assert program.files() == {}


@pytest.mark.parametrize(("stdin", "words"), [("", "nothing was piped in"), (b"\xff\xfe", "byte 0 is not UTF-8")])
def test_what_is_piped_in_must_be_a_text(program: Program, stdin: str | bytes, words: str) -> None:
    ran = program.chat(stdin=stdin)
    assert ran.code == 2 and ran.out == "" and words in ran.err


def test_nothing_configured_shows_three_ways(program: Program) -> None:
    done = subprocess.run(
        program.command("chat", "-q", "hi", "--json", "--usage-file", "u.json"),
        capture_output=True, text=True, cwd=program.folder, env=program.environ, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 2
    assert "OPENROUTER_API_KEY" in done.stderr and "a local server" in done.stderr and "-m embedded" in done.stderr
    result = json.loads(done.stdout)
    assert result["type"] == "result" and result["exit_code"] == 2 and "no model is configured" in result["error"]
    assert json.loads((program.folder / "u.json").read_text())["failed"] is True
    assert program.files() == {}


@pytest.mark.fault("B142")
def test_without_a_person_dangerous_commands_are_denied_and_yolo_says_so(program: Program) -> None:
    (program.folder / "precious.txt").write_text("x")

    def script(request: Request) -> Reply:
        if request.turn == 0:
            return reply(calls=[call("terminal", command="rm precious.txt")])
        return reply("denied" if "Denied" in request.last else "gone")

    program.environ["TERMINAL_ENV"] = "local"
    with serve_in_thread(script) as server:
        program.use(server)
        ran = program.chat("-q", "clean")
        assert (ran.code, ran.out) == (0, "denied\n") and "⛔ denied terminal: it deletes files" in ran.err
        assert "100 % of the tool calls were denied" in ran.err and "--allow-host-commands" in ran.err
        assert (program.folder / "precious.txt").exists()
        ran = program.chat("-q", "clean", "--allow-host-commands")
        assert (ran.code, ran.out) == (0, "gone\n") and not (program.folder / "precious.txt").exists()
        (program.folder / "precious.txt").write_text("x")
        ran = program.chat("-Q", "--yolo", "-q", "clean")
        assert (ran.code, ran.out) == (0, "gone\n") and "--yolo: dangerous commands run" in ran.err
        assert not (program.folder / "precious.txt").exists()


def test_without_a_person_commands_run_in_the_sandbox_and_need_no_answer(program: Program, needs_tool: Any) -> None:
    needs_tool("bwrap")
    (program.folder / "old.txt").write_text("x")
    (program.folder.parent / "neighbour.txt").write_text("x")
    command = "rm old.txt; rm -f ../neighbour.txt; ls ..; echo $HOME"
    script = [reply(calls=[call("terminal", command=command)]), reply("done")]
    with serve_in_thread(lambda request: script[min(request.turn, 1)]) as server:
        ran = program.use(server).chat("-q", "clean")
    assert (ran.code, ran.out) == (0, "done\n") and "denied" not in ran.err
    assert not (program.folder / "old.txt").exists() and (program.folder.parent / "neighbour.txt").exists()


@pytest.mark.fault("B137")
def test_no_key_stands_in_any_file_of_a_run_that_looks_for_it(program: Program) -> None:
    other = "sk-or-other-9876543210fedcba9876543210"
    (program.home / ".env").write_text(f"OTHER_API_KEY={other}\nFOO_TOKEN=footoken-abcdefgh-1234\n")
    secrets = (KEY, other, "footoken-abcdefgh-1234")
    looks = f"env; cat {program.home}/.env; python3 -c 'import os; print(dict(os.environ))'; cat /proc/$PPID/environ"

    def script(request: Request) -> Reply:
        if request.turn == 0:
            return reply(calls=[call("terminal", command=looks), call("read_file", path=str(program.home / ".env"))])
        if request.turn == 1:
            return reply(calls=[call("terminal", command=f"cat {program.home}/.env > copy.txt; base64 copy.txt")])
        return reply("I saw " + "|".join(str(message.get("content")) for message in request.messages))

    before = (program.home / ".env").read_bytes()
    with serve_in_thread(script) as server:
        ran = program.use(server).chat("--json", "-q", "look")
        asked = json.dumps([request.body for request in server.requests])
    assert ran.code == 0
    for secret in secrets:
        assert secret not in ran.out and secret not in ran.err and secret not in asked
        for name, data in program.files().items():
            if name != ".env":
                assert secret.encode() not in data, f"{secret} stands in {name}"
    assert (program.home / ".env").read_bytes() == before


def test_a_home_of_another_program_keeps_every_file(program: Program) -> None:
    home = program.home
    (home / "config.yaml").write_text("model: {default: x/y}   # mine\nvoice: {enabled: true}\n")
    (home / ".env").write_text("SOMETHING=1\n")
    (home / "auth.json").write_text('{"version": 1, "credential_pool": {}}')
    for name in ("state.db", "kanban.db"):
        with sqlite3.connect(home / name) as database:
            database.execute("CREATE TABLE sessions (id TEXT PRIMARY KEY, started_at REAL)")
            database.execute("INSERT INTO sessions VALUES ('20260101_000000_abcdef', 1.0)")
    (home / "SOUL.md").write_text("me")

    def digests() -> dict[str, str]:
        return {name: hashlib.sha256(data).hexdigest() for name, data in program.files().items()}

    before = digests()
    with serve_in_thread(lambda request: reply("hi")) as server:
        assert program.use(server).chat("-q", "hello").code == 0
    after = digests()
    assert {name: after[name] for name in before} == before
    assert set(after) > set(before)


@pytest.mark.parametrize("end", ["/quit\n", ""])
def test_plain_lines_without_a_terminal(program: Program, end: str) -> None:
    with serve_in_thread(lambda request: reply(f"you said {request.last}")) as server:
        ran = program.use(server).chat("--cli", stdin=f"hello\n{end and '/status'}\n{end}{end}")
    assert ran.code == 0, ran.err
    assert "hermes sessions show 20" in ran.out and ("you said hello" in ran.out or end)


def test_a_reader_that_goes_away_ends_the_run(program: Program, needs_tool: Callable[[str], Path]) -> None:
    needs_tool("bash")
    with serve_in_thread(lambda request: reply("word " * 50_000)) as server:
        program.use(server)
        line = " ".join(f"'{part}'" for part in program.command("-m", "test-model", "chat", "--json", "-q", "hi"))
        done = subprocess.run(
            ["bash", "-c", f"{line} | head -n 1; exit ${{PIPESTATUS[0]}}"],
            capture_output=True, text=True, cwd=program.folder, env=program.environ, check=False, timeout=60,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    assert done.returncode == 141 and "Traceback" not in done.stderr
    first: dict[str, Any] = json.loads(done.stdout)
    assert first["type"] == "task.queued"
