"""Reading sessions: the journal opened for a moment, a session by a part of its id, what was said, its title.

Adopts nothing; a home without a journal is left without one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from hermes.chat.render import size_text
from hermes.config import Home
from hermes.core.codec import decode_entry, decode_event
from hermes.core.errors import HermesError, UsageError
from hermes.core.events import TurnEnded
from hermes.core.messages import Assistant, Entry, Image, Interrupted, Notice, Steer, Summary, Text, ToolResult, User
from hermes.core.usage import TURN_ENDED
from hermes.store.ops import SessionRow, Store, TaskRow, TouchSession, Unit
from hermes.store.sqlite import open_store

__all__ = [
    "NotFound",
    "Whole",
    "journal",
    "mentions",
    "pick",
    "plain_task",
    "read_whole",
    "renamed",
    "said",
    "whole_of",
]

#: How far back a session is looked for by a part of its id.
_SEARCHED = 10_000


class NotFound(HermesError):
    """There is no such session."""


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """A session with its tasks, what was said in each, and the ids of those whose end nobody saw. `unfinished` are the
    answers that were given while children still worked: task, time, and the ids of these children."""

    row: SessionRow
    tasks: tuple[TaskRow, ...]
    entries: dict[str, list[Entry]]
    unseen: frozenset[str]
    unfinished: tuple[dict[str, Any], ...] = ()


@asynccontextmanager
async def journal(home: Home) -> AsyncIterator[Store]:
    """The journal of a home.

    Raises:
        NotFound: there is none.
    """
    # a look must not make a journal where there is none
    if not home.database.exists():
        raise NotFound(f"there are no sessions yet ({home.database} is missing).")
    store = await open_store(home.database)
    try:
        yield store
    finally:
        await store.close()


async def pick(store: Store, wanted: str) -> SessionRow:
    """The session of an id, of its unique beginning, or the newest for `latest`.

    Raises:
        NotFound: there is none.
        UsageError: there are several.
    """
    exact = await store.session(wanted)
    if exact is not None:
        return exact
    rows = await store.sessions(1 if wanted == "latest" else _SEARCHED)
    found = rows if wanted == "latest" else [row for row in rows if row.session_id.startswith(wanted)]
    if not found:
        raise NotFound(f"there is no session {wanted!r}. `hermes sessions list` shows them.")
    if len(found) > 1:
        names = ", ".join(row.session_id for row in found[:5])
        raise UsageError(f"{wanted!r} fits {len(found)} sessions: {names}. Write more of the id.")
    return found[0]


async def read_whole(home: Home, wanted: str) -> Whole:
    """Everything about a session of a home. Raises as `pick`."""
    async with journal(home) as store:
        return await whole_of(store, wanted)


async def whole_of(store: Store, wanted: str) -> Whole:
    """Everything about a session of an open journal. Raises as `pick`."""
    row = await pick(store, wanted)
    tasks = await store.tasks(row.session_id)
    entries = {task.task_id: [decode_entry(body) for _, body in await store.entries(task.task_id)] for task in tasks}
    unseen = await store.unseen(row.session_id)
    return Whole(
        row=row,
        tasks=tuple(tasks),
        entries=entries,
        unseen=frozenset(task.task_id for task in unseen),
        unfinished=await _unfinished(store, row.session_id),
    )


async def mentions(store: Store, session_id: str, words: Sequence[str]) -> bool:
    """Whether all the words (folded to lower case) stand in what one of the tasks of a session said or was told."""
    for task in await store.tasks(session_id):
        for _, body in await store.entries(task.task_id):
            text = body.decode("utf-8", "replace").casefold()
            if all(word in text for word in words):
                return True
    return False


async def renamed(store: Store, session_id: str, title: str) -> None:
    """Give a session another title, of at most 200 characters.

    Raises:
        UsageError: the title is empty.
    """
    clean = " ".join(title.split())
    if not clean:
        raise UsageError("the title is empty. Give a text.")
    # A new title is no use of the session: its place in the list and its age stay.
    await store.submit(Unit(ops=(TouchSession(session_id=session_id, updated_at=0.0, title=clean[:200]),))).wait()


async def _unfinished(store: Store, session_id: str) -> tuple[dict[str, Any], ...]:
    found = []
    for row in await store.events_of_type(TURN_ENDED, session_id=session_id):
        event = decode_event(row.body)
        if isinstance(event, TurnEnded) and event.unfinished_children:
            children = list(event.unfinished_children)
            found.append({"task_id": row.task_id, "at": row.at, "unfinished_children": children})
    return tuple(found)


def plain_task(task: TaskRow) -> dict[str, Any]:
    """A task as plain data, its end decoded."""
    row: dict[str, Any] = msgspec.structs.asdict(task)
    row.pop("spec")
    end = row.pop("end")
    row["end"] = msgspec.json.decode(end) if end else None
    return row


def said(entry: Entry, full: bool) -> list[tuple[str, str]]:
    """What an entry says, as (who, text); a long tool result is cut unless `full`."""
    if isinstance(entry, Assistant):
        calls = [("  →", f"{call.name} {call.raw if full else call.raw[:200]}") for call in entry.calls]
        return [("model", entry.text), *calls]
    if isinstance(entry, ToolResult):
        text = _text(entry.content)
        return [(f"  {entry.name}", text if full or len(text) <= 400 else text[:400] + " … (--full)")]
    if isinstance(entry, User):
        return [("you" if entry.source == "user" else entry.source, _text(entry.content))]
    if isinstance(entry, Steer):
        return [(f"steer from {entry.sender}", entry.text + "".join(map(_picture_words, entry.pictures)))]
    if isinstance(entry, (Notice, Summary)):
        return [("notice" if isinstance(entry, Notice) else "summary", entry.text)] if entry.text else []
    assert isinstance(entry, Interrupted)
    return [("interrupted", entry.reason)]


def _text(content: Any) -> str:
    return "".join(part.text if isinstance(part, Text) else _picture_words(part) for part in content)


def _picture_words(picture: Image) -> str:
    """What stands for a picture where there is text alone: its kind and size, as in `[picture: image/png, 12 KB]`."""
    return f"[picture: {picture.media_type}, {size_text(len(picture.data) * 3 // 4)}]"
