"""The conversation without a terminal: lines go in, lines come out, on a scripted model and a clock that jumps."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.lowlevel
import pytest

from hermes.chat.composer import Signal
from hermes.chat.interactive import Chat
from hermes.chat.parsing import background_verb, parse
from hermes.core.errors import ModelError
from hermes.core.limits import Limits
from hermes.core.messages import Interrupted, Notice, Steer, ToolResult, Usage, User, plain_text
from hermes.core.model import ModelProfile, ModelRequest
from hermes.runtime.rows import stored_spec
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import EndlessModel, ScriptedModel, call, first_user_text, hang, reply

pytestmark = pytest.mark.anyio


class FakeComposer:
    """Hands out the lines that a test types and keeps what is printed."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[str | Signal](100)
        self.on_typing: Callable[[bool], None] = lambda typing: None
        self.finished = False
        self.lines: list[str] = []
        self.prompt = self.status = ""
        self.bells = 0
        self.width = 100

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._send.close()
        self._receive.close()

    async def read(self) -> str | Signal:
        return await self._receive.receive()

    def write(self, line: str) -> None:
        self.lines.append(line)

    def partial(self, text: str) -> None:
        pass

    def refresh(self, prompt: str, status: str) -> None:
        self.prompt, self.status = prompt, status

    def bell(self) -> None:
        self.bells += 1

    def type(self, line: str | Signal) -> None:
        self._send.send_nowait(line)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class Desk:
    """A chat that runs, and a person at it."""

    def __init__(self, chat: Chat, composer: FakeComposer, lab: Lab) -> None:
        self.chat = chat
        self.composer = composer
        self.lab = lab
        self.code: int | None = None
        self._seen = 0

    async def run(self) -> None:
        self.code = await self.chat.run()

    def type(self, line: str | Signal) -> None:
        self.composer.type(line)

    async def sees(self, *words: str) -> str:
        """Wait for words in what was printed since the last look, in this order; returns that text."""
        for word in words:
            await self.until(lambda word=word: word in "\n".join(self.composer.lines[self._seen :]), word)
        text = "\n".join(self.composer.lines[self._seen :])
        self._seen = len(self.composer.lines)
        return text

    async def until(self, true: Callable[[], Any], what: str = "") -> None:
        for _ in range(4000):
            if true():
                return
            await anyio.sleep(0.02)
        pytest.fail(f"never seen: {what or true}\n{self.composer.text}")

    async def quiet(self) -> None:
        await self.until(lambda: self.chat.session is not None and not self.chat.turn_runs, "a quiet conversation")


@asynccontextmanager
async def desk(
    model: ScriptedModel | EndlessModel,
    path: Path,
    clock: VirtualClock,
    *,
    memory: bool = True,
    resume: str = "",
    terminal: bool = False,
    **settings: Any,
) -> AsyncIterator[Desk]:
    async with open_lab(model, workspace=path, clock=clock, settings=settings, memory=memory) as lab:
        composer = FakeComposer()
        chat = Chat(lab.assembly, composer, workspace=str(path), resume=resume, terminal=terminal)
        there = Desk(chat, composer, lab)
        async with anyio.create_task_group() as group:
            group.start_soon(there.run)
            yield there
            if there.code is None:
                there.type("/quit")
                there.type("/quit")


async def test_a_conversation(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [reply("Привет!\nHow are you?", pieces=7, gap=0.01), reply("fine \x1b[31mred\x07")])
    async with desk(model, tmp_path, virtual_clock, **{"display.bell_on_complete": True}) as at:
        at.type("hello")
        await at.sees("Привет!\nHow are you?")
        await at.quiet()
        at.type("")
        at.type("and now")
        assert (await at.sees("fine")).endswith("fine red")
        await at.quiet()
    assert at.code == 0 and at.composer.bells == 2
    assert at.composer.lines[-2].startswith("This conversation: hermes sessions show 20")
    assert at.composer.lines[-1] == f"Go on with it: hermes chat --resume {at.chat.last_session}"
    assert [plain_text(e.content) for e in model.requests[1].entries if isinstance(e, User)] == ["hello", "and now"]
    model.assert_complete()


async def test_a_failed_turn_is_told_and_the_conversation_goes_on(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [ModelError("no credit left", reason="billing"), reply("again")])
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("one")
        await at.sees("✗ no credit left")
        at.type("two")
        await at.sees("again")


@pytest.mark.parametrize(("mode", "kind"), [("queue", User), ("steer", Steer), ("interrupt", User)])
async def test_a_line_typed_during_a_turn(
    tmp_path: Path, virtual_clock: VirtualClock, mode: str, kind: type[Any]
) -> None:
    first = hang() if mode == "interrupt" else reply(calls=[call("terminal", command="true")], delay=5)
    steps = [first, reply("mid"), reply("end")] if mode == "queue" else [first, reply("end")]
    model = ScriptedModel("m", steps)
    async with desk(model, tmp_path, virtual_clock, **{"display.busy_input_mode": mode}) as at:
        at.type("work")
        await at.until(lambda: model.in_flight)
        at.type("and the other thing")
        await at.sees("end")
        await at.quiet()
    found = [e for e in model.requests[-1].entries if isinstance(e, kind) and "other thing" in str(e)]
    assert len(found) == 1
    assert ("queued" in at.composer.text) == (mode != "steer")
    model.assert_complete()


@pytest.mark.fault("B010")
async def test_a_message_stops_no_child_and_stop_stops_all(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    start = reply(calls=[call("delegate_task_async", goal="dig one"), call("delegate_task_async", goal="dig two")])
    scripts = {"dig one": [hang()], "dig two": [hang()]}
    model = ScriptedModel("m", [start, reply("started"), reply("still here"), reply("I know")], scripts=scripts)
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("go")
        await at.sees("🔀 dig one", "🔀 dig two", "started")
        await at.until(lambda: model.in_flight == 2)
        at.type("are you there?")
        await at.sees("still here")
        await at.quiet()
        assert model.in_flight == 2 and "▶ 2" in (at.chat.refresh() or at.composer.status)
        began = anyio.current_time()
        at.type("/stop")
        text = await at.sees("dig one", "dig two")
        assert text.count("cancelled") >= 2 and anyio.current_time() - began < 2
        assert model.in_flight == 0
        await anyio.sleep(30)
        assert len(model.requests) == 5  # nobody was woken by what was stopped
        at.type("what now?")
        await at.sees("I know")
    notice = [e for e in model.requests[-1].entries if isinstance(e, Notice)]
    assert len(notice[0].tasks) == 2
    model.assert_complete()


async def test_ctrl_c_interrupts_the_turn_and_no_child_and_twice_leaves(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    start = reply(calls=[call("delegate_task", goal="dig")])
    model = ScriptedModel("m", [start, reply("hm")], scripts={"dig": [hang()]})
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("go")
        await at.until(lambda: model.in_flight == 1)
        at.type(Signal.INTERRUPT)
        await at.sees("⏹ turn interrupted; 1 tasks go on")
        await at.quiet()
        assert model.in_flight == 1
        await anyio.sleep(3)
        at.type(Signal.INTERRUPT)
        await at.sees("no turn runs; 1 tasks go on")
        at.type(Signal.INTERRUPT)
        await at.until(lambda: at.code is not None)
        # what runs is to go on without the terminal, and nothing was stopped
        assert at.code == 130 and at.chat.detached and model.in_flight == 1
        assert "cancelled" not in await at.sees("This conversation")


@pytest.mark.parametrize("before", [(), ("hello",)], ids=["the first turn", "a later turn"])
@pytest.mark.parametrize("moment", range(0, 60, 4))
async def test_ctrl_c_stops_a_turn_that_only_begins(
    tmp_path: Path, virtual_clock: VirtualClock, before: tuple[str, ...], moment: int
) -> None:
    """Wherever the line is on its way to the model: what is said to be interrupted does not go on."""
    late = reply("the answer", delay=60)
    model = ScriptedModel("m", [*(reply("hi") for _ in before), late, late], check=False)
    async with desk(model, tmp_path, virtual_clock) as at:
        for line in before:
            at.type(line)
            await at.quiet()
        at.type("think")
        for _ in range(moment):
            await anyio.lowlevel.checkpoint()
        begun = at.chat.taking or at.chat.turn_runs
        at.chat.stops.interrupt()
        if not begun:
            await at.sees("no turn runs")
            await at.until(lambda: model.in_flight)
            at.chat.stops.interrupt_turn()
        await at.sees("⏹ turn interrupted")
        await at.until(lambda: at.chat.session is not None)
        await at.quiet()
        assert isinstance(at.chat.session.task.history.last, Interrupted)
        await anyio.sleep(100)
        assert "the answer" not in at.composer.text and model.in_flight == 0
        at.type("once more")  # the next one is not stopped with it
        await at.until(lambda: model.in_flight)


async def test_detach_leaves_and_keeps_what_runs(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [reply("hi")], scripts={"dig": [hang()]})
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("hello")
        await at.quiet()
        at.type("/detach")
        await at.sees("nothing runs; /quit leaves")
        at.type("/background dig")
        await at.until(lambda: model.in_flight == 1)
        at.type("/quit")
        await at.sees("d: detach")
        at.type("/detach")
        await at.until(lambda: at.code is not None)
        assert at.code == 0 and at.chat.detached and model.in_flight == 1


async def test_a_conversation_is_reopened_with_its_tasks(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    start = reply(calls=[call("delegate_task_async", goal="dig deep")])
    model = ScriptedModel("m", [start, reply("it digs")], scripts={"dig": [hang()]})
    async with desk(model, tmp_path, virtual_clock, memory=False) as at:
        at.type("go")
        await at.sees("it digs")
        await at.quiet()
        at.chat.leave(suspend=True)
        await at.until(lambda: at.code is not None)
    session = at.chat.last_session
    again = ScriptedModel("m", [reply("found gold")], scripts={"dig": [reply("gold", delay=5)]}, check=False)
    async with desk(again, tmp_path, virtual_clock, memory=False, resume=session) as at:
        text = await at.sees("it digs")
        assert f"session {session} · go" in text and "cut off:\n  dig deep (async_" in text
        assert "before its first step" in text and "going on continues 1 tasks" in text
        assert "you: go" in text
        await at.sees("found gold")
        at.type("/agents")
        await at.sees("1 ended")


@pytest.mark.parametrize("answer", ["y", "s", "n"])
async def test_a_person_is_asked_whether_to_go_on(tmp_path: Path, virtual_clock: VirtualClock, answer: str) -> None:
    start = reply(calls=[call("delegate_task_async", goal="dig deep")])
    model = ScriptedModel("m", [start, reply("it digs")], scripts={"dig": [hang()]})
    async with desk(model, tmp_path, virtual_clock, memory=False) as at:
        at.type("go")
        await at.sees("it digs")
        await at.quiet()
        at.chat.leave(suspend=True)
        await at.until(lambda: at.code is not None)
    session = at.chat.last_session
    again = ScriptedModel("m", [reply("told")], scripts={"dig": [reply("gold")]}, check=False)
    async with desk(again, tmp_path, virtual_clock, memory=False, resume=session, terminal=True) as at:
        await at.sees("Go on?")
        at.type("perhaps")
        await at.sees("Go on?")
        at.type(answer)
        if answer == "n":
            await at.until(lambda: at.code is not None)
        else:
            await at.sees("told")
        row = (await at.lab.runtime.store.tasks(session))[1]
    assert row.state == {"y": "completed", "s": "cancelled", "n": "suspended"}[answer]
    assert at.composer.text.count(f"hermes chat --resume {session}") == 1


async def test_a_conversation_that_another_terminal_takes_says_so(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [reply("hi")])
    async with desk(model, tmp_path, virtual_clock, memory=False) as at:
        at.type("hello")
        await at.quiet()
        await at.lab.runtime.supervisor.let_go(at.chat.last_session, "another terminal goes on with it")
        await at.sees("this conversation goes on elsewhere: another terminal goes on with it")
        await at.until(lambda: at.code is not None)
        assert at.code == 0 and not at.chat.detached
        (row,) = await at.lab.runtime.store.tasks(at.chat.last_session)
    assert row.state == "suspended"


@pytest.mark.parametrize("mode", ["never", "auto"])
async def test_a_conversation_is_reopened_without_its_tasks(
    tmp_path: Path, virtual_clock: VirtualClock, mode: str
) -> None:
    start = reply(calls=[call("delegate_task_async", goal="dig deep")])
    model = ScriptedModel("m", [start, reply("it digs")], scripts={"dig": [hang()]})
    async with desk(model, tmp_path, virtual_clock, memory=False) as at:
        at.type("go")
        await at.sees("it digs")
        await at.quiet()
        at.chat.leave(suspend=True)
        await at.until(lambda: at.code is not None)
    session = at.chat.last_session
    again = ScriptedModel("m", [reply("no result")], scripts={"dig": [hang()]}, check=False)
    settings = {"delegation.recover": mode}
    async with desk(again, tmp_path, virtual_clock, memory=False, resume=session, **settings) as at:
        if mode == "never":
            assert "going on stops the 1 unfinished tasks" in await at.sees("no result")
        else:
            await at.until(lambda: again.in_flight == 1)


@pytest.mark.fault("B025")
async def test_a_correction_while_the_conversation_waits_names_the_children(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    start = reply(calls=[call("spawn_parallel", tasks=["dig one", "dig two"])])
    step = reply(calls=[call("terminal", command="true")], delay=10)
    scripts = {"dig one": [step, reply("1")], "dig two": [step, reply("2")]}
    model = ScriptedModel("m", [start, reply("both")], scripts=scripts)
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("go")
        await at.until(lambda: model.in_flight == 2)
        at.type("/steer only the first page")
        text = await at.sees("/steer all TEXT", "dig two")
        assert "2 running tasks" in text and text.count("TEXT   dig") == 2
        at.type("/steer all only the first page")
        await at.sees("reads it at its next step", "reads it at its next step")
        await at.sees("both")
    for goal in ("dig one", "dig two"):
        last = [r for r in model.requests if plain_text(r.entries[0].content).startswith(goal)][-1]  # type: ignore[union-attr]
        assert [e.text for e in last.entries if isinstance(e, Steer)] == ["only the first page"]
    model.assert_complete()


async def test_steering_one_task_by_its_id_and_none(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel(
        "m", [reply("a"), reply("b")], scripts={"work": [reply(delay=5, text="x"), reply("faster now")]}
    )
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("/steer first words")
        await at.sees("no turn runs: sent as a message", "a")
        await at.quiet()
        at.type("/bg work")
        await at.sees("Task ID: bg_")
        task = at.chat.runs[0]
        await at.until(lambda: model.in_flight)
        at.type(f"/steer {task.id[:7]} faster")
        await at.sees(f"{task.id} reads it")
        at.type("/steer bg_ffffffffff x")
        await at.sees("Task not found: bg_ffffffffff")
        at.type("/steer #1")
        await at.sees("usage: /steer #1 TEXT")
        await at.sees("│ faster now")
        at.type(f"/steer {task.id} too late")
        await at.sees(f"{task.id} is not running (completed)")


@pytest.mark.fault("B055")
@pytest.mark.fault("B145")
async def test_background_runs(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    scripts = {
        "посчитай": [reply("готово\n42", delay=3)],
        "status of servers": [reply("all up")],
        "long": [hang()],
        "bad": [ModelError("no such model", reason="model_not_found")],
    }
    model = ScriptedModel("m", [reply("hi")], scripts=scripts)
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("/background list")
        await at.sees("no background tasks yet")
        at.type("/background посчитай файлы")
        await at.sees('🔄 Background task #1 started: "посчитай файлы"', "Task ID: bg_")
        at.type("hello")
        await at.sees("hi")
        await at.sees("╭─ Hermes (background #1)", "│ готово\n│ 42", "╰─")
        at.type('/BG "status of servers"')
        await at.sees("#2 started", "│ all up")
        at.type("/bg long")
        await at.sees("#3 started")
        await at.until(lambda: model.in_flight)
        at.type("/background status")
        text = await at.sees("#3 ▶")
        assert "#1 ✓" in text and "#2 ✓" in text
        at.type("/background cancel 3")
        await at.sees("✗ background #3", "cancelled")
        at.type("/background status 3")
        await at.sees("cancelled", "session 20")
        at.type("/background cancel 9")
        await at.sees("there is no background task 9")
        at.type("/bg bad")
        await at.sees("✗ background #4", "no such model")
    model.assert_complete()


@pytest.mark.fault("B042")
@pytest.mark.fault("B147")
async def test_agents_shows_running_and_finished_tasks_under_their_parents(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    start = reply(calls=[call("delegate_task_async", goal="quick"), call("delegate_task_async", goal="slow")])
    scripts = {"quick": [reply(calls=[call("terminal", command="echo there")]), reply("Q")], "slow": [hang()]}
    model = ScriptedModel("m", [start, reply("started"), reply("quick is done")], scripts=scripts)
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("/agents")
        await at.sees("no tasks yet")
        at.type("go")
        await at.sees("started", "quick is done")  # the idle conversation took a turn by itself
        await at.quiet()
        await anyio.sleep(60)
        at.type("/tasks")
        text = await at.sees("Tasks: 1 running, 1 ended", "slow")
        lines = text.splitlines()[-3:]
        assert lines[0].startswith("▶ main_") and "idle" in lines[0]
        assert lines[1].startswith("├─ ✓ async_") and "completed" in lines[1] and "2 calls" in lines[1]
        assert lines[2].startswith("└─ ▶ async_") and "running model" in lines[2] and "1m 0" in lines[2]
        quick = lines[1].split()[2]
        elapsed = lines[1].split(" · ")[2]
        await anyio.sleep(60)
        at.type(f"/agents {quick}")
        text = await at.sees("│ Q")
        assert elapsed in text and "terminal echo there" in text  # its time stands still
    model.assert_complete()


@pytest.mark.fault("B029")
async def test_a_question_of_a_grandchild_reaches_the_person_with_its_path(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    ask = reply(calls=[call("terminal", command="rm nothing-here.txt")])
    scripts = {
        "middle": [reply(calls=[call("delegate_task", goal="leaf")]), reply("M")],
        "leaf": [ask, ask, ask, ask, reply("L")],
    }
    start = reply(calls=[call("delegate_task", goal="middle", role="orchestrator")])
    model = ScriptedModel("m", [start, reply("end")], scripts=scripts)
    settings = {"delegation.max_spawn_depth": 2, "approvals.timeout": 50}
    async with desk(model, tmp_path, virtual_clock, **settings) as at:
        at.type("go")
        await at.sees("❓ go > middle > leaf", "terminal: rm nothing-here.txt", "y once")
        at.chat.refresh()
        assert at.composer.prompt.startswith("allow?")
        at.type("n")
        await at.sees("⛔ denied terminal", "❓ go > middle > leaf")  # a refusal holds once
        at.type("/status")  # a line that is no answer is no answer
        await at.sees("queued", "approvals")
        await at.sees("⛔ denied terminal", "(by timeout)", "❓")
        at.type("a")
        await at.sees("end")  # and the last one was not asked for
        at.chat.refresh()
        assert at.composer.prompt == "> "
    assert at.composer.text.count("❓") == 3
    model.assert_complete()


async def test_quit_says_what_runs_and_asks_once(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [reply("hi")], scripts={"dig": [hang()]})
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("/bg dig a hole")
        await at.until(lambda: model.in_flight)
        at.type("/quit")
        assert "dig a hole" in await at.sees("/quit again stops what runs")
        at.type("hello")
        await at.sees("hi")
        await at.quiet()
        at.type(Signal.END)  # Ctrl+D means the same, and asks anew after another line
        await at.sees("/quit again stops what runs")
        assert at.code is None
        at.type("/exit")
        await at.until(lambda: at.code is not None)
        assert at.code == 0 and model.in_flight == 0


async def test_new_begins_another_conversation(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [reply("one"), reply("two")])
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("first")
        await at.sees("one")
        await at.quiet()
        before = at.chat.session.id if at.chat.session else ""
        at.type("/RESET")
        await at.sees("a new conversation begins")
        at.type("second")
        await at.sees("two")
        await at.quiet()
        assert at.chat.session is not None and at.chat.session.id != before
    assert len([e for e in model.requests[1].entries if isinstance(e, User)]) == 1


async def test_when_the_input_ends_what_runs_comes_to_its_end(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    start = reply(calls=[call("delegate_task_async", goal="dig")])
    model = ScriptedModel("m", [start, reply("wait"), reply("dug")], scripts={"dig": [reply("D", delay=100)]})
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("go")
        at.composer.finished = True
        at.type(Signal.END)
        await at.sees("🔀 dig", "wait")
        await at.until(lambda: model.in_flight)
        await anyio.sleep(90)
        assert at.code is None
        await at.until(lambda: at.code is not None)
    assert at.code == 0 and "dug" in at.composer.text
    model.assert_complete()


async def test_typing_holds_a_report_back_a_little(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    start = reply(calls=[call("delegate_task_async", goal="dig")])
    model = ScriptedModel("m", [start, reply("wait"), reply("dug")], scripts={"dig": [reply("D", delay=10)]})
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("go")
        await at.sees("wait")
        at.composer.on_typing(True)
        await at.sees("✓ dig")
        ended = anyio.current_time()
        await at.sees("dug")
        assert 1.9 < anyio.current_time() - ended < 2.5


async def test_the_small_commands(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [reply("hi"), reply("/usr/bin is a folder")])
    async with desk(model, tmp_path, virtual_clock) as at:
        at.type("/help")
        assert "/background PROMPT" in await at.sees("/steer [ID", "twice within 2 s")
        at.type("/stop")
        await at.sees("nothing runs")
        at.type("/queue hello")
        await at.sees("hi")
        at.type("/usr/bin what is this?")
        await at.sees("is a folder")
        await at.quiet()
        at.type("/usage")
        await at.sees("with all tasks", "20 in, 10 out, 2 calls")
        at.type("/tools")
        await at.sees("terminal, process", "delegate_task_async")
        at.type("/busy steer")
        await at.sees("a line typed during a turn: steer")
        at.type("/status")
        await at.sees("waits for you", "ask")
        at.type("/frob")
        await at.sees("there is no command /frob")
        for line in ("/queue", "/steer", "/bg", "/bg cancel", "/busy x"):
            at.type(line)
            await at.sees("usage: /")
    model.assert_complete()


async def test_a_limit_of_money_can_be_seen_and_raised(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    profile = ModelProfile(window=4_000_000, price_input=1.0, price_output=4.0)
    dear = [reply("dear", usage=Usage(input=900_000)), reply("cheaper", usage=Usage(input=100))]
    model = ScriptedModel("m", dear, profile)
    async with desk(model, tmp_path, virtual_clock, **{"budget.session_usd": 0.5}) as at:
        at.type("/budget")
        await at.sees("$0.0000 of $0.5")
        at.type("first")
        await at.sees("dear")
        at.type("second")
        await at.sees("cost limit of $0.5 reached (session)", "/budget USD raises the limit")
        at.type("/budget much")
        await at.sees("'much' is no amount of US dollars")
        at.type("/budget $20")
        await at.sees("$0.9000 of $20")
        at.type("third")
        await at.sees("cheaper")
        at.type("/usage")
        await at.sees("main", "with all tasks", "$0.9001, 2 calls")
        row = await at.lab.runtime.store.task(at.chat.session.task.id)  # type: ignore[union-attr]
        assert row is not None and stored_spec(row).session == Limits(cost_usd=20, priced_only=True)
        at.type("/budget none")
        await at.sees("$0.9001 and no limit")


async def test_a_limit_on_a_model_of_unknown_price_is_refused(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    async with desk(ScriptedModel("own/model", [reply("hi")]), tmp_path, virtual_clock) as at:
        at.type("/budget 2")
        await at.sees("the price of own/model is unknown", "models:")
        at.type("hello")
        await at.sees("hi")


async def test_a_line_is_answered_while_two_hundred_children_run(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    def answer(request: ModelRequest) -> Any:
        text = first_user_text(request)
        if text.startswith("job"):
            return reply(f"done {text}", delay=20 + int(text[4:]) % 37)
        if text == "one more":
            steered = [e for e in request.entries if isinstance(e, Steer)]
            return reply("EXTRA", delay=1) if steered else reply(calls=[call("terminal", command="true")], delay=3)
        said = plain_text([e for e in request.entries if isinstance(e, User)][-1].content)
        if said == "go" and len(request.entries) == 1:
            return reply(calls=[call("delegate_task_async", goal=f"job {n}") for n in range(200)])
        if said == "another":
            ids = re.findall(r'async_[0-9a-f]+(?=","goal":"one more)|(?<="task_id":")async_[0-9a-f]+', str(request))
            results = [e for e in request.entries if isinstance(e, ToolResult)]
            if len(results) == 200:
                return reply(calls=[call("delegate_task_async", goal="one more")])
            if len(results) == 201:
                return reply(calls=[call("steer_task", task_id=ids[-1], message="hurry")])
        return reply(f"heard: {said}")

    model = EndlessModel(answer)
    settings = {"delegation.max_concurrent_children": 300, "delegation.max_live_children": 300}
    async with desk(model, tmp_path, virtual_clock, **settings) as at:
        at.type("go")
        await at.sees("heard: go")
        await at.until(lambda: model.in_flight == 200)
        began = anyio.current_time()
        at.type("are you there?")
        await at.sees("heard: are you there?")
        assert anyio.current_time() - began < 1 and model.in_flight == 200
        at.type("another")
        await at.sees("heard: another")
        assert model.in_flight == 201
        await at.sees("✓ one more")
        await at.until(lambda: not at.chat.running())
    extra = next(view for view in at.lab.runtime.bus.tree.tasks.values() if view.goal == "one more")
    assert extra.state == "completed" and [r["state"] for r in extra.receipts.values()] == ["delivered"]


async def test_a_tiny_model_is_labelled(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("embedded:x", [reply("hi")], profile=ModelProfile(tiny=True))
    async with desk(model, tmp_path, virtual_clock) as at:
        await at.sees("tiny local model: for trying the pipeline")
        at.type("hello")
        await at.sees("hi")


@pytest.mark.parametrize(
    ("line", "name", "argument"),
    [
        ("/STOP", "stop", ""),
        ("/bg x y", "background", "x y"),
        ("/ba x", "background", "x"),
        ("/q later", "queue", "later"),
        ("/qui", "quit", ""),
        ("/exit", "quit", ""),
        ("/task", "agents", ""),
        ("/steer all  go\nnow", "steer", "all  go\nnow"),
        ("hello /stop", "", ""),
        (" /stop", "", ""),
        ("/usr/bin/x", "", ""),
        ("/", "", ""),
        ("/ stop", "", ""),
    ],
)
def test_lines_are_read_as_commands(line: str, name: str, argument: str) -> None:
    parsed = parse(line)
    assert (parsed.name, parsed.argument, parsed.problem) == (name, argument, "")


def test_an_ambiguous_beginning_names_the_candidates() -> None:
    assert parse("/st").problem == "/st could be /status, /steer, /stop"
    assert parse("/t").problem == "/t could be /agents, /tools"


@pytest.mark.fault("B145")
@pytest.mark.parametrize(
    ("argument", "verb", "rest"),
    [
        ("status", "status", ""),
        ("LIST", "list", ""),
        ("cancel 1", "cancel", "1"),
        ("cancel #2", "cancel", "#2"),
        ("status bg_12ab", "status", "bg_12ab"),
        ("cancel", "cancel", ""),
        ('"status"', "", "status"),
        ("status of servers", "", "status of servers"),
        ("cancel the order", "", "cancel the order"),
        ("переведи текст", "", "переведи текст"),
    ],
)
def test_sub_commands_of_background_are_told_from_prompts(argument: str, verb: str, rest: str) -> None:
    assert background_verb(argument) == (verb, rest)
