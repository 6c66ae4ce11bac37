"""Earlier conversations: find one by its title or by what was said in it, read, reopen, rename, export it.

Reading adopts nothing; a session is taken up again by the conversation's own command.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

import anyio.to_thread
from rich.cells import cell_len, set_cell_size
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.widgets import Footer, Static

from hermes.chat.render import one_line, printable, when
from hermes.chat.sessions_export import FORMATS, files_of, rendered, write_document
from hermes.chat.sessions_read import mentions, renamed, whole_of
from hermes.chat.tailing import entry_lines
from hermes.core.codec import decode_entry
from hermes.store.ops import SessionRow
from hermes.tui.agents_screen import AgentsScreen
from hermes.tui.line_list import Cell, LineList
from hermes.tui.prompt_line import PromptLine
from hermes.tui.side_screen import SideScreen

if TYPE_CHECKING:
    from hermes.tui.app import HermesApp

__all__ = ["SessionsScreen"]

#: Sessions that are listed, newest first; lines that a preview shows.
MOST, PREVIEW = 1_000, 200
#: Columns of the screen from which on a preview stands beside the list.
WIDE = 120


class SessionList(LineList):
    """One line a session."""

    def __init__(self) -> None:
        super().__init__(id="sessions")
        self.rows: list[SessionRow] = []
        self.unseen: frozenset[str] = frozenset()
        self.current = ""
        self.nothing = "no sessions yet"

    @property
    def count(self) -> int:
        """How many sessions are listed."""
        return len(self.rows)

    @property
    def chosen(self) -> SessionRow | None:
        """The session under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def empty(self) -> str:
        """What is shown without sessions."""
        return self.nothing

    def cells(self, index: int, width: int) -> Sequence[Cell]:
        """When it was used last, its title, where it came from, its model."""
        row = self.rows[index]
        mark = "●" if row.session_id in self.unseen else "▶" if row.session_id == self.current else " "
        ends = f"  {_fit(row.source, 8)}" if width >= 50 else ""
        ends += f"  {_fit(row.model, 18)}" if width >= 76 else ""
        ends += f"  {_fit(row.session_id, 24)}" if width >= 100 else ""
        time = f"{when(row.updated_at)}  " if width >= 34 else ""
        title = _fit(row.title or row.session_id, max(0, width - cell_len(time + ends) - 2))
        return [(mark + " ", "mark"), (time, "dim"), (title, ""), (ends, "dim")]


def _fit(text: str, width: int) -> str:
    return set_cell_size(one_line(text, width), width)


class SessionsScreen(SideScreen):
    """The sessions of the home, newest first."""

    DEFAULT_CSS = """
    SessionsScreen > .head { height: 1; background: $primary-background; color: $text; text-style: bold; }
    SessionsScreen > #body { layout: vertical; height: 1fr; }
    SessionsScreen > #body > VerticalScroll { display: none; height: 50%; border-top: solid $primary; }
    SessionsScreen.preview > #body > VerticalScroll { display: block; scrollbar-size-vertical: 1; padding: 0 1; }
    SessionsScreen.preview.wide > #body { layout: horizontal; }
    SessionsScreen.preview.wide > #body > VerticalScroll {
        height: 1fr; width: 45%; border-top: none; border-left: solid $primary;
    }
    SessionsScreen > #said { height: 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "close", "Back", key_display="esc"),
        Binding("enter", "reopen", "Reopen", key_display="⏎"),
        Binding("slash", "search", "Find", key_display="/"),
        Binding("d", "preview", "Read"),
        Binding("a", "agents", "Tasks"),
        Binding("e", "export", "Export"),
        Binding("r", "rename", "Rename"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._all: list[SessionRow] = []
        self._search = ""
        self._said_in: set[str] = set()  # sessions in which the words of the search were said

    @property
    def host(self) -> HermesApp:
        """The program that this is a screen of."""
        return cast("HermesApp", self.app)

    def compose(self) -> ComposeResult:
        """How many, the list beside a preview, what was said last, keys."""
        yield Static("Sessions", id="sums", classes="head", markup=False)
        with Container(id="body"):
            yield SessionList()
            with VerticalScroll(can_focus=False):
                yield Static("", id="preview", markup=False)
        yield PromptLine()
        yield Static("", id="said", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Read the list."""
        self.sessions.focus()
        self.sessions.current = self.host.chat.last_session
        self.work(self._load)

    def on_screen_resume(self) -> None:
        """Back from another screen: what was renamed or begun meanwhile is seen."""
        self.work(self._load)

    def on_resize(self) -> None:
        """A preview stands beside the list where there is room, else under it, when asked for."""
        wide = self.size.width >= WIDE
        if wide != self.has_class("wide"):
            self.set_class(wide, "wide")
            self.set_class(wide, "preview")

    @property
    def sessions(self) -> SessionList:
        """The list."""
        return self.query_one(SessionList)

    async def _load(self) -> None:
        store = self.host.assembly.runtime.store
        found = await store.sessions(MOST)
        unseen = await store.unseen()
        self._all = [row for row in found if row.source != "batch"]
        self.sessions.unseen = frozenset(task.session_id for task in unseen)
        self.show()

    def show(self) -> None:
        """List what the search lets through."""
        words = self._search.casefold().split()
        rows = [row for row in self._all if row.session_id in self._said_in or _fits(row, words)]
        kept, sessions = self.sessions.chosen, self.sessions
        sessions.rows = rows
        sessions.nothing = "no session is called that: enter looks into what was said" if words else "no sessions yet"
        if kept is not None:
            ids = [row.session_id for row in rows]
            sessions.cursor = ids.index(kept.session_id) if kept.session_id in ids else 0
        sessions.refill()
        unseen = sum(row.session_id in sessions.unseen for row in rows)
        seen = f" · {unseen} with results nobody saw (●)" if unseen else ""
        find = f" · find '{one_line(self._search, 40)}'" if self._search else ""
        self.query_one("#sums", Static).update(f"Sessions: {len(rows)} of {len(self._all)}{seen}{find}")
        self.work(self._preview, group="preview", only=True)

    # -- reading --------------------------------------------------------------------------------------------------

    async def _preview(self) -> None:
        row = self.sessions.chosen
        if row is None or not self.has_class("preview"):
            return
        store = self.host.assembly.runtime.store
        lines = [f"{row.session_id}  {when(row.created_at)}  {row.model}", f"folder {row.cwd}"]
        tasks = await store.tasks(row.session_id)
        others = [task for task in tasks if task.kind != "main"]
        going = sum(task.ended_at is None for task in others)
        lines.append(f"tasks: {len(others) or 'none'}" + (f", {going} not ended" if going else ""))
        said = [
            line
            for task in tasks
            if task.parent_id is None
            for _, body in await store.entries(task.task_id)
            for line in [*entry_lines(decode_entry(body)), ""]
        ]
        cut = [f"… {len(said) - PREVIEW} lines before"] if len(said) > PREVIEW else []
        self.query_one("#preview", Static).update(printable("\n".join([*lines, "", *cut, *said[-PREVIEW:]])))
        self.query_one(VerticalScroll).scroll_end(animate=False)

    def on_line_list_moved(self, message: LineList.Moved) -> None:
        """The preview follows the cursor."""
        self.work(self._preview, group="preview", only=True)

    def action_preview(self) -> None:
        """Show or hide what was said."""
        self.toggle_class("preview")
        self.work(self._preview, group="preview", only=True)

    def action_agents(self) -> None:
        """The tree of its tasks."""
        row = self.sessions.chosen
        if row is not None:
            self.app.push_screen(AgentsScreen(row.session_id))

    # -- finding --------------------------------------------------------------------------------------------------

    def action_search(self) -> None:
        """By title, id, folder and model while typing; enter looks into what was said as well."""

        def typed(text: str) -> None:
            self._search, self._said_in = text, set()
            self.show()

        def given(text: str) -> None:
            typed(text)
            if text:
                self.work(self._look_inside, text, group="inside", only=True)

        self.query_one(PromptLine).ask("find: ", given, text=self._search, typed=typed, empty=True)

    async def _look_inside(self, text: str) -> None:
        store, words = self.host.assembly.runtime.store, text.casefold().split()
        rows = [row for row in self._all if not _fits(row, words)]
        for place, row in enumerate(rows, 1):
            if await mentions(store, row.session_id, words):
                self._said_in.add(row.session_id)
                self.show()
            if text != self._search:
                return
            self.say(f"looking into what was said: {place} of {len(rows)}")
        self.say(f"{len(self._said_in)} sessions in which '{one_line(text, 40)}' was said")

    # -- doing something with one ---------------------------------------------------------------------------------

    def on_line_list_chosen(self, message: LineList.Chosen) -> None:
        """A double click reopens."""
        self.action_reopen()

    def action_reopen(self) -> None:
        """Go on with the session in the conversation."""
        row = self.sessions.chosen
        if row is None:
            return
        if row.session_id == self.host.chat.last_session:
            self.say("this is the conversation you are in")
            return
        self.dismiss(None)
        self.host.typed(f"/resume {row.session_id}")

    def action_rename(self) -> None:
        """Give it another title."""
        row = self.sessions.chosen
        if row is not None:
            self.query_one(PromptLine).ask(
                "title: ", lambda text: self.work(self._rename, row.session_id, text), text=row.title
            )

    async def _rename(self, session_id: str, title: str) -> None:
        await renamed(self.host.assembly.runtime.store, session_id, title)
        await self._load()
        self.say(f"{session_id} is called {title}")

    def action_export(self) -> None:
        """Write it to a file: Markdown, JSON or JSON lines by its ending."""
        row = self.sessions.chosen
        if row is not None:
            self.query_one(PromptLine).ask(
                "export to: ", lambda text: self.work(self._export, row.session_id, text), text=f"{row.session_id}.md"
            )

    async def _export(self, session_id: str, name: str) -> None:
        path = Path(self.host.chat.folder, name).expanduser()
        form = path.suffix[1:].lower()
        if await anyio.to_thread.run_sync(path.exists):
            self.say(f"{path} is there already; nothing was written. Give another name")
            return
        home = self.host.assembly.home
        whole = await whole_of(self.host.assembly.runtime.store, session_id)
        files = await anyio.to_thread.run_sync(files_of, home.tasks_dir, session_id)
        text = rendered(whole, files, form if form in FORMATS else "md")
        await anyio.to_thread.run_sync(write_document, path, text)
        self.say(f"written: {path} ({len(whole.tasks)} tasks)")

    def action_close(self) -> None:
        """End the search, or leave."""
        if self._search:
            self._search, self._said_in = "", set()
            self.show()
        else:
            self.dismiss(None)


def _fits(row: SessionRow, words: Sequence[str]) -> bool:
    text = f"{row.title} {row.session_id} {row.cwd} {row.model} {row.source}".casefold()
    return all(word in text for word in words)
