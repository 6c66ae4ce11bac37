"""What is asked of the web is asked again where the machine slept meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from hermes.core.errors import ToolError
from hermes.testing.clock import VirtualClock
from hermes.tools.web_asking import Asking
from hermes.tools.web_search import searcher_for
from tests.tools.site import Site

pytestmark = pytest.mark.anyio


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as opened:
        yield opened


async def test_what_was_under_way_is_asked_again_and_has_its_whole_time(virtual_clock: VirtualClock) -> None:
    asking, begun = Asking(), list[float]()

    async def ask() -> str:
        begun.append(anyio.current_time())
        await anyio.sleep(8.0)
        return f"answer {len(begun)}"

    async def sleep_and_wake() -> None:
        await anyio.sleep(5.0)
        asking.drop()

    async with anyio.create_task_group() as group:
        group.start_soon(sleep_and_wake)
        assert await asking.within(10.0, ask) == "answer 2"
    assert begun[1] - begun[0] == pytest.approx(5.0)
    asking.drop()  # nothing is under way


async def test_a_time_that_runs_out_right_after_a_sleep_does_not_count(virtual_clock: VirtualClock) -> None:
    woke, asked = [True], [0]

    async def ask() -> str:
        asked[0] += 1
        if asked[0] == 2:
            return "answer"
        await anyio.sleep_forever()
        raise AssertionError

    assert await Asking(lambda: woke[0]).within(10.0, ask) == "answer"
    woke[0] = False
    asked[0] = 2
    with pytest.raises(TimeoutError):
        await Asking(lambda: woke[0]).within(10.0, ask)
    assert asked[0] == 3


async def test_it_is_not_asked_for_ever(virtual_clock: VirtualClock) -> None:
    asked = [0]

    async def ask() -> None:
        asked[0] += 1
        await anyio.sleep_forever()

    with pytest.raises(TimeoutError):
        await Asking(lambda: True).within(10.0, ask)
    assert asked == [3]


async def test_who_stops_waiting_asks_nothing_more(virtual_clock: VirtualClock) -> None:
    asking, asked = Asking(lambda: True), [0]

    async def ask() -> None:
        asked[0] += 1
        await anyio.sleep_forever()

    with anyio.move_on_after(1.0) as scope:
        await asking.within(10.0, ask)
    assert scope.cancelled_caught and asked == [1]


async def test_pages_and_searches_are_asked_again(site: Site) -> None:
    asking = Asking()
    fetcher = site.fetcher(timeout=300, asking=asking)
    searcher = searcher_for(
        "searxng", {"SEARXNG_URL": site.url("/silence#")}, site.session(), timeout=300, asking=asking
    )

    async def fetch() -> None:
        with pytest.raises(ToolError):
            await fetcher.fetch(site.url("/silence"))

    for work in (fetch, lambda: searcher.search("words", 3)):
        before = len(site.seen)
        with anyio.fail_after(300):
            async with anyio.create_task_group() as group:
                group.start_soon(work)
                while len(site.seen) < before + 1:
                    await anyio.sleep(0.001)
                asking.drop()
                while len(site.seen) < before + 2:
                    await anyio.sleep(0.001)
                group.cancel_scope.cancel()
        assert len(site.seen) == before + 2
