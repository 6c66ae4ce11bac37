"""What runs on this machine, as a test sees it: commands in a sandbox have process ids of their own inside it."""

from __future__ import annotations

import contextlib
from pathlib import Path


def sleeping(seconds: str) -> list[str]:
    """Ids of processes that sleep for so long: a number that nobody else on this machine uses."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                found.append(path.parent.name)
    return found
