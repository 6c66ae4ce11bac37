"""The embedded model: a real small model, asked through the whole stack. Protocol is asserted, never quality."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import jsonschema
import pytest

from hermes.core.assemble import Assembler
from hermes.core.errors import ModelError
from hermes.core.messages import Assistant, Entry, Text, ToolResult, Usage, User
from hermes.core.model import ModelRequest, ToolSpec
from hermes.delegation.schemas import TINY_PARALLEL_SCHEMA
from hermes.providers.embedded import EmbeddedModel, EmbeddedServer
from hermes.providers.http import HttpSession
from hermes.providers.weights import MODEL_ID, Weights, availability, find_weights

TERMINAL = ToolSpec(
    name="terminal",
    description="Run a shell command.",
    parameters={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
SPAWN = ToolSpec(
    name="spawn_parallel",
    description="Give two helpers one task each.",
    parameters=TINY_PARALLEL_SCHEMA,
)


@pytest.fixture(scope="module")
def weights() -> Weights:
    """The shipped weights; without them the test is skipped, and fails where `CI` is set."""
    reason = availability()
    if reason is None:
        return find_weights("embedded")
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
async def model(weights: Weights) -> AsyncIterator[EmbeddedModel]:
    session = HttpSession()
    model = EmbeddedModel(EmbeddedServer(weights, threads=2), session)
    yield model
    await model.close()
    await session.close()


async def ask(model: EmbeddedModel, entries: tuple[Entry, ...], *tools: ToolSpec, most: int | None = None) -> Assistant:
    assembler = Assembler()
    request = ModelRequest(system="You are helpful.", entries=entries, tools=tools, max_tokens=most)
    async with model.stream(request) as deltas:
        async for delta in deltas:
            assembler.push(delta)
    return assembler.finish(model=model.name, at=0.0, estimate=Usage())


def task(text: str) -> tuple[Entry, ...]:
    return (User(content=(Text(text),)),)


async def loop(model: EmbeddedModel, text: str, folder: Path) -> list[Entry]:
    """Two turns: a call, carried out for real if it is harmless, and the answer."""
    entries = list(task(text))
    call = await ask(model, tuple(entries), TERMINAL)
    entries.append(call)
    command = call.calls[0].arguments["command"]
    output = "command refused"
    if command.startswith("wc -l "):
        done = await anyio.run_process(["/bin/sh", "-c", command], cwd=folder, check=False)
        output = done.stdout.decode()
    entries.append(ToolResult(position=1, index=0, call_id="", name="terminal", content=(Text(output),)))
    entries.append(await ask(model, tuple(entries), TERMINAL))
    return entries


@pytest.mark.anyio
async def test_a_forced_call_its_real_result_and_an_answer(model: EmbeddedModel, tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text("one\ntwo\nthree\n")
    text = "Count the lines of poem.txt. Use the command `wc -l poem.txt`."
    entries = await loop(model, text, tmp_path)
    user, call, result, answer = entries
    assert isinstance(user, User)
    assert isinstance(call, Assistant)
    assert isinstance(result, ToolResult)
    assert isinstance(answer, Assistant)
    assert [one.name for one in call.calls] == ["terminal"]
    jsonschema.validate(call.calls[0].arguments, TERMINAL.parameters)
    assert not call.calls[0].invalid
    assert call.thinking
    assert call.stop == "tool_calls"
    assert answer.text
    assert not answer.calls
    for reply in (call, answer):
        assert reply.usage.input > 0
        assert reply.usage.output > 0
        assert not reply.usage.estimated
        assert reply.model == MODEL_ID
    again = await loop(model, text, tmp_path)
    assert [(one.text, one.thinking, one.calls) for one in again if isinstance(one, Assistant)] == [
        (one.text, one.thinking, one.calls) for one in entries if isinstance(one, Assistant)
    ]


@pytest.mark.anyio
async def test_a_process_that_was_killed_is_started_again_and_eight_at_once_all_end(model: EmbeddedModel) -> None:
    server = model._server
    await ask(model, task("Say hi."), most=4)
    first = server.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await anyio.to_thread.run_sync(server._process.wait)  # type: ignore[union-attr]
    replies: list[Assistant] = []

    async def one(number: int) -> None:
        replies.append(await ask(model, task(f"What is {number} plus 2?"), most=12))

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(one, number)
    assert server.pid not in (None, first)  # all eight waited for one new process
    assert len(replies) == 8
    assert all(reply.usage.output > 0 for reply in replies)
    await model.close()
    assert server.pid is None
    with pytest.raises(ModelError, match="closed"):
        await ask(model, task("Say hi."))


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_task_that_names_spawn_parallel_becomes_two_children(model: EmbeddedModel) -> None:
    first, second = "Show the date. Use the command `date`.", "Where are we? Use the command `pwd`."
    text = f"Give two tasks to two children with spawn_parallel.\nTask 1: {first}\nTask 2: {second}"
    reply = await ask(model, task(text), TERMINAL, SPAWN)
    (call,) = reply.calls
    assert call.name == "spawn_parallel"
    jsonschema.validate(call.arguments, TINY_PARALLEL_SCHEMA)


def stand_in(*lines: str) -> EmbeddedServer:
    """A server whose process is a few lines of Python."""
    weights = Weights(path="/nowhere.gguf", model=MODEL_ID, tiny=True)
    return EmbeddedServer(
        weights, command=(sys.executable, "-c", "\n".join(("import os, sys", *lines))), stop_grace=0.2
    )


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (('sys.stderr.write("no such instruction\\n")',), "no such instruction"),
        (('print(\'{"error": "out of memory"}\')',), "out of memory"),
        (('print("rubbish")',), "ended before it answered"),
    ],
)
async def test_a_process_that_does_not_come_up_says_why(lines: tuple[str, ...], words: str) -> None:
    server = stand_in(*lines)
    with pytest.raises(ModelError, match=words) as caught:
        await server.address()
    assert caught.value.permanent
    assert "hermes doctor" in str(caught.value)
    assert server.pid is None


@pytest.mark.anyio
async def test_the_child_gets_the_key_on_its_input_and_no_secret_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    server = stand_in(
        "import json",
        "key = sys.stdin.readline().strip()",
        "seen = [*sys.argv, *os.environ.values()]",
        'print(json.dumps({"url": json.dumps([key, key in seen, "sk-of-the-user" in seen])}), flush=True)',
        "sys.stdin.read()",
    )
    try:
        url, key = await server.address()
        assert len(key) >= 24
        assert url == f'["{key}", false, false]'
        assert await server.address() == (url, key)
    finally:
        await server.close()


@pytest.mark.anyio
async def test_a_cancelled_start_leaves_no_process(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    os.mkfifo(mark)
    server = stand_in(f"open({str(mark)!r}, 'w').write(str(os.getpid()))", "sys.stdin.read()", "sys.stdin.read()")
    async with anyio.create_task_group() as group:
        group.start_soon(server.address)
        pid = int(await anyio.Path(mark).read_text())
        group.cancel_scope.cancel()
    assert server.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.anyio
async def test_a_process_that_will_not_end_is_killed() -> None:
    server = stand_in(
        "import signal, time",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        'print(\'{"url": "http://127.0.0.1:1"}\', flush=True)',
        "while True: time.sleep(60)",
    )
    await server.address()
    process = server._process
    assert process is not None
    await server.close()
    assert process.poll() == -signal.SIGKILL
    assert isinstance(process, subprocess.Popen)
