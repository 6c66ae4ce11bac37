"""How far a run is, for the person who watches it: the counts, one line of text, and two ways to show it.

On a terminal one bar, one line and the tasks that run, elsewhere a line every 30 s. A run in which nothing has advanced
for 60 s says what it waits for. Decides nothing about the run; what the tasks are called and do comes from the caller.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from hermes.batch.counts import Counts
from hermes.batch.record import Head

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress as RichProgress

__all__ = ["BarDisplay", "Display", "LineDisplay", "Progress", "Running", "StallWatch", "Tree", "duration_text", "usd"]

#: Draws the tasks that run: at most so many lines of so many columns.
Tree = Callable[[int, int], Sequence[str]]

#: What a rollout says that waits for a provider's limit; the number is seconds.
_QUOTA = re.compile(r"quota (\d+) s")
#: Most lines of tasks under the bar.
TREE_LINES = 12


@dataclass(slots=True)
class Running:
    """A rollout under way. Times are seconds of the loop's clock; `phase` is what it said at `at` that it does."""

    index: int
    since: float
    phase: str = "starting"
    at: float = 0.0


@dataclass(slots=True, kw_only=True)
class Progress(Counts):
    """The counts of a run, earlier sessions included. `now` of the methods is the loop's clock."""

    total: int
    started: float
    tokens: int = 0
    ended_here: int = 0
    running: dict[str, Running] = field(default_factory=dict)
    advanced: float = 0.0
    #: Requests that had to be made again, of this session.
    retries: int = 0

    def settle(self, head: Head, before: Head | None, now: float) -> None:
        """Take in a rollout that ended now; `before` is how it had ended until then."""
        self.count(head, before)
        self.ended_here += 1
        self.tokens += head.tokens
        self.advanced = now

    @property
    def done(self) -> int:
        """Rollouts that ended: kept, rejected or failed."""
        return self.kept + self.rejected.total() + self.failed.total()

    @property
    def pending(self) -> int:
        """Rollouts that have not ended, the running ones included."""
        return self.total - self.done

    @property
    def cost_usd(self) -> float | None:
        """US dollars of all that ended; None where no price is known."""
        return self.paid if self.priced else None

    @property
    def expected_usd(self) -> float | None:
        """What the whole run will have cost if the rest is like what has ended; None where no price is known."""
        return self.paid / self.priced * self.total if self.priced else None

    def _money(self) -> list[str]:
        spent, expected = self.cost_usd, self.expected_usd
        return [f"{usd(spent)} / ~{usd(expected)}"] if spent is not None and expected is not None else []

    def line(self, now: float) -> str:
        """Return the state in one line."""
        elapsed = max(now - self.started, 1e-9)
        rate = self.ended_here / elapsed
        left = duration_text(self.pending / rate) + " left" if rate > 0 else "time left unknown"
        return " · ".join(
            [
                f"{self.done}/{self.total}",
                f"kept {self.kept}",
                "rejected " + _counts(self.rejected),
                "failed " + _counts(self.failed),
                f"running {len(self.running)}{self._quota(now)}",
                f"waiting {max(self.pending - len(self.running), 0)}",
                f"{rate:.2f} rows/s",
                f"{_short(self.tokens)} tokens",
                *self._money(),
                *([f"{self.retries} retries"] if self.retries else []),
                left,
            ]
        )

    def _quota(self, now: float) -> str:
        """How many rollouts wait for a provider's limit, and how long the longest such wait still lasts."""
        waits = [(_QUOTA.match(item.phase), item.at) for item in self.running.values()]
        left = [max(0.0, float(found[1]) - (now - at)) for found, at in waits if found is not None]
        return f" ({len(left)} wait for quota, up to {duration_text(max(left))})" if left else ""


def usd(amount: float) -> str:
    """Return US dollars as people write them, small amounts with four digits."""
    return f"${amount:.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"


def _counts(counts: Counter[str]) -> str:
    parts = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if count)
    return f"{counts.total()} ({parts})" if parts else "0"


def _short(number: int) -> str:
    if number < 10_000:
        return str(number)
    return f"{number / 1000:.0f}k" if number < 10_000_000 else f"{number / 1_000_000:.0f}M"


def duration_text(seconds: float) -> str:
    """Return a length of time as people write it: 12s, 3m05s, 2h07m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


class StallWatch:
    """Notices that nothing advances. A step of any rollout is an advance, not only its end."""

    def __init__(self, after: float = 60.0) -> None:
        self._after = after
        self._said = float("-inf")

    def check(self, progress: Progress, now: float, waiting_for: str) -> str | None:
        """Return what to say, at most once in the interval; `waiting_for` is what the engine knows, or empty."""
        still = now - max(progress.advanced, progress.started)
        if still < self._after or now - self._said < self._after:
            return None
        self._said = now
        oldest = sorted(progress.running.values(), key=lambda item: item.since)[:3]
        rows = ", ".join(f"row {item.index} ({item.phase}, {duration_text(now - item.since)})" for item in oldest)
        what = waiting_for or rows or "the first row to start"
        more = f"; running: {rows}" if waiting_for and rows else ""
        return f"nothing has advanced for {duration_text(still)}: waiting for {what}{more}"


class Display(Protocol):
    """Shows the progress of a run."""

    def update(self, progress: Progress, now: float) -> None:
        """Show the state; called about once a second."""

    def note(self, text: str) -> None:
        """Show a message that stays."""

    def close(self) -> None:
        """Leave the screen as it is meant to stay."""


class LineDisplay:
    """A line every `every` seconds, for logs and pipes."""

    def __init__(self, write: Callable[[str], None], every: float = 30.0) -> None:
        self._write = write
        self._every = every
        self._next: float | None = None

    def update(self, progress: Progress, now: float) -> None:
        if self._next is None:
            self._next = now + self._every
        if now >= self._next:
            self._next = now + self._every
            self._write(progress.line(now))

    def note(self, text: str) -> None:
        self._write(text)

    def close(self) -> None:
        """Nothing is left open."""


class BarDisplay:
    """One bar, one line and under them the tasks that run, on a terminal. `console` is a `rich.console.Console`."""

    def __init__(self, console: Any, tree: Tree = lambda most, width: ()) -> None:
        # edge: costs 60 ms to import and is wanted only on a terminal
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeElapsedColumn

        self._console = console
        self._tree = tree
        self._line = "starting"
        self._shown = False
        self._bar: RichProgress = Progress(
            BarColumn(bar_width=None), TaskProgressColumn(), TimeElapsedColumn(), console=console, expand=True
        )
        self._task = self._bar.add_task("", total=None)
        self._live: Live = Live(console=console, auto_refresh=False, get_renderable=self._drawing)
        self._open()

    def _open(self) -> None:
        self._shown = True
        self._live.start(refresh=True)

    def _drawing(self) -> Any:
        # edge: as above
        from rich.console import Group
        from rich.text import Text

        most = min(TREE_LINES, self._console.height - 4) if self._shown else 0
        lines = self._tree(most, self._console.width) if most > 0 else ()
        texts = [Text(line, no_wrap=True, overflow="ellipsis", style="dim") for line in lines]
        return Group(self._bar, Text(self._line), *texts)

    def update(self, progress: Progress, now: float) -> None:
        self._line = progress.line(now)
        self._bar.update(self._task, total=progress.total, completed=progress.done)

    def refresh(self) -> None:
        """Draw again; for a caller that does so a few times a second."""
        if self._shown:
            self._live.refresh()

    def note(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the terminal to somebody else for the length of the block."""
        self.close()
        try:
            yield
        finally:
            self._open()

    def close(self) -> None:
        self._shown = False  # drawn a last time without the tasks: what stays is the bar with its counts
        self._live.stop()
