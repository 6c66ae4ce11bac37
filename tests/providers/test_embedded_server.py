"""The child process of the embedded model: what it listens to, who may ask, and when it ends."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes.providers.weights import Weights, availability, find_weights

SOURCE = Path(__file__).resolve().parents[2] / "src"
KEY = "a-key-of-the-test"


@pytest.fixture(scope="module")
def weights() -> Weights:
    """The shipped weights; without them the test is skipped, and fails where `CI` is set."""
    reason = availability()
    if reason is None:
        return find_weights("embedded")
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start the server as its parent does; whatever still runs at the end is killed."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(path: str, key: str = KEY) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "hermes.providers.embedded_server", "--weights", path, "--slots", "1"]
        process = subprocess.Popen(
            [*command, "--context", "512"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )
        running.append(process)
        assert process.stdin is not None
        process.stdin.write(key.encode() + b"\n")
        process.stdin.flush()
        return process

    yield begin
    for process in running:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def first_line(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


def ask(url: str, key: str) -> dict[str, Any]:
    body = {"model": "embedded", "messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 4}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
    )
    with urllib.request.urlopen(request, timeout=100) as answer:
        reply: dict[str, Any] = json.load(answer)
    return reply


def test_it_answers_whoever_has_the_key_and_ends_with_its_input(weights: Weights, start: Start) -> None:
    process = start(weights.path)
    said = first_line(process)
    assert said["pid"] == process.pid
    assert said["url"].startswith("http://127.0.0.1:")
    shown = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(process.pid)], capture_output=True, check=True).stdout
    assert b"embedded_server" in shown
    assert KEY.encode() not in shown
    reply = ask(said["url"], KEY)
    assert reply["choices"][0]["message"]["content"]
    assert reply["usage"]["completion_tokens"] > 0
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(said["url"], "another")
    with refused.value as error:
        assert error.code == 401
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(100) == 0
    assert process.stdout is not None
    assert process.stdout.read() == b""  # one line and nothing else, whatever the native library prints


def test_sigterm_ends_it(weights: Weights, start: Start) -> None:
    process = start(weights.path)
    process.terminate()  # in the middle of the start, where native code runs
    assert process.wait(100) == -signal.SIGTERM


def test_what_cannot_be_loaded_is_said_on_one_line(weights: Weights, start: Start, tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(64))
    process = start(str(path))
    assert "error" in first_line(process)
    assert process.wait(100) == 1


def test_without_a_key_it_serves_nobody(start: Start) -> None:
    process = start("/nowhere.gguf", key="")
    assert process.wait(100) == 1


PARENT = """
import asyncio, sys
from hermes.providers.embedded import EmbeddedServer
from hermes.providers.weights import Weights

async def main():
    server = EmbeddedServer(Weights(path=sys.argv[1], model="embedded:x", tiny=True), slots=1, context=256)
    await server.address()
    print(server.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="waits on a pidfd")
def test_it_dies_with_a_parent_that_is_killed(weights: Weights) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, weights.path],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    with parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            ready, _, _ = select.select([child], [], [], 100)  # readable once the process has ended
            assert ready, "the server outlived its parent"
        finally:
            os.close(child)
