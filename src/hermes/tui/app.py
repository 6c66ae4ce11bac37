"""The full-screen program: its screens, the keys that work on each, how it begins and ends. Runs no task itself."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, cast

import anyio
from textual.app import App
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.screen import Screen
from textual.theme import Theme

from hermes.chat.leaving import EXIT_INTERRUPTED
from hermes.chat.render import one_line
from hermes.config import Home
from hermes.tui.attention import Attention
from hermes.tui.chat_screen import ChatScreen
from hermes.tui.driver import lasting_driver
from hermes.tui.feed import Feed
from hermes.tui.leave_screen import LeaveScreen
from hermes.tui.style import STYLE

if TYPE_CHECKING:
    from hermes.chat.interactive import Chat
    from hermes.compose import Assembly

__all__ = ["SCREENS", "HermesApp"]

#: The screens beside the conversation: name, module, class. One whose module is missing does not exist.
SCREENS = {
    "agents": ("hermes.tui.agents_screen", "AgentsScreen"),
    "sessions": ("hermes.tui.sessions_screen", "SessionsScreen"),
    "board": ("hermes.tui.board_screen", "BoardScreen"),
}

_THEME = Theme(
    name="hermes",
    primary="#7aa2f7",
    secondary="#9ece6a",
    accent="#e0af68",
    warning="#e0af68",
    error="#f7768e",
    success="#9ece6a",
    foreground="#d0d4e0",
    background="#16181f",
    surface="#1c1f29",
    panel="#242836",
    dark=True,
)


class HermesApp(App[None]):
    """The program. A screen reads `chat` (what can be done), `assembly` (what is open) and `feed` (what happened).

    It is painted before there is a chat: `begun` says whether there is. Until then only the conversation is shown.
    """

    CSS = STYLE
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", "stop the turn", priority=True, show=False),
        Binding("ctrl+q", "leave", "leave", priority=True, show=False),
        Binding("ctrl+b,f4", "aside", "to the background", priority=True, show=False),
        Binding("ctrl+t,f6", "show('agents')", "tasks", priority=True, show=False),
        Binding("f2", "show('sessions')", "sessions", priority=True, show=False),
        Binding("f3", "show('board')", "board", priority=True, show=False),
    ]

    def __init__(
        self,
        feed: Feed,
        typed: Callable[[str], None],
        give_up: Callable[[int], None],
        *,
        home: Home,
        new_in: str | None,
    ) -> None:
        """`typed` takes a line that the person sent, `give_up` ends the program before there is a chat, with an exit
        code. `new_in` is the folder of a conversation that has not begun, else None."""
        super().__init__()
        self.typed = typed
        feed.opener = self.opens
        self._chat: Chat | None = None
        self._give_up = give_up
        self.home = home
        self.new_in = new_in
        self.feed = feed
        self.ready = anyio.Event()
        self.failure: Exception | None = None
        self.register_theme(_THEME)
        self.theme = "hermes"
        self.animation_level = "none"  # over a slow line each step of one would be a picture
        self._attention = Attention(self)
        self.title = "hermes"

    def begin(self, chat: Chat) -> None:
        """Show this chat."""
        self._chat = chat

    @property
    def begun(self) -> bool:
        """Whether there is a chat."""
        return self._chat is not None

    @property
    def chat(self) -> Chat:
        """The chat that is shown."""
        assert self._chat is not None, "there is no chat yet"
        return self._chat

    @property
    def assembly(self) -> Assembly:
        """Everything that is open."""
        return self.chat.assembly

    def get_driver_class(self) -> type[Driver]:
        """The driver of the terminal, one that outlives it."""
        return lasting_driver(super().get_driver_class())

    def get_default_screen(self) -> Screen[Any]:
        """The conversation."""
        return ChatScreen()

    def on_ready(self) -> None:
        """The first picture was drawn."""
        self.ready.set()
        self.set_interval(0.2, self._attention.look)

    @property
    def lent(self) -> bool:
        """Whether the terminal is an editor's for now, and so is what is pressed there."""
        return bool(getattr(self._driver, "away", False))

    @property
    def at_conversation(self) -> bool:
        """Whether the conversation is what the person sees."""
        return isinstance(self.screen_stack[-1], ChatScreen)

    def write_out(self, control: str) -> None:
        """Send our own control sequences to the terminal, where there is one."""
        if self._driver is not None and not self.is_headless:
            self._driver.write(control)

    async def settle(self) -> None:
        """Keep what stands in the composer, and give the terminal its title back."""
        self._attention.close()
        for screen in self.screen_stack if self.is_running else ():
            if isinstance(screen, ChatScreen) and screen.is_mounted:
                await screen.keep_draft()

    # -- screens ----------------------------------------------------------------------------------------------------

    def action_show(self, name: str) -> None:
        """Go to a screen, or back from it."""
        if not self.begun:
            self.feed.note("still starting: a moment")
        elif not self.show(name):
            self.feed.note(f"this installation has no screen {name}")

    def show(self, name: str) -> bool:
        """Put a screen over the conversation; the same one again takes it away. False where there is none."""
        module, attribute = SCREENS[name]
        if importlib.util.find_spec(module) is None:
            return False
        kind = cast(type[Screen[Any]], getattr(importlib.import_module(module), attribute))
        if any(isinstance(screen, kind) for screen in self.screen_stack):
            while not self.at_conversation:  # what it opened goes with it
                self.pop_screen()
        elif not isinstance(self.screen, ChatScreen):
            self.switch_screen(kind())
        else:
            self.push_screen(kind())
        return True

    def opens(self, name: str) -> bool:
        """Open a screen for a command of the chat; False where there is none, or another one is open already."""
        if not self.at_conversation:
            return False
        if name == "leave":
            self.call_later(self._ask_leaving)  # the chat is no part of the program: its calls wait for their turn
        elif importlib.util.find_spec(SCREENS[name][0]) is None:
            return False
        else:
            self.call_later(self.show, name)
        return True

    def _ask_leaving(self) -> None:
        width = self.size.width * 9 // 10 - 8  # what the box leaves for a line and its indent
        lines = [f"  {one_line(line, width)}" for line in self.chat.running_lines(width)]
        self.push_screen(LeaveScreen(lines), self._left)

    def _left(self, word: str | None) -> None:
        if word:
            self.typed(f"/quit {word}")

    # -- stopping ---------------------------------------------------------------------------------------------------

    def action_interrupt(self) -> None:
        """Ctrl+C: copy what is selected with the mouse, else stop the turn; twice within two seconds leave."""
        selected = self.screen.get_selected_text()
        if selected:
            self.copy_to_clipboard(selected)
            self.screen.clear_selection()
        elif not self.begun:
            self._give_up(EXIT_INTERRUPTED)
        else:
            self.chat.stops.interrupt()

    def action_leave(self) -> None:
        """Leave, after asking once where something runs."""
        self.typed("/quit")

    def action_aside(self) -> None:
        """Ctrl+B: the turn that runs goes on in the background."""
        if self.begun:
            self.chat.aside.put()

    def _handle_exception(self, error: Exception) -> None:
        self.failure = self.failure or error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        # what stands in variables is nobody's business, and the terminal is given back first
        self._close_messages_no_wait()

    def panic(self, *renderables: Any) -> None:
        """The terminal cannot be read any more: the screen ends, the work does not."""
        self._close_messages_no_wait()
