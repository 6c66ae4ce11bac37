"""The screen before there is a conversation: it takes keys, keeps what is typed, and can be left."""

from __future__ import annotations

import array
import fcntl
import os
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from hermes.chat.drafts import Drafts
from hermes.chat.interactive import Chat
from hermes.config import Home
from hermes.testing.lab import open_lab
from hermes.testing.scripted import ScriptedModel, reply
from hermes.tui.app import HermesApp
from hermes.tui.chat_screen import ChatScreen
from hermes.tui.face import ScreenComposer
from tests.tui.hands import PATIENCE, Hands

pytestmark = pytest.mark.anyio


def unhidden(text: str) -> str:
    return text


def composer_in(folder: Path, *, resumed: bool = False) -> ScreenComposer:
    home = Home(root=folder / "home", path=folder / "home")
    new_in = None if resumed else str(folder)
    return ScreenComposer(home, unhidden, new_in=new_in, run=lambda app: app.run_async(headless=True, size=(80, 24)))


def text_of(composer: ScreenComposer) -> str:
    with composer.app._context():
        return Hands(composer.app).text


def screen_of(composer: ScreenComposer) -> ChatScreen:
    screen = composer.app.screen_stack[0]
    assert isinstance(screen, ChatScreen)
    return screen


async def sees(composer: ScreenComposer, words: str) -> None:
    with anyio.move_on_after(PATIENCE):
        while words not in text_of(composer):
            await anyio.sleep(0.02)
        return
    pytest.fail(f"never seen: {words}\n{text_of(composer)}")


@asynccontextmanager
async def talking(
    composer: ScreenComposer, model: ScriptedModel, folder: Path, resume: str = ""
) -> AsyncIterator[Chat]:
    """The conversation that comes to a screen which is painted already."""
    async with open_lab(model, workspace=folder, memory=True) as lab:
        chat = Chat(
            lab.assembly,
            composer,
            workspace=str(folder),
            stage=composer.feed,
            tell=composer.feed.tell,
        )
        composer.attach(chat)
        async with anyio.create_task_group() as group:
            group.start_soon(chat.run)
            yield chat
            chat.leave()


async def test_what_is_typed_before_is_sent_and_kept(tmp_path: Path) -> None:
    composer = composer_in(tmp_path)
    model = ScriptedModel("m", [reply("here I am")])
    async with composer.painted():
        pilot = Hands(composer.app)
        await sees(composer, "starting …")
        await pilot.press(*"hello", "enter", *"and", "f6", "ctrl+b", "escape")
        await sees(composer, "still starting: a moment")
        await sees(composer, "hello")
        assert screen_of(composer).prompt.text == "and"
        async with talking(composer, model, tmp_path):
            await sees(composer, "here I am")
            assert screen_of(composer).prompt.text == "and"
    model.assert_complete()


async def test_commands_and_paths_are_offered_before(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    composer = composer_in(tmp_path)
    async with composer.painted():
        pilot = Hands(composer.app)
        await pilot.press(*"/sess")
        await sees(composer, "earlier conversations")
        await pilot.press("ctrl+u", *"@no")
        await sees(composer, "@notes.txt")


@pytest.mark.parametrize("words", ["", "new words"])
async def test_a_draft_comes_back_once_the_session_is_known(tmp_path: Path, words: str) -> None:
    composer = composer_in(tmp_path, resumed=True)
    screen = screen_of
    async with composer.painted():
        pilot = Hands(composer.app)
        await pilot.press(*words)
        await anyio.to_thread.run_sync(Drafts(composer.app.home).save, "", str(tmp_path), "an old thought")
        async with talking(composer, ScriptedModel("m", []), tmp_path):
            await sees(composer, "what you had not sent here is a key up" if words else "an old thought")
            assert screen(composer).prompt.text == (words or "an old thought")
            await pilot.press("up")
            assert screen(composer).prompt.text == "an old thought"


async def test_a_draft_that_is_read_slowly_is_not_replaced_before(tmp_path: Path) -> None:
    composer = composer_in(tmp_path, resumed=True)
    slow = Drafts(composer.app.home)._file("", str(tmp_path))
    slow.parent.mkdir(parents=True)
    os.mkfifo(slow)  # whoever reads it waits until it is closed
    pipe = os.open(slow, os.O_RDWR)
    try:
        async with composer.painted():
            screen = screen_of(composer)
            screen.prompt.insert("new words")
            os.write(pipe, b"an old thought")
            async with talking(composer, ScriptedModel("m", []), tmp_path), anyio.create_task_group() as group:
                group.start_soon(screen.keep_draft)
                with anyio.fail_after(PATIENCE):
                    while not is_drained(pipe):
                        await anyio.sleep(0.01)
                group.start_soon(screen.keep_draft)
                await anyio.wait_all_tasks_blocked()
                assert slow.is_fifo()
                os.close(pipe)
                pipe = -1
                await sees(composer, "what you had not sent here is a key up")
                await Hands(composer.app).press("up")
                assert screen.prompt.text == "an old thought"
    finally:
        if pipe >= 0:
            os.close(pipe)


def is_drained(pipe: int) -> bool:
    """Whether everything that was written to a pipe was read."""
    left = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, left)
    return left[0] == 0


async def test_ctrl_c_leaves_what_only_begins(tmp_path: Path) -> None:
    composer = composer_in(tmp_path)
    async with composer.painted():
        await Hands(composer.app).press("ctrl+c")
        await anyio.sleep_forever()
    assert composer.given_up == 130


async def test_ctrl_c_before_the_first_picture_leaves_too(tmp_path: Path) -> None:
    composer = composer_in(tmp_path)
    composer.give_up(130)
    with anyio.fail_after(PATIENCE):
        async with composer.painted():
            await anyio.sleep_forever()
    assert composer.given_up == 130 and not composer.app.is_running


async def test_whoever_is_cancelled_before_the_first_picture_leaves_no_screen(tmp_path: Path) -> None:
    begun, may = anyio.Event(), anyio.Event()

    async def late(app: HermesApp) -> None:
        begun.set()
        await may.wait()
        await app.run_async(headless=True, size=(80, 24))

    composer = ScreenComposer(Home(root=tmp_path, path=tmp_path), unhidden, run=late)

    async def begin() -> None:
        async with composer.painted():
            pytest.fail("it was cancelled before there was a picture")

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            group.start_soon(begin)
            await begun.wait()
            group.cancel_scope.cancel()
            may.set()
    assert not composer.app.is_running


@pytest.mark.parametrize("fails", [True, False])
async def test_a_screen_that_ends_by_itself_holds_nothing_up_and_says_so(
    tmp_path: Path, fails: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    async def gone(app: HermesApp) -> None:
        if fails:
            raise OSError("the terminal is gone")

    composer = ScreenComposer(Home(root=tmp_path, path=tmp_path), unhidden, run=gone)
    with anyio.fail_after(PATIENCE), pytest.raises(ExceptionGroup) if fails else nullcontext():
        async with composer.painted():
            await anyio.sleep_forever()
    assert fails or composer.given_up == 1
    assert fails or "the screen ended before there was a conversation" in capsys.readouterr().out


async def test_what_cannot_be_opened_gives_the_terminal_back(tmp_path: Path) -> None:
    composer = composer_in(tmp_path)
    with pytest.raises(ExceptionGroup, match="unhandled") as caught:
        async with composer.painted():
            raise ValueError("nothing is configured")
    assert caught.group_contains(ValueError) and not composer.app.is_running


def test_the_first_picture_loads_neither_runtime_nor_client() -> None:
    code = "import hermes.cli.chat_cmd, hermes.tui.face, sys; print(*sys.modules, sep='\\n')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=110, check=True)
    loaded = set(ran.stdout.splitlines())
    later = (
        "hermes.compose",
        "hermes.runtime",
        "hermes.providers",
        "hermes.tools",
        "aiohttp",
        "markdown_it",
        "sqlite3",
    )
    assert "hermes.tui.face" in loaded and not loaded.intersection(later)
