"""What happened in a conversation, block by block."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult

from hermes.tui.feed import Answer, AnswerOver, AnswerVoid, Said
from hermes.tui.transcript import MOST_BLOCKS, Transcript
from tests.tui.hands import on_stage

pytestmark = pytest.mark.anyio


class Shown(App[None]):
    """A transcript and nothing else."""

    def compose(self) -> ComposeResult:
        yield Transcript()


async def test_an_answer_of_which_the_beginning_has_gone_may_begin_anew() -> None:
    async with on_stage(Shown(), (60, 20)) as hands:
        transcript = hands.app.query_one(Transcript)
        await transcript.show([Answer("the first words")])
        await transcript.show([Said(f"line {number}") for number in range(MOST_BLOCKS)])
        await transcript.show([Answer(" and more"), AnswerVoid(), Answer("another answer"), AnswerOver()])
        await hands.settled()
        assert "another answer" in hands.text and "first words" not in hands.text
