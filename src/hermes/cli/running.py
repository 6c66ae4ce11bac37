"""Running the coroutine of a command, and how its end becomes that of the process. Knows no command."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable

import anyio

__all__ = ["run_async"]


def run_async(main: Callable[[], Awaitable[int]]) -> int:
    """Run a command's coroutine; the first error inside groups is raised as itself."""

    async def begin() -> int:
        return await main()

    try:
        try:
            return anyio.run(begin)
        except BaseExceptionGroup as errors:
            raise _unwrapped(errors) from None
    except BrokenPipeError:
        # the reader went away (`hermes … | head`), and click would make an ordinary failure of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _unwrapped(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error inside groups: groups wrap even a single one."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
