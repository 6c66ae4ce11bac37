"""The conversation on the screen: transcript, living tasks, open question, editor, status.

It hands what is typed to the chat, as the line interface does, and draws what the feed brings at most ten times a
second. What a command does, and what runs, is not known here.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

import anyio
import anyio.to_thread
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static, TextArea

from hermes.chat.completing import complete
from hermes.chat.drafts import Drafts
from hermes.chat.past_lines import PastLines
from hermes.chat.render import columns, fitted
from hermes.core.errors import OperatorError
from hermes.core.views import TreeView
from hermes.tui.approvals import AskBar
from hermes.tui.composer import Choices, Prompt
from hermes.tui.dock import Dock
from hermes.tui.editing import edited
from hermes.tui.transcript import Transcript

if TYPE_CHECKING:
    from hermes.tui.app import HermesApp

__all__ = ["ChatScreen"]

#: Seconds between two pictures of the transcript, and of the dock; items that one picture takes in.
PICTURE, DOCK, MOST_ITEMS = 0.1, 0.2, 40
#: Seconds after which what was typed is kept.
DRAFT = 0.5
#: Lines of the terminal below which only what is needed is shown.
SMALL = 12


class ChatScreen(Screen[None]):
    """The conversation."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "stop the turn", show=False, priority=True),
        Binding("f8", "fold_dock", "fold tasks", priority=True),
        Binding("f7", "report", "newest report", priority=True),
        Binding("ctrl+o", "details", "open all", priority=True),
        Binding("shift+up", "scroll(-1)", show=False, priority=True),
        Binding("shift+down", "scroll(1)", show=False, priority=True),
        Binding("pageup", "page(-1)", show=False, priority=True),
        Binding("pagedown", "page(1)", show=False, priority=True),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._choices = Choices()
        self.prompt = Prompt(self._choices)
        self.transcript = Transcript()
        self._dock = Dock()
        self._ask = AskBar()
        self._status = Static("", markup=False, id="status")
        self._status_line = ""
        self._drawn = 0.0
        self._drawing = False
        self._drafts: Drafts | None = None
        self._past: PastLines | None = None
        self._draft_turn = anyio.Lock()  # what is kept is read before it is replaced, and replaced in order
        self._draft = ""  # what is kept, and where
        self._draft_place = ("", "")
        self._told = ""

    @property
    def host(self) -> HermesApp:
        """The program that this is a screen of."""
        return cast("HermesApp", self.app)

    def compose(self) -> ComposeResult:
        """The parts, top down."""
        yield self.transcript
        yield self._dock
        yield self._ask
        yield self._choices
        with Horizontal(id="composer"):
            yield Static("❯", classes="lead")
            yield self.prompt
        yield self._status

    async def on_mount(self) -> None:
        """Begin to draw."""
        self.prompt.answers = self._answers
        self.prompt.focus()
        self.set_interval(PICTURE, self._picture)
        self.set_interval(DRAFT, self.keep_draft)
        self._past = PastLines(self.host.home)
        self.prompt.remember(await anyio.to_thread.run_sync(self._past.load))
        async with self._draft_turn:
            await self._load_draft()

    @property
    def _place(self) -> tuple[str, str] | None:
        if self.host.begun:
            return self.host.chat.draft_of, self.host.chat.workspace
        return ("", self.host.new_in) if self.host.new_in is not None else None

    async def _load_draft(self) -> None:
        """Bring back what was not sent, once it is known which conversation this is."""
        place = self._place
        if self._drafts is not None or place is None:
            return
        self._drafts, self._draft_place = Drafts(self.host.home), place
        self._draft = await anyio.to_thread.run_sync(self._drafts.load, *place)
        if self._draft and self.prompt.text:
            self.prompt.remember_last(self._draft)
            self.host.feed.note("what you had not sent here is a key up")
        elif self._draft:
            self.prompt.put(self._draft)

    async def keep_draft(self) -> None:
        """Keep what stands in the editor, if it is another than the one that is kept."""
        async with self._draft_turn:
            await self._load_draft()
            await self._keep_draft()

    async def _keep_draft(self) -> None:
        text, place = self.prompt.whole, self._place
        if self._drafts is None or place is None or (self._draft, self._draft_place) == (text, place):
            return
        if not text and not self._draft:
            return
        before, self._draft = self._draft_place, text
        self._draft_place = place
        try:
            if before != place:
                await anyio.to_thread.run_sync(self._drafts.save, *before, "")
            await anyio.to_thread.run_sync(self._drafts.save, *place, text)
        except OperatorError as error:
            if str(error) != self._told:
                self._told = str(error)
                self.host.feed.note(f"! {error}")

    def on_resize(self, event: events.Resize) -> None:
        """Fit another size."""
        self.set_class(event.size.height < SMALL, "tiny")
        self.host.feed.width = max(20, event.size.width - 3)
        self._drawn = 0.0

    # -- drawing ----------------------------------------------------------------------------------------------------

    async def _picture(self) -> None:
        if self._drawing or self.app.screen is not self:
            return
        self._drawing = True
        try:
            items = self.host.feed.take(MOST_ITEMS)
            if items:
                with self.app.batch_update():
                    await self.transcript.show(items)
        finally:
            self._drawing = False
        now = time.monotonic()
        if now - self._drawn >= DOCK:
            self._drawn = now
            self.draw_state()

    def draw_state(self) -> None:
        """Show tasks, question and status as they are now."""
        if not self.host.begun:
            self._draw_status()
            return
        chat, feed = self.host.chat, self.host.feed
        height, now = self.size.height, chat.now()
        self._dock.draw(chat.tree, chat.last_session, now, most=0 if height < SMALL else min(6, (height - 10) // 2))
        question = chat.questions.current
        waiting = sum(view.phase == "approval" and not view.ended for view in chat.tree.tasks.values())
        asked = feed.asked.get(question.request) if question is not None else None
        left = max(0.0, asked + question.timeout - now) if question is not None and asked is not None else None
        self._ask.draw(question, now, waiting=waiting, left=left, brief=height <= 2 * SMALL)
        self._draw_status()

    def _draw_status(self) -> None:
        width, begun = self.size.width - 2, self.host.begun
        line = self.host.chat.status_line() if begun else "starting …"
        keys = " ^T tasks · /help"
        if begun and self.host.chat.turn_runs:
            keys = f" esc stops{' · F4 beside' if self.host.feed.in_tmux else ''} ·{keys}"
        room = width - columns(line) - columns(keys)
        line = f"{line}{' ' * room}{keys}" if room > 0 else fitted(line, width)
        if line != self._status_line:
            self._status_line = line
            self._status.update(Content(line), layout=False)

    # -- typing -----------------------------------------------------------------------------------------------------

    @on(Prompt.Sent)
    async def _sent(self, event: Prompt.Sent) -> None:
        self.transcript.anchor()
        self.host.feed.said(event.shown)
        if self._past is not None:
            await anyio.to_thread.run_sync(self._past.add, self.host.feed.redacted(event.shown))
        self.host.typed(event.text)

    @on(TextArea.Changed)
    async def _changed(self) -> None:
        if self.host.begun:
            self.host.chat.composer.on_typing(bool(self.prompt.text))
        where = self.prompt.cursor_location
        line = self.prompt.document.get_line(where[0])
        if where[0] == 0 or "@" in line:
            look = partial(complete, line, where[1], *self._known())
            # folders are read on a thread: one may be far away
            found = await anyio.to_thread.run_sync(look) if "@" in line else look()
            if where == self.prompt.cursor_location:
                self._choices.offer(found)
        elif self._choices.display:
            self.prompt.close_choices()

    def _known(self) -> tuple[TreeView, str, str]:
        """Tasks, session and folder that what is typed may name."""
        if not self.host.begun:
            return TreeView(), "", self.host.new_in or os.getcwd()
        chat = self.host.chat
        return chat.tree, chat.last_session, chat.folder

    def _answers(self, key: str) -> bool:
        """Take a key for the answer to the open question."""
        if not self.host.begun or not self._ask.takes(key, self.host.chat.now()):
            return False
        self._answer(key)
        return True

    @on(AskBar.Answered)
    def _answered(self, event: AskBar.Answered) -> None:
        self._answer(event.key)
        self.prompt.focus()

    def _answer(self, key: str) -> None:
        question = self.host.chat.questions.current
        if question is None or not self.host.chat.questions.take(key):
            return
        if question.open:
            self.host.feed.said(question.choices[int(key) - 1])
        else:
            word = {"y": "allowed once", "s": "allowed in this conversation", "a": "always allowed", "n": "denied"}[key]
            self.host.feed.note(f"{word}: {question.tool} {question.what}")
        self.draw_state()

    @on(Prompt.Pressed)
    def _elsewhere(self) -> None:
        if self._ask.display:
            self._ask.focus()
        else:
            folds = self.transcript.query(".fold")
            if folds:
                folds.last().focus()

    # -- keys -------------------------------------------------------------------------------------------------------

    def action_back(self) -> None:
        """Esc: close what is open, else stop the turn; never a task."""
        if self.prompt.close_choices():
            return
        if self.focused is not self.prompt:
            self.prompt.focus()
            return
        if self.host.begun:
            self.host.chat.stops.interrupt_turn()

    def action_fold_dock(self) -> None:
        """Fold or unfold the tasks."""
        self._dock.folded = not self._dock.folded
        self.draw_state()

    def action_report(self) -> None:
        """Open or close the report of the task that ended last."""
        if self.transcript.newest_report is not None and self.transcript.newest_report.is_attached:
            self.transcript.newest_report.action_turn()

    def action_details(self) -> None:
        """Open the newest calls and thoughts, or close all."""
        self.transcript.unfold()

    @on(Prompt.Edited)
    async def _edit(self) -> None:
        """Ctrl+G: the text in the person's own editor."""
        try:
            self.prompt.put(await edited(self.app, self.prompt.whole, os.environ))
        except OperatorError as error:
            self.host.feed.note(f"! {error}")

    def action_page(self, direction: int) -> None:
        """Scroll the transcript by a page."""
        (self.transcript.scroll_page_up if direction < 0 else self.transcript.scroll_page_down)(animate=False)

    def action_scroll(self, direction: int) -> None:
        """Scroll the transcript by a line."""
        self.transcript.scroll_relative(y=direction, animate=False)
