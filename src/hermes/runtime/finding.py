"""Finding a session by what a person calls it. Reads only."""

from __future__ import annotations

from hermes.core.errors import UsageError
from hermes.store.ops import Store

__all__ = ["find_session"]

#: How far back a session is looked for by a part of its id or by its title.
SEARCHED = 1_000


async def find_session(store: Store, wanted: str) -> str:
    """The id of a session: `latest`, an id, a unique beginning of one, or a title.

    Raises:
        UsageError: there is none, or several; the text names the nearest.
    """
    if wanted != "latest" and await store.session(wanted) is not None:
        return wanted
    usable = [row for row in await store.sessions(limit=SEARCHED) if row.source != "batch"]
    if wanted == "latest":
        if not usable:
            raise UsageError("there is no session to go on with; start one with hermes chat")
        return usable[0].session_id
    matches = [row for row in usable if row.session_id.startswith(wanted)] or [
        row for row in usable if row.title.lower() == wanted.lower()
    ]
    if len(matches) == 1:
        return matches[0].session_id
    names = ", ".join(row.session_id for row in (matches or usable)[:3]) or "none"
    raise UsageError(f"{'several sessions match' if matches else 'no session matches'} '{wanted}'; near: {names}")
