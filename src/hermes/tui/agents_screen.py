"""The tree of a session's tasks, running and finished: look at each, correct, stop, hold back.

It reads the view that everything else reads and asks through `task_source`; closing it changes nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, cast

import anyio
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.widgets import Footer, Static

from hermes.chat.render import duration, one_line, quantity
from hermes.chat.tree_text import task_details
from hermes.core.errors import HermesError
from hermes.core.views import TaskView
from hermes.tui.prompt_line import PromptLine
from hermes.tui.side_screen import SideScreen
from hermes.tui.tail_screen import TailScreen
from hermes.tui.task_source import TaskSource, task_source
from hermes.tui.tree_list import TreeList, money, only_ascii
from hermes.tui.tree_model import FILTERS, SORTS, TreeModel

if TYPE_CHECKING:
    from hermes.tui.app import HermesApp

__all__ = ["AgentsScreen"]

#: Seconds between two looks at the view, and at the journal where another process has the tasks.
DRAW_EVERY, READ_EVERY = 0.2, 1.0
#: Columns of the screen from which on details stand beside the tree.
WIDE = 140


class AgentsScreen(SideScreen):
    """The tasks of `session_id` (empty: of the conversation). `plain` draws with ASCII alone, which is done
    anyhow where the terminal has nothing else; `now` is the clock."""

    DEFAULT_CSS = """
    AgentsScreen > .head { height: 1; background: $primary-background; color: $text; text-style: bold; }
    AgentsScreen > #columns { height: 1; color: $text-muted; text-style: underline; }
    AgentsScreen > #body { layout: vertical; height: 1fr; }
    AgentsScreen > #body > VerticalScroll { display: none; height: 50%; border-top: solid $primary; }
    AgentsScreen.details > #body > VerticalScroll { display: block; scrollbar-size-vertical: 1; }
    AgentsScreen.details.wide > #body { layout: horizontal; }
    AgentsScreen.details.wide > #body > VerticalScroll {
        height: 1fr; width: 40%; border-top: none; border-left: solid $primary; padding: 0 1;
    }
    AgentsScreen > #said { height: 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "close", "Back", key_display="esc"),
        Binding("t,enter", "tail", "Tail"),
        Binding("d", "details", "Details"),
        Binding("e", "steer", "Steer"),
        Binding("x", "stop", "Stop"),
        Binding("X", "stop_tree", "Tree", key_display="X"),
        Binding("p", "pause", "Pause"),
        Binding("f", "filter", "Filter"),
        Binding("o", "order", "Order"),
        Binding("slash", "search", "Find", key_display="/"),
        Binding("left,h", "fold(True)", show=False),
        Binding("right,l", "fold(False)", show=False),
        Binding("less_than_sign,left_square_bracket", "part(-1)", show=False),
        Binding("greater_than_sign,right_square_bracket", "part(1)", show=False),
    ]

    def __init__(self, session_id: str = "", *, plain: bool = False, now: Callable[[], float] | None = None) -> None:
        super().__init__()
        self._now = now or time.time
        self._session_id = session_id
        self._plain = plain or only_ascii(getattr(sys.__stderr__, "encoding", None))
        self.source: TaskSource
        self.model: TreeModel
        self._followed: tuple[str, str] | None = None  # the task and the receipt of the newest steer

    # -- what is on it --------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Sums, columns, tree beside details, what was said last, keys."""
        host = cast("HermesApp", self.app)
        session = self._session_id or host.chat.last_session
        self.source = task_source(host.assembly, session)
        self.model = TreeModel(self.source.tree, session)
        yield Static("", id="sums", classes="head", markup=False)
        yield Static("", id="columns", markup=False)
        with Container(id="body"):
            yield TreeList(plain=self._plain, id="tree")
            with VerticalScroll(can_focus=False):
                yield Static("", id="details", markup=False)
        yield PromptLine(id="prompt")
        yield Static("", id="said", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to look."""
        self.tree_list.focus()
        self.set_interval(DRAW_EVERY, self.draw)
        self.work(self._read)

    def on_resize(self) -> None:
        """Details stand beside the tree where there is room, else under it."""
        self.set_class(self.size.width >= WIDE, "wide")
        self.call_after_refresh(self.draw)

    @property
    def tree_list(self) -> TreeList:
        """The list of the tasks."""
        return self.query_one(TreeList)

    async def _read(self) -> None:
        """Keep the view up to date where it does not change by itself."""
        while True:
            try:
                await self.source.refresh()
            except HermesError as error:  # it may be right again the next time
                self.say(f"hermes: {error}")
            self.draw()
            if self.source.here:
                return
            await anyio.sleep(READ_EVERY)

    def draw(self) -> None:
        """Bring everything up to date from the view."""
        if not self.is_current or not self.is_mounted:
            return
        now = self._now()
        tree = self.tree_list
        self.model.tree = self.source.tree
        rows = self.model.rows(now)
        hidden = self.model.filter != "all" or self.model.search
        tree.nothing = "no task is like that: f changes the filter, esc ends the search" if hidden else "no tasks yet"
        tree.fill(rows, now)
        self._update("#sums", self._sums())
        self._update("#columns", tree.headings(tree.size.width))
        if self.has_class("details"):
            self._update("#details", self._details(now))
        self._tell_receipt()

    def _update(self, which: str, text: str) -> None:
        widget = self.query_one(which, Static)
        if widget.content != text:
            widget.update(text)

    def _sums(self) -> str:
        model, counts = self.model, self.model.counts
        states = [(counts.running, "running"), (counts.queued, "queued"), (counts.suspended, "suspended")]
        parts = [f"{number} {word}" for number, word in states if number]
        parts.append(f"{counts.ended} ended" + (f" ({counts.failed} failed)" if counts.failed else ""))
        if model.total is not None and model.total.tokens:
            parts += [f"{quantity(model.total.tokens)} tok", money(model.total)]
        asking = sum(view.phase == "approval" and not view.ended for view in self.model.tree.tasks.values())
        if asking and self.source.here:
            parts.insert(0, f"{asking} need{'s' * (asking == 1)} you (esc: answer)")
        if self.source.paused:
            parts.insert(0, "PAUSED: nothing new starts")
        if model.part:
            parts.append(f"tree {model.part} of {len(model.parts())}")
        parts += [f"only {model.filter}"] if model.filter != "all" else []
        parts += [f"by {model.sort}"] if model.sort != "start" else []
        parts += [f"find '{model.search}'"] if model.search else []
        text = "Tasks: " + " · ".join(part for part in parts if part)
        return text if self.source.here else f"{text} · {self.model.session_id} (not here)"

    def _details(self, now: float) -> str:
        view = self.tree_list.chosen
        if view is None:
            return ""
        width = self.query_one("#details").size.width or 80
        lines = task_details(self.model.tree, view, now, lines=30, width=max(40, width))
        started = f"  started {duration(max(0.0, now - view.queued_at))} ago" if view.queued_at else ""
        return "\n".join([lines[0], f"  goal: {one_line(view.goal, 600)}", started, *lines[1:]])

    # -- asking something of tasks --------------------------------------------------------------------------------

    def action_stop(self) -> None:
        """Stop one task; where others run under it, say how many and do nothing."""
        view = self.tree_list.chosen
        if view is None:
            return
        under = sum(1 for _ in self.model.going(view.task_id))
        if view.kind == "main":
            self.say("this is the conversation: esc in it interrupts its turn; X stops every task under it")
        elif view.ended:
            self.say(f"{view.task_id} has ended")
        elif under:
            self.say(f"{under} tasks go on under {view.task_id}: X stops it with all of them")
        else:
            self.work(self._stop, [view])

    def action_stop_tree(self) -> None:
        """Stop a task and everything under it; of the conversation only what is under it."""
        view = self.tree_list.chosen
        if view is None:
            return
        tree = self.model.tree
        tops = [tree.tasks[child] for child in tree.children.get(view.task_id, ())] if view.kind == "main" else [view]
        going = [top for top in tops if not top.ended]
        if going:
            self.work(self._stop, going)
        else:
            self.say("nothing runs here")

    async def _stop(self, views: list[TaskView]) -> None:
        self.say("stopping …")
        self.say(await self.source.stop(views))

    def action_pause(self) -> None:
        """Hold back what has not started, or let it start."""
        self.say(self.source.pause())
        self.draw()

    def action_steer(self) -> None:
        """Ask for a correction of the task under the cursor."""
        view = self.tree_list.chosen
        if view is None or view.ended:
            self.say("it has ended: nothing reads a correction" if view is not None else "no task is chosen")
            return

        def send(text: str) -> None:
            self.work(self._steer, view, text)

        self.query_one(PromptLine).ask(f"steer {view.task_id}: ", send)

    async def _steer(self, view: TaskView, text: str) -> None:
        receipt, said = await self.source.steer(view, text)
        self._followed = (view.task_id, receipt) if receipt else None
        self.say(said)
        self._tell_receipt()

    def _tell_receipt(self) -> None:
        """What became of the newest correction."""
        if self._followed is None:
            return
        task_id, receipt = self._followed
        view = self.model.tree.tasks.get(task_id)
        found = view.receipts.get(receipt) if view is not None else None
        if found is None:
            return
        state = str(found["state"])
        place = f" (position {found['position']} of its history)" if "position" in found else ""
        waits = ": it is read at the next step" if state == "queued" else ""
        self.say(f"steer {receipt} to {task_id}: {state}{place}{waits}")
        if state != "queued":
            self._followed = None

    # -- looking --------------------------------------------------------------------------------------------------

    def action_tail(self) -> None:
        """Read what a task says and does."""
        view = self.tree_list.chosen
        if view is not None:
            self.app.push_screen(TailScreen(self.source, view, self._now))

    def on_line_list_chosen(self, message: TreeList.Chosen) -> None:
        """A double click reads the transcript."""
        message.stop()
        self.action_tail()

    def on_line_list_moved(self, message: TreeList.Moved) -> None:
        """The details follow the cursor."""
        message.stop()
        if self.has_class("details"):
            self._update("#details", self._details(self._now()))

    def action_details(self) -> None:
        """Show or hide the details."""
        self.toggle_class("details")
        self.call_after_refresh(self.draw)

    def action_filter(self) -> None:
        """Show all tasks, those that go on, those that ended, those that failed."""
        self.model.filter = FILTERS[(FILTERS.index(self.model.filter) + 1) % len(FILTERS)]
        self.draw()

    def action_order(self) -> None:
        """Order the children of each task by something else."""
        self.model.sort = SORTS[(SORTS.index(self.model.sort) + 1) % len(SORTS)]
        self.draw()

    def action_part(self, by: int) -> None:
        """Show one tree of the session: what one call or one background run started."""
        self.model.step(by)
        self.draw()

    def action_fold(self, folded: bool) -> None:
        """Hide or show what is under a task."""
        view = self.tree_list.chosen
        if view is not None:
            self.model.fold(view.task_id, folded)
            self.draw()

    def action_search(self) -> None:
        """Show only tasks whose id, goal, model, state or tool has the words."""

        def look(text: str) -> None:
            self.model.search = text
            self.draw()

        self.query_one(PromptLine).ask("find: ", look, text=self.model.search, typed=look, empty=True)

    def action_close(self) -> None:
        """End the search, close the details, or leave."""
        if self.model.search:
            self.model.search = ""
            self.draw()
        elif self.has_class("details"):
            self.action_details()
        else:
            self.dismiss(None)
