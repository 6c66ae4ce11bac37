"""The one HTTP session of a process, and reading a reply's body under limits.

Defaults of the client that cost are off here: no cookie jar, no total timer, no cap on connections (permits are given
elsewhere), no redirects (a key never follows one to another host). It knows no wire format and never asks twice.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping

import aiohttp
import anyio
import msgspec
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesPayload

from hermes.providers.flights import Flights
from hermes.providers.waits import StreamTimeout, Waits

__all__ = [
    "Body",
    "HttpSession",
    "Outgoing",
    "SessionSource",
    "StreamLimits",
    "StreamTimeout",
    "get_answer",
    "outgoing",
    "post",
]

#: A body that is ready to be sent once.
Outgoing = BytesPayload | io.BytesIO

#: Gives the session of the running event loop.
SessionSource = Callable[[], aiohttp.ClientSession]

#: Larger bodies are handed over as a file object: as bytes they raise a ResourceWarning in aiohttp.
LARGE_BODY = 512 * 1024

#: Reads of one reply before the pauses begin, so that a short reply is never delayed.
READS_BEFORE_PAUSES = 4


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits of one reply, in seconds.

    `first_byte` counts from sending the request to the first byte of the body (headers have the same limit of their
    own), `gap` between two chunks, `after_finish` from the reply's finish to its end mark, `drain` from the end mark to
    the end of the body. `pause` are the shortest and the longest wait between two reads of a reply that nobody watches.
    """

    first_byte: float = 120.0
    gap: float = 120.0
    after_finish: float = 5.0
    drain: float = 1.0
    pause: tuple[float, float] = (0.1, 0.25)


class HttpSession:
    """Owner of the process's one client session; itself a `SessionSource`.

    Args:
        connect: seconds to establish a connection.
        keep_alive: seconds an idle connection is kept. Below the five seconds after which common servers close one:
            a request on a connection that closes at that moment is lost, and a POST is not repeated by the client.
        trust_env: use HTTP_PROXY and HTTPS_PROXY.
        connector: makes what connects, for a session of its own that may not reach every address.
    """

    def __init__(
        self,
        *,
        connect: float = 10.0,
        keep_alive: float = 4.0,
        trust_env: bool = False,
        connector: Callable[[], aiohttp.BaseConnector] | None = None,
    ) -> None:
        self._connector = connector
        self._connect = connect
        self._keep_alive = keep_alive
        self._trust_env = trust_env
        self._session: aiohttp.ClientSession | None = None
        self._left: list[aiohttp.ClientSession] = []
        self.flights = Flights()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self) -> aiohttp.ClientSession:
        """Return the session, made on first use.

        Raises:
            RuntimeError: called from another event loop than before.
        """
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed:
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=self._connector() if self._connector else self._unlimited(),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect, sock_read=None),
                trust_env=self._trust_env,
                headers={"User-Agent": "hermes-tasktree"},
            )
        if self._loop is not loop:
            raise RuntimeError("the HTTP session belongs to another event loop; make an HttpSession for each loop")
        return self._session

    def _unlimited(self) -> aiohttp.BaseConnector:
        return aiohttp.TCPConnector(limit=0, keepalive_timeout=self._keep_alive)

    def drop(self, seconds: float) -> None:
        """Drop every request of a model that is under way, and use no connection again that was open before.

        For a process that did not run for `seconds`: servers close what is silent for long, and a machine that slept
        never hears of it. Idle connections close by themselves within the time that they are kept.
        """
        if self._session is not None:
            self._left.append(self._session)
            self._session = None
        self.flights.drop(seconds)

    async def close(self) -> None:
        """Close every connection. May be called twice."""
        sessions, self._left = [*self._left, self._session], []
        self._session = None
        for session in sessions:
            if session is not None:
                await session.close()


class _Outgoing(BytesPayload):
    """A body that is let go once it is written: a thousand requests that wait for their answers hold nothing of it.

    A POST is never sent again by the client.
    """

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        value, self._value, self._consumed = self._value, b"", True
        await writer.write(value if content_length is None else value[:content_length])


def outgoing(body: bytes) -> Outgoing:
    """Prepare a body for one request. Whoever keeps no other reference to it has it off memory while it waits."""
    return io.BytesIO(body) if len(body) > LARGE_BODY else _Outgoing(body)


async def post(
    session: aiohttp.ClientSession,
    url: str,
    *,
    body: bytes | Outgoing,
    headers: Mapping[str, str],
    limit: float,
    waits: Waits | None = None,
) -> aiohttp.ClientResponse:
    """Send a POST and return the response once its headers are there; the caller closes it.

    `body` is sent once: for another request it is prepared anew. `waits` are those of the loop, where there are many.

    Raises:
        StreamTimeout: no headers within `limit` seconds.
        aiohttp.ClientError, OSError: the connection failed.
    """
    data = outgoing(body) if isinstance(body, bytes) else body
    answer = session.post(url, data=data, headers=headers, allow_redirects=False)
    return await (waits or Waits()).within(limit, answer, "answer")


async def get_answer(
    session: aiohttp.ClientSession, url: str, *, headers: Mapping[str, str], limit: float, most: int
) -> tuple[aiohttp.ClientResponse, bytes]:
    """Return the (closed) response to a GET and the first `most` bytes of its body.

    Raises:
        StreamTimeout: not complete within `limit` seconds.
        aiohttp.ClientError, OSError: the connection failed.
    """
    with anyio.move_on_after(limit):
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            return response, await Body(response, limits=StreamLimits()).rest(most, limit=limit)
    raise StreamTimeout("answer", limit)


class Body:
    """The body of one response, read chunk by chunk.

    Each chunk that arrives by itself wakes the loop, which costs more than parsing it. With `watched=False` the
    transport is therefore held back for a moment between two reads: what came meanwhile arrives as one chunk.
    """

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        *,
        limits: StreamLimits,
        watched: bool = True,
        waits: Waits | None = None,
    ) -> None:
        self._response = response
        self._waits = waits or Waits()
        self._limits = limits
        self._watched = watched
        self._reads = 0

    @property
    def started(self) -> bool:
        """Whether a byte has come."""
        return self._reads > 0

    async def read(self, limit: float, *, hold_back: bool = True) -> bytes:
        """Return the next chunk, b"" at the end of the body.

        Raises:
            StreamTimeout: nothing came within `limit` seconds.
            aiohttp.ClientError, OSError: the connection broke.
        """
        if hold_back and not self._watched and self._reads >= READS_BEFORE_PAUSES:
            shortest, longest = self._limits.pause
            await _hold_back(self._response, min(longest, shortest + 0.05 * (self._reads - READS_BEFORE_PAUSES)))
        content = self._response.content
        data = content.read_nowait()  # what has arrived needs no timer
        if data or content.at_eof():
            self._reads += 1
            return data
        data = await self._waits.within(limit, content.readany(), "data" if self._reads else "first byte")
        self._reads += 1
        return data

    async def rest(self, most: int, *, limit: float) -> bytes:
        """Return what is left of the body, at most its first `most` bytes. Raises like `read`."""
        parts: list[bytes] = []
        size = 0
        while size < most and (data := await self.read(limit, hold_back=False)):
            size += len(data)
            parts.append(data)
        return b"".join(parts)[:most]

    async def drain(self) -> None:
        """Read on to the end, so that the connection can be used again; close it where that takes too long."""
        if self._response.content.at_eof():
            return
        content = self._response.content
        if not content.at_eof():
            with anyio.move_on_after(self._limits.drain):
                while await content.readany():
                    pass
        self.close()

    def close(self) -> None:
        """Close the connection unless the body was read to its end. Needs no await, so it works under cancellation."""
        self._response.close()


async def _hold_back(response: aiohttp.ClientResponse, seconds: float) -> None:
    """Let data gather in the kernel for `seconds`: the only place that reaches into the client's flow control.

    The transport is held and not its protocol, which would stop its parser too and hand the data over piece by piece.
    """
    protocol = response.connection.protocol if response.connection is not None else None
    transport = protocol.transport if protocol is not None else None
    if transport is None or not transport.is_reading():  # everything was received, or the client holds it already
        return
    transport.pause_reading()
    try:
        await anyio.sleep(seconds)
    finally:
        transport.resume_reading()
