"""A loopback provider that speaks every wire format, scripted, and able to fail in every way.

    async with ProviderServer(lambda request: reply("hi")) as server:
        ...  # server.base_url, server.requests

The path of a request says which format it is (`/chat/completions`, `/messages`, `/responses`); a script does not see
the difference. From code without an event loop use `serve_in_thread`; as a process of its own
`python -m hermes.testing.server`. It listens on 127.0.0.1 only and knows no model: what it answers is the script's
business.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self

import anyio
import msgspec
from aiohttp import web
from anyio.from_thread import start_blocking_portal

from hermes.testing import server_anthropic, server_chat, server_responses
from hermes.testing.faults import Disconnect, Fault, Raw, Stall, Status, bad_key, unknown_model
from hermes.testing.scripted import Reply
from hermes.testing.server_chat import events_of

__all__ = ["ProviderServer", "Request", "Script", "events_of", "serve_in_thread"]


class Wire(Protocol):
    """A wire format as a server speaks it; one module each."""

    def parts_of(self, made: Reply, model: str, reasoning_field: str, /) -> list[bytes]:
        """The events of a reply, its end last."""

    def whole_of(self, made: Reply, model: str, reasoning_field: str, /) -> dict[str, Any]:
        """A reply that is not streamed."""

    def refusal_of(self, step: Status, /) -> bytes:
        """The body of a refusal."""

    def messages_of(self, body: Mapping[str, Any], /) -> list[dict[str, Any]]:
        """The messages of a request, the system text first."""

    def tools_of(self, body: Mapping[str, Any], /) -> tuple[str, ...]:
        """The names of the tools of a request."""


def _wire_of(path: str) -> Wire:
    if path.endswith("/messages"):
        return server_anthropic
    return server_responses if path.endswith("/responses") else server_chat


class Request:
    """One recorded request: headers as they came (keys lower case), the decoded body, and when it came.

    `closed` is set when the client closed the connection before the answer was complete.
    """

    def __init__(self, number: int, path: str, headers: Mapping[str, str], body: Any, at: float) -> None:
        self.number = number
        self.path = path
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body: dict[str, Any] = body if isinstance(body, dict) else {}
        self.wire = _wire_of(path)
        self.at = at
        self.closed = anyio.Event()

    @property
    def key(self) -> str:
        """The key it came with, empty without one."""
        return self.headers.get("authorization", "").removeprefix("Bearer ") or self.headers.get("x-api-key", "")

    @property
    def model(self) -> str:
        """The model asked for."""
        return str(self.body.get("model", ""))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages, the system text first."""
        return self.wire.messages_of(self.body)

    @property
    def system(self) -> str:
        """The system prompt."""
        return "".join(_text(message) for message in self.messages if message.get("role") == "system")

    @property
    def first_user(self) -> str:
        """The first user message: for a child its goal."""
        return next((_text(message) for message in self.messages if message.get("role") == "user"), "")

    @property
    def last(self) -> str:
        """The text of the last message."""
        return _text(self.messages[-1]) if self.messages else ""

    @property
    def turn(self) -> int:
        """How many replies the conversation holds already."""
        return sum(message.get("role") == "assistant" for message in self.messages)

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools offered."""
        return self.wire.tools_of(self.body)


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    # A result stands inside the content of a message in one of the formats.
    return "".join(part.get("text") or _text(part) for part in content)


#: What it returns may be awaitable: so it answers only when something has happened, whatever time that takes.
Script = Callable[[Request], Reply | Fault | Awaitable[Reply | Fault]]


def _in_order(steps: Sequence[Reply | Fault]) -> Script:
    left = deque(steps)

    def next_step(request: Request) -> Reply | Fault:
        if left:
            return left.popleft()
        return Status(status=500, message=f"test server: no step is left for request {request.number}")

    return next_step


class ProviderServer:
    """The server. `script` is a function of the request (also an `async` one, which may wait for what it wants), or
    steps that are taken in the order of the requests.

    Args:
        script: what to answer.
        latency: seconds before each answer; `jitter` is the part of it that varies (0.5: half to one and a half times),
            drawn from `seed`.
        models: what `/v1/models` lists; with `strict` other names are refused as unknown.
        keys: the keys it accepts; None accepts any.
        reasoning_field: where reasoning goes.
        record: keep every request (off for benchmarks).
        port: 0 takes a free one.
    """

    def __init__(
        self,
        script: Script | Sequence[Reply | Fault],
        *,
        latency: float = 0.0,
        jitter: float = 0.0,
        seed: int = 0,
        models: Sequence[str] = ("test-model",),
        strict: bool = False,
        keys: Collection[str] | None = None,
        reasoning_field: str = "reasoning_content",
        record: bool = True,
        port: int = 0,
    ) -> None:
        self.requests: list[Request] = []
        self.count = 0
        self.in_flight = 0
        self.peak = 0
        self.connections: set[int] = set()  # the clients' ports
        self.port = port
        self._script: Script = script if callable(script) else _in_order(script)
        self._latency = latency
        self._jitter = jitter
        self._random = random.Random(seed)
        self._models = tuple(models)
        self._strict = strict
        self._keys = keys
        self._reasoning_field = reasoning_field
        self._record = record
        self._runner: web.ServerRunner | None = None

    @property
    def base_url(self) -> str:
        """What a client takes as base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        # A handler is cancelled when its client goes away, so that tests can see it.
        server = web.Server(self._handle, access_log=None, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, backlog=4096).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            with anyio.CancelScope(shield=True):
                await runner.cleanup()

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        if http.path.endswith("/models"):
            return web.json_response({"object": "list", "data": [{"id": name} for name in self._models]})
        data = await http.content.read()  # not http.read(), which refuses more than 1 MB
        try:
            body = msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            return _status(Status(status=400, message=f"the body is no JSON: {error}"), _wire_of(http.path))
        self.count += 1
        request = Request(self.count, http.path, http.headers, body, asyncio.get_running_loop().time())
        if http.transport is not None:
            self.connections.add(http.transport.get_extra_info("peername")[1])
        if self._record:
            self.requests.append(request)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            return await self._answer(http, request)
        except asyncio.CancelledError:
            request.closed.set()
            raise
        finally:
            self.in_flight -= 1

    async def _answer(self, http: web.BaseRequest, request: Request) -> web.StreamResponse:
        if self._keys is not None and request.key not in self._keys:
            step: Reply | Fault = bad_key()
        elif self._strict and request.model not in self._models:
            step = unknown_model(request.model)
        else:
            made = self._script(request)
            step = await made if inspect.isawaitable(made) else made
        delay = self._latency
        if self._jitter:
            delay *= 1 + self._jitter * (2 * self._random.random() - 1)
        if isinstance(step, Reply):
            delay += step.delay
        if delay:
            await asyncio.sleep(delay)
        if isinstance(step, Reply):
            return await self._reply(http, request, step)
        if isinstance(step, Status):
            return _status(step, request.wire)
        if isinstance(step, Raw):
            return await _write(http, step.parts, step.content_type, step.status)
        return await self._interrupted(http, request, step)

    async def _reply(self, http: web.BaseRequest, request: Request, made: Reply) -> web.StreamResponse:
        model = made.model or request.model
        if not request.body.get("stream"):
            return web.json_response(request.wire.whole_of(made, model, self._reasoning_field))
        *events, end = request.wire.parts_of(made, model, self._reasoning_field)
        if not made.gap:  # everything in one write
            response = web.Response(body=b"".join((*events, end)), content_type="text/event-stream")
            response.enable_chunked_encoding()
            return response
        parts: list[bytes | float] = []
        for event in events:
            parts += [event, made.gap]
        return await _write(http, [*parts, end], "text/event-stream", 200)

    async def _interrupted(
        self, http: web.BaseRequest, request: Request, step: Disconnect | Stall
    ) -> web.StreamResponse:
        response: web.StreamResponse = web.Response()
        if step.reply is not None:
            events = request.wire.parts_of(step.reply, request.model, self._reasoning_field)[: step.events + 1]
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(http)
            await response.write(b"".join(events))
        if isinstance(step, Stall):
            await asyncio.Event().wait()
        elif http.transport is not None:
            if step.reset:
                http.transport.abort()
            else:
                http.transport.close()
        return response


async def _write(
    http: web.BaseRequest, parts: Sequence[bytes | float], content_type: str, status: int
) -> web.StreamResponse:
    response = web.StreamResponse(status=status, headers={"Content-Type": content_type})
    await response.prepare(http)
    for part in parts:
        if isinstance(part, bytes):
            await response.write(part)
        else:
            await asyncio.sleep(part)
    await response.write_eof()
    return response


def _status(step: Status, wire: Wire) -> web.Response:
    body = wire.refusal_of(step) if step.body is None else step.body
    return web.Response(status=step.status, body=body, content_type=step.content_type, headers=dict(step.headers))


@contextmanager
def serve_in_thread(script: Script | Sequence[Reply | Fault], **options: Any) -> Iterator[ProviderServer]:
    """Run a server on a thread of its own, for code without an event loop. `options` as for `ProviderServer`."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(ProviderServer(script, **options)) as server,
    ):
        yield server


if __name__ == "__main__":
    # edge: the command line imports this module; as `__main__` it must not be needed by importers of the server
    from hermes.testing.server_main import main

    raise SystemExit(main())
