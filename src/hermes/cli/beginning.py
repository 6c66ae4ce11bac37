"""How a conversation begins: the full screen is painted first and takes keys, then what it needs is loaded.

Loading the models' and tools' code takes longer than everything before it, so nothing of it is imported here.
"""

from __future__ import annotations

import importlib
import signal
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from hermes.chat.leaving import EXIT_INTERRUPTED
from hermes.cli.faces import SCREEN, Chosen
from hermes.cli.options import Sources, listened
from hermes.credentials.redact import Redactor

__all__ = ["Wish", "begin"]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation that is asked for. `resume` is the session to go on with; `went_on`: another process had it
    until now; `record` and `replay` are files of a tape, empty for none; `detaches`: what runs when the terminal is
    left in the middle of it goes on in the background."""

    sources: Sources
    face: Chosen
    workspace: str
    toolsets: tuple[str, ...] | None
    verbose: bool
    source: str
    resume: str = ""
    went_on: bool = False
    record: str = ""
    replay: str = ""
    detaches: bool = True


async def begin(wish: Wish) -> int:
    """Hold the conversation on this process's terminal and return the exit code.

    Raises:
        HermesError: it cannot be held with these settings, or the journal broke.
    """
    if wish.face.face != "screen":
        return await _converse(wish)
    if not wish.replay:
        wish.sources.endpoint()  # who has nothing configured yet reads that, and sees no screen come and go
    redact = Redactor(wish.sources.secrets()).text
    place = None if wish.resume else wish.workspace
    composer = importlib.import_module(SCREEN).ScreenComposer(wish.sources.loaded.home, redact, new_in=place)
    async with composer.painted(), anyio.create_task_group() as group:
        group.start_soon(_signals, composer)
        code = await _converse(wish, composer)
        group.cancel_scope.cancel()
    return composer.given_up or code


async def _converse(wish: Wish, composer: Any = None) -> int:
    # in a thread: the screen draws keys meanwhile
    module = await anyio.to_thread.run_sync(importlib.import_module, "hermes.cli.converse")
    code: int = await module.converse(wish, composer)
    return code


async def _signals(composer: Any) -> None:
    """Until the conversation hears them itself, a signal ends the program with its terminal given back."""
    with anyio.open_signal_receiver(*listened()) as received:
        async for number in received:
            composer.give_up(EXIT_INTERRUPTED if number == signal.SIGINT else 128 + number)
