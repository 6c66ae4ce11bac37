"""What the screens beside the conversation share: one line that tells, and work that ends with the screen."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVarTuple

from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widgets import Static
from textual.worker import WorkType

from hermes.chat.render import one_line
from hermes.core.errors import HermesError

__all__ = ["SideScreen"]

Args = TypeVarTuple("Args")


class SideScreen(Screen[None]):
    """A screen with a line called `said` under what it shows."""

    @property
    def is_left(self) -> bool:
        """Whether it goes or is gone. Of one that goes the parts go first, while its work still runs."""
        return self._pruning or self not in self.app.screen_stack

    def say(self, text: str) -> None:
        """Tell something in one line."""
        line = self.query_one("#said", Static)
        text = one_line(text, 400)
        if line.content != text:
            line.update(text)

    def work(
        self,
        verb: Callable[[*Args], Coroutine[Any, Any, None]],
        *args: *Args,
        group: str = "default",
        only: bool = False,
    ) -> None:
        """Do something beside the keys; what fails is said. `only`: the one of this group that was begun last. It is
        called when it begins: what is overtaken before that leaves nothing behind."""

        async def done() -> None:
            try:
                try:
                    await verb(*args)
                except HermesError as error:
                    self.say(f"hermes: {error}")
            except NoMatches:
                if not self.is_left:  # else there is nobody to show it to
                    raise

        begin: WorkType[None] = done
        self.run_worker(begin, group=group, exclusive=only)
