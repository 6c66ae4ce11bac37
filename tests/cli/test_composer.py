"""The line editor: lines that were sent before, and what Tab offers."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from hermes.chat.composer import Signal
from hermes.chat.past_lines import PastLines
from hermes.cli.composer import PromptComposer
from hermes.config import Home

pytestmark = pytest.mark.anyio


async def typed(home: Path, keys: str, prompt: str = "> ") -> str | Signal:
    """What comes of keys in an editor of its own."""
    with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
        past = PastLines(Home(root=home, path=home))
        composer = PromptComposer(past, lambda text: text.replace("swordfish", "[hidden]"))
        composer.refresh(prompt, "")
        await anyio.to_thread.run_sync(keyboard.send_text, keys)
        with anyio.fail_after(60):
            return await composer.read()


async def test_lines_are_had_back_in_the_next_conversation(tmp_path: Path) -> None:
    assert await typed(tmp_path, "hello\r") == "hello"
    assert await typed(tmp_path, "y\r", prompt="allow? y/n/a> ") == "y"
    assert await typed(tmp_path, "it is swordfish\r") == "it is swordfish"
    kept = await anyio.to_thread.run_sync(PastLines(Home(root=tmp_path, path=tmp_path)).load)
    assert kept == ["hello", "it is [hidden]"]


async def test_tab_offers_commands(tmp_path: Path) -> None:
    with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
        composer = PromptComposer(PastLines(Home(root=tmp_path, path=tmp_path)), str)
        read: list[str | Signal] = []

        async def take() -> None:
            read.append(await composer.read())

        async with anyio.create_task_group() as group:
            group.start_soon(take)
            await anyio.to_thread.run_sync(keyboard.send_text, "/sessi\t")
            buffer = composer._session.default_buffer
            with anyio.fail_after(60):
                while buffer.text != "/sessions ":
                    await anyio.sleep(0.01)
            await anyio.to_thread.run_sync(keyboard.send_text, "\r")
        assert read == ["/sessions "]
