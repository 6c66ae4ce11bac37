"""Earlier conversations on the screen: finding, reading, reopening, renaming, exporting."""

from __future__ import annotations

import re
import time
from pathlib import Path

import anyio.lowlevel
import pytest

from hermes.store.ops import AddSession, SessionRow, Unit
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import ScriptedModel, call, reply
from hermes.tui.agents_screen import AgentsScreen
from hermes.tui.sessions_screen import SessionsScreen
from tests.tui.hands import on_stage, until
from tests.tui.stage import Stage, same, shown

pytestmark = pytest.mark.anyio

DAY = 86_400.0
FIRST = 1_771_900_000.0


async def put(lab: Lab, *titles: str) -> None:
    """Sessions a day apart, the last one the newest."""
    ops = [
        AddSession(
            row=SessionRow(
                session_id=f"202602{24 + number:02d}_143052_a1b2c{number}",
                root_task=f"main_{number}",
                source="cli" if number % 2 else "tui",
                title=title,
                model="test-model",
                cwd="/work/project",
                created_at=FIRST + number * DAY,
                updated_at=FIRST + number * DAY,
            )
        )
        for number, title in enumerate(titles)
    ]
    await lab.runtime.store.submit(Unit(ops=tuple(ops))).wait()


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_the_picture(tmp_path: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    async with open_lab(ScriptedModel("m", []), workspace=tmp_path) as lab:
        await put(lab, "Audit of the parser", "Проверка отчёта", "测试数据的清理", "a " + "very " * 30 + "long title")
        stage = Stage(lab, SessionsScreen())
        async with on_stage(stage, size) as pilot:
            await until(lambda: "4 of 4" in shown(pilot)[0], pilot)
            await pilot.press("down")
            await pilot.pause()
            await same("sessions", pilot)


async def test_a_session_is_found_by_what_was_said_read_and_reopened(tmp_path: Path) -> None:
    script = {
        "how high is the tower": [reply("It is 324 metres high.")],
        "second": [reply(calls=[call("delegate_task", goal="a part")]), reply("over")],
        "a part": [reply("Сделано")],
    }
    async with open_lab(ScriptedModel("m", scripts=script), workspace=tmp_path) as lab:
        sessions = []
        for goal in ("how high is the tower", "second"):
            sessions.append(await lab.converse())
            await sessions[-1].exchange(goal)
        stage = Stage(lab, SessionsScreen(), sessions[1].id)
        async with on_stage(stage, (120, 30)) as pilot:
            screen = stage.screen
            assert isinstance(screen, SessionsScreen)
            await until(lambda: len(screen.sessions.rows) == 2, pilot)
            await until(lambda: any(line.startswith("▶ ") and "second" in line for line in shown(pilot)), pilot)
            await pilot.press("slash", *"324 METRES")
            await until(lambda: not screen.sessions.rows, pilot)
            await until(lambda: "enter looks into what was said" in pilot.text, pilot)
            await pilot.press("enter")
            await until(lambda: [row.session_id for row in screen.sessions.rows] == [sessions[0].id], pilot)
            await until(lambda: "It is 324 metres high." in "\n".join(shown(pilot)), pilot)
            await pilot.press("enter")
            await until(lambda: stage.left, pilot)
            assert stage.lines == [f"/resume {sessions[0].id}"]
            assert stage.left == [None]


async def test_the_conversation_one_is_in_is_not_reopened_and_its_tasks_are_looked_at(tmp_path: Path) -> None:
    async with open_lab(ScriptedModel("m", [reply("hello")]), workspace=tmp_path) as lab:
        session = await lab.converse()
        await session.exchange("hi")
        stage = Stage(lab, SessionsScreen(), session.id)
        async with on_stage(stage, (80, 24)) as pilot:
            screen = stage.screen
            assert isinstance(screen, SessionsScreen)
            await until(lambda: screen.sessions.rows, pilot)
            await pilot.press("enter")
            await until(lambda: "you are in" in shown(pilot)[-2], pilot)
            assert stage.lines == []
            await pilot.press("a")
            await until(lambda: isinstance(stage.screen, AgentsScreen), pilot)
            await pilot.press("escape")
            await until(lambda: stage.screen is screen, pilot)


async def test_a_session_is_renamed_and_exported(tmp_path: Path) -> None:
    async with open_lab(ScriptedModel("m", [reply("hello")]), workspace=tmp_path) as lab:
        session = await lab.converse()
        await session.exchange("hi")
        stage = Stage(lab, SessionsScreen())
        async with on_stage(stage, (120, 24)) as pilot:
            screen = stage.screen
            assert isinstance(screen, SessionsScreen)
            await until(lambda: screen.sessions.rows, pilot)
            await pilot.press("r", "end", *" there", "enter")
            await until(lambda: "hi there" in shown(pilot)[1], pilot)
            await pilot.press("e", "enter")
            await until(lambda: "written:" in shown(pilot)[-2], pilot)
            written = (tmp_path / f"{session.id}.md").read_text()
            assert written.startswith("# hi there\n")
            assert "hello" in written
            await pilot.press("e", "enter")
            await until(lambda: "there already" in shown(pilot)[-2], pilot)
            assert (tmp_path / f"{session.id}.md").read_text() == written
            await pilot.press("e", "ctrl+u", *"/proc/x.json", "enter")
            await until(lambda: re.search("/proc/x.json: .*Name a file", shown(pilot)[-2]), pilot)
            await pilot.press("escape")
            await until(lambda: stage.left, pilot)
            assert stage.left == [None]


async def test_work_that_goes_on_while_the_program_ends_is_no_fault(tmp_path: Path) -> None:
    """The parts of a screen go before its work ends."""
    told: list[str] = []
    async with open_lab(ScriptedModel("m", []), workspace=tmp_path) as lab:
        screen = SessionsScreen()

        async def verb() -> None:
            told.append("begun")
            while screen.query("#said"):
                await anyio.lowlevel.checkpoint()
            told.append("alone")
            screen.say("nobody reads this")

        async with on_stage(Stage(lab, screen), (80, 24)):
            screen.work(verb)
            while not told:
                await anyio.lowlevel.checkpoint()
    assert told == ["begun", "alone"]
