"""Any endpoint that speaks Chat Completions (OpenAI, OpenRouter, vLLM, Ollama, llama.cpp, …) as a `Model`, streaming.

One request is one reply: it never waits and asks again by itself. The only second requests are corrections that the
endpoint asked for before it answered anything: another spelling of the model's name, and leaving out a parameter that
it does not know. Which key to use and whether to try again is decided by wrappers of the same protocol.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
import anyio
import msgspec

from hermes.core.codec import encode_json
from hermes.core.errors import ModelError
from hermes.core.model import Delta, ModelProfile, ModelRequest, Stop, ToolSpec
from hermes.providers.chat_reply import ChatReply
from hermes.providers.classify import Origin, connection_error, error_of, error_text, status_error
from hermes.providers.http import Body, SessionSource, StreamLimits, StreamTimeout, get_bytes, post
from hermes.providers.names import matching, nearest, spellings
from hermes.providers.render import ReasoningEcho, render

__all__ = ["Endpoint", "OpenAIChat"]

#: Bytes of an error body that are read, and of a catalogue.
_ERROR_BYTES, _CATALOGUE_BYTES = 64 * 1024, 8 * 1024 * 1024


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Address, key and habits of an endpoint; its `repr` shows no key.

    `base_url` is what comes before `/chat/completions`. An empty `api_key` sends no Authorization header. `headers` are
    added to every request. `reasoning_echo` is the field in which earlier reasoning has to be sent back, if any.
    """

    base_url: str
    api_key: str = ""
    headers: Mapping[str, str] = {}
    reasoning_echo: ReasoningEcho = ""

    def __repr__(self) -> str:
        key = "set" if self.api_key else "none"
        return f"Endpoint(base_url={self.base_url!r}, api_key=<{key}>, headers={sorted(self.headers)!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("base_url", self.base_url), ("api_key", "<set>" if self.api_key else "<none>")]

    @property
    def host(self) -> str:
        """Host and port, for people."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2] or self.base_url

    @property
    def chat_url(self) -> str:
        """Where replies are asked for."""
        base = self.base_url.rstrip("/")
        return base if base.endswith("/chat/completions") else f"{base}/chat/completions"

    @property
    def models_url(self) -> str:
        """Where the catalogue of models is."""
        return f"{self.chat_url.removesuffix('/chat/completions')}/models"

    def request_headers(self) -> dict[str, str]:
        """The headers of every request; a compressed stream would arrive in blocks, so none is asked for."""
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key.strip()}"
        return {**headers, **self.headers}


class OpenAIChat:
    """A model behind a Chat Completions endpoint.

    Args:
        name: the model's name, sent as written; other spellings are tried after the endpoint refused it.
        endpoint: where it is.
        profile: what is known of it; prices give the cost where the endpoint reports none.
        session_source: gives the client session of the running loop (an `HttpSession`).
        limits: time limits of a reply.
        wall_clock: seconds since the epoch, to read dates in the provider's answers.
    """

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        profile: ModelProfile,
        session_source: SessionSource,
        *,
        limits: StreamLimits = StreamLimits(),  # noqa: B008 - frozen
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.endpoint = endpoint
        self.limits = limits
        self.wall_clock = wall_clock
        self._asked_as = name
        self._name = name
        self.profile = profile
        self._session_source = session_source
        self._headers = endpoint.request_headers()
        self._bad_header = any(ord(character) < 32 for character in "".join(self._headers.values()))
        self._host = endpoint.host
        self._chat_url = endpoint.chat_url
        self._encoded_tools: tuple[tuple[ToolSpec, ...], msgspec.Raw] = ((), msgspec.Raw(b"[]"))
        self._naming = anyio.Lock()
        self._left_out: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The name that is sent."""
        return self._name

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Open one reply. The request is sent when the first delta is asked for."""
        return _ChatStream(self, request)

    async def catalogue(self) -> tuple[str, ...]:
        """Return the names of the models that the endpoint lists; empty where it lists none or cannot be asked."""
        try:
            body = await get_bytes(
                self._session_source(),
                self.endpoint.models_url,
                headers=self._headers,
                limit=10.0,
                most=_CATALOGUE_BYTES,
            )
            value = msgspec.json.decode(body or b"{}")
        except (aiohttp.ClientError, OSError, StreamTimeout, msgspec.DecodeError):
            return ()  # the caller reports why it asked; a missing list only makes its message shorter
        listed = value.get("data", value.get("models", [])) if isinstance(value, dict) else value
        names = (item.get("id") or item.get("name") for item in listed or () if isinstance(item, dict))
        return tuple(name for name in names if isinstance(name, str))

    def body_of(self, request: ModelRequest) -> bytes:
        """Return the request's JSON."""
        messages = render(
            request.entries,
            system=request.system,
            nonce=request.steer_nonce,
            prefill=request.prefill,
            reasoning=self.endpoint.reasoning_echo,
        )
        host = self._host
        body: dict[str, Any] = {
            "model": self._name,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            body["tools"] = self._tools(request.tools)
            if request.tool_choice != "auto":
                body["tool_choice"] = request.tool_choice
            if not self.profile.parallel_calls:
                body["parallel_tool_calls"] = False
        if request.max_tokens is not None:
            newer = host == "api.openai.com" or "max_tokens" in self._left_out
            body["max_completion_tokens" if newer else "max_tokens"] = request.max_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.reasoning_effort:
            if host.endswith("openrouter.ai"):
                body["reasoning"] = {"effort": request.reasoning_effort}
            else:
                body["reasoning_effort"] = request.reasoning_effort
        if host.endswith("openrouter.ai"):
            body["usage"] = {"include": True}
        body.update(request.extra)
        return encode_json({key: value for key, value in body.items() if key not in self._left_out})

    def _tools(self, tools: tuple[ToolSpec, ...]) -> msgspec.Raw:
        """The encoded list of tools. Tasks share their lists, and it is half of a short request."""
        if self._encoded_tools[0] is not tools:
            listed = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
                }
                for tool in tools
            ]
            self._encoded_tools = (tools, msgspec.Raw(encode_json(listed)))
        return self._encoded_tools[1]

    async def send(self, request: ModelRequest) -> tuple[aiohttp.ClientResponse, Origin]:
        """Ask, with the corrections that the endpoint wants, and return the response of status 200.

        Raises:
            ModelError: the endpoint refused, or could not be reached.
        """
        tried: set[str] = set()
        while True:
            name, left_out = self._name, self._left_out
            tried.add(name)
            body = self.body_of(request)
            origin = self.origin(tokens=len(body) // 4, messages=len(request.entries))
            try:
                response, text = await self._post(body)
            except (aiohttp.ClientError, OSError, StreamTimeout) as failure:
                raise connection_error(origin, failure, started=False) from failure
            if response.status == 200:
                return response, origin
            error = status_error(origin, response.status, text, response.headers, self.wall_clock())
            if error.reason == "model_not_found":
                await self._rename(name, tried, error)
            elif response.status != 400 or not self._leave_out(text, left_out):
                raise error

    async def _post(self, body: bytes) -> tuple[aiohttp.ClientResponse, bytes]:
        """Send one request; an answer that is not 200 is read and closed."""
        headers = self._headers
        if self._bad_header:
            raise error_of(self.origin(), "auth", f"the API key or a header for {self.endpoint.host} has a line break")
        response = await post(
            self._session_source(), self._chat_url, body=body, headers=headers, limit=self.limits.first_byte
        )
        if response.status == 200:
            return response, b""
        try:
            return response, await Body(response, limits=self.limits).rest(_ERROR_BYTES, limit=self.limits.gap)
        finally:
            response.close()

    def origin(self, *, tokens: int = 0, messages: int = 0) -> Origin:
        """Describe this endpoint for error messages."""
        return Origin(
            host=self._host,
            model=self._name,
            secret=self.endpoint.api_key,
            tokens=tokens,
            messages=messages,
            window=self.profile.window,
        )

    async def _rename(self, refused: str, tried: set[str], error: ModelError) -> None:
        """Choose another spelling of the name, or raise with the nearest names of the catalogue."""
        async with self._naming:
            if self._name not in tried:  # another task has found one meanwhile
                return
            known = await self.catalogue()
            options = matching(self._asked_as, known) if known else spellings(self._asked_as)
            left = [option for option in options if option not in tried]
            if left:
                self._name = left[0]
                return
            self._name = self._asked_as
        near = nearest(self._asked_as, known)
        advice = f"Nearest names that it offers: {', '.join(near)}." if near else "It lists no models."
        raise error_of(
            self.origin(),
            "model_not_found",
            f"{self.endpoint.host} does not know the model {self._asked_as}",
            status=error.status,
            advice=advice,
        ) from error

    def _leave_out(self, text: bytes, before: frozenset[str]) -> bool:
        """Note the optional parameter that an endpoint refused by name; False where it refused something else."""
        message = error_text(text).lower()
        if not re.search(r"unsupported|not support|unrecognized|unknown|unexpected|not permitted|extra|use '", message):
            return False
        for parameter in ("stream_options", "parallel_tool_calls", "reasoning_effort", "max_tokens", "temperature"):
            if re.search(rf"\b{parameter}\b", message) and parameter not in before:
                self._left_out = self._left_out | {parameter}
                return True
        return self._left_out != before


class _ChatStream:
    """One reply. A class and not a generator: one that is left early would be closed later, in another task."""

    def __init__(self, chat: OpenAIChat, request: ModelRequest) -> None:
        self._chat = chat
        self._request = request
        self._ready: deque[Delta] = deque()
        self._body: Body | None = None
        self._reply: ChatReply | None = None
        self._stopped = False
        self._silent = False  # the end of the body was waited for once already, in vain

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        body, self._body = self._body, None
        if body is None:
            return
        if kind is None and self._stopped and not self._silent:
            try:
                await body.drain()
            except (aiohttp.ClientError, OSError):
                pass  # the reply is complete; only the connection cannot be used again
            finally:
                body.close()
        else:
            body.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        while not self._ready:
            if self._stopped:
                raise StopAsyncIteration
            try:
                await self._advance()
            except BaseException as error:
                if self._body is not None:
                    self._body.close()
                if isinstance(error, (aiohttp.ClientError, OSError, StreamTimeout)):
                    started = self._body is not None and self._body.started
                    raise connection_error(self._origin, error, started=started) from error
                raise
        return self._ready.popleft()

    @property
    def _origin(self) -> Origin:
        return self._reply.origin if self._reply is not None else self._chat.origin()

    async def _advance(self) -> None:
        limits = self._chat.limits
        if self._reply is None or self._body is None:
            response, origin = await self._chat.send(self._request)
            self._body = Body(response, limits=limits, watched=self._request.watched)
            self._reply = ChatReply(origin, self._chat.profile, self._chat.wall_clock)
        limit = limits.gap if self._body.started else limits.first_byte
        if self._reply.finished:
            limit = min(limit, limits.after_finish)
        try:
            data = await self._body.read(limit, hold_back=not self._reply.finished)
        except StreamTimeout:
            if not self._reply.finished:
                raise
            data, self._silent = b"", True  # the reply is complete, only its end mark never came
        self._ready.extend(self._reply.feed(data) if data else self._reply.close())
        # A stop is the last delta of its reply.
        self._stopped = bool(self._ready) and type(self._ready[-1]) is Stop
