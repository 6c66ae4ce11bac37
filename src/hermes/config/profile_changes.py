"""What an update changes in a profile, in words and lines for whoever is asked, and which of it to look at first.

Decides and writes nothing: `profile_install` finds the changes and carries them out.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from hermes.config.profile_offer import flat, notable
from hermes.config.schema import FIELDS

__all__ = ["Change", "after", "look_at", "shown"]

What = Literal["add", "replace", "remove", "set", "unset", "keep"]
#: Settings that bound what work may take; a higher number, none at all and 0 allow more.
_LIMIT = re.compile(
    r"budget\..+|agent\.(?:max_turns|run_budget_seconds)|delegation\.(?:max_\w+|\w+_seconds)|runtime\.max_running"
    r"|kanban\.(?:max_\w+|failure_limit|(?:card|day)_(?:usd|tokens))|code_execution\.\w+"
    r"|terminal\.(?:timeout|max_parallel|container_(?:memory|cpu|disk))"
)
#: Lines of one file's change that are shown; the rest is counted.
_LINES = 60


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What an update does to one file, or to one setting of `config.yaml` (`key`): `before` is what it was here, null
    where it was not set. `keep`: both sides changed it, or it was removed here and changed there."""

    what: What
    file: str
    key: tuple[str, ...] = ()
    value: Any = None
    before: Any = None

    @property
    def name(self) -> str:
        """What is changed: a file, or a setting of it."""
        return f"{self.file}: {'.'.join(self.key)}" if self.key else self.file

    @property
    def told(self) -> str:
        """The change in words."""
        was = "" if self.before is None else f", was {self.before!r}"
        words = {
            "add": "is new",
            "replace": "changes",
            "remove": "goes away",
            "set": f"becomes {self.value!r}{was}",
            "unset": f"is no longer set{was}",
            "keep": "stays as it is here; it was changed there too",
        }
        return f"{self.name} {words[self.what]}"


def shown(changes: Iterable[Change], own: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    """The changes line by line; of a file that is new or replaced its text, as what goes (`-`) and comes (`+`).

    `own` and `new` are the texts of the files here and in what is offered, by their paths in the profile.
    """
    for each in changes:
        yield each.told
        if each.key or each.what not in ("add", "replace"):
            continue
        before, comes = own.get(each.file, "").splitlines(), new[each.file].splitlines()
        lines = list(difflib.unified_diff(before, comes, n=1, lineterm=""))[2:]
        yield from (f"  {line}" for line in lines[:_LINES])
        yield from [f"  … {len(lines) - _LINES} lines more"] if len(lines) > _LINES else []


def after(changes: Iterable[Change], own: str, new: str) -> dict[str, Any]:
    """The settings by their dotted names once these changes are made to the `config.yaml` of text `own`; `new` is the
    text that is offered. Raises `ConfigError` for a text that cannot be read."""
    found = flat(own)
    for each in (change for change in changes if change.file == "config.yaml"):
        if each.what in ("add", "replace"):
            found = flat(new)
        elif each.what == "remove":
            found = {}
        elif each.what == "set":
            found[".".join(each.key)] = each.value
        elif each.what == "unset":
            found.pop(".".join(each.key), None)
    return found


def look_at(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Of settings that become others the names of those a person should look at first: they say whom is asked or what
    may run, before or now, or they are limits that allow more than before, by going away too."""
    changed = [name for name in {**now, **before} if before.get(name) != now.get(name)]
    said = {name for each in (before, now) for name in notable({key: each[key] for key in changed if key in each})}
    return sorted(name for name in changed if name in said or _allows_more(name, before, now))


def _allows_more(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    if not _LIMIT.fullmatch(name):
        return False
    default = FIELDS[name].default if name in FIELDS else None
    return _most(now.get(name, default)) > _most(before.get(name, default))


def _most(value: Any) -> float:
    """What a limit allows; no number and none above 0 are no limit."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return float("inf")
    return number if number > 0 else float("inf")
