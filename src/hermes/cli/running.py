"""Running the coroutine of a command, and how its end becomes that of the process. Knows no command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from hermes.cli.fast import reader_gone

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
        return reader_gone()  # click would make an ordinary failure of it


def _unwrapped(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error inside groups: groups wrap even a single one."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
