"""Tasks, sessions and the board as a person gets to them in the program, and back."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from hermes.kanban.access import Access
from hermes.kanban.home import open_boards
from hermes.testing.scripted import ScriptedModel, call, hang, reply
from hermes.tui.agents_screen import AgentsScreen
from hermes.tui.board_screen import BoardScreen
from hermes.tui.sessions_screen import SessionsScreen
from tests.tui.seat import seat

pytestmark = pytest.mark.anyio


async def test_a_child_is_found_corrected_and_stopped_and_the_draft_stays(tmp_path: Path) -> None:
    scripts = {
        "begin": [reply(calls=[call("delegate_task_async", goal="look around")]), reply("started"), reply("noted")],
        "look around": [hang(), hang()],
    }
    async with seat(ScriptedModel("test-model", scripts=scripts), tmp_path, size=(120, 30)) as at:
        await at.send("begin")
        await at.sees("started")
        await at.quiet()
        at.screen.prompt.insert("half a thou")
        await at.press("ctrl+t")
        screen = at.app.screen
        assert isinstance(screen, AgentsScreen)
        await at.until(lambda: len(screen.tree_list.rows) == 2, "the child")
        await at.press("down", "e", *"only the docs", "enter")
        child = at.lab.runtime.supervisor.tasks[screen.tree_list.rows[1].view.task_id]
        await at.until(lambda: [message.text for message in child.inbox.steers] == ["only the docs"], "the correction")
        await at.press("enter")  # its transcript
        await at.sees("look around")
        await at.press("ctrl+t")  # everything that is open goes
        await at.until(lambda: at.app.at_conversation, "the conversation")
        await at.press("f6", "down", "x")
        await at.until(lambda: child.ended, "the end of the child")
        await at.until(lambda: "cancelled" in at.text, "its state")
        await at.press("escape")
        await at.until(lambda: at.app.at_conversation, "the conversation")
        assert at.screen.prompt.text == "half a thou"
        at.screen.prompt.clear()


async def test_an_earlier_conversation_is_reopened_from_the_list(tmp_path: Path) -> None:
    model = ScriptedModel("test-model", scripts={"first": [reply("one")], "second": [reply("two")]})
    async with seat(model, tmp_path, size=(120, 30), memory=False) as at:
        await at.send("first")
        await at.sees("one")
        await at.quiet()
        first = at.chat.last_session
        await at.send("/new")
        await at.sees("a new conversation begins")
        await at.send("second")
        await at.sees("two")
        await at.quiet()
        assert at.chat.last_session != first
        await at.press("f2")
        screen = at.app.screen
        assert isinstance(screen, SessionsScreen)
        await at.until(lambda: len(screen.sessions.rows) == 2, "both sessions")
        await at.press("down", "enter")
        await at.until(lambda: at.chat.last_session == first, "the first conversation")
        await at.until(lambda: at.app.at_conversation, "the conversation")


async def test_the_board_of_the_home_is_a_key_away(tmp_path: Path) -> None:
    async with seat(ScriptedModel("test-model", []), tmp_path, size=(120, 30)) as at:
        await at.press("f3")
        screen = at.app.screen
        assert isinstance(screen, BoardScreen)
        await at.sees("ready 0")
        await at.press("n", *"Paint the fence", "enter")
        await at.sees("m makes a task of it")
        await at.press("f3")
        await at.until(lambda: at.app.at_conversation, "the conversation")
        access = Access(lambda: open_boards(at.lab.assembly.home, at.lab.assembly.settings), author="test")
        board = await access.board()
        assert [card.title for card in await board.run(lambda board: board.cards())] == ["Paint the fence"]
        await access.close()
        await at.send("/kanban")
        await at.until(lambda: isinstance(at.app.screen, BoardScreen), "the board")
        await at.press("f2", "f3", "ctrl+t")  # from one to the next
        await at.until(lambda: isinstance(at.app.screen, AgentsScreen), "the tasks")
        await at.press("escape")
        await at.until(lambda: at.app.at_conversation, "the conversation")


async def test_work_that_is_overtaken_before_it_begins_leaves_nothing_behind(tmp_path: Path) -> None:
    begun: list[int] = []

    async def verb(number: int) -> None:
        begun.append(number)

    async with seat(ScriptedModel("test-model", []), tmp_path, size=(120, 30)) as at:
        await at.press("f2")
        screen = at.app.screen
        assert isinstance(screen, SessionsScreen)
        for number in range(3):
            screen.work(verb, number, group="mine", only=True)
        await at.until(lambda: begun, "the last of them")
        await at.pilot.settled()
        assert begun == [2]
        gc.collect()  # a coroutine that was made and never begun would be told of here
