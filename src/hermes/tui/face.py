"""The screen as a chat sees it: where its lines come from. Begins and ends the full-screen program."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.to_thread

from hermes.chat.composer import Signal, nobody
from hermes.config import Home
from hermes.tui.app import HermesApp
from hermes.tui.feed import Feed
from hermes.tui.transcript import RENDERING

if TYPE_CHECKING:
    from hermes.chat.interactive import Chat

__all__ = ["ScreenComposer"]

#: Lines that may wait until the chat reads them.
MOST_LINES = 1_000
#: Seconds that keeping the draft may take when the screen is left.
SETTLE = 5.0


class ScreenComposer:
    """The composer of a full-screen conversation. `feed` is its stage; `attach` gives it the chat that it serves.

    `new_in` is the folder of a conversation that has not begun, None for one that is taken up. `run` shows the program
    and returns when it has ended; a test passes one without a terminal. `given_up` is the exit code where the program
    was ended before there was a chat, else 0.
    """

    def __init__(
        self,
        home: Home,
        redact: Callable[[str], str],
        *,
        new_in: str | None = None,
        run: Callable[[HermesApp], Any] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.on_typing: Callable[[bool], None] = nobody
        self.finished = False
        self.feed = Feed(redact, lambda: self._session, environ)
        self.given_up = 0
        self._run = run if run is not None else lambda app: app.run_async()
        self._send, self._receive = anyio.create_memory_object_stream[str | Signal](MOST_LINES)
        self._chat: Chat | None = None
        self.app = HermesApp(self.feed, self._typed, self.give_up, home=home, new_in=new_in)
        self._scope: anyio.CancelScope | None = None  # of what is done once the screen is there
        self._own = AsyncExitStack()
        self._ended = anyio.Event()
        self._farewell: list[str] = []
        self._leaving = False

    @property
    def _session(self) -> str:
        return self._chat.last_session if self._chat is not None else ""

    def attach(self, chat: Chat) -> None:
        """Serve this chat from now on: what was typed until now goes to it first."""
        self._chat = chat
        self.feed.follow(chat.tree, chat.assembly.redactor.text)
        self.app.begin(chat)

    def give_up(self, code: int) -> None:
        """End the program, unless there is a chat by now."""
        if self._chat is None:
            self.given_up = self.given_up or code
            if self._scope is not None:
                self._scope.cancel()

    @property
    def width(self) -> int:
        """Columns of the transcript."""
        return self.feed.width

    @asynccontextmanager
    async def painted(self) -> AsyncIterator[None]:
        """The screen for the length of a block, from its first picture on. A chat may come later, and go before."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._show)
            try:
                await self.app.ready.wait()
                with anyio.CancelScope() as self._scope:
                    if self.given_up:  # before the first picture
                        self._scope.cancel()
                    group.start_soon(anyio.to_thread.run_sync, partial(importlib.import_module, RENDERING))
                    yield
            finally:
                await self._end()

    async def __aenter__(self) -> Self:
        if self._scope is None:
            await self._own.enter_async_context(self.painted())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()
        await self._own.__aexit__(kind, error, trace)

    async def _end(self) -> None:
        if self._leaving:
            return
        self._leaving = True
        try:
            with anyio.move_on_after(SETTLE, shield=True):  # whoever is cancelled keeps the draft too
                await self.app.ready.wait()  # what only begins would not hear that it is to end
                await self.app.settle()
        finally:
            self.app.exit()
        with anyio.CancelScope(shield=True):
            await self._ended.wait()
        self._send.close()
        self._receive.close()
        for line in self._farewell:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()

    async def _show(self) -> None:
        try:
            with anyio.CancelScope(shield=True):  # the terminal is given back whatever happens
                await self._run(self.app)
        finally:
            self.app.ready.set()
            self._ended.set()
        if self._leaving:
            return
        why = f" ({type(self.app.failure).__name__})" if self.app.failure is not None else ""
        if self._chat is None:
            self._farewell.append(
                f"the screen ended{why} before there was a conversation; hermes --cli needs no screen"
            )
        else:
            self._farewell.append(f"the screen ended{why}; what runs goes on in the background")
        if self.app.failure is not None and os.environ.get("HERMES_DEBUG"):
            self._farewell += traceback.format_exception(self.app.failure)
        if self._chat is None:
            self.give_up(1)
        else:
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
