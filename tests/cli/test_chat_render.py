"""What is shown on a screen: made harmless, made short, laid out as a tree."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.chat.composer import Screen
from hermes.chat.render import (
    Cleaner,
    aligned,
    columns,
    duration,
    fitted,
    one_line,
    panel,
    printable,
    quantity,
    rows,
)
from hermes.chat.stream import Narrator
from hermes.chat.tree_text import live_lines, tree_lines
from hermes.core.events import (
    Envelope,
    FallbackUsed,
    RetryWaiting,
    TaskEnded,
    TaskPhase,
    TaskQueued,
    TaskStarted,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from hermes.core.messages import Usage
from hermes.core.views import TreeView


@pytest.mark.fault("B127")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\nпо-русски 👩‍💻", "plain\ttext\nпо-русски 👩‍💻"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x\x1b]52;c;aGk=\x1b\\y", "xy"),
        ("\x1bPq#0\x1b\\z\x1bc\x9b2J", "z2J"),
        ("abc\x08\x08\x00\x7f\x07", "abc"),
        ("safe\u202etxt.exe\u2066\u200b\U000e0041", "safetxt.exe"),
        ("over\rwritten\r\nnext", "over\nwritten\nnext"),
        ("cut \ud83d", "cut \ufffd"),
    ],
)
def test_nothing_acts_on_the_terminal(text: str, shown: str) -> None:
    assert printable(text) == shown
    whole = Cleaner()
    assert "".join([*(whole.feed(letter) for letter in text), whole.end()]) == shown


def test_short_forms() -> None:
    assert one_line("a\nb  c\x1b[1m", 10) == "a b c" and one_line("abcdefgh", 5) == "abcd…"
    assert [duration(4.25), duration(185), duration(7800)] == ["4.2s", "3m 05s", "2h 10m"]
    assert [quantity(950), quantity(12_345), quantity(4_500_000)] == ["950", "12.3k", "4.5M"]
    assert panel("T", "a\nb", 10) == ["╭─ T ─────", "│ a", "│ b", "╰─────────"]


class _Paper:
    width = 21

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.rest = ""

    def write(self, line: str) -> None:
        self.lines.append(line)

    def partial(self, text: str) -> None:
        self.rest = text


def test_notes_wait_for_the_end_of_a_line_and_long_lines_break_at_a_space() -> None:
    paper = _Paper()
    screen = Screen(paper)  # type: ignore[arg-type]
    screen.delta("one two")
    screen.note("├─ note")
    assert (paper.lines, paper.rest) == ([], "one two")
    screen.delta(" three\nfour five six seven eight")
    assert paper.lines == ["one two three", "├─ note", "four five six seven"] and paper.rest == "eight"
    screen.note("at the end")
    screen.finish()
    assert paper.lines[-2:] == ["eight", "at the end"] and paper.rest == ""


def _tree(*events: tuple[str, str | None, float, Any]) -> TreeView:
    tree = TreeView()
    for number, (task, parent, at, event) in enumerate(events):
        tree.apply(Envelope(seq=number, at=at, session_id="s", task_id=task, parent_id=parent, event=event))
    return tree


def test_the_tree_as_lines() -> None:
    usage = Usage(input=1_000, output=200, cost_usd=0.01)
    tree = _tree(
        ("main_1", None, 0.0, TaskQueued(kind="main", goal="do\nit", depth=0)),
        ("main_1", None, 0.0, TaskStarted()),
        ("sa-1", "main_1", 1.0, TaskQueued(kind="child", goal="first", depth=1)),
        ("sa-1", "main_1", 2.0, TaskStarted()),
        ("sa-1", "main_1", 3.0, TurnEnded(turn=1, model="m", usage=usage, duration=1.0)),
        ("sa-2", "sa-1", 3.0, TaskQueued(kind="child", goal="deep", depth=2, position=3)),
        ("sa-1", "main_1", 9.0, TaskPhase(phase="quota", detail="30 s")),
        ("sa-3", "main_1", 9.0, TaskQueued(kind="child", goal="second", depth=1)),
        ("sa-3", "main_1", 9.0, TaskEnded(state="timed_out", status="failed", exit_reason="timeout", elapsed=4.0)),
    )
    assert tree_lines(tree, 12.0) == [
        "Tasks: 1 running, 1 queued, 1 ended",
        "▶ main_1 · running building · 12.0s · 1 call · 1.2k tok · $0.0100 · do it",
        "├─ ▶ sa-1 · running quota 30 s · 10.0s · 1 call · 1.2k tok · $0.0100 · active 9.0s ago · first",
        "│  └─ … sa-2 · queued · deep",
        "└─ ✗ sa-3 · failed · 4.0s · second",
    ]
    assert tree_lines(tree, 12.0, session_id="other") == ["no tasks yet"]
    many = _tree(*((f"row_{n}", None, 0.0, TaskQueued(kind="row", goal="g", depth=0)) for n in range(300)))
    assert tree_lines(many, 1.0)[-1] == "… and 100 more"


def test_what_runs_fits_into_a_few_lines_and_families_come_first() -> None:
    events: list[tuple[str, str | None, float, Any]] = []
    for number in range(20):
        events += [
            (f"row_{number}", None, 0.0, TaskQueued(kind="row", goal=f"goal {number}", depth=0)),
            (f"row_{number}", None, 0.0, TaskStarted()),
        ]
    events.append(("sa-1", "row_7", 1.0, TaskQueued(kind="child", goal="part", depth=1)))
    events.append(("row_0", None, 2.0, TaskEnded(state="completed", status="completed", exit_reason="", elapsed=2.0)))
    tree = _tree(*events)
    lines = live_lines(tree, 3.0, most=5, width=60)
    assert lines == [
        "▶ row_7 · running building · 3.0s · goal 7",
        "└─ … sa-1 · queued · part",
        "▶ row_1 · running building · 3.0s · goal 1",
        "▶ row_2 · running building · 3.0s · goal 2",
        "… and 16 more",
    ]
    assert len(live_lines(tree, 3.0, most=20, width=60)) == 20
    assert live_lines(_tree(), 3.0, most=5, width=60) == []


def test_calls_of_children_side_by_side_name_their_child() -> None:
    tree, said = TreeView(), list[str]()
    narrator = Narrator(tree, said.append, session_id=lambda: "s")

    def tell(task: str, event: Any) -> None:
        envelope = Envelope(
            seq=1, at=1.0, session_id="s", task_id=task, parent_id=None if task == "main_1" else "main_1", event=event
        )
        tree.apply(envelope)
        narrator.tell(envelope)

    for task, kind, depth in (("main_1", "main", 0), ("sa-1", "child", 1), ("sa-2", "child", 1)):
        tell(
            task,
            TaskQueued(kind=kind, goal=task, depth=depth, role="leaf", model="m", toolsets=(), position=0),  # type: ignore[arg-type]
        )
    said.clear()
    for task in ("sa-1", "sa-2", "main_1"):
        tell(task, ToolStarted(position=1, index=0, name="terminal", preview="make"))
    assert said == [
        '│  ├─ 💻 terminal "make"  [sa-1]',
        '│  ├─ 💻 terminal "make"  [sa-2]',
        '├─ 💻 terminal "make"',
    ]
    tell(
        "sa-2",
        ToolEnded(position=1, index=0, name="terminal", preview="boom", is_error=True, success=False, duration=2.0),
    )
    assert said[-1] == "│  │  ✗ terminal: boom (2.0s)  [sa-2]"


def test_a_fallback_is_told_in_one_line() -> None:
    tree, said = TreeView(), list[str]()
    narrator = Narrator(tree, said.append, session_id=lambda: "s")
    for event in (
        RetryWaiting(attempt=2, reason="rate_limit", seconds=1.0),
        FallbackUsed(model="other", reason="rate_limit"),
        RetryWaiting(attempt=3, reason="rate_limit: other answers instead", seconds=0.0),
    ):
        envelope = Envelope(seq=1, at=1.0, session_id="s", task_id="main_1", parent_id=None, event=event)
        tree.apply(envelope)
        narrator.tell(envelope)
    assert said == ["⏳ rate_limit, attempt 2 in 1 s [main_1]", "↪ other answers instead (rate_limit) [main_1]"]


def test_a_second_column_goes_on_under_its_beginning() -> None:
    rows = [
        ("/a", "one two three four five six seven eight"),
        ("/long", "测试 中文 字符 /a/path/that/is/longer/than/the/room"),
    ]
    assert aligned(rows) == ["  /a     " + rows[0][1], "  /long  " + rows[1][1]]
    assert aligned(rows, width=34) == [
        "  /a     one two three four five",
        "         six seven eight",
        "  /long  测试 中文 字符",
        "         /a/path/that/is/longer/than/the/room",
    ]
    narrow = aligned(rows, width=20)
    assert narrow[:4] == ["  /a", "    one two three", "    four five six", "    seven eight"]
    assert all(columns(line) <= 20 for line in narrow[:-1])


def test_lines_are_cut_where_the_screen_ends_whatever_the_letters() -> None:
    assert one_line("测试 中文 字符", 9) == "测试 中…" and columns(one_line("测试 中文 字符", 9)) <= 9
    assert [fitted("a测", width) for width in (0, 1, 2, 3)] == ["", "…", "a…", "a测"]
    assert [fitted("测", width) for width in (1, 2)] == ["…", "测"]
    assert fitted("  ▶ longer", 8) == "  ▶ lon…" and fitted("", 5) == ""
    places = [line.index("|") for line in rows([("测试", "|"), ("abcd", "|")]).splitlines()]
    assert places == [6, 8]  # letters; in columns they are the same


class Paper:
    """A composer that keeps what it prints."""

    finished, width = True, 60

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.write = self.lines.append

    def partial(self, text: str) -> None:
        assert not text


def test_a_secret_over_two_lines_of_a_panel_is_hidden() -> None:
    paper, key = Paper(), "-----BEGIN KEY-----\nabcdef\n-----END KEY-----"
    Screen(paper, lambda text: text.replace(key, "[hidden]")).panel("result", f"it is\n{key}\nso")  # type: ignore[arg-type]
    assert "│ [hidden]" in paper.lines and not any("abcdef" in line for line in paper.lines)
