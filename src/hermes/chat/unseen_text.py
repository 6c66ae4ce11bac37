"""Results that nobody saw, shown at the top of a conversation: one line each, and noted as shown."""

from __future__ import annotations

from collections.abc import Callable

from hermes.chat.render import duration, one_line
from hermes.compose import Assembly
from hermes.observe.unseen import Unseen, mark_shown, pending_results
from hermes.store.owner import is_gone

__all__ = ["show_unseen", "unseen_line"]

#: Results shown at one start; the others wait for the next.
MOST = 10
_MARKS = {"completed": "✓", "cancelled": "⏹"}


async def show_unseen(assembly: Assembly, note: Callable[[str], None]) -> None:
    """Tell of results of earlier conversations in this home that nobody saw.

    Raises:
        StoreError: the journal cannot be read or written.
        OperatorError: a lock of the home cannot be looked at.
    """
    runtime, home = assembly.runtime, assembly.home
    found = await pending_results(runtime.store, is_gone=lambda owner: is_gone(home.path, owner))
    # Whoever stopped a task that had nothing yet misses nothing.
    worth = [item for item in found if item.summary.strip() or item.status != "cancelled"]
    shown = worth[:MOST]
    if shown:
        now = runtime.clock.now()
        note(f"{len(worth)} results of earlier conversations that nobody saw:")
        for item in shown:
            note(f"  {unseen_line(item, now, assembly.redactor.text)}")
        if len(worth) > len(shown):
            note(f"  {len(worth) - len(shown)} more are shown at the next start")
    kept = {item.task_id for item in worth[MOST:]}
    await mark_shown(runtime.store, [item.task_id for item in found if item.task_id not in kept], runtime.clock.now())


def unseen_line(item: Unseen, now: float, redact: Callable[[str], str] = str) -> str:
    """One result on one line: what it was for, how and when it ended, how its text begins, where the rest is."""
    ago = duration(max(0.0, now - item.ended_at))
    text = one_line(redact(item.error if item.status == "failed" else item.summary), 80)
    where = f"hermes chat --resume {item.session_id}" if item.resumable else f"hermes sessions show {item.session_id}"
    head = f"{_MARKS.get(item.status, '✗')} {item.task_id} {one_line(redact(item.goal), 50)} ({item.status} {ago} ago)"
    return f"{head}{': ' + text if text else ''} — {where}"
