"""The conversation on the full screen, typed at by a pilot."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.testing.scripted import ScriptedModel, call, reply
from tests.tui.seat import seat

pytestmark = pytest.mark.anyio


async def test_a_conversation(tmp_path: Path) -> None:
    model = ScriptedModel("m", [reply("**Привет!** How are you?\n\n- one\n- two", pieces=7, gap=0.01), reply("fine")])
    async with seat(model, tmp_path) as at:
        await at.sees("/help lists the commands")
        await at.send("hello")
        text = await at.sees("• two")
        assert "Привет! How are you?" in text and "**" not in text and "hello" in text
        await at.quiet()
        await at.send("and now")
        await at.sees("fine")
    assert at.code == 0
    model.assert_complete()


async def test_letters_before_enter_are_part_of_the_line(tmp_path: Path) -> None:
    async with seat(ScriptedModel("m", []), tmp_path) as at:
        await at.press(*"/status", "enter")
        await at.sees("not started yet")
        assert at.screen.prompt.text == ""
