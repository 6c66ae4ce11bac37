"""The board on the screen: what is seen of it, moving, commenting, answering, and what others do to it meanwhile."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from hermes.kanban.access import Access
from hermes.kanban.board import AsyncBoard, Board
from hermes.kanban.boards import Boards
from hermes.kanban.card import Card, NewCard, Worker
from hermes.kanban.ending import Authority, Completion
from hermes.testing.lab import open_lab
from hermes.testing.scripted import ScriptedModel
from hermes.tui.board_screen import BoardScreen
from hermes.tui.menu_screen import MenuScreen
from tests.tui.hands import PATIENCE, Hands, on_stage, until
from tests.tui.stage import Stage, same, shown

pytestmark = pytest.mark.anyio

HERE = Worker(host_id="h" * 16, home_id="o" * 16, boot_id="b1")
NOW = 1_772_000_000.0
T = TypeVar("T")


class StandingClock:
    """Seconds since the epoch that do not pass."""

    def now(self) -> float:
        return NOW


def boards(root: Path) -> Boards:
    return Boards(root, HERE, environ={}, clock=StandingClock())


class Kept:
    """The board of a test, asked on a thread as everybody asks it."""

    def __init__(self, board: Board) -> None:
        self._board = AsyncBoard(board)

    async def ask(self, work: Callable[[Board], T]) -> T:
        return await self._board.run(work)

    async def find(self, card_id: str) -> Card:
        return await self.ask(lambda board: board.find(card_id))

    async def until(self, work: Callable[[Board], object], pilot: Hands) -> None:
        with anyio.fail_after(PATIENCE):
            while not await self.ask(work):
                await pilot.pause(0.02)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Kept]:
    """A board without cards."""
    with boards(tmp_path / "root").open() as board:
        yield Kept(board)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    """A board with cards in most states; one asks."""
    with boards(tmp_path / "root").open() as board:
        fill(board)
        yield Kept(board)


def fill(board: Board) -> None:

    def new(title: str, **fields: object) -> str:
        return board.create(NewCard(title=title, **fields), author="ann").card.id  # type: ignore[arg-type]

    new("An idea for later", triage=True)
    parent = new("Parser that keeps positions", assignee="coder", priority=2, body="Keep line and column.")
    new("Tests of the parser", assignee="coder", parents=(parent,))
    new("Отчёт для клиента", assignee="writer")
    for number in range(7):
        new(f"Small thing number {number} with a rather long title", assignee="coder")
    asking = new("Move the database", assignee="ops")
    board.block(asking, "Which server?", Authority(author="ops"), kind="needs_input", choices=("old", "new"))
    done = new("Set up the project", assignee="coder")
    board.complete(done, Completion(summary="it builds"), Authority(author="coder"))
    board.claim(profiles=["coder"], author="dispatcher", card=parent)


@asynccontextmanager
async def looked_at(tmp_path: Path, size: tuple[int, int] = (120, 30)) -> AsyncIterator[tuple[Hands, BoardScreen]]:
    async with open_lab(ScriptedModel("m", []), workspace=tmp_path) as lab:
        access = Access(lambda: boards(tmp_path / "root"), author="ann")
        screen = BoardScreen(access=access, now=lambda: NOW + 7_200)
        stage = Stage(lab, screen)
        async with on_stage(stage, size) as pilot:
            await until(lambda: screen._newest >= 0 and "card" in shown(pilot)[0], pilot)
            yield pilot, screen


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_the_picture(tmp_path: Path, kept: Kept, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    cards = sorted(await kept.ask(lambda board: board.cards()), key=lambda card: card.seq)
    ids = {card.id: f"t_{number:08x}" for number, card in enumerate(cards)}
    async with looked_at(tmp_path, size) as (pilot, screen):
        await pilot.pause()
        await same("board", pilot, ids)
        screen.view.choose(cards[1].id)
        await pilot.press("enter")
        await until(lambda: "Keep line and column." in "\n".join(shown(pilot)), pilot)
        await pilot.pause()
        await same("board_card", pilot, ids)


async def test_a_card_is_made_moved_and_commented(tmp_path: Path, empty: Kept) -> None:
    async with looked_at(tmp_path) as (pilot, screen):
        await until(lambda: "ready 0" in shown(pilot)[1], pilot)
        await pilot.press("n", *"Write it down", "enter")
        await until(lambda: screen.view.chosen is not None, pilot)
        (card,) = await empty.ask(lambda board: board.cards())
        assert (card.title, card.status, card.created_by) == ("Write it down", "triage", "ann")
        await choose(pilot, "1")  # make a task of it
        await until(lambda: f"{card.id} is ready" in shown(pilot)[-2], pilot)
        assert (await empty.find(card.id)).status == "ready"
        await until(lambda: screen.view.chosen is not None and screen.view.chosen.id == card.id, pilot)
        await pilot.press("c", *"today", "enter")
        await empty.until(lambda board: [note.body for note in board.show(card.id).comments] == ["today"], pilot)
        await pilot.press("m")
        aside = await place_of("set it aside", pilot)
        await pilot.press(aside, "enter")  # a reason is needed: nothing happens without
        await pilot.pause()
        assert (await empty.find(card.id)).status == "ready"
        await choose(pilot, aside, *"no paper", "enter")
        await empty.until(lambda board: board.find(card.id).status == "blocked", pilot)
        assert (await empty.find(card.id)).block_reason == "no paper"


async def choose(pilot: Hands, key: str, *more: str) -> None:
    """Press keys in the menu of moves."""
    await pilot.press("m")
    await until(lambda: isinstance(pilot.app.screen, MenuScreen), pilot)
    await pilot.press(key)
    await until(lambda: not isinstance(pilot.app.screen, MenuScreen), pilot)
    await pilot.press(*more)


async def place_of(text: str, pilot: Hands) -> str:
    """The digit that chooses an entry of the menu."""
    await until(lambda: any(text in line for line in shown(pilot)), pilot)
    line = next(line for line in shown(pilot) if text in line)
    return line.split(text)[0].split()[-1]


async def test_a_question_is_answered_with_one_of_its_choices(tmp_path: Path, kept: Kept) -> None:
    (question,) = await kept.ask(lambda board: board.questions())
    async with looked_at(tmp_path) as (pilot, screen):
        await until(lambda: "1 question waits" in shown(pilot)[0], pilot)
        await pilot.press("a")
        await until(lambda: "2 new" in "\n".join(shown(pilot)), pilot)
        await pilot.press("2")
        await kept.until(lambda board: not board.questions(), pilot)
        (answered,) = await kept.ask(lambda board: board.questions(answered=True))
        assert (answered.answer, answered.answered_by) == ("new", "ann")
        await until(lambda: f"{question.card_id} is ready" in shown(pilot)[-2], pilot)
        await until(lambda: "question" not in shown(pilot)[0], pilot)
        await until(lambda: screen.view.chosen is not None and screen.view.chosen.id == question.card_id, pilot)


async def test_a_running_card_is_not_taken_from_its_worker(tmp_path: Path, kept: Kept) -> None:
    cards = await kept.ask(lambda board: board.cards())
    (running,) = [card for card in cards if card.status == "running"]
    async with looked_at(tmp_path) as (pilot, screen):
        screen.view.choose(running.id)
        await pilot.press("m")
        await pilot.press(await place_of("put it away", pilot))
        await until(lambda: "asked to stop" in shown(pilot)[-2], pilot)
        assert "no dispatcher" in shown(pilot)[-2]
        card = await kept.find(running.id)
        assert (card.status, card.stop_requested) == ("running", "archived")


async def test_what_others_do_is_seen_and_what_is_refused_is_said(tmp_path: Path, kept: Kept) -> None:
    waiting = next(card for card in await kept.ask(lambda board: board.cards()) if card.status == "todo")
    async with looked_at(tmp_path) as (pilot, screen):
        made = await kept.ask(lambda board: board.create(NewCard(title="From elsewhere", assignee="x"), author="bob"))
        await until(lambda: any(card.id == made.card.id for _, held in screen.view.columns for card in held), pilot)
        screen.view.choose(waiting.id)
        await choose(pilot, "1")  # it still needs another card
        await until(lambda: "waits for" in shown(pilot)[-2], pilot)
        await pilot.press("slash", *"elsewhere", "enter")
        await until(lambda: "1 card " in shown(pilot)[0], pilot)
        await pilot.press("escape")
        await until(lambda: "find" not in shown(pilot)[0], pilot)
        await pilot.resize_terminal(20, 5)
        await until(lambda: len(shown(pilot)) == 5 and "‹" in shown(pilot)[1], pilot)
