"""Requests that take long to write, such as one with a text of 50 MB: they are written in a thread, so that everything
else goes on meanwhile. How a request is written is its format's business."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

from hermes.core.messages import User, is_large
from hermes.core.model import ModelRequest

__all__ = ["large_request", "written"]

T = TypeVar("T")


def large_request(request: ModelRequest) -> bool:
    """Whether somebody sends so much in one piece; what tools bring is bounded."""
    for entry in request.entries:
        if type(entry) is User and is_large(entry.content):
            return True
    return False


async def written(request: ModelRequest, write: Callable[[ModelRequest], T]) -> T:
    """Return `write(request)`. Raises what it raises."""
    if large_request(request):
        return await anyio.to_thread.run_sync(write, request)
    return write(request)
