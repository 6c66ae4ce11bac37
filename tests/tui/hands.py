"""Hands on the keys of a program without a terminal, each key after what came of the one before.

Textual's own pilot goes on once the process is idle, and on a busy machine a process that is not let run looks idle.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import os
import unicodedata
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from textual import events
from textual._context import visible_screen_stack
from textual.app import App, ScreenStackError
from textual.keys import REPLACED_KEYS, _character_to_key, _get_unicode_name_from_key
from textual.message_pump import MessagePump
from textual.pilot import Pilot
from textual.strip import Strip

__all__ = ["PATIENCE", "Hands", "is_picture", "on_stage", "until"]

#: Seconds that a test waits for something to come true: a wait ends at once when it does.
PATIENCE = 60.0
#: Turns of the loop in a row in which nothing else is ready to run.
IDLE = 3


class Hands(Pilot[None]):
    """A pilot whose `press` and `pause` end when everything was handled, however slow the machine is."""

    @property
    def text(self) -> str:
        """What stands on the screen that is seen."""
        return "\n".join(strip.text.rstrip() for strip in self.strips)

    @property
    def strips(self) -> list[Strip]:
        """The lines of the screen that is seen, over those that show through it. What is drawn here is kept and shown
        again, so it has to be drawn as the program does."""
        with self.app._context():
            visible_screen_stack.set(self.app._background_screens)
            return self.app.screen._compositor.render_strips()

    async def press(self, *keys: str) -> None:
        """Press keys, each when the one before was handled."""
        for key in keys:
            driver = self.app._driver
            assert driver is not None
            driver.send_message(_event(key, self.app))
            await self.settled()

    async def pause(self, delay: float | None = None) -> None:
        """Wait `delay` seconds, or until everything was handled; what changed is drawn."""
        if delay is None:
            await self.settled()
        else:
            await anyio.sleep(delay)
            self._draw()

    async def settled(self) -> None:
        """Wait until each message was handled and what it led to as well, and all of it is drawn."""
        with anyio.fail_after(PATIENCE):
            for _ in range(2):  # a picture may begin something
                await self._handled()
                self._draw()
            await self._handled()

    async def _handled(self) -> None:
        await _nothing_ready()
        waiting = set[MessagePump]()

        def answered(part: MessagePump) -> None:
            waiting.discard(part)

        for part in self._parts():
            if part.call_later(answered, part):
                waiting.add(part)
        while any(part.is_running for part in waiting) and not self.app._closing:
            await anyio.sleep(0.001)  # one of them waits for a thread
        await _nothing_ready()

    def _parts(self) -> list[MessagePump]:
        return [self.app, *(part for screen in self.app.screen_stack for part in screen.walk_children(with_self=True))]

    def _draw(self) -> None:
        with suppress(ScreenStackError), self.app._context():  # what is drawn while a test waits asks for the program
            self.app.screen._on_timer_update()


async def is_picture(name: str, lines: Callable[[], list[str]], hands: Hands) -> None:
    """Wait until `lines` are those of a kept picture; with PICTURES set they are kept anew, to be looked at."""
    path = Path(__file__).parent / "pictures" / f"{name}.txt"
    await hands.settled()
    if os.environ.get("PICTURES"):
        await anyio.sleep(1.0)  # nobody knows what to wait for
        path.write_text("\n".join(lines()) + "\n", encoding="utf-8")
    kept = path.read_text(encoding="utf-8").splitlines()
    with anyio.move_on_after(PATIENCE):
        while lines() != kept:
            await hands.pause(0.02)
        return
    pytest.fail("\n".join(["another picture:", *difflib.unified_diff(kept, lines(), "kept", "shown", lineterm="")]))


async def until(true: Callable[[], object], hands: Hands, draw: Callable[[], object] | None = None) -> None:
    """Wait until something is so; `draw` brings what is shown up to date in between."""
    with anyio.move_on_after(PATIENCE):
        while not true():
            if draw is not None:
                draw()
            await hands.pause(0.02)
        return
    pytest.fail(f"never so: {inspect.getsource(true).strip()}\n{hands.text}")


async def _nothing_ready() -> None:
    """Let everything run that can run now."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    idle = 0
    while idle < IDLE:
        await anyio.sleep(0)
        idle = 0 if ready else idle + 1


def _event(key: str, app: App[None]) -> events.Key:
    """The key as a terminal would send it."""
    name = _character_to_key(key) if len(key) == 1 else key
    character: str | None = key if len(key) == 1 else None
    if character is None:
        with suppress(KeyError):
            character = unicodedata.lookup(_get_unicode_name_from_key(REPLACED_KEYS.get(name, name)))
    event = events.Key(name, character)
    event.set_sender(app)
    return event


@asynccontextmanager
async def on_stage(app: App[None], size: tuple[int, int]) -> AsyncIterator[Hands]:
    """Run a program without a terminal, and yield hands on it."""
    async with app.run_test(size=size):
        hands = Hands(app)
        await hands.settled()
        yield hands
