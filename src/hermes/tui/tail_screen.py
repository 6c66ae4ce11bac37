"""What one task says and does, from the beginning and as it comes. Reads its history; changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import anyio
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, RichLog, Static

from hermes.chat.render import duration, one_line
from hermes.chat.tailing import entry_lines
from hermes.chat.tree_text import doing
from hermes.core.views import TaskView
from hermes.tui.side_screen import SideScreen
from hermes.tui.task_source import TaskSource

__all__ = ["TailScreen"]

#: Seconds between two looks into the history; lines that are kept.
LOOK_EVERY, KEPT = 0.3, 20_000


class TailScreen(SideScreen):
    """The transcript of a task; it follows while its end is in sight."""

    DEFAULT_CSS = """
    TailScreen > .head { height: 1; background: $primary-background; color: $text; text-style: bold; }
    TailScreen > RichLog { height: 1fr; scrollbar-size-vertical: 1; padding: 0 1; }
    TailScreen > #said { height: 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,t", "close", "Back"),
        Binding("end,G", "end", "Newest"),
        Binding("home,g", "home", "Oldest"),
    ]

    def __init__(self, source: TaskSource, view: TaskView, now: Callable[[], float]) -> None:
        super().__init__()
        self._source = source
        self._task_id = view.task_id
        self._goal = view.goal
        self._now = now
        self._next = 0

    def compose(self) -> ComposeResult:
        """Goal, history, what it does now."""
        yield Static(f"{self._task_id}  {one_line(self._goal, 300)}", markup=False, classes="head")
        yield RichLog(wrap=True, max_lines=KEPT, auto_scroll=False)
        yield Static("", id="said", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to look."""
        self.query_one(RichLog).focus()
        self.work(self._follow)

    async def _follow(self) -> None:
        while True:
            await self._look()
            await anyio.sleep(LOOK_EVERY)

    async def _look(self) -> None:
        log = self.query_one(RichLog)
        found = await self._source.entries(self._task_id, self._next)
        follow, at = log.is_vertical_scroll_end, log.scroll_offset.y
        for position, entry in found:
            for line in entry_lines(entry):
                log.write(Text(line), scroll_end=False)
            self._next = position + 1
        if found and follow:
            self.call_after_refresh(self._stay, at)  # only then is it known how long the log has become
        self.say(self._state())

    def _stay(self, at: int) -> None:
        """Show the newest line, unless the person went further up meanwhile."""
        log = self.query_one(RichLog)
        if log.scroll_offset.y >= at:
            log.scroll_end(animate=False, immediate=True)

    def _state(self) -> str:
        view = self._source.tree.tasks.get(self._task_id)
        if view is None:
            return ""
        now = self._now()
        parts = [doing(view), duration(view.seconds(now)), "" if view.ended else (view.lines[-1] if view.lines else "")]
        return " · ".join(part for part in parts if part)

    def action_close(self) -> None:
        """Back to where one was."""
        self.dismiss(None)

    def action_end(self) -> None:
        """To the newest line, and follow."""
        self.query_one(RichLog).scroll_end(animate=False)

    def action_home(self) -> None:
        """To the first line."""
        self.query_one(RichLog).scroll_home(animate=False, immediate=True)
