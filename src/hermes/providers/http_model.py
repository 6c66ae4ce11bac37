"""What every model behind an HTTP endpoint does alike: ask once, read the stream, name a failure. Formats subclass it.

One request is one reply: it never waits and asks again by itself. The only second requests are corrections that the
endpoint asked for before it answered anything: another spelling of the model's name, leaving out a parameter that it
does not know, and leaving out reasoning that it cannot read any more. Which key to use and whether to try again is
decided by wrappers of the same protocol.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, ClassVar, Self

import aiohttp
import anyio
import msgspec

from hermes.core.codec import encode_json
from hermes.core.errors import ModelError
from hermes.core.messages import Assistant
from hermes.core.model import Delta, ModelProfile, ModelRequest, Stop, ToolSpec
from hermes.providers.classify import Origin, connection_error, error_of, error_text, status_error
from hermes.providers.effort import checked_effort
from hermes.providers.endpoint import Endpoint
from hermes.providers.event_reply import EventReply
from hermes.providers.flights import Dropped, Flight, Flights
from hermes.providers.http import (
    Body,
    HttpSession,
    Outgoing,
    SessionSource,
    StreamLimits,
    StreamTimeout,
    get_answer,
    outgoing,
    post,
)
from hermes.providers.large import written
from hermes.providers.names import matching, nearest, spellings
from hermes.providers.sampling import SAMPLING, refuse_sampling, refused_sampling

__all__ = ["HttpModel"]

#: Bytes of an error body that are read, and of a catalogue.
_ERROR_BYTES, _CATALOGUE_BYTES = 64 * 1024, 8 * 1024 * 1024

_UNKNOWN = re.compile(r"unsupported|not support|unrecognized|unknown|unexpected|not permitted|extra|use '")
_VALUE = re.compile(r"unsupported value|supported values|invalid value|invalid enum")
_EFFORT = re.compile(r"reasoning|effort|thinking|budget_tokens")


class HttpModel(ABC):
    """A model behind an endpoint.

    Args:
        name: the model's name, sent as written; other spellings are tried after the endpoint refused it.
        endpoint: where it is.
        profile: what is known of it; prices give the cost where the endpoint reports none.
        session_source: gives the client session of the running loop (an `HttpSession`).
        limits: time limits of a reply.
        wall_clock: seconds since the epoch, to read dates in the provider's answers.
    """

    #: Parameters that are left out where an endpoint refuses them by name.
    optional: ClassVar[tuple[str, ...]] = ()
    #: What an error body says where kept reasoning cannot be read any more.
    unreadable: ClassVar[re.Pattern[str] | None] = None

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
        self.profile = profile
        self._asked_as = name
        self._name = name
        self._session_source = session_source
        self.flights = session_source.flights if isinstance(session_source, HttpSession) else Flights()
        self._headers = self.request_headers()
        self._bad_header = any(ord(character) < 32 for character in "".join(self._headers.values()))
        self._host = endpoint.host
        self._reply_url = self.reply_url()
        self._encoded_tools: tuple[tuple[ToolSpec, ...], msgspec.Raw] = ((), msgspec.Raw(b"[]"))
        self._naming = anyio.Lock()
        self._left_out: frozenset[str] = frozenset()
        #: Takes the headers of every answer: what they say of limits is for whoever gives permits.
        self.on_headers: Callable[[Mapping[str, str]], None] | None = None

    # -- what a format gives ----------------------------------------------------------------------------------------

    @abstractmethod
    def reply_url(self) -> str:
        """Where replies are asked for."""

    @abstractmethod
    def models_url(self) -> str:
        """Where the catalogue of models is."""

    @abstractmethod
    def body_of(self, request: ModelRequest) -> bytes:
        """Return the request's JSON. Raises ModelError for what cannot be said in this format."""

    @abstractmethod
    def new_reply(self, origin: Origin) -> EventReply:
        """Return the reader of one reply."""

    @abstractmethod
    def tool_list(self, tools: tuple[ToolSpec, ...]) -> list[dict[str, Any]]:
        """Return the list of tools as this format writes it."""

    def request_headers(self) -> dict[str, str]:
        """The headers of every request."""
        return self.endpoint.request_headers()

    def correct(self, message: str) -> bool:
        """Change what is sent after a refusal whose text (lower case) is `message`; False where nothing can be."""
        return False

    # -- the model --------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name that is sent."""
        return self._name

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Open one reply. The request is sent when the first delta is asked for."""
        return _HttpStream(self, request)

    async def catalogue(self) -> tuple[str, ...]:
        """Return the names of the models that the endpoint lists; empty where it lists none or cannot be asked."""
        try:
            return await self.listed()
        except ModelError:
            return ()  # the caller reports why it asked; a missing list only makes its message shorter

    async def listed(self) -> tuple[str, ...]:
        """Return the names of the models that the endpoint lists. Raises ModelError where it cannot be asked."""
        origin = self.origin()
        try:
            response, body = await get_answer(
                self._session_source(),
                self.models_url(),
                headers=self._headers,
                limit=10.0,
                most=_CATALOGUE_BYTES,
            )
        except (aiohttp.ClientError, OSError, StreamTimeout) as failure:
            raise connection_error(origin, failure, started=False) from failure
        if response.status != 200:
            raise status_error(origin, response.status, body, response.headers, self.wall_clock())
        try:
            value = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            what = f"{self._host} sent a list of models that is none ({error})"
            raise error_of(origin, "malformed_response", what, error_text(body)) from error
        listed = value.get("data", value.get("models", [])) if isinstance(value, dict) else value
        names = (item.get("id") or item.get("name") for item in listed or () if isinstance(item, dict))
        return tuple(name for name in names if isinstance(name, str))

    def encoded_tools(self, tools: tuple[ToolSpec, ...]) -> msgspec.Raw:
        """The encoded list of tools. Tasks share their lists, and it is half of a short request."""
        if self._encoded_tools[0] is not tools:
            self._encoded_tools = (tools, msgspec.Raw(encode_json(self.tool_list(tools))))
        return self._encoded_tools[1]

    def effort_of(self, request: ModelRequest) -> str:
        """The request's word for how much to think, checked; empty: the model's own. Raises ModelError."""
        return checked_effort(request.reasoning_effort, self.origin())

    async def send(self, request: ModelRequest) -> tuple[aiohttp.ClientResponse, Origin]:
        """Ask, with the corrections that the endpoint wants, and return the response of status 200.

        Raises:
            ModelError: the endpoint refused, or could not be reached.
        """
        tried: set[str] = set()
        while True:
            name, left_out = self._name, self._left_out
            tried.add(name)
            origin, body = await written(request, self._prepared)
            try:
                response, text = await self._post(body)
            except (aiohttp.ClientError, OSError, StreamTimeout) as failure:
                raise connection_error(origin, failure, started=False) from failure
            if response.status == 200:
                return response, origin
            error = status_error(origin, response.status, text, response.headers, self.wall_clock())
            if error.reason == "model_not_found":
                await self._rename(name, tried, error)
            elif response.status != 400:
                raise error
            else:
                message = error_text(text).lower()
                if self.unreadable is not None and self.unreadable.search(message) and _keeps(request):
                    request = _without_kept(request)
                elif not self._leave_out(message, left_out, request) and not self.correct(message):
                    raise self._refused(error, message, request)

    def _prepared(self, request: ModelRequest) -> tuple[Origin, Outgoing]:
        """A request's body, which nobody but the client holds from here on."""
        body = self.body_of(request)
        return self.origin(tokens=len(body) // 4, messages=len(request.entries)), outgoing(body)

    async def _post(self, body: Outgoing) -> tuple[aiohttp.ClientResponse, bytes]:
        """Send one request; an answer that is not 200 is read and closed."""
        if self._bad_header:
            raise error_of(self.origin(), "auth", f"the API key or a header for {self.endpoint.host} has a line break")
        session, limit, waits = self._session_source(), self.limits.first_byte, self.flights.waits
        response = await post(session, self._reply_url, body=body, headers=self._headers, limit=limit, waits=waits)
        if self.on_headers is not None:
            self.on_headers(response.headers)
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
            others = spellings(self._asked_as)
            if known:
                # A list of dated names leaves the undated ones out that it also takes.
                dated = tuple(name for name in others if any(item.startswith(f"{name}-20") for item in known))
                others = (*matching(self._asked_as, known), *dated)
            left = [option for option in others if option not in tried]
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

    def _leave_out(self, message: str, before: frozenset[str], request: ModelRequest) -> bool:
        """Note the optional parameter that an endpoint refused by name; False where it refused something else.

        Reasoning that was asked for is never left out; that there be none is true without saying so.
        """
        if not _UNKNOWN.search(message):
            return False
        for parameter in self.optional:
            if parameter in before or not re.search(rf"\b{re.escape(parameter)}\b", message):
                continue
            if getattr(request, parameter, None) is not None and parameter in SAMPLING:
                return False
            if parameter == "reasoning_effort" and (request.reasoning_effort != "none" or _VALUE.search(message)):
                return False
            self._left_out = self._left_out | {parameter}
            self._encoded_tools = ((), msgspec.Raw(b"[]"))
            return True
        return self._left_out != before

    def _refused(self, error: ModelError, message: str, request: ModelRequest) -> ModelError:
        """`error`, or what it means where the endpoint does not know the reasoning or sampling that was asked for."""
        name = refused_sampling(message, request) if error.reason == "format_error" else ""
        if name:
            return refuse_sampling(self.origin(), name, "it refuses the parameter", message, error.status)
        if error.reason != "format_error" or not request.reasoning_effort or not _EFFORT.search(message):
            return error
        return error_of(
            self.origin(),
            "format_error",
            f"{self._host} does not know the reasoning effort {request.reasoning_effort!r} for {self._name}",
            message,
            status=error.status,
            permanent=True,
            advice="Choose another one (`--reasoning`), or give none.",
        )


def _keeps(request: ModelRequest) -> bool:
    return any(isinstance(entry, Assistant) and entry.provider_data is not None for entry in request.entries)


def _without_kept(request: ModelRequest) -> ModelRequest:
    """The request without the reasoning that earlier replies brought."""
    replace = msgspec.structs.replace
    entries = tuple(
        replace(entry, provider_data=None) if isinstance(entry, Assistant) else entry for entry in request.entries
    )
    return replace(request, entries=entries)


class _HttpStream:
    """One reply. A class and not a generator: one that is left early would be closed later, in another task."""

    def __init__(self, model: HttpModel, request: ModelRequest) -> None:
        self._model = model
        self._request = request
        self._ready: list[Delta] = []
        self._body: Body | None = None
        self._reply: EventReply | None = None
        self._flight = Flight(model.flights)
        self._stopped = False
        self._silent = False  # the end of the body was waited for once already, in vain

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flight.end()
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
                await self._flight.step(self._advance)
            except BaseException as error:
                if self._body is not None:
                    self._body.close()
                if isinstance(error, (aiohttp.ClientError, OSError, StreamTimeout, Dropped)):
                    started = self._body is not None and self._body.started
                    raise connection_error(self._origin, error, started=started) from error
                raise
        return self._ready.pop(0)

    def ready(self) -> Sequence[Delta]:
        """The deltas that came with the one just given."""
        come, self._ready = self._ready, []
        return come

    @property
    def _origin(self) -> Origin:
        return self._reply.origin if self._reply is not None else self._model.origin()

    async def _advance(self) -> None:
        limits = self._model.limits
        if self._reply is None or self._body is None:
            response, origin = await self._model.send(self._request)
            waits = self._model.flights.waits
            self._body = Body(response, limits=limits, watched=self._request.watched, waits=waits)
            self._reply = self._model.new_reply(origin)
        limit = limits.gap if self._body.started else limits.first_byte
        if self._reply.finished:
            limit = min(limit, limits.after_finish)
        try:
            data = await self._body.read(limit, hold_back=not self._reply.finished)
        except StreamTimeout:
            if not self._reply.finished:
                raise
            data, self._silent = b"", True  # the reply is complete, only its end mark never came
        self._ready = self._reply.feed(data) if data else self._reply.close()
        # A stop is the last delta of its reply.
        self._stopped = bool(self._ready) and type(self._ready[-1]) is Stop
