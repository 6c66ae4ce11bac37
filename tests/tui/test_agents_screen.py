"""The tree of tasks on the screen: what is seen, what the keys do, and what it does with tasks of other processes."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from hermes.runtime.task import Task
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import ScriptedModel, call, hang, reply
from hermes.tui.agents_screen import AgentsScreen
from hermes.tui.task_source import StoredTasks, remote_of
from hermes.tui.tree_list import only_ascii
from tests.tui.hands import PATIENCE, Hands, on_stage, until
from tests.tui.stage import Stage, Told, grown, same, shown

pytestmark = pytest.mark.anyio

NOW = 1_772_000_000.0
SIZES = [(80, 24), (160, 50)]
SETTINGS = {"delegation.max_spawn_depth": 3}


@asynccontextmanager
async def looked_at(
    lab: Lab, session: str, size: tuple[int, int] = (80, 24), *, now: Callable[[], float] = lambda: NOW, **options: Any
) -> AsyncIterator[tuple[Hands, AgentsScreen]]:
    screen = AgentsScreen(now=now, **options)
    stage = Stage(lab, screen, session)
    async with on_stage(stage, size) as pilot:
        await pilot.pause()
        yield pilot, screen


@pytest.mark.parametrize("size", SIZES)
async def test_the_picture(tmp_path: Path, size: tuple[int, int]) -> None:
    async with open_lab(ScriptedModel("m", []), workspace=tmp_path) as lab:
        grown(lab.runtime.bus, "S1", NOW)
        async with looked_at(lab, "S1", size) as (pilot, _):
            await same("agents", pilot)
            await pilot.press("d", "down", "down", "down")
            await pilot.pause()
            await same("agents_details", pilot)


def test_a_terminal_that_has_only_ascii_is_known() -> None:
    assert [only_ascii(name) for name in ("ascii", "latin-1", "cp1251", "no-such", "utf-8", None)] == [True] * 4 + [
        False,
        False,
    ]


async def test_it_is_drawn_without_colour_and_unicode_and_in_no_room(tmp_path: Path) -> None:
    async with open_lab(ScriptedModel("m", []), workspace=tmp_path) as lab:
        told = Told(lab.runtime.bus, "S1", NOW)
        told.start("main_1", "audit")
        told.start("sa-1", "look at \x1b[31mred\u202e text", "main_1")
        told.end("sa-1", "failed")
        async with looked_at(lab, "S1", plain=True) as (pilot, _):
            await until(lambda: "`-x look at red text" in pilot.text, pilot)
            text = "\n".join(shown(pilot))
            assert text.isascii() or set(text) - set(map(chr, range(128))) == {"·"}
            await pilot.resize_terminal(20, 5)
            await until(lambda: [line for line in shown(pilot) if "audit" in line or "conversation" in line], pilot)


@pytest.mark.fault("B147")
async def test_a_child_that_ended_before_anybody_looked_stands_with_its_end(tmp_path: Path) -> None:
    script = {"parent": [reply(calls=[call("delegate_task", goal="short")]), reply("over")], "short": [reply("done")]}
    async with open_lab(ScriptedModel("m", scripts=script), workspace=tmp_path) as lab:
        session = await lab.converse()
        await session.exchange("parent")
        async with looked_at(lab, session.id, (160, 30)) as (pilot, screen):
            await until(lambda: "short" in pilot.text, pilot)
            line = next(line for line in shown(pilot) if "short" in line)
            assert "✓ sa-" in line
            assert "completed" in line
            await pilot.press("f", "f")  # only those that ended
            await until(lambda: any("short" in line and "completed" in line for line in shown(pilot)), pilot)
            assert screen.model.counts.running == 0
            assert screen.model.counts.ended == 1


@pytest.mark.fault("B148")
async def test_sums_and_rows_are_of_one_view_whatever_was_not_drawn(tmp_path: Path) -> None:
    """Nine of ten events pass while nothing is drawn: the next picture is right all the same."""
    dice = random.Random(148)
    async with open_lab(ScriptedModel("m", []), workspace=tmp_path) as lab:
        told = Told(lab.runtime.bus, "S1", NOW - 50)
        told.start("main_1", "all of it")
        async with looked_at(lab, "S1", (160, 50)) as (pilot, screen):
            tasks = ["main_1"]
            for number in range(200):
                task = f"sa-{number:08d}"
                told.start(task, f"part {number}", dice.choice(tasks), started=dice.random() < 0.8)
                tasks.append(task)
                told.turn(dice.choice(tasks), dice.randrange(1, 1000), 0.001)
                if dice.random() < 0.4:
                    told.end(dice.choice(tasks[1:]), dice.choice(("completed", "failed", "cancelled")))
                if dice.random() < 0.1:
                    await pilot.pause()
            screen.draw()
            view = lab.runtime.bus.tree.tasks
            states = [each.state for each in view.values() if each.kind != "main"]
            counts = screen.model.counts
            assert (counts.running, counts.queued) == (states.count("running"), states.count("queued"))
            assert counts.running + counts.queued + counts.ended == 200
            rows = screen.tree_list.rows
            assert sorted(row.view.task_id for row in rows) == sorted(tasks)
            assert rows[0].sums.tokens == sum(each.usage.total for each in view.values())
            assert rows[0].sums.going == counts.running + counts.queued
            sums = f"Tasks: {counts.running} running · {counts.queued} queued"
            await until(lambda: shown(pilot)[0].startswith(sums), pilot)


@pytest.mark.fault("B149")
async def test_rows_of_a_lost_process_stand_still_and_other_sessions_do_not_show(tmp_path: Path) -> None:
    children = [call("delegate_task_async", goal=f"child {number}") for number in range(5)]
    scripts: dict[str, Any] = {f"child {number}": [hang(), hang(), hang()] for number in range(5)}
    scripts |= {f"session {number}": [reply(calls=children), reply("started")] for number in range(3)}
    lost: set[str] = set()
    async with open_lab(ScriptedModel("m", scripts=scripts), workspace=tmp_path) as lab:
        sessions = []
        for number in range(3):
            sessions.append(await lab.converse())
            await sessions[-1].exchange(f"session {number}")
        remote = remote_of(lab.assembly)
        remote._is_gone = lambda owner: owner in lost
        source = StoredTasks(remote, sessions[1].id)
        async with looked_at(lab, sessions[1].id) as (_, screen):
            rows = screen.tree_list.rows
            assert {row.view.session_id for row in rows} == {sessions[1].id}
            assert len(rows) == 6
        assert await source.refresh()
        assert [each.state for each in source.tree.tasks.values()] == ["running"] * 6
        child = next(each for each in source.tree.tasks.values() if each.kind != "main")
        assert child.seconds(NOW * 2) > child.seconds(NOW)
        lost.add(lab.runtime.supervisor.owner)
        assert await source.refresh()
        assert not await source.refresh()
        assert [each.state for each in source.tree.tasks.values()] == ["suspended"] * 6
        for each in source.tree.tasks.values():
            assert each.seconds(NOW * 2) == each.seconds(NOW)


async def family(lab: Lab) -> tuple[str, dict[str, Task]]:
    """A conversation with `lead`, which leads `one` and `two`, and a single `three`; none of them comes to an end."""
    session = await lab.converse()
    await session.exchange("begin")
    wanted = {"lead", "one", "two", "three"}
    with anyio.fail_after(PATIENCE):
        while True:
            found = {task.scope.path[-1]: task for task in lab.runtime.supervisor.tasks.values()}
            if wanted <= set(found) and all(found[name].state == "running" for name in wanted):
                return session.id, found
            await anyio.sleep(0.01)


def scripts() -> dict[str, Any]:
    def start(*goals: str) -> Any:
        return reply(calls=[call("delegate_task_async", goal=goal, role="orchestrator") for goal in goals])

    return {
        "begin": [start("lead", "three"), reply("started"), *[reply("noted")] * 9],
        "lead": [start("one", "two"), reply("waiting"), *[hang()] * 3],
        "one": [hang(), hang()],
        "two": [hang(), hang()],
        "three": [hang(), hang()],
    }


async def go_to(pilot: Hands, screen: AgentsScreen, task: Task) -> None:
    screen.draw()
    places = [row.view.task_id for row in screen.tree_list.rows]
    screen.tree_list.move_to(places.index(task.id))
    await pilot.pause()


async def test_the_keys_stop_one_task_or_all_below_and_correct_one(tmp_path: Path) -> None:
    model = ScriptedModel("m", scripts=scripts())
    async with open_lab(model, workspace=tmp_path, settings=SETTINGS) as lab:
        session, tasks = await family(lab)
        async with looked_at(lab, session, (120, 24)) as (pilot, screen):
            await go_to(pilot, screen, tasks["lead"])
            await pilot.press("x")
            await until(lambda: "2 tasks go on under" in shown(pilot)[-2], pilot)
            assert not tasks["lead"].ended

            await go_to(pilot, screen, tasks["one"])
            await pilot.press("e", *"no tests", "enter")
            await until(lambda: "steer" in shown(pilot)[-2] and "queued" in shown(pilot)[-2], pilot, screen.draw)
            assert [message.text for message in tasks["one"].inbox.steers] == ["no tests"]
            await pilot.press("x")
            await until(lambda: tasks["one"].ended, pilot)
            await until(lambda: "missed" in shown(pilot)[-2], pilot, screen.draw)
            assert (tasks["one"].state, tasks["two"].ended) == ("cancelled", False)

            await go_to(pilot, screen, tasks["lead"])
            await pilot.press("X")
            await until(lambda: tasks["lead"].ended and tasks["two"].ended, pilot)
            assert not tasks["three"].ended
            screen.tree_list.move_to(0)  # the conversation
            await pilot.press("x")
            await until(lambda: "this is the conversation" in shown(pilot)[-2], pilot)
            await pilot.press("X")
            await until(lambda: tasks["three"].ended, pilot)
            assert not lab.runtime.supervisor.tasks[screen.tree_list.rows[0].view.task_id].ended


async def test_nothing_new_starts_while_it_is_held_back(tmp_path: Path) -> None:
    model = ScriptedModel("m", scripts={"begin": [reply("ok")], "later": [reply("done")]})
    async with open_lab(model, workspace=tmp_path) as lab:
        session = await lab.converse()
        await session.exchange("begin")
        async with looked_at(lab, session.id, (120, 24)) as (pilot, screen):
            await pilot.press("p")
            await until(lambda: "PAUSED" in shown(pilot)[0], pilot)
            task = await lab.start("later")
            await until(lambda: lab.runtime.supervisor.admission.waiting() == 1, pilot)
            await pilot.pause()
            assert (task.state, lab.runtime.supervisor.admission.waiting()) == ("queued", 1)
            await pilot.press("p")
            await until(lambda: task.ended, pilot)
            await until(lambda: "PAUSED" not in shown(pilot)[0], pilot, screen.draw)


async def test_a_transcript_follows_its_task(tmp_path: Path) -> None:
    text = "\n".join(f"line {number}" for number in range(60))
    model = ScriptedModel("m", scripts={"begin": [reply(text), reply("the second answer")]})
    async with open_lab(model, workspace=tmp_path) as lab:
        session = await lab.converse()
        await session.exchange("begin")
        async with looked_at(lab, session.id) as (pilot, _):
            await pilot.press("enter")
            await until(lambda: "line 59" in "\n".join(shown(pilot)), pilot)
            await session.exchange("again")
            await until(lambda: "the second answer" in "\n".join(shown(pilot)), pilot)
            await pilot.press("home")
            await until(lambda: "you: begin" in "\n".join(shown(pilot)), pilot)
            await pilot.press("escape")
            await until(lambda: shown(pilot)[0].startswith("Tasks:"), pilot)
            await pilot.press("escape")
            await until(lambda: not isinstance(pilot.app.screen, AgentsScreen), pilot)


async def test_searching_filtering_ordering_folding(tmp_path: Path) -> None:
    async with open_lab(ScriptedModel("m", []), workspace=tmp_path) as lab:
        grown(lab.runtime.bus, "S1", NOW)
        async with looked_at(lab, "S1") as (pilot, screen):

            def goals() -> list[str]:
                screen.draw()
                return [row.view.goal for row in screen.tree_list.rows]

            everything = goals()
            await pilot.press("slash", *"strings")
            await pilot.pause()
            assert goals() == [everything[0], "write the tests", "tests of strings"]
            assert [row.found for row in screen.tree_list.rows] == [False, False, True]
            await pilot.press("enter")
            await pilot.press("d")
            await pilot.press("escape")  # the search first, then the details, then the screen
            await pilot.pause()
            assert goals() == everything and screen.has_class("details")
            await pilot.press("escape")
            await pilot.pause()
            assert isinstance(pilot.app.screen, AgentsScreen) and not screen.has_class("details")
            await pilot.press("f", "f", "f")
            assert goals() == [everything[0], "write the tests", "tests of strings"]
            await pilot.press("f", "o")
            assert screen.model.sort == "tokens"
            assert goals()[:2] == [everything[0], "read src/parser.py and list every fault"]
            await pilot.press("o", "o", "o", "o")
            await pilot.press("down", "down", "left")
            assert len(goals()) == len(everything) - 4
            await until(lambda: any("▸ 3" in line for line in shown(pilot)), pilot)
            await pilot.press("right", ">")
            assert goals()[0] == "read src/parser.py and list every fault"
            await pilot.press(">")
            assert goals() == ["look for newer versions of what we depend on"]
            await pilot.press(">")
            assert goals() == everything


async def test_the_cursor_stays_on_its_task(tmp_path: Path) -> None:
    async with open_lab(ScriptedModel("m", []), workspace=tmp_path) as lab:
        told = Told(lab.runtime.bus, "S1", NOW)
        told.start("main_1", "all")
        for number in range(100):
            name = f"sa-{number:08d}" if number % 2 else f"bg_{number:08d}"
            told.start(name, f"part {number}", "main_1" if number % 2 else None)
        async with looked_at(lab, "S1") as (pilot, screen):
            await pilot.press("end")
            kept = screen.tree_list.chosen
            for number in range(50):
                told.start(f"sa-9{number:07d}", f"new {number}", "main_1")
            screen.draw()
            await until(lambda: any("part 98" in line for line in shown(pilot)), pilot)
            assert screen.tree_list.chosen is kept


async def test_tasks_of_another_process_are_corrected_and_stopped_through_the_journal(tmp_path: Path) -> None:
    lost: set[str] = set()
    model = ScriptedModel("m", scripts=scripts())
    async with open_lab(model, workspace=tmp_path, settings=SETTINGS, memory=False) as lab:
        session, tasks = await family(lab)
        remote = remote_of(lab.assembly)
        remote._is_gone = lambda owner: owner in lost
        source = StoredTasks(remote, session)
        await source.refresh()
        receipt, said = await source.steer(source.tree.tasks[tasks["one"].id], "no tests")
        assert receipt and receipt in said
        with anyio.fail_after(PATIENCE):
            while not tasks["one"].inbox.steers:
                await anyio.sleep(0.05)
        assert [message.text for message in tasks["one"].inbox.steers] == ["no tests"]
        await source.stop([source.tree.tasks[tasks["one"].id]])
        with anyio.fail_after(PATIENCE):
            await tasks["one"].done.wait()
        assert (tasks["one"].state, tasks["two"].ended) == ("cancelled", False)
        await source.refresh()
        assert source.tree.tasks[tasks["one"].id].state == "cancelled"
        assert await source.steer(source.tree.tasks[tasks["one"].id], "too late") == (
            "",
            f"Task {tasks['one'].id} is not running (status: cancelled).",
        )
        assert "another process" in source.pause()


async def test_a_tree_of_an_ended_session_is_read_from_the_journal(tmp_path: Path) -> None:
    script = {"parent": [reply(calls=[call("delegate_task", goal="short")]), reply("over")], "short": [reply("done")]}
    async with open_lab(ScriptedModel("m", scripts=script), workspace=tmp_path, memory=False) as lab:
        session = await lab.converse()
        await session.exchange("parent")
        kept = session.id
    async with open_lab(ScriptedModel("m", []), workspace=tmp_path, memory=False) as lab:
        stage = Stage(lab, AgentsScreen(kept, now=lambda: NOW))
        async with on_stage(stage, (120, 20)) as pilot:
            await until(lambda: "short" in "\n".join(shown(pilot)), pilot)
            await until(lambda: f"{kept} (not here)" in pilot.text, pilot)
            assert "✓" in pilot.text and "completed" in pilot.text
            await pilot.press("down", "enter")
            await until(lambda: "done" in "\n".join(shown(pilot)[1:-2]), pilot)
