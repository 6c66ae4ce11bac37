"""The columns of a board, a few lines a card; only what is in sight is drawn. Reads no board and moves no card."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click, MouseScrollDown, MouseScrollUp, Resize
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from hermes.chat.card_text import MARKS, age
from hermes.chat.render import one_line
from hermes.kanban.card import Card
from hermes.kanban.moves import STATUSES, Status

__all__ = ["BoardView"]

#: Columns of text that a column of cards has at least, lines of one card.
NARROWEST, TALL = 24, 3
#: Columns that stay where nothing is in them.
_KEPT = ("ready", "running", "done")
_INKS: Mapping[Status, str] = {"running": "live", "blocked": "bad", "review": "waiting", "triage": "waiting"}


class BoardView(Widget, can_focus=True):
    """Cards by state. `now` is the wall clock in seconds."""

    DEFAULT_CSS = """
    BoardView { height: 1fr; width: 1fr; }
    BoardView .card--cursor { background: $primary 40%; text-style: bold; }
    BoardView:nocolor .card--cursor { text-style: bold reverse; }
    BoardView .card--head { text-style: bold underline; }
    BoardView .card--dim { color: $text-muted; }
    BoardView .card--live { color: $success; }
    BoardView .card--bad { color: $error; }
    BoardView .card--waiting { color: $warning; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "card--cursor",
        "card--head",
        "card--dim",
        "card--live",
        "card--bad",
        "card--waiting",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "across(-1)", show=False),
        Binding("right,l", "across(1)", show=False),
        Binding("up,k", "along(-1)", show=False),
        Binding("down,j", "along(1)", show=False),
        Binding("pageup", "along(-5)", show=False),
        Binding("pagedown", "along(5)", show=False),
        Binding("home,g", "along(-1000000000)", show=False),
        Binding("end,G", "along(1000000000)", show=False),
    ]

    class Moved(Message):
        """The cursor stands on another card."""

    class Opened(Message):
        """A double click on a card."""

    def __init__(self, *, now: Callable[[], float] = time.time, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._now = now
        self.columns: list[tuple[Status, list[Card]]] = []
        self.asking: frozenset[str] = frozenset()  # cards with an open question
        self.column = self.row = 0
        self._first = 0  # the leftmost column in sight
        self._tops: dict[Status, int] = {}
        self._lines: list[Strip] = []
        self.nothing = "reading the board …"

    # -- what is on it --------------------------------------------------------------------------------------------

    def fill(self, cards: Sequence[Card], asking: frozenset[str]) -> None:
        """Show other cards; the cursor stays on its card, wherever that went."""
        kept = self.chosen
        found: dict[Status, list[Card]] = {status: [] for status in STATUSES if status != "archived"}
        for card in cards:
            found.setdefault(card.status, []).append(card)
        self.columns = [(status, held) for status, held in found.items() if held or status in _KEPT]
        self.asking = asking
        if kept is not None:
            self.choose(kept.id)
        self._settle()

    @property
    def chosen(self) -> Card | None:
        """The card under the cursor."""
        cards = self.columns[self.column][1] if self.column < len(self.columns) else []
        return cards[self.row] if self.row < len(cards) else None

    def choose(self, card_id: str) -> bool:
        """Put the cursor on a card; False where it is not shown."""
        for column, (_, cards) in enumerate(self.columns):
            for row, card in enumerate(cards):
                if card.id == card_id:
                    self.column, self.row = column, row
                    self._settle()
                    return True
        return False

    # -- drawing --------------------------------------------------------------------------------------------------

    @property
    def _seen(self) -> int:
        """How many columns there is room for."""
        return max(1, min(len(self.columns), self.size.width // NARROWEST))

    def _settle(self) -> None:
        """Bring the cursor into sight and draw what changed."""
        if not self.columns:
            self._lines = []
            self.refresh()
            return
        self.column = max(0, min(self.column, len(self.columns) - 1))
        status, cards = self.columns[self.column]
        self.row = max(0, min(self.row, len(cards) - 1))
        seen = self._seen
        self._first = max(0, min(self._first, self.column, len(self.columns) - seen), self.column - seen + 1)
        room = max(1, (self.size.height - 1) // TALL)
        self._tops[status] = max(0, min(self._tops.get(status, 0), self.row), self.row - room + 1)
        lines = [self._line(y) for y in range(self.size.height)]
        if lines != self._lines:
            self._lines = lines
            self.refresh()

    def _line(self, y: int) -> Strip:
        seen, width = self._seen, self.size.width
        base = width // seen
        segments: list[Segment] = []
        for place in range(seen):
            column = self._first + place
            cell = (width - base * (seen - 1) if place == seen - 1 else base) - 1
            text, style = self._piece(column, y, cell)
            segments += [Segment(set_cell_size(text, cell), style), Segment(" ", self.rich_style)]
        return Strip(segments, width)

    def _piece(self, column: int, y: int, width: int) -> tuple[str, Style]:
        """One line of one column."""
        status, cards = self.columns[column]
        if y == 0:
            before = "‹ " if column == self._first and column > 0 else ""
            after = " ›" if column == self._first + self._seen - 1 < len(self.columns) - 1 else ""
            return one_line(f"{before}{MARKS[status]} {status} {len(cards)}{after}", width), self._style("head")
        top = self._tops.get(status, 0)
        index, line = top + (y - 1) // TALL, (y - 1) % TALL
        if index >= len(cards):
            return "", self.rich_style
        card = cards[index]
        room = max(1, (self.size.height - 1) // TALL)
        more = len(cards) - top - room
        if more > 0 and y == room * TALL:  # the gap after the last card that fits
            return f"… {more} more", self._style("dim")
        if line == TALL - 1 or index >= top + room:
            return "", self.rich_style
        here = column == self.column and index == self.row
        under = self._style("cursor") if here else self.rich_style
        if line == 0:
            return " " + one_line(card.title, width - 1), under
        ink = self._ink("bad" if card.id in self.asking else _INKS.get(status, "dim"))
        return " " + one_line(self._facts(card), width - 1), under + ink

    def _facts(self, card: Card) -> str:
        parts = ["? asks" if card.id in self.asking else "", card.id, card.assignee or "nobody"]
        if card.stop_requested is not None:
            parts.insert(0, "stopping")
        elif card.consecutive_failures:
            parts.insert(0, f"✗{card.consecutive_failures}")
        since = card.started_at if card.status == "running" and card.started_at else card.updated_at
        return " ".join(part for part in [*parts, age(self._now() - since)] if part)

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"card--{name}")

    def _ink(self, name: str) -> Style:
        """The colour alone, so that the cursor shows through."""
        return Style(color=self.get_component_rich_style(f"card--{name}").color)

    def render_line(self, y: int) -> Strip:
        """One visible line."""
        if not self.columns:
            text = self.nothing if y == 0 else ""
            return Strip([Segment(set_cell_size(text, self.size.width), self._style("dim"))], self.size.width)
        return self._lines[y] if y < len(self._lines) else Strip.blank(self.size.width, self.rich_style)

    # -- moving the cursor ----------------------------------------------------------------------------------------

    def _go(self, column: int, row: int) -> None:
        before = self.chosen
        self.column, self.row = column, row
        self._settle()
        if self.chosen is not before:
            self.post_message(self.Moved())

    def action_across(self, by: int) -> None:
        """To the next column; its cursor stands beside where it was."""
        self._go(max(0, min(self.column + by, len(self.columns) - 1)), self.row)

    def action_along(self, by: int) -> None:
        """To another card of the column."""
        self._go(self.column, self.row + by)

    def on_resize(self, event: Resize) -> None:
        """Another size: everything is drawn anew."""
        self._lines = []
        self._settle()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """The wheel moves the cursor."""
        event.stop()
        self.action_along(1)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """The wheel moves the cursor."""
        event.stop()
        self.action_along(-1)

    def on_click(self, event: Click) -> None:
        """A click puts the cursor there, a second one opens."""
        if not self.columns or event.y == 0:
            return
        column = min(self._first + event.x // max(1, self.size.width // self._seen), len(self.columns) - 1)
        status, cards = self.columns[column]
        row = self._tops.get(status, 0) + (event.y - 1) // TALL
        if row < len(cards):
            self._go(column, row)
            if event.chain >= 2:
                self.post_message(self.Opened())
