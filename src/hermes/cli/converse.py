"""A conversation on this process's terminal: opens the runtime, chooses the composer, hears the signals."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
import click

from hermes.chat.interactive import Chat
from hermes.chat.past_lines import PastLines
from hermes.cli.beginning import Wish
from hermes.cli.faces import Chosen
from hermes.cli.leaving import drop_lost_terminal, hand_over, say_on_stderr
from hermes.cli.oneshot import EXIT_TERMINATED
from hermes.cli.opening import parts_of
from hermes.cli.options import Sources, listened
from hermes.cli.reaching import take_from_host
from hermes.cli.taped import tell_tape
from hermes.compose import Assembly, open_runtime
from hermes.runtime.runtime import tune_interpreter

__all__ = ["converse"]

#: Seconds between two looks at the status.
TICK = 0.25


async def converse(wish: Wish, screen: Any = None) -> int:
    """Hold a conversation on this process's terminal and return the exit code; `screen` is painted already.

    Raises:
        HermesError: the runtime could not be opened, or the journal broke.
    """
    sources = wish.sources
    parts = parts_of(sources, wish.record, wish.replay)
    session, hosted = await take_from_host(sources, wish.resume) if wish.resume else ("", False)
    async with open_runtime(parts) as assembly:
        tune_interpreter(attended=True)
        composer, given = _composer(assembly, wish.face.face, screen)
        chat = Chat(
            assembly,
            composer,
            workspace=wish.workspace,
            toolsets=wish.toolsets,
            verbose=wish.verbose,
            source=wish.source,
            resume=session,
            detaches=wish.detaches,
            terminal=wish.face.face != "lines" and sys.stdin.isatty(),
            options=sources.options,
            **given,
        )
        chat.went_on = session if wish.went_on or hosted else ""
        _seat(chat, composer, wish.face)
        hung_up = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(_signals, chat, hung_up, lambda: screen is not None and screen.app.lent)
            group.start_soon(_ticks, chat)
            if "kanban" in chat.spec.toolsets:
                group.start_soon(_serve_board, sources, chat)
            code = await chat.run()
            group.cancel_scope.cancel()
        going = chat.handed_over()
        if chat.detached:
            await assembly.runtime.supervisor.shutdown(assembly.settings.runtime.handover_wait_seconds)
        if tell_tape(assembly.tape, lambda line: click.echo(line, err=True)):
            code = code or 1
    if chat.detached:
        for session in going:
            await hand_over(sources, session, say_on_stderr, hurry=hung_up.is_set())
    return code


def _composer(assembly: Assembly, face: str, screen: Any) -> tuple[Any, dict[str, Any]]:
    """Where lines come from, and what else a chat is given for it."""
    if screen is not None:
        return screen, {"stage": screen.feed, "tell": screen.feed.tell}
    # edge: the line editor is not paid for where the full screen is taken
    from hermes.cli.composer import LineComposer, PromptComposer

    if face == "lines":
        return LineComposer(), {}
    return PromptComposer(PastLines(assembly.home), assembly.redactor.text), {}


def _seat(chat: Chat, composer: Any, face: Chosen) -> None:
    if face.face != "lines":
        composer.attach(chat)
    if face.note:
        chat.screen.note(face.note)
    # What cannot be held is refused now and not with the first line.
    chat.assembly.runtime.supervisor.budgets.admit([chat.spec], "", None)


async def _serve_board(sources: Sources, chat: Chat) -> None:
    def load() -> Callable[[Sources, Chat], Awaitable[None]]:
        # edge: only a conversation that has the board on loads the database and the dispatcher, beside the typing
        from hermes.cli.kanban_serving import serve_board

        return serve_board

    serve = await anyio.to_thread.run_sync(load)
    await serve(sources, chat)


async def _signals(chat: Chat, hung_up: anyio.Event, lent: Callable[[], bool]) -> None:
    """Hear the signals. While the terminal is `lent` to an editor Ctrl+C is meant for that, which hears it itself."""
    with anyio.open_signal_receiver(*listened()) as received:
        async for number in received:
            if number == signal.SIGINT:
                if not lent():
                    chat.stops.interrupt()
                continue
            detach = False
            if number == signal.SIGHUP:
                drop_lost_terminal()
                hung_up.set()
                detach = chat.detaches and chat.assembly.settings.runtime.on_hangup == "detach"
            chat.leave(EXIT_TERMINATED, suspend=True, detach=detach)


async def _ticks(chat: Chat) -> None:
    while True:
        await anyio.sleep(TICK)
        chat.refresh()
        if chat.runtime.supervisor.broken is not None:
            chat.leave(1)
