"""The full-screen program without a terminal: what an open tree of 2,000 tasks costs, and how soon it draws a key.

Every task takes a turn between two pictures, so that each picture has everything to add up again. CPU is the thread's
own, so that a busy machine does not show in it; the wall time of a key does.
"""

from __future__ import annotations

import statistics
import sys
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import anyio
from figures import Figure, Options, options, show
from stage import scratch
from textual.app import App
from textual.pilot import Pilot

from hermes.core.events import Envelope, Event, TaskQueued, TaskStarted, TurnEnded
from hermes.core.messages import Usage
from hermes.runtime.bus import Bus
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import ScriptedModel
from hermes.tui.agents_screen import AgentsScreen

SESSION = "20260225_143052_a1b2c3"
#: Children of each task of a level: 1 + 10 + 190 + 1,710 tasks.
WIDTHS, QUICK = (10, 19, 9), (4, 4, 4)
PICTURES = 5.0  # a second
SIZE = (160, 50)


class Place(App[None]):
    """The program as the screen of the tasks sees it, with nothing else on it."""

    def __init__(self, lab: Lab) -> None:
        super().__init__()
        self.assembly = lab.assembly
        self.chat = SimpleNamespace(last_session=SESSION)
        self.tasks = AgentsScreen()

    def on_mount(self) -> None:
        """Show the tasks."""
        self.push_screen(self.tasks)


class Tree:
    """Tasks that were never run: their events alone."""

    def __init__(self, bus: Bus, widths: tuple[int, ...]) -> None:
        self._bus = bus
        self._numbers = count(1)
        self.parents: dict[str, str | None] = {}
        level = [self._add(None)]
        for width in widths:
            level = [self._add(parent) for parent in level for _ in range(width)]

    def _add(self, parent: str | None) -> str:
        name = f"sa-{len(self.parents):08x}"
        self.parents[name] = parent
        self._tell(name, TaskQueued(kind="child" if parent else "main", goal=f"look at part {name}", depth=0))
        self._tell(name, TaskStarted(model="test-model"))
        return name

    def _tell(self, name: str, event: Event) -> None:
        number = next(self._numbers)
        envelope = Envelope(
            seq=number, at=time.time(), session_id=SESSION, task_id=name, parent_id=self.parents[name], event=event
        )
        self._bus.tree.apply(envelope)

    def turn(self) -> None:
        """Every task takes a turn."""
        for name in self.parents:
            self._tell(name, TurnEnded(turn=1, model="test-model", usage=Usage(input=900, output=90), duration=1.0))


async def _pictures(pilot: Pilot[None], screen: AgentsScreen, tree: Tree, times: int) -> float:
    """Seconds of CPU that one picture takes, the median."""
    found = []
    for _ in range(times):
        tree.turn()
        began = time.thread_time()
        screen.draw()
        await pilot.pause()
        found.append(time.thread_time() - began)
    return statistics.median(found)


async def _keys(pilot: Pilot[None], screen: AgentsScreen, times: int) -> float:
    """Seconds until a step of the cursor stands in what is sent to the terminal, the median."""
    found = []
    for _ in range(times):
        below = screen.tree_list.cursor - screen.tree_list.top
        began = time.perf_counter()
        screen.tree_list.action_move(1)
        await anyio.sleep(0)
        screen._compositor.render_strips()
        found.append(time.perf_counter() - began)
        assert screen.tree_list.cursor - screen.tree_list.top >= below or below == screen.tree_list.size.height - 1
        await pilot.pause(0.01)
    return statistics.median(found)


async def measure(folder: Path, quick: bool) -> list[Figure]:
    """The figures."""
    async with open_lab(ScriptedModel("test-model", []), workspace=folder) as lab:
        tree = Tree(lab.runtime.bus, QUICK if quick else WIDTHS)
        place = Place(lab)
        async with place.run_test(size=SIZE) as pilot:
            await pilot.pause()
            picture = await _pictures(pilot, place.tasks, tree, 5 if quick else 25)
            key = await _keys(pilot, place.tasks, 10 if quick else 60)
    tasks = len(tree.parents)
    note = f"{tasks} tasks, {SIZE[0]}x{SIZE[1]}"
    return [
        Figure(name="tree of tasks: CPU of a picture", measured=picture * 1_000, unit="ms", bar=40.0, note=note),
        Figure(
            name="tree of tasks: share of a core",
            measured=picture * PICTURES * 100,
            unit="%",
            bar=20.0,
            note=f"{PICTURES:g} pictures a second, every task changed",
        ),
        Figure(name="tree of tasks: key to picture, median", measured=key * 1_000, unit="ms", bar=50.0, note=note),
    ]


def figures(asked: Options) -> list[Figure]:
    """Measure."""
    with scratch() as folder:
        return anyio.run(measure, folder, asked.quick)


if __name__ == "__main__":
    asked = options(__doc__)
    show(figures(asked), sys.stdout, as_json=asked.json)
