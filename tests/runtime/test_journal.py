"""How histories are written."""

from __future__ import annotations

from typing import cast

import pytest

from hermes.core.clock import NO_HOLD
from hermes.core.messages import LARGE, Text, User
from hermes.runtime.journal import Journals
from hermes.runtime.task import Task
from hermes.store.memory import MemoryStore


@pytest.mark.anyio
@pytest.mark.parametrize("keep", [True, False])
async def test_what_nobody_keeps_is_not_encoded_beforehand(keep: bool) -> None:
    encoded: list[int] = []

    def redact(data: bytes) -> bytes:
        encoded.append(len(data))
        return data

    store = MemoryStore(keep=keep)
    journals = Journals(store, redact=redact, now=float, consumed=bool, delivered=lambda *_: None)
    journal = journals.of(cast(Task, None))
    await journal.prepare([User(content=(Text("x" * (LARGE + 1)),)), User(content=(Text("small"),))], NO_HOLD)
    assert len(encoded) == keep
