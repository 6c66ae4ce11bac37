"""Requests that are dropped because nothing ran for a while, and what then asks them again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from hermes.core.errors import ModelError
from hermes.core.model import Delta, Model, ModelProfile, TextDelta
from hermes.providers.endpoint import Endpoint
from hermes.providers.flights import Dropped, Flight, Flights
from hermes.providers.http import HttpSession
from hermes.providers.http_model import HttpModel
from hermes.providers.retrying import Retrying
from hermes.testing.clock import VirtualClock
from hermes.testing.faults import Raw, Stall
from hermes.testing.scripted import reply
from hermes.testing.server import ProviderServer
from tests.providers.conformance import ask, deltas_of, folded, message_of, restarts
from tests.providers.endpoints import ADAPTERS

pytestmark = pytest.mark.anyio

HALF = reply("half a reply", pieces=4)


@asynccontextmanager
async def served(steps: list[Any], adapter: type[HttpModel]) -> AsyncIterator[tuple[Model, HttpSession, Any]]:
    session = HttpSession()
    async with ProviderServer(steps) as server:
        model = adapter("m", Endpoint(base_url=server.base_url, api_key="k"), ModelProfile(), session)
        try:
            yield model, session, server
        finally:
            await session.close()


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("step", [Stall(), Stall(reply=HALF, events=3)])
async def test_a_request_under_way_is_dropped_and_asked_again_once_whatever_it_had_brought(
    virtual_clock: VirtualClock, adapter: type[HttpModel], step: Stall
) -> None:
    async with served([step, reply("whole")], adapter) as (model, session, server):
        came: list[Delta] = []

        async def read() -> None:
            came.extend(await deltas_of(Retrying(model, attempts=1), ask()))

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.sleep(60)
            assert server.count == 1 and server.in_flight == 1
            session.drop(312.0)
            with anyio.fail_after(1):
                await server.requests[0].closed.wait()
        (again,) = restarts(came)
        assert (again.attempt, again.reason, again.wait) == (1, "suspended", 0.0)
        assert "nothing ran here for 5 min" in again.message and "127.0.0.1" in again.message
        assert again.usage.estimated is (step.reply is not None), "what a lost attempt had brought was paid"
        assert folded(came).text == "whole" and server.count == 2
        assert virtual_clock.elapsed < 62
        assert not session.flights.under_way, "nothing is kept of requests that are over"


async def test_what_waits_between_two_chunks_is_dropped_with_its_next_read(virtual_clock: VirtualClock) -> None:
    async with (
        served([Stall(reply=HALF, events=3), reply("whole")], ADAPTERS[0]) as (model, session, server),
        model.stream(ask()) as stream,
    ):
        assert isinstance(await anext(stream), TextDelta)
        session.drop(40.0)
        with pytest.raises(ModelError) as caught:
            while True:
                await anext(stream)
        assert caught.value.reason == "suspended" and caught.value.retryable
        assert (await message_of(model, ask())).text == "whole"


async def test_no_connection_from_before_is_used_again(virtual_clock: VirtualClock) -> None:
    async with served([reply("a"), reply("b"), reply("c")], ADAPTERS[0]) as (model, session, server):
        await message_of(model, ask())
        await message_of(model, ask())
        assert len(server.connections) == 1
        session.drop(40.0)
        await message_of(model, ask())
        assert len(server.connections) == 2


async def test_a_complete_reply_is_not_asked_for_again(virtual_clock: VirtualClock) -> None:
    async with served([Raw(parts=(HALVES, 30.0)), reply("never")], ADAPTERS[0]) as (model, session, server):
        came: list[Delta] = []
        async with Retrying(model).stream(ask()) as stream:
            async for delta in stream:
                came.append(delta)
                session.drop(40.0)
        assert folded(came).text == "all" and not restarts(came) and server.count == 1


HALVES = (
    b'data: {"choices": [{"delta": {"content": "all"}}]}\n\n'
    b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
)


async def test_who_is_cancelled_from_outside_as_well_is_cancelled(virtual_clock: VirtualClock) -> None:
    flights, reached = Flights(), False

    async def drop(scope: anyio.CancelScope) -> None:
        await anyio.sleep(1)
        flights.drop(40.0)
        scope.cancel()

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            group.start_soon(drop, scope)
            try:
                await Flight(flights).step(anyio.sleep_forever)
            except Dropped:
                await anyio.sleep_forever()
        await anyio.sleep(1)  # nothing is left of either
        reached = scope.cancelled_caught
    assert reached

    flight = asyncio.ensure_future(Flight(flights).step(anyio.sleep_forever))
    await anyio.sleep(1)
    flights.drop(40.0)
    flight.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flight


async def test_a_task_goes_on_after_its_request_was_dropped(virtual_clock: VirtualClock) -> None:
    flights = Flights()

    async def drop() -> None:
        await anyio.sleep(1)
        flights.drop(40.0)

    async with anyio.create_task_group() as group:
        group.start_soon(drop)
        with pytest.raises(Dropped):
            await Flight(flights).step(anyio.sleep_forever)
        await anyio.sleep(1)
    flights.drop(41.0)  # nobody waits any more
    await anyio.sleep(1)
