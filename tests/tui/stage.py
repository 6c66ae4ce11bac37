"""A screen on a stage of its own: an app that shows nothing else, what it shows as text, and a session with tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from types import SimpleNamespace
from typing import Any

from textual.app import App
from textual.screen import Screen

from hermes.core.events import (
    ControlDelivered,
    ControlReceived,
    Envelope,
    Event,
    QuotaWaiting,
    TaskEnded,
    TaskPhase,
    TaskQueued,
    TaskStarted,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from hermes.core.messages import Usage
from hermes.runtime.bus import Bus
from hermes.testing.lab import Lab
from tests.tui.hands import Hands, is_picture

__all__ = ["Stage", "Told", "grown", "same", "shown"]


class Stage(App[None]):
    """Shows one screen, as the program would with the conversation `session`. `left` is what it was left with."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, lab: Lab, screen: Screen[Any], session: str = "") -> None:
        super().__init__()
        self.assembly = lab.assembly
        self.chat = SimpleNamespace(last_session=session, folder=str(lab.workspace))
        self.lines: list[str] = []  # that were sent to the conversation
        self.typed: Callable[[str], None] = self.lines.append
        self._first = screen
        self.left: list[object] = []

    def on_mount(self) -> None:
        self.push_screen(self._first, self.left.append)


def shown(hands: Hands) -> list[str]:
    """What stands on the screen, line by line."""
    width, height = hands.app.size
    return [strip.crop(0, width).text.rstrip() for strip in hands.strips[:height]]


async def same(name: str, hands: Hands, instead: Mapping[str, str] | None = None) -> None:
    """Wait until what is shown is the picture of that name; with PICTURES set it is taken anew, to be looked at.

    `instead` names what stands for text that is never the same.
    """
    width, height = hands.app.size

    def lines() -> list[str]:
        text = "\n".join(shown(hands))
        for real, other in (instead or {}).items():
            text = text.replace(real, other)
        return text.split("\n")

    await is_picture(f"{name}_{width}x{height}", lines, hands)


class Told:
    """Events told to a bus, as tasks would."""

    def __init__(self, bus: Bus, session: str, at: float) -> None:
        self.bus, self.session, self.at = bus, session, at
        self._parents: dict[str, str | None] = {}
        self._numbers = count(1)

    def _next(self) -> int:
        number = next(self._numbers)
        self.bus.number_from(number)
        return number

    def tell(self, task: str, event: Event, at: float | None = None) -> None:
        self.bus.publish(
            Envelope(
                seq=self._next(),
                at=self.at if at is None else at,
                session_id=self.session,
                task_id=task,
                parent_id=self._parents.get(task),
                event=event,
            )
        )

    def start(self, task: str, goal: str, parent: str | None = None, *, group: str = "", started: bool = True) -> None:
        self._parents[task] = parent
        kind = "main" if parent is None and not task.startswith("bg_") else "child"
        kind = "background" if task.startswith("bg_") else kind
        self.tell(
            task, TaskQueued(kind=kind, goal=goal, depth=int(parent is not None), model="test-model", group=group)
        )
        if started:
            self.tell(task, TaskStarted(attempt=1, model="test-model"))

    def turn(self, task: str, tokens: int, cost: float | None = None) -> None:
        usage = Usage(input=tokens * 4 // 5, output=tokens // 5, cost_usd=cost)
        self.tell(task, TurnEnded(turn=1, model="test-model", usage=usage, duration=1.0))

    def tool(self, task: str, name: str, *, wrote: tuple[str, ...] = (), ended: bool = True) -> None:
        self.tell(task, ToolStarted(position=1, index=0, name=name, preview="src/parser.py"))
        if ended:
            ended_call = ToolEnded(
                position=1, index=0, name=name, is_error=False, success=True, duration=0.1, files_written=wrote
            )
            self.tell(task, ended_call)

    def end(self, task: str, state: str = "completed", elapsed: float = 12.0, error: str = "") -> None:
        self.tell(task, TaskEnded(state=state, status=state, exit_reason="", elapsed=elapsed, error=error))


def grown(bus: Bus, session: str, now: float, last: str = "测试中文字符") -> Told:
    """A session in the middle of its work: every state there is, two levels, two calls and a run in the background."""
    told = Told(bus, session, now - 95)
    told.start("main_0000", "audit the parser and fix what is wrong")
    told.turn("main_0000", 8_400, 0.0210)
    for task, goal in (("sa-1a2b3c4d", "read src/parser.py and list every fault"), ("sa-2b3c4d5e", "write the tests")):
        told.start(task, goal, "main_0000", group="deleg_1")
    told.tool("sa-1a2b3c4d", "read_file")
    told.turn("sa-1a2b3c4d", 21_300, 0.0541)
    told.end("sa-1a2b3c4d", elapsed=31.4)
    told.at = now - 40
    told.turn("sa-2b3c4d5e", 12_000, 0.0300)
    told.tell("sa-2b3c4d5e", TaskPhase(phase="children"))
    told.tell("main_0000", TaskPhase(phase="children"))
    for number, goal in enumerate(("tests of numbers", "tests of strings", "проверить кириллицу", last), 1):
        told.start(f"sa-3{number}000000", goal, "sa-2b3c4d5e", group="deleg_2", started=number < 4)
    told.turn("sa-31000000", 4_100, 0.0102)
    told.tool("sa-31000000", "write_file", wrote=("tests/test_numbers.py",))
    told.tool("sa-31000000", "terminal", ended=False)
    told.turn("sa-32000000", 3_000, 0.0080)
    told.tool("sa-32000000", "write_file", wrote=("tests/test_strings.py", "tests/data.txt"))
    told.end("sa-32000000", "failed", 8.2, "the provider refused the request: context too long")
    told.tell("sa-33000000", QuotaWaiting(seconds=12, provider="openai"))
    told.at = now - 20
    told.start("bg_143052_a1b2c3", "look for newer versions of what we depend on")
    told.turn("bg_143052_a1b2c3", 900)
    told.tell("bg_143052_a1b2c3", TaskPhase(phase="model"))
    told.tell("sa-31000000", ControlReceived(receipt="r-1", verb="steer", text="only integers", sender="user"))
    told.tell("sa-31000000", ControlDelivered(receipt="r-1", verb="steer", position=4))
    return told
