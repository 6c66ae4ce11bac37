"""A question and its answer: the first answer counts, and what is shown holds no secret."""

from __future__ import annotations

import anyio
import pytest

from hermes.chat.questions import Questions
from hermes.runtime.asking import Question
from hermes.testing.clock import VirtualClock

pytestmark = pytest.mark.anyio


async def test_the_first_answer_counts_and_secrets_are_not_shown(virtual_clock: VirtualClock) -> None:
    shown: list[Question] = []
    questions = Questions(shown.append, lambda: None, lambda text: text.replace("swordfish", "[hidden]"))
    question = Question(
        request="ask-1",
        tool="clarify",
        what="is it sword\x1b[0mfish?",
        reason="",
        path=("conversation", "try sword\x00fish"),
        timeout=60.0,
        open=True,
        choices=("yes", "no"),
    )
    answers: list[str] = []

    async def ask() -> None:
        answers.append(await questions.ask(question))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        while not questions.open:
            await anyio.sleep(0.01)
        assert questions.take("2") and not questions.take("1")
        questions.dismiss()
    assert answers == ["no"]
    assert shown[0].what == "is it [hidden]?" and shown[0].path == ("conversation", "try [hidden]")


async def test_a_number_without_a_choice_is_words(virtual_clock: VirtualClock) -> None:
    questions = Questions(lambda question: None, lambda: None, str)
    question = Question(
        request="ask-1", tool="clarify", what="how many?", reason="", path=(), timeout=60.0, open=True, choices=("ten",)
    )
    answers: list[str] = []

    async def ask() -> None:
        answers.append(await questions.ask(question))

    for words in ("2", "0", "9" * 5_000):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            while not questions.open:
                await anyio.sleep(0.01)
            assert questions.take(words)
        assert answers[-1] == words
