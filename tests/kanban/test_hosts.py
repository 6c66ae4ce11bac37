"""Two machines on one board in PostgreSQL: one vanishes, its cards go on at the other, and it writes nothing more."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.config.kanban import KanbanSettings
from hermes.kanban.board import Board
from hermes.kanban.boards import Boards
from hermes.kanban.card import NewCard
from hermes.kanban.dispatcher import Dispatcher
from hermes.kanban.launching import ProcessLauncher
from hermes.kanban.place import this_worker
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import ProviderServer, Request, serve_in_thread
from tests.cli.program import PASSED_ON
from tests.kanban.test_workers import KEY

#: Seconds that a claim holds without a sign of life; only the other machine acts on it, and not before the first one
#: sleeps, so it need not be long on a busy machine.
LEASE = 3.0


class Machine:
    """One of several machines: a home and a host id of its own, on a board that they share."""

    def __init__(self, base: Path, name: str, url: str, server: ProviderServer) -> None:
        self.home = base / name / ".hermes"
        (self.home / "profiles" / "coder").mkdir(parents=True)
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home.parent),
            **PASSED_ON,
            "HERMES_KANBAN_HOST_ID": name * 8,
            "HERMES_KANBAN_CLAIM_TTL_SECONDS": str(LEASE),
            "OPENAI_BASE_URL": server.base_url,
            "OPENAI_API_KEY": KEY,
        }
        boards = Boards(self.home, this_worker(self.home, self.environ), environ={}, url=url)
        self.board: Board = boards.open()
        launcher = ProcessLauncher(
            self.board.location,
            folder=boards.folder("default"),
            root=self.home,
            environ=self.environ,
            options=("-m", "test-model"),
        )
        self.dispatcher = Dispatcher(
            self.board,
            launcher,
            folder=boards.folder("default"),
            settings=KanbanSettings(),
            profiles=lambda: ["coder"],
            ttl=LEASE,
            memory=lambda: None,
        )


def worker(request: Request) -> Reply:
    if request.turn == 0:
        return reply(calls=[call("terminal", command="hostname > where.txt")])
    if request.turn == 1:
        return reply(calls=[call("kanban_complete", summary="done here")])
    return reply("bye")


@pytest.fixture
def machines(tmp_path: Path, new_database: str) -> Iterator[tuple[Machine, Machine]]:
    stopped = tmp_path / "stopped"

    def script(request: Request) -> Reply:
        if not stopped.exists() and request.turn == 1:
            stopped.touch()
            while (pid := pair[0].board.live_runs()[0].pid) is None:
                time.sleep(0.01)
            os.kill(pid, signal.SIGSTOP)  # the whole machine goes to sleep
        return worker(request)

    with serve_in_thread(script) as server:
        pair = Machine(tmp_path, "a", new_database, server), Machine(tmp_path, "b", new_database, server)
        yield pair
        for machine in pair:
            machine.board.close()


@pytest.mark.timeout(480)
@pytest.mark.fault("B070", "B076")
def test_a_machine_that_vanishes_loses_its_card_and_writes_nothing_when_it_returns(
    machines: tuple[Machine, Machine],
) -> None:
    first, second = machines
    card = first.board.create(NewCard(title="x", assignee="coder"), author="me").card
    (spawned,) = first.dispatcher.pass_once(sign=False).spawned
    until = time.monotonic() + 120
    while "T" not in Path(f"/proc/{spawned.pid}/stat").read_text().rpartition(")")[2].split()[0]:
        assert time.monotonic() < until, "the worker did not come so far"
        time.sleep(0.02)
    while not (passed := second.dispatcher.pass_once(sign=False)).spawned:
        assert second.board.clock() < (first.board.run(spawned.run).expires or 0) + 60, "the lease has run out"
        time.sleep(0.1)
    assert first.board.run(spawned.run).expires is not None
    assert passed.released == {card.id: "ready"}
    assert second.dispatcher.started[passed.spawned[0].run].wait(timeout=120) == 0
    second.dispatcher.pass_once(sign=False)
    before = [(event.kind, event.run_id) for event in second.board.events(card=card.id)]
    done = second.board.find(card.id)
    assert (done.status, done.summary) == ("done", "done here")
    os.kill(spawned.pid, signal.SIGCONT)
    first.dispatcher.started[spawned.run].wait(timeout=120)
    first.dispatcher.pass_once(sign=False)
    after = [(event.kind, event.run_id) for event in second.board.events(card=card.id)]
    assert after == before, "the one that had vanished wrote on the board"
    assert [run.outcome for run in second.board.runs(card.id)] == ["stale", "completed"]
    assert second.board.find(card.id) == done and second.board.live_runs() == []
