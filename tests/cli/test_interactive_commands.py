"""Commands that go from one conversation or model to another, the ways out, and what they do in the line interface."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from hermes.chat.composer import Signal
from hermes.chat.switching import ModelWish, read_model
from hermes.core.errors import UsageError
from hermes.runtime.rows import stored_spec
from hermes.testing.clock import VirtualClock
from hermes.testing.scripted import ScriptedModel, call, hang, reply
from tests.cli.test_interactive import desk

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("answer", "code_running"), [("d", 1), ("s", 0), ("stop", 0), ("DETACH", 1)])
async def test_quit_is_asked_once_and_answered_by_a_letter(
    tmp_path: Path, virtual_clock: VirtualClock, answer: str, code_running: int
) -> None:
    model = ScriptedModel("m", [], scripts={"dig": [hang()]})
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("/bg dig a hole")
        await at.until(lambda: model.in_flight)
        at.type("/quit")
        await at.sees("dig a hole", "d: detach", "w: leave once it has ended")
        at.type(answer)
        await at.until(lambda: at.code is not None)
        assert at.code == 0 and model.in_flight == code_running and at.chat.detached is bool(code_running)


async def test_quit_waits_for_what_runs(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [], scripts={"dig": [reply("a deep one", delay=30)]})
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("/bg dig a hole")
        await at.until(lambda: model.in_flight)
        at.type("/quit")
        await at.sees("d: detach")
        at.type("w")
        await at.sees("leaving when everything has ended", "a deep one")
        at.chat.refresh()
        await at.until(lambda: at.code is not None)
        assert at.code == 0 and not at.chat.detached


async def test_a_letter_is_an_answer_only_after_the_question(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [reply("a letter")], scripts={"dig": [hang()]})
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("/bg dig a hole")
        await at.until(lambda: model.in_flight)
        at.type("/quit")
        await at.sees("d: detach")
        at.type("/status")
        await at.sees("approvals")
        at.type("s")
        await at.sees("a letter")
        assert at.code is None and model.in_flight == 1


async def test_from_one_conversation_to_an_earlier_one_and_back(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [reply("first answer"), reply("second answer"), reply("third answer")])
    async with desk(model, tmp_path, virtual_clock, memory=False) as at:
        at.type("about apples")
        await at.sees("first answer")
        await at.quiet()
        one = at.chat.session.id if at.chat.session else ""
        at.type("/new")
        await at.sees("a new conversation")
        at.type("about pears")
        await at.sees("second answer")
        await at.quiet()
        at.type("/sessions")
        listed = await at.sees("/resume ID goes on with one")
        assert one in listed and "about apples" in listed and "about pears" in listed
        at.type("/resume nothing")
        await at.sees("hermes: ")
        at.type(f"/resume {one}")
        await at.sees("you: about apples", "model: first answer")
        at.type("more of them")
        await at.sees("third answer")
        await at.quiet()
        assert at.chat.session is not None and at.chat.session.id == one
    model.assert_complete()


async def test_the_model_changes_between_turns(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [reply("hi"), reply("hi again")])
    async with desk(model, tmp_path, virtual_clock, memory=False) as at:
        at.type("hello")
        await at.sees("hi")
        await at.quiet()
        at.type("/model other-model")
        await at.sees("from here on other-model answers")
        at.type("/model")
        await at.sees("other-model", "`hermes model` lists")
        at.type("and now")
        await at.sees("hi again")
        await at.quiet()
        assert at.chat.session is not None
        row = await at.lab.assembly.runtime.store.task(at.chat.session.task.id)
        assert row is not None and stored_spec(row).model.name == "other-model"
        at.type("/model third --global")
        said = await at.sees("new conversations begin with it too")
        written = at.lab.assembly.home.config_file
        assert str(written) in said.replace("\n", "") and "third" in written.read_text(encoding="utf-8")
        at.type("/config")
        await at.sees("config.yaml", "hermes config set")


def test_how_a_model_is_named() -> None:
    assert read_model("") == ModelWish()
    assert read_model("gpt-5") == ModelWish("gpt-5")
    assert read_model("--provider ollama qwen3 --global") == ModelWish("qwen3", "ollama", True)
    assert read_model("qwen3 --provider=ollama --session") == ModelWish("qwen3", "ollama")
    for wrong in ("a b", "--once a", "a --provider", "--global", "--provider --global a"):
        with pytest.raises(UsageError, match="usage: /model"):
            read_model(wrong)


async def test_a_question_of_the_model_is_answered_in_words_or_by_number(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    ask = reply(calls=[call("clarify", question="Which port?\nIt is for tests", choices=["8080", "another one"])])
    model = ScriptedModel("m", [ask, reply("first"), ask, reply("second")])
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("go")
        await at.sees("❓ ", "Which port?", "It is for tests", "2 another one", "or its number")
        at.chat.refresh()
        assert at.composer.prompt == "answer> "
        at.type("/status")  # a command is no answer
        await at.sees("approvals")
        at.type("2")
        await at.sees("first")
        await at.quiet()
        at.type("again")
        await at.until(lambda: at.chat.questions.open)
        at.type("y, but 80")
        await at.sees("second")
    said = [str(request.entries[-1]) for request in model.requests]
    assert '"user_response":"another one"' in said[1] and '"user_response":"y, but 80"' in said[3]
    model.assert_complete()


async def test_a_question_is_left_alone_when_no_line_can_come(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [reply(calls=[call("clarify", question="Which port?")]), reply("I took 8080")])
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("go")
        await at.sees("Which port?")
        at.composer.finished = True
        at.type(Signal.END)
        await at.sees("nobody answered: it goes on alone", "I took 8080")
        await at.until(lambda: at.code is not None)
    assert at.code == 0 and "nobody is here any more" in str(model.requests[-1].entries[-1])


async def test_a_question_stays_open_when_the_terminal_is_lost(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    """Its input ends a moment before the signal that hands the work over."""
    model = ScriptedModel("m", [reply(calls=[call("clarify", question="Which port?")])], check=False)
    async with desk(model, tmp_path, virtual_clock) as at:
        at.chat.terminal = True
        at.type("go")
        await at.sees("Which port?")
        at.composer.finished = True
        at.type(Signal.END)
        await anyio.sleep(0.5)
        assert at.chat.questions.open
        at.chat.leave(143, suspend=True, detach=True)
        await at.until(lambda: at.code is not None)
        assert at.chat.detached and at.chat.questions.open
    assert len(model.requests) == 1


async def test_how_to_leave_is_no_answer_to_a_question_that_was_open_before(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    model = ScriptedModel("m", [reply(calls=[call("clarify", question="Which port?")])], check=False)
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("go")
        await at.sees("Which port?")
        at.type("/quit")
        await at.until(lambda: at.chat.stops.asked == "quit")
        at.type("stop")
        await at.until(lambda: at.code is not None)
    assert at.code == 0 and len(model.requests) == 1


async def test_a_question_that_comes_after_quit_is_what_the_next_line_answers(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    model = ScriptedModel("m", [reply(calls=[call("clarify", question="Which way?")], delay=20), reply("I stop")])
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("go")
        await at.until(lambda: model.in_flight)
        at.type("/quit")
        await at.until(lambda: at.chat.stops.asked == "quit")
        await at.sees("Which way?")
        at.type("stop")
        await at.sees("I stop")
    assert '"user_response":"stop"' in str(model.requests[1].entries[-1])
