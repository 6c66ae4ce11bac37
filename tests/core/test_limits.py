"""Budgets of one tree: who is woken when something comes free."""

from __future__ import annotations

import anyio
import pytest

from hermes.core.limits import Budget, Limits

pytestmark = pytest.mark.anyio


async def test_another_limit_wakes_whoever_waits_for_room_whatever_level_it_is_of() -> None:
    session = Budget(Limits(tokens=1_000), "session")
    parent = Budget(Limits(tokens=10), "parent", session)
    child = Budget(Limits(), "child", parent)
    async with anyio.create_task_group() as group:
        group.start_soon(child.freed)
        await anyio.wait_all_tasks_blocked()
        parent.change(Limits(tokens=500))
        with anyio.move_on_after(5) as late:
            await anyio.wait_all_tasks_blocked()
        waiting = child.root._freed
        group.cancel_scope.cancel()
    assert waiting is None and not late.cancelled_caught
