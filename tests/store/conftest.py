"""The same tests for both stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes.store.memory import MemoryStore
from hermes.store.ops import Store
from hermes.store.sqlite import open_store


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: str) -> AsyncIterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else await open_store(tmp_path / "h" / "runtime.db")
    try:
        yield made
    finally:
        await made.close()
