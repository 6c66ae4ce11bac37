"""The embedded model: a child process that serves a small model on loopback, and the Model that talks to it.

The process starts with the first request and is shared by everything that holds the same `EmbeddedServer`; it ends
with `close()`, or by itself when this process is gone. This module neither looks for weights (see `weights.py`) nor
decides who may use the model: it is used when asked for, never as a silent fallback.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import IO, Any

import anyio
import anyio.to_thread
import msgspec

from hermes.core.errors import ModelError
from hermes.core.model import Delta, ModelProfile, ModelRequest
from hermes.core.program import program_path
from hermes.providers.embedded_guide import TINY_BOUNDS, led
from hermes.providers.http import SessionSource
from hermes.providers.openai_chat import Endpoint, OpenAIChat
from hermes.providers.schema_tools import SchemaTools
from hermes.providers.weights import Weights

__all__ = ["EmbeddedModel", "EmbeddedServer"]

#: Variables the child may see: what it needs to start, and no keys.
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")

#: Seconds to wait for the process to load the weights and answer.
START_TIMEOUT = 60.0


class EmbeddedServer:
    """The child process: started on demand, once, and again if it died.

    `slots` requests are answered at the same time with `context` tokens each, by `threads` CPU threads
    (default: what this process may use, at most 4). `stop_grace` is seconds between asking the process to end and
    killing it.
    """

    def __init__(
        self,
        weights: Weights,
        *,
        slots: int = 4,
        context: int = 4096,
        threads: int | None = None,
        stop_grace: float = 2.0,
        command: tuple[str, ...] | None = None,
    ) -> None:
        self.weights = weights
        self.slots = slots
        self.context = context
        self._threads = threads or min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
        self._stop_grace = stop_grace
        self._command = command or (sys.executable, "-P", "-X", "utf8", "-m", "hermes.providers.embedded_server")
        self._lock = anyio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._address = ("", "")
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the child, None while none runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    async def address(self) -> tuple[str, str]:
        """Return (URL, key) of the running server; start it if there is none.

        Raises:
            ModelError: it did not come up within a minute, with its last words.
        """
        async with self._lock:
            if self._closed:
                raise ModelError(f"{self.weights.model} was closed", reason="unreachable", permanent=True)
            if self.pid is None:
                await self._end()
                await self._start()
            return self._address

    async def _start(self) -> None:
        key = secrets.token_urlsafe(24)
        up = False
        try:
            with anyio.fail_after(START_TIMEOUT):
                process = await anyio.to_thread.run_sync(self._spawn, key)
                assert process.stdout is not None
                line = await anyio.to_thread.run_sync(process.stdout.readline, abandon_on_cancel=True)
            answer = _answer(line)
            if "url" not in answer:
                raise await self._failure(answer.get("error") or "it ended before it answered")
            if self._closed:  # while it started
                raise await self._failure("it was closed")
            self._address = (answer["url"], key)
            up = True
        except TimeoutError:
            raise await self._failure(f"it did not answer within {START_TIMEOUT:g} s") from None
        except OSError as error:
            raise await self._failure(str(error)) from error
        finally:
            if not up:  # a cancelled start must leave no process; its end also frees the thread that reads
                await self._end()

    def _spawn(self, key: str) -> subprocess.Popen[bytes]:
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        environment |= program_path(environment)
        options = {
            "--weights": self.weights.path,
            "--alias": self.weights.model,
            "--slots": str(self.slots),
            "--context": str(self.context),
            "--threads": str(self._threads),
        }
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = process = subprocess.Popen(
            [*self._command, *(part for pair in options.items() for part in pair)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(key.encode("ascii") + b"\n")
        process.stdin.flush()
        return process

    def _last_words(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 2000))
        return self._log.read().decode("utf-8", "replace").strip()

    async def _failure(self, what: str) -> ModelError:
        words = await anyio.to_thread.run_sync(self._last_words)
        last = f" ({words.splitlines()[-1][:200]})" if words else ""
        return ModelError(
            f"the process of {self.weights.model} could not be started: {what}{last}. "
            "Run `hermes doctor`, or use another model.",
            reason="unreachable",
            permanent=True,
        )

    async def close(self) -> None:
        """End the process and wait for it, little longer than the grace. Can be called again."""
        self._closed = True
        await self._end()

    async def _end(self) -> None:
        process, log = self._process, self._log
        self._process = self._log = None
        if process is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_stop, process, self._stop_grace)
        if log is not None:
            log.close()


def _answer(line: bytes) -> dict[str, str]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _stop(process: subprocess.Popen[bytes], grace: float) -> None:
    """Ask the process to end, then kill its group; close the pipes."""
    if process.stdin is not None:
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass  # it is gone already, which is what we want
    process.terminate()
    try:
        process.wait(grace)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


class EmbeddedModel:
    """The model behind an `EmbeddedServer`, as a `Model`.

    Not more requests than the server has slots are under way at a time; the others wait here, where no time limit of
    the connection counts. The first request starts the server.

    Args:
        server: the process, shared by all models that use it; `close` ends it.
        session_source: gives the client session of the running loop.
    """

    def __init__(self, server: EmbeddedServer, session_source: SessionSource) -> None:
        self._server = server
        self._session_source = session_source
        self._slots = anyio.CapacityLimiter(server.slots)
        self._inner: tuple[tuple[str, str], SchemaTools] | None = None
        tiny = server.weights.tiny
        self._profile = ModelProfile(
            window=server.context,
            max_output=256 if tiny else 1024,
            price_input=0.0,
            price_output=0.0,
            price_cached=0.0,
            thinking=True,  # the `thought` that the schema asks for
            parallel_calls=False,
            tool_calling="schema",
            tiny=tiny,
            images=False,
        )

    @property
    def name(self) -> str:
        """The full name, such as `embedded:smollm2-135m`."""
        return self._server.weights.model

    @property
    def profile(self) -> ModelProfile:
        """The window is that of one slot."""
        return self._profile

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Open one reply."""
        return _EmbeddedStream(self, led(request) if self._profile.tiny else request)

    async def close(self) -> None:
        """End the server."""
        await self._server.close()

    async def _open(self) -> SchemaTools:
        address = await self._server.address()
        if self._inner is None or self._inner[0] != address:  # a new process has a new address and a new key
            url, key = address
            # The server closes connections right after some replies without saying so; a new one costs nothing here.
            endpoint = Endpoint(base_url=f"{url}/v1", api_key=key, headers={"Connection": "close"})
            inner = OpenAIChat(self.name, endpoint, self._profile, self._session_source)
            self._inner = (address, SchemaTools(inner, bounds=TINY_BOUNDS if self._profile.tiny else None))
        return self._inner[1]


class _EmbeddedStream:
    def __init__(self, model: EmbeddedModel, request: ModelRequest) -> None:
        self._model = model
        self._request = request
        self._context: AbstractAsyncContextManager[AsyncIterator[Delta]] | None = None

    async def __aenter__(self) -> AsyncIterator[Delta]:
        slots = self._model._slots
        await slots.acquire_on_behalf_of(self)
        try:
            context = (await self._model._open()).stream(self._request)
            deltas = await context.__aenter__()
        except BaseException:
            slots.release_on_behalf_of(self)
            raise
        self._context = context
        return deltas

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._context is not None, "a stream is entered before it is left"
        try:
            return await self._context.__aexit__(kind, error, trace)
        finally:
            self._model._slots.release_on_behalf_of(self)
