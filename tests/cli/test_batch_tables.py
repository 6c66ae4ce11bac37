from __future__ import annotations

import io
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from rich.console import Console

from hermes.batch.rollout import RolloutRequest, RolloutResult
from hermes.cli.batch_tables import print_tables
from hermes.core.result import CheckScore
from tests.batch.fakes import Desk, FakeEngine, answered, failed, prompts


@pytest.mark.anyio
async def test_the_tables_say_what_came_out_and_where_the_page_is(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.dataset(prompts(4))

    async def script(request: RolloutRequest) -> RolloutResult:
        if request.index == 0:
            return failed("server_error", "sick")
        if request.index == 1:
            return answered(request.prompt, thinking="")
        return answered(request.prompt, scores=(CheckScore(check="exact", score=request.index - 2.0),))

    assert await desk.start(FakeEngine(script)) == 1
    out = io.StringIO()
    await anyio.to_thread.run_sync(print_tables, Console(file=out, width=100), desk.data / "r")
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    for line in ("kept 2", "rejected: no_reasoning 1", "failed: server_error 1", "terminal 3 0 100.0"):
        assert line in lines, lines
    assert "2 0.500 0.000 1.000 1 0" in lines
    assert "report.html" in out.getvalue().replace("\n", "")
    empty = io.StringIO()
    await anyio.to_thread.run_sync(print_tables, Console(file=empty), tmp_path)
    assert empty.getvalue() == ""
