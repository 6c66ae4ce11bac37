"""The screen as a chat sees it: where its lines come from. Begins and ends the full-screen program."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import anyio

from hermes.chat.composer import Signal, nobody
from hermes.chat.interactive import Chat
from hermes.compose import Assembly
from hermes.tui.app import HermesApp
from hermes.tui.feed import Feed

__all__ = ["ScreenComposer"]

#: Lines that may wait until the chat reads them.
MOST_LINES = 1_000
#: Seconds that keeping the draft may take when the screen is left.
SETTLE = 5.0


class ScreenComposer:
    """The composer of a full-screen conversation. `feed` is its stage; `attach` gives it the chat that it serves.

    `run` shows the program and returns when it has ended; a test passes one without a terminal.
    """

    def __init__(self, assembly: Assembly, run: Callable[[HermesApp], Any] | None = None) -> None:
        self.on_typing: Callable[[bool], None] = nobody
        self.finished = False
        self.feed = Feed(assembly.runtime.bus.tree, assembly.redactor.text, lambda: self._session)
        self._run = run if run is not None else lambda app: app.run_async()
        self._send, self._receive = anyio.create_memory_object_stream[str | Signal](MOST_LINES)
        self._chat: Chat | None = None
        self._app: HermesApp | None = None
        self._stack = AsyncExitStack()
        self._farewell: list[str] = []
        self._leaving = False

    @property
    def _session(self) -> str:
        return self._chat.last_session if self._chat is not None else ""

    def attach(self, chat: Chat) -> None:
        """Serve this chat from now on."""
        self._chat = chat
        self._app = HermesApp(chat, self.feed, self._typed)

    @property
    def app(self) -> HermesApp:
        """The program."""
        assert self._app is not None, "attach a chat first"
        return self._app

    @property
    def width(self) -> int:
        """Columns of the transcript."""
        return self.feed.width

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(anyio.create_task_group())
            group.start_soon(self._show)
            await self.app.ready.wait()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving = True
        try:
            with anyio.move_on_after(SETTLE, shield=True):  # whoever is cancelled keeps the draft too
                await self.app.settle()
        finally:
            self.app.exit()
        try:
            await self._stack.__aexit__(kind, error, trace)
        finally:
            self._send.close()
            self._receive.close()
        for line in self._farewell:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()

    async def _show(self) -> None:
        with anyio.CancelScope(shield=True):  # the terminal is given back whatever happens
            await self._run(self.app)
        self.app.ready.set()
        if not self._leaving and self._chat is not None:
            why = f" ({type(self.app.failure).__name__})" if self.app.failure is not None else ""
            self._farewell.append(f"the screen ended{why}; what runs goes on in the background")
            if self.app.failure is not None and os.environ.get("HERMES_DEBUG"):
                self._farewell += traceback.format_exception(self.app.failure)
            self._chat.leave(1, suspend=True, detach=True)

    def _typed(self, text: str) -> None:
        try:
            self._send.send_nowait(text)
        except anyio.WouldBlock:
            self.feed.note("this line was not taken: too many wait. Send it again in a moment")

    async def read(self) -> str | Signal:
        """The next line."""
        return await self._receive.receive()

    def write(self, line: str) -> None:
        """Keep a line for the terminal, once the screen has gone."""
        self._farewell.append(line)

    def partial(self, text: str) -> None:
        """Nothing: the transcript shows what is not a whole line yet."""

    def refresh(self, prompt: str, status: str) -> None:
        """Nothing: the screen draws itself."""

    def bell(self) -> None:
        """Ring."""
        self.app.bell()
