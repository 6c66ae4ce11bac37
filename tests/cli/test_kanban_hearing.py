"""A conversation hears of the cards that it made: each of its own, once, and also when its process died."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from hermes.cli.kanban_hearing import Hearing
from hermes.cli.kanban_serving import serve_board
from hermes.cli.options import GlobalOptions, Sources
from hermes.config import Home, load
from hermes.core.clock import held
from hermes.core.messages import Notice
from hermes.core.model import ModelRequest
from hermes.kanban import tables as t
from hermes.kanban.access import Access
from hermes.kanban.board import Board
from hermes.kanban.card import NewCard
from hermes.kanban.ending import Authority, Completion
from hermes.kanban.home import open_boards
from hermes.testing.clock import VirtualClock
from hermes.testing.scripted import EndlessModel, Reply, ScriptedModel, hang, reply
from tests.cli.test_interactive import Desk, desk

pytestmark = pytest.mark.anyio
TITLE = "Наведи порядок 測試 🎈"


class Team:
    """What workers do on the board of a home, and a conversation of it that hears."""

    def __init__(self, path: Path, clock: VirtualClock) -> None:
        self.path, self.clock = path, clock
        home = Home(root=path / ".hermes-home", path=path / ".hermes-home")
        self.loaded = load(home, {}, {})
        self._access = Access(lambda: open_boards(home, self.loaded.settings, {}), author="default", hold=clock)

    async def on(self, work: Callable[[Board], Any]) -> Any:
        return await (await self._access.board()).run(work)

    async def card(self, session: str, title: str = TITLE) -> str:
        order = NewCard(title=title, assignee="default", session_id=session)
        return str((await self.on(lambda board: board.create(order, author="default"))).card.id)

    async def works(self, card: str, asks: str = "") -> None:
        """Take a card as a worker does, and complete it or ask something."""

        def work(board: Board) -> None:
            claimed = board.claim(profiles=["default"], card=card)
            assert claimed is not None
            by = Authority(author="default", claim=claimed.claim)
            if asks:
                board.block(card, asks, by, kind="needs_input")
            else:
                board.complete(card, Completion(summary="all in its place"), by)

        await self.on(work)

    @asynccontextmanager
    async def talk(self, model: ScriptedModel | EndlessModel, resume: str = "") -> AsyncIterator[Desk]:
        async with desk(model, self.path, self.clock, memory=False, resume=resume) as at:
            hearing = Hearing(self.loaded, at.chat, self.clock)
            async with anyio.create_task_group() as group:
                group.start_soon(hearing.run)
                yield at
                group.cancel_scope.cancel()

    async def close(self) -> None:
        await self._access.close()


@pytest.fixture
async def team(tmp_path: Path, virtual_clock: VirtualClock) -> AsyncIterator[Team]:
    found = Team(tmp_path, virtual_clock)
    yield found
    await found.close()


def told(request: ModelRequest) -> list[str]:
    return [entry.text for entry in request.entries if isinstance(entry, Notice) and entry.kind == "cards"]


async def begun(at: Desk) -> str:
    """The id of a conversation in which something was said."""
    at.type("hello")
    await at.sees("made")
    await at.quiet()
    assert at.chat.session is not None
    return at.chat.session.id


async def test_it_hears_once_of_what_is_done_and_asked_while_it_is_open(team: Team) -> None:
    model = ScriptedModel("m", [reply("made"), reply("I see that it is done."), reply("A question, then.")])
    async with team.talk(model) as at:
        session = await begun(at)
        card, other = await team.card(session), await team.card(session, "paint it")
        await team.works(card)
        await at.sees(f"board: {card} done: {TITLE} — all in its place", "I see that it is done.")
        await at.quiet()
        await team.works(other, asks="blue or red?")
        await at.sees(f"board: {other} waits for you: paint it", f"hermes kanban answer {other} TEXT", "A question")
        await at.quiet()
        assert len(model.requests) == 3
        first, second = told(model.requests[-1])
        assert f"{card} done: {TITLE}: all in its place" in first and "blue or red?" in second and card not in second
    async with team.talk(ScriptedModel("m", []), resume=session) as at:
        await at.quiet()
        await team.works(await team.card("20260101_000000_abcdef", "of another conversation"))
        await anyio.sleep(10)
        assert "board:" not in at.composer.text


async def test_what_happened_while_it_was_closed_is_told_at_its_next_opening_and_to_nobody_else(team: Team) -> None:
    async with team.talk(ScriptedModel("m", [reply("made")])) as at:
        session = await begun(at)
    card, gone = await team.card(session), await team.card(session, "answered meanwhile")
    await team.works(card)
    await team.works(gone, asks="still?")
    await team.on(lambda board: board.unblock(gone, author="me"))
    async with team.talk(ScriptedModel("m", [reply("made")])) as at:
        await begun(at)
        await anyio.sleep(10)
        assert "board:" not in at.composer.text
    model = ScriptedModel("m", [reply("so it is done")])
    async with team.talk(model, resume=session) as at:
        await at.sees(f"board: {card} done", "so it is done")
        await at.quiet()
        (notice,) = told(model.requests[0])
        assert gone not in notice
    async with team.talk(ScriptedModel("m", []), resume=session) as at:
        await at.quiet()
        await anyio.sleep(10)
        assert "board:" not in at.composer.text


async def test_a_notice_that_came_not_into_the_history_is_told_again(team: Team) -> None:
    async with team.talk(ScriptedModel("m", [reply("made"), hang()])) as at:
        session = await begun(at)
        at.type("think for long")
        await at.until(lambda: at.chat.turn_runs, "a turn")
        await team.works(await team.card(session))
        await at.sees("board: ")
        at.chat.leave(suspend=True)

    heard: list[list[str]] = []

    def answer(request: ModelRequest) -> Reply:
        heard.append(told(request))
        return reply("so it is done" if heard[-1] else "thought")

    async with team.talk(EndlessModel(answer), resume=session) as at:
        await at.sees("board: ", "so it is done")
        await at.quiet()
    assert heard[-1] == heard[-1][:1] and TITLE in heard[-1][0]


async def test_a_board_that_cannot_be_read_keeps_nobody_from_hearing_of_another(team: Team) -> None:
    async with team.talk(ScriptedModel("m", [reply("made"), reply("so it is done")])) as at:
        session = await begun(at)

        def work() -> str:
            boards = open_boards(team.loaded.home, team.loaded.settings, {})
            (boards.root / "kanban-board.db").write_bytes(b"no database at all " * 500)
            with boards.create("other") as board:
                card = board.create(NewCard(title=TITLE, session_id=session), author="default").card.id
                board.complete(card, Completion(summary="all in its place"), Authority(author="me"))
            return card

        with held(team.clock):
            card = await anyio.to_thread.run_sync(work)
        await at.sees(f"board: {card} done", "so it is done")
        assert at.composer.text.count("kanban-board.db") == 1, "what cannot be read is said, once"


async def test_boards_in_a_folder_that_cannot_be_looked_into_end_no_conversation(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_KANBAN_HOME", str(team.path / ("n" * 300)))
    sources = Sources(loaded=team.loaded, options=GlobalOptions(), pool=(), keys=(), variables={})
    async with desk(ScriptedModel("m", [reply("made"), reply("still here")]), team.path, team.clock) as at:
        async with anyio.create_task_group() as group:
            group.start_soon(serve_board, sources, at.chat)
            await begun(at)
            # Whoever hears and whoever serves say it.
            await at.until(lambda: at.composer.text.count("File name too long") == 2)
            at.type("and now?")
            await at.sees("still here")
            group.cancel_scope.cancel()


async def test_what_comes_to_light_behind_a_newer_event_is_told(team: Team) -> None:
    """Where several hosts write, a number that was given out first may be committed last."""
    async with team.talk(ScriptedModel("m", [reply("made"), reply("so it is done")])) as at:
        card = await team.card(await begun(at))

        def late(board: Board) -> None:
            newest = board.last_event()
            said = {"card_id": card, "kind": "completed", "author": "coder", "payload": {"summary": "late"}}
            with board.database.write() as tx:
                tx.run(t.cards.update().where(t.cards.c.id == card).values(status="done"))
                tx.run(t.events.insert().values(id=newest - 1, created_at=tx.now, **said))

        def ahead(board: Board) -> None:
            with board.database.write() as tx:
                tx.run(t.events.update().where(t.events.c.card_id == card).values(id=t.events.c.id + 100))

        await team.on(ahead)
        await anyio.sleep(70)  # it was looked for meanwhile, also on boards that are new
        await team.on(late)
        await at.sees(f"board: {card} done: {TITLE} — late", "so it is done")
