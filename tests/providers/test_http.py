"""The session and the reading of bodies."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import aiohttp
import anyio
import pytest
from aiohttp.payload import BytesPayload

from hermes.providers.http import READS_BEFORE_PAUSES, Body, HttpSession, StreamLimits, StreamTimeout, outgoing, post
from hermes.testing.clock import VirtualClock
from hermes.testing.faults import Raw, sse
from hermes.testing.scripted import reply
from hermes.testing.server import ProviderServer

pytestmark = pytest.mark.anyio


async def opened(session: HttpSession, server: ProviderServer) -> aiohttp.ClientResponse:
    url = f"{server.base_url}/chat/completions"
    return await post(session(), url, body=b'{"stream": true}', headers={}, limit=10.0)


async def test_the_transport_is_held_back_between_two_reads_and_let_go_afterwards(virtual_clock: VirtualClock) -> None:
    session = HttpSession()
    parts = [part for _ in range(40) for part in (b"x", 0.02)]
    async with ProviderServer([Raw(parts=tuple(parts))]) as server:
        response = await opened(session, server)
        body = Body(response, limits=StreamLimits(), watched=False)
        for _ in range(READS_BEFORE_PAUSES):
            await body.read(10.0)
        assert response.connection is not None and response.connection.protocol is not None
        transport = response.connection.protocol.transport
        assert isinstance(transport, asyncio.Transport) and transport.is_reading()
        before, chunks = virtual_clock.elapsed, []
        async with anyio.create_task_group() as group:

            async def read() -> None:
                chunks.append(await body.read(10.0))

            group.start_soon(read)
            await anyio.sleep(0.05)
            assert not transport.is_reading()
        assert transport.is_reading() and virtual_clock.elapsed - before >= 0.1
        assert 4 <= len(chunks[0]) <= 7
        with anyio.move_on_after(0.05):  # a reader that is cancelled while it waits
            await body.read(10.0)
        assert transport.is_reading()
        response.close()
        await session.close()


@pytest.mark.parametrize(("drain", "connections"), [(1.0, 1), (0.1, 2)])
async def test_reading_on_to_the_end_saves_the_connection(
    virtual_clock: VirtualClock, drain: float, connections: int
) -> None:
    session = HttpSession()
    async with ProviderServer([Raw(parts=(sse(), 0.5)), reply("x")]) as server:
        body = Body(await opened(session, server), limits=StreamLimits(drain=drain))
        await body.read(10.0)
        await body.drain()
        (await opened(session, server)).close()
        assert len(server.connections) == connections
        await session.close()


async def test_the_session_is_one_and_can_be_closed_twice() -> None:
    session = HttpSession()
    first = session()
    assert session() is first
    assert isinstance(first.connector, aiohttp.TCPConnector) and first.connector.limit == 0
    await session.close()
    await session.close()
    assert first.closed and session() is not first
    await session.close()


def test_a_session_of_another_loop_is_refused() -> None:
    session = HttpSession()

    async def use() -> None:
        session()

    async def leave() -> aiohttp.ClientSession:
        return session()

    first = anyio.run(leave)
    try:
        with pytest.raises(RuntimeError, match="another event loop"):
            anyio.run(use)
    finally:
        anyio.run(first.close)


async def test_a_limit_that_passes_is_named_and_leaves_the_task_usable(virtual_clock: VirtualClock) -> None:
    session = HttpSession()
    async with ProviderServer([Raw(parts=(sse(), 60.0))]) as server:
        response = await opened(session, server)
        body = Body(response, limits=StreamLimits())
        assert await body.read(1.0)
        before = virtual_clock.elapsed
        with pytest.raises(StreamTimeout, match="no data within 5 s"):
            while await body.read(5.0):
                pass
        assert virtual_clock.elapsed - before == pytest.approx(5.0, abs=0.5)
        await anyio.sleep(1.0)  # nothing is cancelled any more
        response.close()
    await session.close()


@pytest.mark.parametrize("outside", [5.0, 3.0])
async def test_a_cancellation_from_outside_wins_over_a_limit(virtual_clock: VirtualClock, outside: float) -> None:
    session = HttpSession()
    async with ProviderServer([Raw(parts=(sse(), 60.0))]) as server:
        response = await opened(session, server)
        body = Body(response, limits=StreamLimits())
        with anyio.move_on_after(outside) as scope:
            with suppress(StreamTimeout):  # in the same instant either may come first
                while await body.read(5.0):
                    pass
            await anyio.sleep(60.0)
        assert scope.cancelled_caught
        await anyio.sleep(1.0)
        response.close()
    await session.close()


async def test_a_body_is_let_go_while_its_answer_is_awaited(virtual_clock: VirtualClock) -> None:
    session = HttpSession()
    text = b'{"stream": true, "filler": "' + b"x" * 10_000 + b'"}'
    body = outgoing(text)
    async with ProviderServer([Raw(parts=(sse(), 60.0))]) as server:
        url = f"{server.base_url}/chat/completions"
        response = await post(session(), url, body=body, headers={}, limit=10.0)
        assert response.status == 200
        assert server.requests[0].body["filler"] == "x" * 10_000
        assert isinstance(body, BytesPayload) and body.size == len(text)
        assert await body.as_bytes() == b""
        response.close()
    await session.close()
