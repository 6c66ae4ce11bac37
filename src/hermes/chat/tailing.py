"""What a task says and does, line by line as the journal gets it. Works on a task of any process."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import msgspec

from hermes.chat.render import one_line, printable
from hermes.core.codec import decode_entry
from hermes.core.messages import Assistant, Entry, Interrupted, Notice, Steer, Summary, ToolResult, User, plain_text
from hermes.core.result import ENDED, async_status
from hermes.runtime.remote import Remote
from hermes.store.ops import TaskRow

__all__ = ["entry_lines", "tail_lines"]

#: Seconds between two looks.
LOOK_EVERY = 0.2


async def tail_lines(
    remote: Remote, row: TaskRow, *, follow: bool, as_json: bool, write: Callable[[str], None]
) -> None:
    """Write the entries of a task's history as they come, and how it ended; `as_json` one object a line.

    Ends with the task, or at once where nobody runs it, or after what there is without `follow`.
    """
    start = 0
    while True:
        # In this order: an end that is seen has no entry behind it.
        state = await remote.state(await remote.store.task(row.task_id) or row)
        for position, body in await remote.store.entries(row.task_id, start):
            entry = decode_entry(body)
            if as_json:
                write(_json({"task_id": row.task_id, "position": position, "entry": msgspec.to_builtins(entry)}))
            else:
                for line in entry_lines(entry):
                    write(line)
            start = position + 1
        if state in ENDED or state == "suspended" or not follow:
            status = async_status(state)
            write(_json({"task_id": row.task_id, "status": status}) if as_json else f"── {row.task_id} {status}")
            return
        await anyio.sleep(LOOK_EVERY)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def entry_lines(entry: Entry) -> list[str]:
    """An entry of a history as safe lines."""
    if isinstance(entry, Assistant):
        calls = [f"  → {call.name} {one_line(call.raw, 200)}" for call in entry.calls]
        return [*printable(entry.text).strip().splitlines(), *calls]
    if isinstance(entry, ToolResult):
        return [f"  ← {entry.name}: {one_line(plain_text(entry.content), 200)}"]
    if isinstance(entry, User):
        return [f"{'you' if entry.source == 'user' else entry.source}: {one_line(plain_text(entry.content), 400)}"]
    if isinstance(entry, Steer):
        return [f"steer from {entry.sender}: {one_line(entry.text, 400)}"]
    if isinstance(entry, Interrupted):
        return [f"interrupted: {one_line(entry.reason, 200)}"]
    assert isinstance(entry, (Notice, Summary))
    if not entry.text:
        return []
    return [f"{'notice' if isinstance(entry, Notice) else 'summary'}: {one_line(entry.text, 400)}"]
