"""Which rollout is which, over restarts and edits of the dataset.

A rollout is (hash of the canonical row, ordinal among equal rows, rollout index); its place in the file is recorded but
is not its identity, so that a row inserted on top shifts nothing and equal prompts stay two rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

__all__ = ["Changes", "fingerprint", "row_hash", "rollout_key", "session_name"]

_encoder = msgspec.json.Encoder(order="sorted")


def row_hash(source: dict[str, Any]) -> str:
    """Return 32 hex digits of the SHA-256 of the row with sorted keys and no blanks."""
    return hashlib.sha256(_encoder.encode(source)).hexdigest()[:32]


def rollout_key(row_id: str, rollout: int) -> str:
    """Return the identity of rollout number `rollout` of a row."""
    return f"{row_id}:{rollout}"


def session_name(key: str, attempt: int) -> str:
    """Return the session in which an attempt at the rollout `key` runs."""
    return f"row-{key.replace(':', '-')}-{attempt}"


def fingerprint(ids: Iterable[str]) -> str:
    """Return 16 hex digits for a whole dataset, order included."""
    digest = hashlib.sha256()
    for number, row_id in enumerate(ids):
        digest.update(f"\n{row_id}".encode() if number else row_id.encode())
    return digest.hexdigest()[:16]


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """How a dataset differs from the one a run began with: how many rows are new, gone, and moved. A row is moved if
    its order among the rows that stand in both has changed; a mere shift by rows added or removed is none."""

    added: int = 0
    removed: int = 0
    moved: int = 0

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.moved)

    def __str__(self) -> str:
        return f"{self.added} added, {self.removed} removed, {self.moved} moved"
