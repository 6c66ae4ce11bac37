"""What a person sees of a run on a terminal: the bar, the counts, and the tasks while they run."""

from __future__ import annotations

import io

from rich.console import Console

from hermes.batch.progress import BarDisplay, Progress, Running


class Terminal:
    """A console of so many columns and lines, and what was written to it since the last look."""

    def __init__(self, width: int = 60, height: int = 20) -> None:
        self._file = io.StringIO()
        self.console = Console(
            file=self._file,
            force_terminal=True,
            width=width,
            height=height,
            color_system=None,
            _environ={"TERM": "xterm"},  # not that of whoever runs the tests
        )

    def seen(self) -> str:
        text = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        return text


def test_the_tasks_stand_under_the_bar_and_go_with_the_end() -> None:
    terminal = Terminal()
    asked: list[tuple[int, int]] = []

    def tree(most: int, width: int) -> list[str]:
        asked.append((most, width))
        return ["▶ row_1 · running", "└─ ▶ sa-1 · [bold]not markup[/bold] and " + "long " * 20]

    display = BarDisplay(terminal.console, tree)
    display.update(Progress(total=4, started=0.0), 1.0)
    terminal.seen()
    display.refresh()
    shown = terminal.seen()
    assert "0/4 · kept 0" in shown and "▶ row_1 · running" in shown and "[bold]not markup" in shown
    assert asked[-1] == (12, 60)
    assert all(len(line) <= 60 for line in shown.splitlines() if "sa-1" in line), "a task has one line"
    display.note("[a note] stays")
    assert "[a note] stays" in terminal.seen()
    display.close()
    assert "row_1" not in terminal.seen().rpartition("\x1b[2K")[2]
    display.refresh()
    display.close()
    assert "row_1" not in terminal.seen()


def test_a_low_terminal_keeps_room_for_the_bar() -> None:
    rooms: list[int] = []
    display = BarDisplay(Terminal(height=8).console, lambda most, width: rooms.append(most) or ())  # type: ignore[func-returns-value]
    display.refresh()
    assert rooms[-1] == 4
    rooms.clear()
    display.close()
    assert rooms == []


def test_a_question_has_the_terminal_to_itself() -> None:
    terminal = Terminal()
    display = BarDisplay(terminal.console, lambda most, width: ["▶ row_1"])
    with display.paused():
        terminal.seen()
        display.refresh()
        assert terminal.seen() == ""
    assert "▶ row_1" in terminal.seen()
    display.close()


def test_the_line_says_who_waits_for_the_quota_and_how_long() -> None:
    progress = Progress(total=9, started=0.0)
    progress.running = {
        "a": Running(0, 1.0, "quota 90 s openrouter", 10.0),
        "b": Running(1, 1.0, "quota 12 s openrouter", 15.0),
        "c": Running(2, 1.0, "model", 15.0),
    }
    assert " · running 3 (2 wait for quota, up to 1m20s) · " in progress.line(20.0)
    progress.running = {"c": Running(2, 1.0, "model", 15.0)}
    assert " · running 1 · " in progress.line(20.0)
