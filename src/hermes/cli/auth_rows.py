"""The keys of every provider as `hermes auth` lists them, and which of them a person means. Prints nothing."""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence

import msgspec

from hermes.cli.options import Sources
from hermes.core.errors import UsageError
from hermes.credentials import Key, PoolEntry
from hermes.credentials.keys import ADDRESSES

__all__ = ["Row", "cells", "chosen_row", "listed_rows", "time_left", "unknown_provider"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One key as it is listed. `number` counts from 1 in the order of use; `rests` are seconds that are left. `status`
    is `ok`, why it rests (`rate_limit`, `billing`, `auth`), `dead`, or `logged_out`. `base_url` is the server that it
    belongs to, where its entry says that."""

    provider: str
    number: int
    id: str
    label: str
    kind: str
    source: str
    priority: int
    status: str
    rests: float
    requests: int
    usable: bool
    base_url: str = ""


def unknown_provider(sources: Sources, provider: str) -> str:
    """What is said of a provider that has no name here."""
    own = (entry.provider.removeprefix("custom:") for entry in sources.pool)
    known = list(dict.fromkeys([*ADDRESSES, *sources.loaded.settings.endpoints, *own]))
    near = difflib.get_close_matches(provider, known, 1)
    return f"there is no provider {provider!r}. " + (
        f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."
    )


def cells(row: Row, current: Row | None, *, placed: bool) -> tuple[str, ...]:
    """A row as it is printed; `current` is the one that is used first, `placed`: servers have a column."""
    said = row.status.replace("_", " ") if row.status in ("dead", "logged_out") else ""
    if row.rests > 0:
        said = f"{row.status}, {time_left(row.rests)} left"
    if not row.usable and row.status == "ok":
        said = "belongs to the program that made it"
    where = [row.base_url] if placed else []
    return (f"#{row.number}", row.label, row.kind, row.source, *where, said or ("←" if row is current else ""))


def time_left(seconds: float) -> str:
    """A time in whole seconds, minutes or hours."""
    minutes = int(seconds // 60)
    return f"{seconds:.0f} s" if minutes < 1 else f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"


def listed_rows(sources: Sources, provider: str) -> list[Row]:
    """Every key, those of variables included, by provider and in the order of use."""
    found: list[tuple[str, int, int, PoolEntry | Key]] = []
    for key in sources.keys:
        if key.variable and key.secret and key.entry is None:
            found.append((key.provider, -1, len(found), key))
    present = {key.variable for key in sources.keys}
    for entry in sources.pool:
        if not entry.source.startswith("env:") or entry.source[4:] in present:
            found.append((entry.provider, entry.priority, len(found), entry))
    plain = provider.removeprefix("custom:")
    named = {name.removeprefix("custom:") for name, *_ in found} | {*ADDRESSES, *sources.loaded.settings.endpoints}
    if provider and plain not in named:
        raise UsageError(unknown_provider(sources, provider))
    found.sort(key=lambda item: (item[0], item[1], item[2]))
    listed: list[Row] = []
    seen: set[tuple[str, str]] = set()
    for name, _, _, item in found:
        if provider and name not in (provider, f"custom:{provider}"):
            continue
        row = _row_of(name, 1 + sum(row.provider == name for row in listed), item)
        if (name, row.id) not in seen:  # a login has several secrets in one entry
            seen.add((name, row.id))
            listed.append(row)
    return listed


def _row_of(provider: str, number: int, item: PoolEntry | Key) -> Row:
    if isinstance(item, Key):
        source = f"env:{item.variable}"
        return Row(
            provider=provider, number=number, id=source, label=item.variable, kind="api_key", source=source,
            priority=-1, status="ok", rests=0.0, requests=0, usable=True,
        )  # fmt: skip
    rests = max(0.0, item.rests_until - time.time())
    marked = item.reason == "dead" or rests > 0
    status = "logged_out" if item.logged_out else item.reason if marked else "ok"
    variable = item.source.startswith("env:")
    return Row(
        provider=provider, number=number, id=item.id, label=item.label, kind=item.kind, source=item.source or "manual",
        priority=item.priority, status=status, rests=rests, requests=item.requests, usable=item.usable or variable,
        base_url=item.base_url,
    )  # fmt: skip


def chosen_row(listed: Sequence[Row], provider: str, target: str) -> Row:
    """The key that is meant: by number, id or label."""
    matching = [row for row in listed if target == row.id]
    matching = matching or [row for row in listed if target == row.label]
    if not matching and target.removeprefix("#").isdigit():
        matching = [row for row in listed if row.number == int(target.removeprefix("#"))]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(f"#{row.number} {row.label}" for row in listed) or "none"
    what = "more than one key" if matching else "no key"
    raise UsageError(f"{provider} has {what} {target!r}. There are: {names}.")
