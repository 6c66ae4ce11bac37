"""`--record` and `--replay`: the options, what they cannot go with, and what is said of them at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import click

from hermes.core.errors import UsageError

__all__ = ["refuse_tape_with", "tape_options", "tell_tape"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Tape(Protocol):
    def summary(self) -> str: ...
    def problems(self) -> Sequence[str]: ...


def tape_options(command: _Command) -> _Command:
    """Give a command --record and --replay, which arrive as `record` and `replay`, empty where not given."""
    command = click.option(
        "--replay", default="", metavar="FILE", help="Answer from a recording: no network, no key, no command runs."
    )(command)
    return click.option(
        "--record", default="", metavar="FILE", help="Keep every reply and result of all tasks in FILE, for --replay."
    )(command)


def refuse_tape_with(record: str, replay: str, **others: Any) -> None:
    """Refuse what cannot be recorded and replayed: `others` are values by the name of their option.

    Raises:
        UsageError: one of them was given.
    """
    if not (record or replay):
        return
    flag = "--record" if record else "--replay"
    for name, value in others.items():
        if value:
            raise UsageError(f"{flag} and --{name} exclude each other: only work from its beginning can be replayed.")


def tell_tape(tape: _Tape | None, note: Callable[[str], None], *, said: str = "") -> bool:
    """Say what was recorded or replayed; True if a replay went otherwise than its recording, which is a failure.

    What stands in `said` is not told again.
    """
    if tape is None:
        return False
    note(tape.summary())
    problems = tape.problems()
    for problem in (one for one in problems if one not in said):
        note(f"hermes: the replay is not the recording: {problem}")
    return bool(problems)
