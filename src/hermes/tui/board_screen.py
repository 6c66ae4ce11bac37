"""The board on the screen: columns of cards, one in full, moving, commenting, answering what a worker asks.

It asks the board as every other face does and moves nothing by itself; the dispatcher is another program.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import anyio
import anyio.to_thread
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.widgets import Footer, Static

from hermes.chat.card_text import card_lines, event_line
from hermes.chat.render import one_line
from hermes.core.errors import HermesError
from hermes.kanban.access import Access
from hermes.kanban.board import Board
from hermes.kanban.by_hand import ByHand, by_hand, told
from hermes.kanban.card import Card, NewCard, Question
from hermes.kanban.home import open_boards
from hermes.kanban.reading import CardFilter, CardView
from hermes.kanban.reasons import serving
from hermes.tui.board_view import BoardView
from hermes.tui.menu_screen import MenuScreen
from hermes.tui.prompt_line import PromptLine
from hermes.tui.side_screen import SideScreen

if TYPE_CHECKING:
    from hermes.tui.app import HermesApp

__all__ = ["BoardScreen"]

#: Seconds between two looks at the board, between two pictures of the ages on it.
LOOK_EVERY, AGE_EVERY = 1.0, 10.0
#: Columns of the screen from which on a card stands beside the board; events of it that are shown.
WIDE, EVENTS = 120, 12
_T = TypeVar("_T")


class BoardScreen(SideScreen):
    """The board that is meant, or the one called `name`. `access` opens it; None: as the settings of the home say."""

    DEFAULT_CSS = """
    BoardScreen > .head { height: 1; background: $primary-background; color: $text; text-style: bold; }
    BoardScreen > #body { layout: vertical; height: 1fr; }
    BoardScreen > #body > VerticalScroll { display: none; height: 60%; border-top: solid $primary; padding: 0 1; }
    BoardScreen > #body > VerticalScroll:focus { border-top: double $primary; }
    BoardScreen.card > #body > VerticalScroll { display: block; scrollbar-size-vertical: 1; }
    BoardScreen.card.wide > #body { layout: horizontal; }
    BoardScreen.card.wide > #body > VerticalScroll {
        height: 1fr; width: 45%; border-top: none; border-left: solid $primary;
    }
    BoardScreen.card.wide > #body > VerticalScroll:focus { border-left: double $primary; }
    BoardScreen > #said { height: 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "close", "Back", key_display="esc"),
        Binding("enter", "open", "Card", key_display="⏎"),
        Binding("m", "move", "Move"),
        Binding("c", "comment", "Comment"),
        Binding("a", "answer", "Answer"),
        Binding("n", "new", "New"),
        Binding("slash", "search", "Find", key_display="/"),
        Binding("b", "another", "Board"),
    ]

    def __init__(self, name: str = "", *, access: Access | None = None, now: Callable[[], float] | None = None) -> None:
        super().__init__()
        self._name = name
        self._access = access
        self._now = now or time.time
        self._slug = name
        self._newest = -1  # the number of the newest event that is shown
        self._cards: list[Card] = []
        self._questions: list[Question] = []
        self._served = True
        self._search = ""

    # -- what is on it --------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """What the board is, its columns beside a card, what was said last, keys."""
        yield Static("Board", id="sums", classes="head", markup=False)
        with Container(id="body"):
            yield BoardView(now=self._now, id="board")
            with VerticalScroll():
                yield Static("", id="card", markup=False)
        yield PromptLine()
        yield Static("", id="said", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Open the board and begin to look."""
        if self._access is None:
            assembly = cast("HermesApp", self.app).assembly
            author = os.environ.get("HERMES_PROFILE", "").strip() or os.environ.get("USER", "").strip() or "user"
            self._access = Access(lambda: open_boards(assembly.home, assembly.settings), author=author)
        self.view.focus()
        self.work(self._follow)
        self.set_interval(AGE_EVERY, self._fill)

    def on_resize(self) -> None:
        """A card stands beside the board where there is room, else under it."""
        self.set_class(self.size.width >= WIDE, "wide")

    @property
    def view(self) -> BoardView:
        """The columns."""
        return self.query_one(BoardView)

    @property
    def access(self) -> Access:
        """The boards."""
        assert self._access is not None, "the screen is not shown yet"
        return self._access

    async def _board(self, work: Callable[[Board], _T]) -> _T:
        board = await self.access.board(self._name or None)
        return await board.run(work)

    async def _follow(self) -> None:
        """Keep what is shown up to date; the board is let go at the end."""
        try:
            while True:
                try:
                    await self._look()
                except HermesError as error:
                    self.view.nothing = f"hermes: {error}"
                    self.say(f"hermes: {error}")
                    self.view.refresh()
                await anyio.sleep(LOOK_EVERY)
        finally:
            with anyio.CancelScope(shield=True):
                await self.access.close()

    async def _look(self) -> None:
        newest, slug, served = await self._board(
            lambda board: (board.last_event(), board.location.slug, bool(serving(board)))
        )
        if (newest, served) == (self._newest, self._served) and slug == self._slug:
            return
        self._newest, self._slug, self._served = newest, slug, served
        await self._load()

    async def _load(self) -> None:
        self._cards, self._questions = await self._board(lambda board: (board.cards(CardFilter()), board.questions()))
        self._fill()
        await self._show_card()

    def _fill(self) -> None:
        words = self._search.casefold().split()
        cards = [card for card in self._cards if _fits(card, words)]
        self.view.nothing = "no card is like that" if words else "no cards yet: n makes one"
        self.view.fill(cards, frozenset(question.card_id for question in self._questions))
        parts = [f"Board {self._slug}", f"{len(cards)} card{'s' if len(cards) != 1 else ''}"]
        if self._questions:
            count = len(self._questions)
            parts.append(f"{count} question{'s wait' if count > 1 else ' waits'} for an answer (a)")
        if not self._served:
            parts.append("no dispatcher (hermes kanban daemon --detach)")
        if self._search:
            parts.append(f"find '{one_line(self._search, 40)}'")
        self.query_one("#sums", Static).update(" · ".join(parts))

    # -- one card -------------------------------------------------------------------------------------------------

    async def _show_card(self) -> None:
        card = self.view.chosen
        if card is None or not self.has_class("card"):
            return
        view = await self._board(lambda board: board.show(card.id))
        self.query_one("#card", Static).update("\n".join(_in_full(view, self._now())))

    def _again(self) -> None:
        self.work(self._show_card, group="card", only=True)

    def on_board_view_moved(self, message: BoardView.Moved) -> None:
        """What stands beside the board follows the cursor."""
        self.query_one(VerticalScroll).scroll_home(animate=False)
        self._again()

    def on_board_view_opened(self, message: BoardView.Opened) -> None:
        """A double click opens the card."""
        self.action_open()

    def action_open(self) -> None:
        """Show the card under the cursor and let the keys scroll it; again: hide it."""
        scroll = self.query_one(VerticalScroll)
        if self.has_class("card"):
            self.remove_class("card")
            self.view.focus()
        elif self.view.chosen is not None:
            self.add_class("card")
            scroll.focus()
            self._again()

    # -- changing something ---------------------------------------------------------------------------------------

    def _do(self, verb: Coroutine[Any, Any, str]) -> None:
        async def done() -> None:
            said = await verb
            await self._look()
            self.say(said)

        self.work(done)

    def _ask(self, question: str, given: Callable[[str], None], *, empty: bool = False, text: str = "") -> None:
        self.query_one(PromptLine).ask(question, given, empty=empty, text=text)

    def action_move(self) -> None:
        """Choose what becomes of the card."""
        card = self.view.chosen
        if card is None:
            return
        moves = by_hand(card.status)
        if not moves:
            self.say(f"{card.id} is {card.status}: there is nothing to do with it")
            return

        def chosen(place: int | None) -> None:
            if place is not None:
                self._begin(card, moves[place])

        self.app.push_screen(MenuScreen(f"{card.id} is {card.status}", [move.name for move in moves]), chosen)

    def _begin(self, card: Card, move: ByHand) -> None:
        if not move.asks:
            self._do(self._move(card, move, ""))
            return
        hint = "" if move.needed else " (may be empty)"
        self._ask(f"{move.asks}{hint}: ", lambda text: self._do(self._move(card, move, text)), empty=not move.needed)

    async def _move(self, card: Card, move: ByHand, text: str) -> str:
        author = self.access.author
        after = await self._board(lambda board: move.do(board, card.id, author, text))
        self.view.choose(card.id)
        alone = "" if self._served or not after.stop_requested else " · no dispatcher serves this board to see it gone"
        return told(after) + alone

    def action_comment(self) -> None:
        """Say something about the card; its next worker reads it."""
        card = self.view.chosen
        if card is not None:
            self._ask(f"comment on {card.id}: ", lambda text: self._do(self._comment(card, text)))

    async def _comment(self, card: Card, text: str) -> str:
        author = self.access.author
        await self._board(lambda board: board.comment(card.id, text, author=author))
        return f"{card.id}: commented"

    def action_answer(self) -> None:
        """Answer the question of the card under the cursor, else go to the oldest one that waits."""
        card = self.view.chosen
        mine = [question for question in self._questions if card is not None and question.card_id == card.id]
        if not self._questions:
            self.say("nobody asks anything")
            return
        question = (mine or self._questions)[0]
        if self._search and not mine:
            self._search = ""
            self._fill()
        self.view.choose(question.card_id)
        self._again()
        self.say(f"{question.asked_by} asks: {question.question}")
        if not question.choices:
            self._ask(f"answer {question.card_id}: ", lambda text: self._do(self._answer(question, text)))
            return

        def chosen(place: int | None) -> None:
            if place is None:
                return
            if place < len(question.choices):
                self._do(self._answer(question, question.choices[place]))
            else:
                self._ask(f"answer {question.card_id}: ", lambda text: self._do(self._answer(question, text)))

        choices = [*(one_line(choice, 100) for choice in question.choices), "something else …"]
        self.app.push_screen(MenuScreen(one_line(question.question, 200), choices), chosen)

    async def _answer(self, question: Question, text: str) -> str:
        author = self.access.author
        await self._board(lambda board: board.answer(str(question.id), text, author=author))
        after = await self._board(lambda board: board.find(question.card_id))
        return f"answered; {told(after)}"

    def action_new(self) -> None:
        """Make a card with a title; assigning it and the rest are for the command line."""
        self._ask("title of the new card: ", lambda text: self._do(self._new(text)))

    async def _new(self, title: str) -> str:
        author = self.access.author
        made = await self._board(lambda board: board.create(NewCard(title=title, triage=True), author=author))
        return f"{made.card.id} is {made.card.status}: m makes a task of it"

    # -- finding, and other boards --------------------------------------------------------------------------------

    def action_search(self) -> None:
        """Show only cards whose id, title, text or assignee has the words."""

        def typed(text: str) -> None:
            self._search = text
            self._fill()

        self.query_one(PromptLine).ask("find: ", typed, text=self._search, typed=typed, empty=True)

    def action_another(self) -> None:
        """Choose another board."""
        self.work(self._choose_board)

    async def _choose_board(self) -> None:
        assembly = cast("HermesApp", self.app).assembly
        names = await anyio.to_thread.run_sync(lambda: open_boards(assembly.home, assembly.settings).names())

        def chosen(place: int | None) -> None:
            if place is not None:
                self._name, self._newest = names[place], -1
                self._do(self._went())

        self.app.push_screen(MenuScreen("boards", names), chosen)

    async def _went(self) -> str:
        return f"board {self._name}"

    def action_close(self) -> None:
        """Hide the card, end the search, or leave."""
        if self.has_class("card"):
            self.action_open()
        elif self._search:
            self._search = ""
            self._fill()
        else:
            self.dismiss(None)


def _fits(card: Card, words: Sequence[str]) -> bool:
    text = f"{card.id} {card.title} {card.body} {card.assignee or ''} {card.status}".casefold()
    return all(word in text for word in words)


def _in_full(view: CardView, now: float) -> list[str]:
    """A card, and what happened to it last."""
    events = [" ".join(event_line(event).replace(view.task.id, "").split()) for event in view.events[-EVENTS:]]
    return [*card_lines(view, now), "", "events", *(f"  {line}" for line in events)]
