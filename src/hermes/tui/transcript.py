"""The conversation as blocks below one another: what was said, answers in Markdown, calls and reports that unfold.

It shows what the feed hands it and forgets what is far above; the whole is in the journal. It asks nobody anything.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.to_thread
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from hermes.chat.render import duration, quantity
from hermes.tui.feed import (
    Answer,
    AnswerOver,
    AnswerVoid,
    CallBegan,
    CallEnded,
    CallKey,
    CallOutput,
    ChildEnded,
    Item,
    Noted,
    Said,
    Shown,
    Thought,
)

if TYPE_CHECKING:
    from textual.widgets import Markdown

    from hermes.tui.rendering import AnswerPart

__all__ = ["RENDERING", "Fold", "Transcript"]

#: Blocks that are kept on the screen.
MOST_BLOCKS = 200
#: The module of Markdown, which the first picture does not wait for.
RENDERING = "hermes.tui.rendering"
#: Characters of reasoning, notes and results that a block keeps.
MOST_TEXT = 20_000


class Fold(Static, can_focus=True):
    """One line that opens to a text: a call, a train of thought, the report of a task."""

    BINDINGS = [Binding("enter,space", "turn", "open or close", show=False)]

    def __init__(
        self, title: str, text: str = "", *, render: Callable[[str, str], Markdown] | None = None, classes: str = ""
    ) -> None:
        """`render` makes Markdown of a text and its classes; without it the text is shown as it is."""
        super().__init__("", markup=False, classes=f"fold {classes}")
        self.title = title
        self.text = text
        self._made = render
        self._body: Widget | None = None

    def on_mount(self) -> None:
        """Draw the line."""
        self._draw()

    def on_click(self) -> None:
        """Open or close."""
        self.action_turn()

    @property
    def unfolded(self) -> bool:
        """Whether the text is shown."""
        return self._body is not None

    def action_turn(self) -> None:
        """Show the text, or only the line."""
        if self._body is not None:
            self._body.remove()
            self._body = None
        else:
            text = self.text or "(nothing yet)"
            plain = Static(Content(text), markup=False, classes="fold-body")
            self._body = body = self._made(text, "fold-body") if self._made is not None else plain
            assert self.parent is not None
            self.screen.get_widget_by_id("transcript", Transcript).mount(body, after=self)
        self._draw()

    def renew(self, title: str, text: str) -> None:
        """Another line and another text."""
        self.title = title
        if text != self.text:
            self.text = text
            if isinstance(self._body, Static):
                self._body.update(Content(text))
            elif self._body is not None:
                cast("Markdown", self._body).update(text)
        self._draw()

    def drop(self) -> None:
        """Go, with the text."""
        if self._body is not None:
            self._body.remove()
        self.remove()

    def _draw(self) -> None:
        self.update(Content(f"{'▾' if self.unfolded else '▸'} {self.title}"))


class Transcript(VerticalScroll, can_focus=True):
    """The blocks. `show` adds what happened, in order."""

    BINDINGS = [Binding("pageup", "page_up", show=False), Binding("pagedown", "page_down", show=False)]

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self._blocks: list[Widget] = []
        self._answer: list[AnswerPart] = []
        self._thought: Fold | None = None
        self._calls: dict[CallKey, Fold] = {}
        self._begun: dict[CallKey, CallBegan] = {}
        self._note: tuple[Static, str] | None = None
        self._markdown: Any = None
        self.newest_report: Fold | None = None

    def on_mount(self) -> None:
        """Stay at the newest line until the person scrolls away."""
        self.anchor()

    def on_resize(self) -> None:
        """Stay at the newest line in another size, unless the person is looking further up."""
        if self.is_anchored:
            self.scroll_end(animate=False)

    async def show(self, items: Sequence[Item]) -> None:
        """Add items."""
        for item in items:
            await self._one(item)
        while len(self._blocks) > MOST_BLOCKS:
            block = self._blocks.pop(0)
            if isinstance(block, Fold):
                block.drop()
            else:
                await block.remove()

    def unfold(self) -> None:
        """Open the newest folds, or close them where the newest is open."""
        folds = [block for block in self._blocks if isinstance(block, Fold) and block.is_attached][-20:]
        wanted = bool(folds) and not folds[-1].unfolded
        for fold in folds:
            if fold.unfolded != wanted:
                fold.action_turn()

    async def _one(self, item: Item) -> None:
        if not isinstance(item, Noted):
            self._note = None
        if isinstance(item, Answer):
            await self._add_answer(item.text)
        elif isinstance(item, AnswerOver):
            self._answer, self._thought = [], None
        elif isinstance(item, AnswerVoid):
            for part in self._answer:
                if part in self._blocks:  # the beginning of a long answer may have gone
                    self._blocks.remove(part)
                    await part.remove()
            self._answer = []
        elif isinstance(item, Noted):
            await self._add_note(item.text)
        elif isinstance(item, Said):
            await self._add(Static(Content(item.text), markup=False, classes="said"))
        elif isinstance(item, Thought):
            await self._add_thought(item.text)
        elif isinstance(item, (CallBegan, CallOutput, CallEnded)):
            await self._call(item)
        elif isinstance(item, ChildEnded):
            render = (await self._rendering()).rendered
            self.newest_report = Fold(item.line, item.report, render=render, classes="child")
            await self._add(self.newest_report)
        elif isinstance(item, Shown):
            await self._panel(item)

    async def _rendering(self) -> Any:
        """Markdown, which is loaded when it is first needed; on a thread, so that keys are drawn meanwhile."""
        if self._markdown is None:
            self._markdown = await anyio.to_thread.run_sync(importlib.import_module, RENDERING)
        return self._markdown

    async def _add(self, block: Widget) -> None:
        self._blocks.append(block)
        await self.mount(block)

    async def _add_answer(self, text: str) -> None:
        place = self._answer[-1].cut(text) if self._answer else 0
        if place is not None:
            if self._answer and place:
                await self._answer[-1].add(text[:place])
            part: AnswerPart = (await self._rendering()).AnswerPart()
            self._answer.append(part)
            await self._add(part)
            text = text[place:]
        await self._answer[-1].add(text)

    async def _add_note(self, text: str) -> None:
        if self._note is not None and len(self._note[1]) < 2_000:
            block, before = self._note
            text = f"{before}\n{text}"
            block.update(Content(text[-MOST_TEXT:]))
        else:
            block = Static(Content(text[-MOST_TEXT:]), markup=False, classes="note")
            await self._add(block)
        self._note = (block, text)

    async def _add_thought(self, text: str) -> None:
        if self._thought is None:
            self._thought = Fold("thinking", classes="thought")
            await self._add(self._thought)
        whole = (self._thought.text + text)[-MOST_TEXT:]
        self._thought.renew(f"thinking · {quantity(len(whole))} characters", whole)

    async def _call(self, item: CallBegan | CallOutput | CallEnded) -> None:
        if isinstance(item, CallBegan):
            fold = Fold(_call_line("◌", item), item.arguments, classes="call")
            self._calls[item.key], self._begun[item.key] = fold, item
            await self._add(fold)
            return
        fold_or_none, begun = self._calls.get(item.key), self._begun.get(item.key)
        if fold_or_none is None or begun is None:
            return
        if isinstance(item, CallOutput):
            fold_or_none.renew(fold_or_none.title, f"{begun.arguments}\n\n{item.text}".strip())
            return
        mark = "✗" if item.failed else "✓"
        ending = f" ({duration(item.seconds)})" + (f" {item.preview}" if item.failed else "")
        fold_or_none.set_class(item.failed, "failed")
        fold_or_none.renew(_call_line(mark, begun) + ending, fold_or_none.text)
        if len(self._calls) > MOST_BLOCKS:
            oldest = next(iter(self._calls))
            del self._calls[oldest], self._begun[oldest]

    async def _panel(self, item: Shown) -> None:
        block: Markdown = (await self._rendering()).rendered(item.text, "panel")
        block.border_title = Content(item.title)
        await self._add(block)


def _call_line(mark: str, call: CallBegan) -> str:
    return f"{mark} {call.name}" + (f" {call.preview}" if call.preview else "")
