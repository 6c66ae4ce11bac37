"""The board beside a conversation, for as long as it is open: it hears of its cards, and serves the board on a thread
unless somebody else does."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import anyio
import anyio.from_thread
import anyio.to_thread

from hermes.chat.interactive import Chat
from hermes.cli.kanban_hearing import Hearing
from hermes.cli.kanban_parts import dispatcher_of, open_board_of
from hermes.cli.kanban_telling import teller_of
from hermes.cli.options import Sources
from hermes.core.errors import HermesError
from hermes.environments.process import DEPTH

__all__ = ["serve_board"]

#: Seconds between two looks at whether the board is free to be served.
AGAIN = 5.0


async def serve_board(sources: Sources, chat: Chat) -> None:
    """Serve the board that is meant until cancelled, as far as the settings say so, and tell the conversation of its
    cards. Fails only in words."""
    if os.environ.get(DEPTH):
        return
    stop = threading.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(Hearing(sources.loaded, chat).run)
        if sources.loaded.settings.kanban.dispatch_in_session:
            group.start_soon(anyio.to_thread.run_sync, _serve, sources, stop, chat.screen.note)
        try:
            await anyio.sleep_forever()
        finally:
            stop.set()  # the thread ends by itself; its workers go on


def _serve(sources: Sources, stop: threading.Event, say: Callable[[str], None]) -> None:
    def told(line: str) -> None:
        if not stop.is_set():
            anyio.from_thread.run_sync(say, f"board: {line}")

    try:
        opened = open_board_of(sources)
        with opened.board:
            dispatcher = dispatcher_of(opened, told, tell=teller_of(sources, opened.slug))
            while not dispatcher.lock.take():
                if stop.wait(AGAIN):
                    return
            try:
                dispatcher.serve(stop)
            finally:
                dispatcher.lock.release()
    except (HermesError, OSError) as error:
        told(str(error))
