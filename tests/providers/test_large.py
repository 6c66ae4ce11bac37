"""A large request is written while everything else goes on."""

from __future__ import annotations

import threading

import anyio
import msgspec
import pytest

from hermes.core.messages import LARGE, Assistant, Image, Text, ToolResult, User
from hermes.core.model import ModelRequest
from hermes.providers.large import large_request, written

HUGE = "x" * (LARGE + 1)


def test_what_somebody_sends_in_one_piece_makes_a_request_large() -> None:
    small = ModelRequest(system="", entries=(User(content=(Text("x"),)), Assistant(text="yes")))
    assert not large_request(small)
    assert large_request(
        msgspec.structs.replace(small, entries=(*small.entries, User(content=(Text("a"), Text(HUGE)))))
    )
    assert large_request(ModelRequest(system="", entries=(User(content=(Image(media_type="image/png", data=HUGE),)),)))
    result = ToolResult(position=1, index=0, call_id="c", name="t", content=(Text("x"),))
    assert not large_request(ModelRequest(system="", entries=(*small.entries, result)))


@pytest.mark.anyio
async def test_the_loop_goes_on_while_a_large_request_is_written() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def write(request: ModelRequest) -> str:
        begun.set()
        assert go_on.wait(120), "the loop stands still"
        return "written"

    async def let() -> None:
        while not begun.is_set():
            await anyio.sleep(0.001)
        go_on.set()

    async with anyio.create_task_group() as group:
        group.start_soon(let)
        assert await written(ModelRequest(system="", entries=(User(content=(Text(HUGE),)),)), write) == "written"
    main = threading.get_ident()
    assert await written(ModelRequest(system="", entries=()), lambda _: threading.get_ident()) == main
