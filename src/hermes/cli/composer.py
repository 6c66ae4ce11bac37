"""Where lines come from and go to: a line editor on a terminal, plain lines elsewhere. Knows no command.

Both let a person type while output goes on.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.to_thread
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app_or_none
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History, ThreadedHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout

from hermes.chat.completing import complete
from hermes.chat.composer import Signal, nobody
from hermes.chat.past_lines import PastLines
from hermes.core.views import TreeView

if TYPE_CHECKING:
    from hermes.chat.interactive import Chat

__all__ = ["LineComposer", "PromptComposer"]


class LineComposer:
    """Plain lines from a file descriptor, without an editor."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._buffer = ""
        self.finished = False
        self.on_typing: Callable[[bool], None] = nobody

    @property
    def width(self) -> int:
        """Columns of the terminal, 100 without one."""
        return shutil.get_terminal_size((100, 24)).columns

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def read(self) -> str | Signal:
        """The next line; the end of the file is `END`, again and again."""
        while "\n" not in self._buffer and not self.finished:
            data = await self._some()
            self._buffer += self._decoder.decode(data, final=not data)
            self.finished = not data
        line, found, rest = self._buffer.partition("\n")
        self._buffer = rest
        return line.rstrip("\r") if found or line else Signal.END

    async def _some(self) -> bytes:
        mode = os.fstat(self._descriptor).st_mode
        if not (stat.S_ISREG(mode) or mode == 0):  # an ordinary file is always readable, and cannot be waited for
            with contextlib.suppress(PermissionError):  # nor can a device such as /dev/null
                await anyio.wait_readable(self._descriptor)
        try:
            return os.read(self._descriptor, 65_536)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""  # the terminal is gone: no further line can come

    def write(self, line: str) -> None:
        """Print a line."""
        _print(line)

    def partial(self, text: str) -> None:
        """Nothing: a plain terminal takes whole lines."""

    def refresh(self, prompt: str, status: str) -> None:
        """Nothing: there is no prompt."""

    def bell(self) -> None:
        """Ring, where somebody may hear it."""
        if sys.stdout.isatty():
            sys.stdout.write("\a")
            sys.stdout.flush()


class _Past(History):
    """What was sent before, also in earlier conversations and on the full screen."""

    def __init__(self, lines: PastLines) -> None:
        super().__init__()
        self._lines = lines

    def load_history_strings(self) -> Iterable[str]:
        """The lines, newest first."""
        return reversed(self._lines.load())

    def store_string(self, string: str) -> None:
        """Nothing: whoever reads the line keeps it, on a thread."""


class _Offers(Completer):
    """Commands after `/`, ids of tasks, paths after `@`."""

    def __init__(self) -> None:
        self.chat: Chat | None = None

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What fits before the cursor."""
        chat, before = self.chat, document.current_line_before_cursor
        known = (chat.tree, chat.last_session, chat.folder) if chat is not None else (TreeView(), "", os.getcwd())
        found = complete(before, len(before), *known)
        for choice in found.choices:
            yield Completion(choice.text, start_position=found.start - len(before), display_meta=choice.about)


class PromptComposer:
    """A line editor at the bottom of the terminal, with a status bar. What was typed survives Ctrl+C.

    Lines that were sent stand in `past`, without the secrets that `redact` knows; Tab offers what could stand there.
    """

    def __init__(self, past: PastLines, redact: Callable[[str], str]) -> None:
        self.finished = False
        self.on_typing: Callable[[bool], None] = nobody
        self._kept = ""
        self._past, self._redact = past, redact
        self._prompt = "> "
        self._status = ""
        self._partial = ""
        self._offers = _Offers()
        self._session: PromptSession[str | Signal] = PromptSession(
            message=lambda: [("", f"{self._partial}\n" if self._partial else ""), ("bold", self._prompt)],
            bottom_toolbar=lambda: [("", self._status)],
            history=ThreadedHistory(_Past(past)),
            completer=self._offers,
            complete_while_typing=False,
            complete_in_thread=True,
            key_bindings=_bindings(),
            enable_system_prompt=False,
            mouse_support=False,
        )
        self._session.default_buffer.on_text_changed += lambda buffer: self.on_typing(bool(buffer.text))
        self._patch: Any = None

    def attach(self, chat: Chat) -> None:
        """Offer the tasks and paths of this chat."""
        self._offers.chat = chat

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return shutil.get_terminal_size((100, 24)).columns

    async def __aenter__(self) -> Self:
        self._patch = patch_stdout(raw=False)
        self._patch.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patch.__exit__(kind, error, trace)

    async def read(self) -> str | Signal:
        """The next line; what is printed meanwhile appears above it."""
        kept, self._kept = self._kept, ""
        try:
            line = await self._session.prompt_async(default=kept, handle_sigint=False)
        except (EOFError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.EIO:
                raise
            self.finished = True  # the terminal is gone
            return Signal.END
        if line is Signal.INTERRUPT:
            self._kept = self._session.default_buffer.text
        elif isinstance(line, str) and line.strip() and self._prompt == "> ":  # answers to questions are not kept
            await anyio.to_thread.run_sync(self._past.add, self._redact(line))
        return line

    def bell(self) -> None:
        """Ring."""
        self._session.app.output.bell()

    def write(self, line: str) -> None:
        """Print a line above the editor."""
        _print(line)

    def partial(self, text: str) -> None:
        """Show the unfinished line right above the prompt."""
        if text != self._partial:
            self._partial = text
            self._redraw()

    def refresh(self, prompt: str, status: str) -> None:
        """Show another prompt and status."""
        if (prompt, status) != (self._prompt, self._status):
            self._prompt, self._status = prompt, status
            self._redraw()

    def _redraw(self) -> None:
        app = self._session.app if self._session.app.is_running else get_app_or_none()
        if app is not None:
            app.invalidate()


def _print(line: str) -> None:
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except OSError as error:
        if error.errno != errno.EIO:  # a terminal that is gone must not end the work; the hang-up signal tells of it
            raise


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("c-c")
    def interrupt(event: KeyPressEvent) -> None:
        event.app.exit(result=Signal.INTERRUPT)

    @bindings.add("c-d")
    def end(event: KeyPressEvent) -> None:
        if not event.current_buffer.text:
            event.app.exit(result=Signal.END)

    return bindings
