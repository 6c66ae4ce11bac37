"""What happens by default, by who is there and where commands run: one table, made from the two functions that decide.

Rules and settings come before it. Whether a sandbox can be had here is found out elsewhere.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hermes.core.environment import EnvironmentKind

__all__ = ["Backend", "ModeRow", "fate", "mode_rows", "mode_table", "place"]

Backend = Literal["auto", "local", "sandbox", "docker"]
Fate = Literal["run", "ask", "deny"]


class ModeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table; `runs_in` and `dangerous` are in words."""

    who: str
    runs_in: str
    ordinary: str
    dangerous: str


def place(backend: Backend, *, attended: bool, freed: bool, sandbox: bool) -> EnvironmentKind:
    """Where a task's commands run.

    `attended`: a person can be asked; `freed`: the person has allowed dangerous commands on this machine; `sandbox`:
    there is one here. A named backend holds for everybody; `auto` takes the sandbox where it spares a refusal.
    """
    if backend != "auto":
        return backend
    return "sandbox" if sandbox and not attended and not freed else "local"


def fate(kind: EnvironmentKind, *, attended: bool, freed: bool) -> Fate:
    """What becomes of a dangerous call that no rule speaks about. Arguments as `place`."""
    if kind != "local" or freed and not attended:
        return "run"
    return "ask" if attended else "deny"


_WORDS = {
    "run": "run",
    "ask": "are asked about",
    "deny": "are denied, with a sentence for the model",
}
_PLACES = {"local": "this machine", "sandbox": "the sandbox", "docker": "a container"}


def mode_rows() -> tuple[ModeRow, ...]:
    """The table with the default settings, row by row. Alone are one-shot runs, batch rollouts, cards, what goes on in
    the background, and all their children."""
    cases = (
        ("a chat and its children", True, False, True),
        ("alone, where there is a sandbox", False, False, True),
        ("alone, where there is none", False, False, False),
        ("alone, with --allow-host-commands", False, True, True),
    )
    rows = []
    for who, attended, freed, sandbox in cases:
        kind = place("auto", attended=attended, freed=freed, sandbox=sandbox)
        dangerous = _WORDS[fate(kind, attended=attended, freed=freed)]
        rows.append(ModeRow(who=who, runs_in=_PLACES[kind], ordinary="run", dangerous=dangerous))
    return tuple(rows)


def mode_table() -> str:
    """The table as Markdown."""
    head = "| who | commands run in | ordinary ones | dangerous ones |\n|---|---|---|---|\n"
    return head + "".join(f"| {row.who} | {row.runs_in} | {row.ordinary} | {row.dangerous} |\n" for row in mode_rows())
