"""A conversation on this process's terminal: opens the runtime, chooses the composer, hears the signals."""

from __future__ import annotations

import signal

import anyio

from hermes.cli.composer import Composer, LineComposer, PromptComposer
from hermes.cli.interactive import Chat
from hermes.cli.oneshot import EXIT_TERMINATED
from hermes.cli.options import listened
from hermes.compose import Parts, open_runtime
from hermes.runtime.runtime import tune_collector

__all__ = ["converse"]

#: Seconds between two looks at the status.
TICK = 0.25


async def converse(
    parts: Parts, *, workspace: str, toolsets: tuple[str, ...] | None, plain: bool, verbose: bool, source: str
) -> int:
    """Hold a conversation on this process's terminal and return the exit code.

    Raises:
        HermesError: the runtime could not be opened, or the journal broke.
    """
    async with open_runtime(parts) as assembly:
        tune_collector()
        composer: Composer = LineComposer() if plain else PromptComposer()
        chat = Chat(assembly, composer, workspace=workspace, toolsets=toolsets, verbose=verbose, source=source)
        # What cannot be held is refused now and not with the first line.
        assembly.runtime.supervisor.budgets.admit([chat.spec], "", None)
        async with anyio.create_task_group() as group:
            group.start_soon(_signals, chat)
            group.start_soon(_ticks, chat)
            code = await chat.run()
            group.cancel_scope.cancel()
        return code


async def _signals(chat: Chat) -> None:
    with anyio.open_signal_receiver(*listened()) as received:
        async for number in received:
            if number == signal.SIGINT:
                chat.interrupt()
            else:
                chat.leave(EXIT_TERMINATED, suspend=True)


async def _ticks(chat: Chat) -> None:
    while True:
        await anyio.sleep(TICK)
        chat.refresh()
        if chat.runtime.supervisor.broken is not None:
            chat.leave(1)
