"""A list of which only the visible lines are drawn, and of those only the ones that changed.

Thousands of rows cost nothing while out of sight, and nothing is sent twice over a slow line. Knows nothing of what
the rows mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Blur, Click, Focus, MouseScrollDown, MouseScrollUp, Resize
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

__all__ = ["Cell", "LineList"]

#: A piece of a line and the name of its style: one of `LineList.COMPONENT_CLASSES` without its beginning, or empty.
Cell = tuple[str, str]


class LineList(Widget, can_focus=True):
    """Rows with a cursor. A subclass says how many there are and what stands in one; `refill` after each change."""

    DEFAULT_CSS = """
    LineList { height: 1fr; width: 1fr; }
    LineList .line--cursor { background: $primary 40%; text-style: bold; }
    LineList:nocolor .line--cursor { text-style: bold reverse; }
    LineList .line--pale-cursor { background: $surface-lighten-1; }
    LineList .line--live { color: $success; }
    LineList .line--waiting { color: $warning; }
    LineList .line--bad { color: $error; }
    LineList .line--dim { color: $text-muted; }
    LineList .line--name { text-style: bold; }
    LineList .line--mark { color: $accent; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "line--cursor",
        "line--pale-cursor",
        "line--live",
        "line--waiting",
        "line--bad",
        "line--dim",
        "line--name",
        "line--mark",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home,g", "move(-1000000000)", show=False),
        Binding("end,G", "move(1000000000)", show=False),
    ]

    class Moved(Message):
        """The cursor stands on another row."""

    class Chosen(Message):
        """A double click on a row."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  the name Textual uses
        super().__init__(id=id)
        self.cursor = 0
        self.top = 0
        self._drawn: list[Strip] = []

    # -- for a subclass -------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many rows there are."""
        raise NotImplementedError

    def cells(self, index: int, width: int) -> Sequence[Cell]:
        """What stands in a row, cut to about `width` columns."""
        raise NotImplementedError

    def empty(self) -> str:
        """What is shown where there are no rows."""
        return "nothing here"

    # -- drawing --------------------------------------------------------------------------------------------------

    def refill(self) -> None:
        """Look at the rows again; what changed of the visible ones is drawn."""
        height = self.size.height
        self.cursor = max(0, min(self.cursor, self.count - 1))
        self.top = max(0, min(self.top, self.count - height, self.cursor), self.cursor - height + 1)
        before, self._drawn = self._drawn, [self._strip(self.top + y) for y in range(height)]
        changed = [y for y, strip in enumerate(self._drawn) if y >= len(before) or strip != before[y]]
        if changed:
            self.refresh(*[Region(0, y, self.size.width, 1) for y in changed])

    def _strip(self, index: int) -> Strip:
        width = self.size.width
        if index >= self.count:
            text = self.empty() if index == 0 else ""
            return Strip([Segment(set_cell_size(text, width), self._style("dim"))], width)
        under = self._style("cursor" if self.has_focus else "pale-cursor") if index == self.cursor else self.rich_style
        segments, used = [], 0
        for text, name in self.cells(index, width):
            room = width - used
            if room <= 0:
                break
            size = cell_len(text)
            piece = text if size <= room else set_cell_size(text, room)
            used += min(size, room)
            segments.append(Segment(piece, under + self._ink(name) if name else under))
        if used < width:
            segments.append(Segment(" " * (width - used), under))
        return Strip(segments, width)

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"line--{name}")

    def _ink(self, name: str) -> Style:
        """The colour alone, so that the cursor shows through."""
        return Style(color=self.get_component_rich_style(f"line--{name}").color)

    def render_line(self, y: int) -> Strip:
        """One visible line."""
        return self._drawn[y] if y < len(self._drawn) else Strip.blank(self.size.width, self.rich_style)

    def notify_style_update(self) -> None:
        """Another theme: everything is drawn anew."""
        super().notify_style_update()
        self._drawn = []
        self.call_after_refresh(self.refill)

    # -- moving ---------------------------------------------------------------------------------------------------

    def move_to(self, index: int) -> None:
        """Put the cursor on a row."""
        before = self.cursor
        self.cursor = max(0, min(index, self.count - 1))
        self.refill()
        if self.cursor != before:
            self.post_message(self.Moved())

    def action_move(self, by: int) -> None:
        """Move the cursor by rows."""
        self.move_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by screens."""
        self.move_to(self.cursor + by * max(1, self.size.height - 1))

    def on_resize(self, event: Resize) -> None:
        """Another size: everything is drawn anew."""
        self._drawn = []
        self.refill()

    def on_focus(self, event: Focus) -> None:
        """The cursor is shown strong."""
        self.refill()

    def on_blur(self, event: Blur) -> None:
        """The cursor is shown pale."""
        self.refill()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """The wheel moves the cursor."""
        event.stop()
        self.action_move(3)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """The wheel moves the cursor."""
        event.stop()
        self.action_move(-3)

    def on_click(self, event: Click) -> None:
        """A click puts the cursor there, a second one chooses."""
        index = self.top + event.y
        if index < self.count:
            self.move_to(index)
            if event.chain >= 2:
                self.post_message(self.Chosen())
