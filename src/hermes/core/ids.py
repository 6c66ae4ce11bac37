"""Short ids that are never reused within a home.

The prefix tells the kind of a task, as users see it: `main_` a conversation, `bg_` a `/background` run, `sa-` a child
that its parent waits for, `async_` a child that runs beside it, `row_` a batch rollout; `deleg_` names a group.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import datetime

__all__ = ["IdSource", "random_hex", "session_id", "task_id"]

#: A source of `n` random hex digits; tests pass a counter instead.
IdSource = Callable[[int], str]

PREFIX = {"main": "main_", "background": "bg_", "child": "sa-", "async": "async_", "row": "row_", "card": "card_"}


def random_hex(digits: int) -> str:
    """Return `digits` random hex digits."""
    return secrets.token_hex((digits + 1) // 2)[:digits]


def task_id(kind: str, source: IdSource = random_hex) -> str:
    """Return a new task id: the prefix of `kind` (a key of `PREFIX`) and 8 hex digits."""
    return PREFIX[kind] + source(8)


def session_id(now: datetime, source: IdSource = random_hex) -> str:
    """Return a session id such as `20260225_143052_a1b2c3`: local date, time, 6 hex digits."""
    return f"{now:%Y%m%d_%H%M%S}_{source(6)}"
