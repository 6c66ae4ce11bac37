"""A person at the full screen, without a terminal: a lab, a chat, the program, and hands on its keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from hermes.chat.interactive import Chat
from hermes.core.model import Model, ModelRequest
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import Reply
from hermes.tui.app import HermesApp
from hermes.tui.chat_screen import ChatScreen
from hermes.tui.face import ScreenComposer
from tests.tui.hands import PATIENCE, Hands


def after(may: anyio.Event, step: Reply) -> Callable[[ModelRequest], Awaitable[Reply]]:
    """A step that a model takes once it may."""

    async def wait(_: ModelRequest) -> Reply:
        await may.wait()
        return step

    return wait


class Seat:
    """What a test does with the program."""

    def __init__(self, chat: Chat, composer: ScreenComposer, lab: Lab) -> None:
        self.chat = chat
        self.composer = composer
        self.lab = lab
        self.app: HermesApp = composer.app
        self.pilot = Hands(composer.app)
        self.code: int | None = None

    async def run(self) -> None:
        self.code = await self.chat.run()

    @property
    def screen(self) -> ChatScreen:
        """The conversation, whatever is open over it."""
        return next(screen for screen in self.app.screen_stack if isinstance(screen, ChatScreen))

    @property
    def text(self) -> str:
        return self.pilot.text

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def send(self, line: str) -> None:
        """Type a line and send it."""
        self.screen.prompt.insert(line)
        await self.press("enter")

    async def until(self, true: Callable[[], Any], what: str = "") -> None:
        with anyio.move_on_after(PATIENCE):
            while not true():
                await anyio.sleep(0.02)
            return
        pytest.fail(f"never seen: {what or true}\n{self.text}")

    async def sees(self, words: str) -> str:
        await self.until(lambda: words in self.text, words)
        return self.text

    async def quiet(self) -> None:
        await self.until(lambda: self.chat.session is not None and not self.chat.turn_runs, "a quiet conversation")


@asynccontextmanager
async def seat(
    model: Model,
    path: Path,
    *,
    size: tuple[int, int] = (80, 24),
    resume: str = "",
    memory: bool = True,
    workspace: str = "",
    clock: Any = None,
    **settings: Any,
) -> AsyncIterator[Seat]:
    """Open the program on a model; whoever leaves the block quits it."""
    async with open_lab(model, workspace=path, settings=settings, memory=memory, clock=clock) as lab:
        composer = ScreenComposer(
            lab.assembly.home,
            lab.assembly.redactor.text,
            run=lambda app: app.run_async(headless=True, size=size),
            environ={},
        )
        chat = Chat(
            lab.assembly,
            composer,
            workspace=workspace or str(path),
            resume=resume,
            stage=composer.feed,
            tell=composer.feed.tell,
        )
        composer.attach(chat)
        there = Seat(chat, composer, lab)
        async with anyio.create_task_group() as group:
            group.start_soon(there.run)
            await composer.app.ready.wait()
            with composer.app._context():  # what is drawn while a test waits asks for the program
                await there.pilot.settled()
                yield there
            if there.code is None:
                chat.leave()
