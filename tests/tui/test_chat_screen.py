"""The conversation on the full screen, typed at by a pilot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from textual import events

from hermes.chat.drafts import Drafts
from hermes.core.events import TaskQueued, ToolEnded, ToolStarted
from hermes.core.messages import Notice, User, plain_text
from hermes.core.scope import TaskScope
from hermes.testing.scripted import ScriptedModel, call, hang, reply
from hermes.tui.leave_screen import LeaveScreen
from hermes.tui.transcript import Fold
from tests.tui.seat import Seat, after, seat

pytestmark = pytest.mark.anyio

DIG = reply(calls=[call("delegate_task_async", goal="dig deep")])


async def test_a_conversation(tmp_path: Path) -> None:
    model = ScriptedModel("m", [reply("**Привет!** How are you?\n\n- one\n- two", pieces=7, gap=0.01), reply("fine")])
    async with seat(model, tmp_path) as at:
        await at.sees("Hermes · m")
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
        assert "ms late" in await at.sees("not started yet")
        assert at.screen.prompt.text == ""


async def test_calls_and_thoughts_unfold(tmp_path: Path) -> None:
    look = reply(
        "let me look", calls=[call("terminal", command="echo 'a b' && echo [red]c")], thinking="what is there?"
    )
    async with seat(ScriptedModel("m", [look, reply("done")]), tmp_path) as at:
        await at.send("look")
        text = await at.sees("✓ terminal")
        assert "▸ thinking" in text and "what is there?" not in text and "a b\n" not in text
        await at.quiet()
        await at.press("ctrl+o")
        await at.sees("what is there?")
        await at.sees("command: echo")
        await at.sees("[red]c")  # what a tool brings is no markup
        await at.press("ctrl+o")
        await at.until(lambda: "what is there?" not in at.text)
        await at.press("tab", "enter")  # the newest one from the keyboard
        await at.sees("▾")
        await at.until(lambda: isinstance(at.app.screen.focused, Fold))
        await at.press("escape")
        await at.until(lambda: at.app.screen.focused is at.screen.prompt)


async def test_escape_stops_the_turn_and_no_child(tmp_path: Path) -> None:
    model = ScriptedModel("m", [DIG, hang()], scripts={"dig": [hang()]})
    async with seat(model, tmp_path) as at:
        await at.send("go")
        await at.until(lambda: model.in_flight == 2)
        await at.sees("dig deep · running model")
        await at.press("escape")
        await at.sees("turn interrupted")
        await at.until(lambda: model.in_flight == 1)
        assert [task.state for task in at.chat.running()] == ["running"]
        await at.press("f8")
        await at.until(lambda: "dig deep · running" not in at.text)
        await at.sees("▸ tasks: 1 running")


async def test_a_child_that_ended_is_one_line_and_its_report_a_key_away(tmp_path: Path) -> None:
    scripts = {"dig": [reply("# Found\n\nmuch **gold**")]}
    async with seat(ScriptedModel("m", [DIG, reply("it digs"), reply("rich")], scripts=scripts), tmp_path) as at:
        await at.send("go")
        await at.sees("rich")
        await at.sees("✓ dig deep")
        line = next(line for line in at.text.splitlines() if "✓ dig deep" in line)
        assert line.strip().startswith("▸") and "much gold" not in at.text
        await at.press("f7")
        await at.sees("much gold")
        await at.press("f7")
        await at.until(lambda: "much gold" not in at.text)


async def test_a_turn_goes_to_the_background_and_its_answer_is_shown(tmp_path: Path) -> None:
    may = anyio.Event()
    model = ScriptedModel("m", [after(may, reply("the long answer"))], scripts={"new": [reply("short")]}, check=False)
    async with seat(model, tmp_path) as at:
        await at.press("f4")
        await at.sees("no turn runs")
        await at.send("old question")
        await at.until(lambda: model.in_flight)
        first = at.chat.last_session
        await at.press("ctrl+b")
        await at.sees("goes on in the background")
        await at.send("new question")
        await at.sees("short")
        may.set()
        await at.sees("the long answer")
        assert at.chat.last_session != first
        await at.send(f"/resume {first}")
        await at.sees(f"back in {first}")
        assert at.chat.last_session == first


async def test_a_question_of_a_grandchild_is_answered_by_a_key(tmp_path: Path) -> None:
    scripts = {"dig": [reply(calls=[call("terminal", command="rm nothing.txt")]), reply("could not")]}
    async with seat(ScriptedModel("m", [DIG, reply("it digs"), reply("ok")], scripts=scripts), tmp_path) as at:
        at.screen._ask.grace = 3_600.0
        await at.send("go")
        text = await at.sees("wants terminal: rm nothing.txt")
        assert "> dig deep" in text and "counts as no in" in text and "y once" in text
        await at.press("y")  # too early to have been meant: it was not read yet
        assert at.chat.questions.open and at.screen.prompt.text == "y"
        await at.press("backspace")
        at.screen._ask.grace = 0.0
        at.screen.prompt.insert("no way, sir")
        await at.press("n")
        assert at.chat.questions.open  # what is typed into a line is a line
        await at.press("tab", "n")
        await at.sees("denied: terminal rm nothing.txt")
        await at.sees("⛔ denied")
        await at.until(lambda: at.app.screen.focused is at.screen.prompt)
        assert at.screen.prompt.text == "no way, sirn"
        await at.sees("ok")


async def test_a_question_that_nobody_answers_ends(tmp_path: Path) -> None:
    model = ScriptedModel("m", [reply(calls=[call("terminal", command="rm nothing.txt")]), reply("well")])
    async with seat(model, tmp_path, **{"approvals.timeout": 0.3}) as at:
        await at.send("go")
        await at.sees("nobody answered within 0.3 s")
        await at.sees("well")
        await at.until(lambda: not at.screen._ask.display)


@pytest.mark.parametrize(("key", "state"), [("s", "cancelled"), ("d", "suspended"), ("w", "completed")])
async def test_leaving_asks_once_how(tmp_path: Path, key: str, state: str) -> None:
    may = anyio.Event()
    dig: Any = after(may, reply("gold")) if key == "w" else hang()
    model = ScriptedModel("m", [DIG, reply("it digs"), reply("rich")], scripts={"dig": [dig]}, check=False)
    async with seat(model, tmp_path, memory=False) as at:
        await at.send("go")
        await at.sees("it digs")
        await at.quiet()
        if key != "w":
            await at.press(*"/quit", "enter")
            await at.until(lambda: isinstance(at.app.screen, LeaveScreen))
            assert "dig deep" in at.text
            await at.press("escape")
            await at.until(lambda: not isinstance(at.app.screen, LeaveScreen))
        await at.press("ctrl+q")
        await at.until(lambda: isinstance(at.app.screen, LeaveScreen))
        await at.press(key)
        may.set()

        def left() -> bool:
            at.chat.refresh()
            return at.code is not None

        await at.until(left)
        assert at.code == 0 and at.chat.detached == (key == "d")
        await at.lab.runtime.supervisor.shutdown()
        rows = await at.lab.runtime.store.tasks(at.chat.last_session)
    assert rows[1].state == state


async def test_ctrl_c_stops_the_turn_and_twice_leaves_with_the_work_detached(tmp_path: Path) -> None:
    model = ScriptedModel("m", [DIG, hang()], scripts={"dig": [hang()]})
    async with seat(model, tmp_path) as at:
        at.chat.stops.twice = 3_600.0
        await at.send("go")
        await at.until(lambda: model.in_flight == 2)
        await at.press("ctrl+c")
        await at.sees("turn interrupted; 1 tasks go on")
        await at.press("ctrl+c")
        await at.until(lambda: at.code is not None)
    assert at.code == 130 and at.chat.detached


async def test_a_draft_survives_leaving_and_goes_when_it_is_sent(tmp_path: Path) -> None:
    async with seat(ScriptedModel("m", []), tmp_path, memory=False) as at:
        at.screen.prompt.insert("half a thou")
        await at.press("g", "h", "t")
    async with seat(ScriptedModel("m", [reply("whole")]), tmp_path, memory=False) as at:
        await at.until(lambda: at.screen.prompt.text == "half a thought")
        await at.press("enter")
        await at.sees("whole")
        await at.until(lambda: not list((at.lab.assembly.home.path / "drafts").iterdir()))
        await at.press("up")
        assert at.screen.prompt.text == "half a thought"  # what was sent can be had back
    async with seat(ScriptedModel("m", []), tmp_path, memory=False) as at:
        await at.press("up")
        assert at.screen.prompt.text == "half a thought"  # in the next conversation as well


async def test_a_draft_is_kept_while_it_is_typed(tmp_path: Path) -> None:
    """Nothing is done at the end: what a crash would leave."""
    async with seat(ScriptedModel("m", []), tmp_path, memory=False) as at:
        at.screen.prompt.insert("not yet sent")
        folder = at.lab.assembly.home.path / "drafts"
        await at.until(lambda: folder.exists() and list(folder.glob("new-*.txt")))
        (file,) = folder.iterdir()
        kept = await anyio.to_thread.run_sync(Drafts(at.lab.assembly.home).load, "", str(tmp_path))
        assert kept == "not yet sent"
        assert file.stat().st_mode & 0o777 == 0o600
        at.screen.prompt.text = ""
        await at.until(lambda: not file.exists())


@pytest.mark.fault("B055")
async def test_a_background_run_in_russian_shows_its_result_where_one_is(tmp_path: Path) -> None:
    model = ScriptedModel("m", [], scripts={"посчитай": [reply("**готово**\n\n42 файла")]}, check=False)
    async with seat(model, tmp_path) as at:
        await at.send("/background посчитай файлы")
        text = await at.sees("42 файла")
        assert '🔄 Background task #1 started: "посчитай файлы"' in text and "Task ID: bg_" in text
        assert "Hermes (background #1)" in text and "**" not in text


async def test_what_tools_write_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    dirty = "\x1b]0;owned\x07\x1b[2Jclean\u202egnp.exe\x9b31m [bold]x[/bold] \x08end"
    run = reply(calls=[call("terminal", command=f"printf '%s' '{dirty}'")])
    async with seat(ScriptedModel("m", [run, reply(f"said {dirty}")]), tmp_path) as at:
        await at.send("go")
        await at.sees("said clean")
        await at.press("ctrl+o")
        await at.sees("▾")
        await at.send(f"!printf '{dirty.encode().hex()}' | xxd -r -p")
        text = await at.sees("! done")
    for harmful in ("\x1b", "\u202e", "\x9b", "\x08", "\x07"):
        assert harmful not in text
    assert "cleangnp.exe" in text and "[bold]x[/bold]" in text


async def test_a_command_of_ones_own(tmp_path: Path) -> None:
    model = ScriptedModel("m", [])
    async with seat(model, tmp_path) as at:
        await at.send("!seq 1 100000; echo wrong >&2; exit 3")
        text = await at.sees("exit code 3")
        assert "wrong" in text and "100000" in text
        await at.until(
            lambda: any("lines left out" in str(block.content) for block in at.screen.transcript.query(".note"))
        )
        await at.send("!sleep 100")
        await at.until(lambda: at.chat.own.runs)
        await at.press("escape")
        await at.sees("! stopped after")
    assert not model.requests  # none of it is the model's business


async def test_a_small_terminal_keeps_the_editor(tmp_path: Path) -> None:
    async with seat(ScriptedModel("m", [DIG, reply("it digs")], scripts={"dig": [hang()]}), tmp_path) as at:
        await at.send("go")
        await at.sees("it digs")
        await at.pilot.resize_terminal(20, 5)
        await at.press(*"hello")
        await at.until(lambda: "❯ hello" in at.text)
        assert len(at.text.splitlines()) <= 5 and all(len(line) <= 20 for line in at.text.splitlines())
        await at.pilot.resize_terminal(160, 50)
        await at.sees("dig deep · running")


@pytest.mark.fault("B150")
async def test_much_output_at_once_leaves_the_keys_alive(tmp_path: Path) -> None:
    """Ten megabytes of answer, thousands of calls and of children's ends, before one picture is drawn."""
    async with seat(ScriptedModel("m", [reply("hi")]), tmp_path) as at:
        await at.send("hello")
        await at.quiet()
        task = at.chat.session.task if at.chat.session is not None else None
        assert task is not None
        bus, now = at.lab.runtime.bus, at.chat.now()
        for number in range(10_000):
            at.composer.feed.delta("x" * 1_000 + ("\n\n" if number % 10 == 0 else " "))
        at.composer.feed.finish()
        for number in range(2_000):
            bus.emit(task.scope, now, ToolStarted(position=number, index=0, name="terminal", preview="ls"))
            bus.emit(task.scope, now, ToolEnded(position=number, index=0, name="terminal", is_error=False, success=True,
                     duration=0.1))  # fmt: skip
            child = TaskScope(task_id=f"sa-{number:08x}", session_id=task.scope.session_id, root_id=task.id,
                              parent_id=task.id, kind="child", depth=1)  # fmt: skip
            bus.emit(child, now, TaskQueued(kind="child", goal=f"goal {number}", depth=1))
        await at.press("h", "i")
        assert at.screen.prompt.text == "hi"
        text = await at.sees("2000 queued")
        await at.until(lambda: not at.composer.feed.take(0) and at.composer.feed.left_out)
        assert "and 1995 more" in text
        await at.until(lambda: len(at.screen.transcript.children) <= 210)
        await at.press("ctrl+c")
        await at.sees("Ctrl+C again within 2 s leaves")


async def test_a_screen_that_fails_leaves_the_work(tmp_path: Path) -> None:
    model = ScriptedModel("m", [hang()])
    async with seat(model, tmp_path) as at:
        await at.send("go")
        await at.until(lambda: model.in_flight)
        at.app._handle_exception(ZeroDivisionError("a widget failed"))
        await at.until(lambda: at.code is not None)
        assert at.code == 1 and at.chat.detached and model.in_flight
        assert any("the screen ended (ZeroDivisionError)" in line for line in at.composer._farewell)


async def test_a_conversation_that_is_taken_up_shows_where_one_was(tmp_path: Path) -> None:
    async with seat(ScriptedModel("m", [reply("first **answer**")]), tmp_path, memory=False) as at:
        await at.send("first question")
        await at.sees("first answer")
        await at.quiet()
    session = at.chat.last_session
    model = ScriptedModel("m", [reply("second")])
    async with seat(model, tmp_path, memory=False, resume=session) as at:
        text = await at.sees("first answer")
        assert "first question" in text and "**" not in text
        await at.send("more")
        await at.sees("second")
    said = [plain_text(entry.content) for entry in model.requests[0].entries if isinstance(entry, User)]
    assert said == ["first question", "more"]
    assert not [entry for entry in model.requests[0].entries if isinstance(entry, Notice)]


async def paste(at: Seat, text: str) -> None:
    at.screen.prompt.post_message(events.Paste(text))
    await at.pilot.pause()


async def test_pastes(tmp_path: Path) -> None:
    (tmp_path / "a file.txt").write_text("x")
    model = ScriptedModel("m", [reply("read")])
    async with seat(model, tmp_path) as at:
        await paste(at, "one\x1b[31m\u202e two\r\nthree\x00")
        assert at.screen.prompt.text == "one two\nthree"
        at.screen.prompt.text = "look: "
        at.screen.prompt.move_cursor(at.screen.prompt.document.end)
        long = "\n".join(f"line {number}" for number in range(1_000))
        await paste(at, long)
        assert at.screen.prompt.text == "look: [pasted #1: 1000 lines]"
        await paste(at, f"'{tmp_path / 'a file.txt'}'")
        assert at.screen.prompt.text.endswith(f' @"{tmp_path / "a file.txt"}" ')
        await at.press("enter")
        await at.sees("read")
    (entry,) = [entry for entry in model.requests[0].entries if isinstance(entry, User)]
    assert plain_text(entry.content).startswith(f"look: {long} @") and "[pasted" not in plain_text(entry.content)


async def test_choices_while_one_types(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("x")
    (tmp_path / "folder").mkdir()
    model = ScriptedModel("m", [DIG, reply("it digs")], scripts={"dig": [hang()]})
    async with seat(model, tmp_path) as at:
        await at.press("/", "s", "t", "e")
        assert "/steer" in await at.sees("correct what runs")
        await at.press("tab")
        assert at.screen.prompt.text == "/steer "
        at.screen.prompt.text = ""
        await at.press("@", "m")
        await at.sees("@module.py")
        await at.press("tab")
        assert at.screen.prompt.text == "@module.py "
        at.screen.prompt.text = ""
        await at.press("@", "f")
        await at.sees("@folder/")
        await at.press("tab", "escape", "enter")
        await at.sees("it digs")
        await at.until(lambda: model.in_flight == 1)  # only then it is a task that runs
        await at.press(*"/steer as")
        await at.sees("running · dig deep")
        await at.press("tab", *"be careful", "enter")
        await at.sees("reads it at its next step")


async def test_several_lines(tmp_path: Path) -> None:
    model = ScriptedModel("m", [reply("ok")])
    async with seat(model, tmp_path) as at:
        await at.press("a", "ctrl+j", "b", "backslash", "enter", "c")
        assert at.screen.prompt.text == "a\nb\nc"
        await at.press("up", "up", "up", "down")
        await at.press("enter")
        await at.sees("ok")
    (entry,) = [entry for entry in model.requests[0].entries if isinstance(entry, User)]
    assert plain_text(entry.content) == "a\nb\nc"


async def test_a_question_of_the_model_is_answered_by_key_or_in_words(tmp_path: Path) -> None:
    ask = reply(calls=[call("clarify", question="Which **port** shall it be?", choices=["8080", "another one"])])
    model = ScriptedModel("m", [ask, reply("first"), ask, reply("second")])
    async with seat(model, tmp_path, **{"agent.clarify_timeout": 600}) as at:
        at.screen._ask.grace = 0.0
        await at.send("go")
        text = await at.sees("1-2 chooses · or write your answer")
        assert "Which **port** shall it be?" in text and "2 another one" in text
        assert "it goes on alone in" in text
        await at.press("2")
        await at.sees("first")
        await at.quiet()
        await at.send("again")
        await at.sees("1-2 chooses")
        await at.send("20 would be better")
        await at.sees("second")
        await at.until(lambda: "1-2 chooses" not in at.text)
    said = [str(request.entries[-1]) for request in model.requests]
    assert '"user_response":"another one"' in said[1] and '"user_response":"20 would be better"' in said[3]
    model.assert_complete()
