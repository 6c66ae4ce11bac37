"""A machine that gives no thread any more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_thread_to_be_had() -> Iterator[None]:
    """Within it a thread would need a stack that no address space holds."""
    before = threading.stack_size(1 << 62)
    try:
        yield
    finally:
        threading.stack_size(before)
