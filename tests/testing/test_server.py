"""The loopback provider: from threads, as a process, with the latencies it was told."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import anyio
import pytest

from hermes.testing.clock import VirtualClock
from hermes.testing.scripted import Reply, reply
from hermes.testing.server import ProviderServer, Request, serve_in_thread
from hermes.testing.server_main import script_named
from tests.providers.conformance import ask, message_of
from tests.providers.endpoints import served


def fetch(url: str, body: object = None, key: str = "k") -> dict[str, object]:
    data = None if body is None else json.dumps(body).encode()
    with urlopen(HttpRequest(url, data, {"Authorization": f"Bearer {key}"}), timeout=60) as response:
        value: dict[str, object] = json.load(response)
        return value


def test_from_a_thread_without_streaming() -> None:
    with serve_in_thread(lambda request: reply(request.last.upper()), models=("a", "b")) as server:
        listed = fetch(f"{server.base_url}/models")
        answer = fetch(f"{server.base_url}/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
        assert [item["id"] for item in listed["data"]] == ["a", "b"]  # type: ignore[attr-defined]
        assert answer["choices"][0]["message"]["content"] == "HI"  # type: ignore[index]
        assert [request.key for request in server.requests] == ["k"]


def test_as_a_process_that_ends_with_its_parent() -> None:
    command = [sys.executable, "-m", "hermes.testing.server", "--script", "turns:2", "--watch-stdin"]
    root = Path(__file__).parent.parent.parent
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root / "src"
    )
    assert process.stdout is not None and process.stdin is not None and process.stderr is not None
    with process:
        url = json.loads(process.stdout.readline())["base_url"]
        messages = [{"role": "user", "content": "hi"}]
        first = fetch(f"{url}/chat/completions", {"messages": messages})
        messages += [{"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}]
        second = fetch(f"{url}/chat/completions", {"messages": messages})
        process.stdin.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""
    assert first["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "terminal"  # type: ignore[index]
    assert second["choices"][0]["message"]["content"] == "done"  # type: ignore[index]


def test_a_script_that_waits_answers_once_something_has_happened() -> None:
    asked: list[str] = []

    async def script(request: Request) -> Reply:
        asked.append(request.last)
        while len(asked) < 2:
            await anyio.sleep(0.01)
        return reply(f"{request.last} of {len(asked)}")

    with serve_in_thread(script) as server, ThreadPoolExecutor(2) as both:
        url = f"{server.base_url}/chat/completions"
        bodies = [{"messages": [{"role": "user", "content": word}]} for word in ("one", "two")]
        answers = list(both.map(lambda body: fetch(url, body), bodies))
    said = [answer["choices"][0]["message"]["content"] for answer in answers]  # type: ignore[index]
    assert said == ["one of 2", "two of 2"]


@pytest.mark.anyio
async def test_latency_varies_as_told_and_the_same_each_time(virtual_clock: VirtualClock) -> None:
    async def waits(seed: int) -> list[float]:
        found = []
        script = lambda _request: reply("x")  # noqa: E731
        async with served(script, latency=10.0, jitter=0.5, seed=seed) as (model, _):
            for _ in range(8):
                before = anyio.current_time()
                await message_of(model, ask())
                found.append(round(anyio.current_time() - before, 1))
        return found

    first = await waits(1)
    assert first == await waits(1) != await waits(2)
    assert all(5.0 <= wait <= 15.1 for wait in first) and max(first) - min(first) > 2


@pytest.mark.anyio
async def test_a_wrong_key_and_a_missing_step() -> None:
    async with served([], keys={"other"}) as (model, server):
        with pytest.raises(Exception, match="401"):
            await message_of(model, ask())
    async with served([]) as (model, server):
        with pytest.raises(Exception, match="no step is left for request 1"):
            await message_of(model, ask())
        assert server.count == 1


@pytest.mark.anyio
async def test_it_ends_though_a_client_still_waits() -> None:
    async with ProviderServer(lambda _request: reply("x", delay=3600.0)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        body = b'{"stream": true}'
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 16\r\n\r\n" + body)
        await writer.drain()
        with anyio.fail_after(60):
            while not server.in_flight:
                await anyio.sleep(0)
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("name", ["nothing", "turns:x", "turns:0"])
def test_a_script_that_is_none(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        script_named(name)


def test_a_script_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("from hermes.testing.scripted import reply\ndef answer(request):\n    return reply('from file')\n")
    assert script_named(f"{path}:answer")(None).text == "from file"  # type: ignore[union-attr,arg-type]
