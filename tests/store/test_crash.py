"""What is left after a real process was killed, or after its disk failed."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.core.errors import StoreError
from hermes.store.database import open_writer

_WRITE = """
import sys
from pathlib import Path

import anyio

from hermes.store.ops import AddEntry, AddEvent, EventRow, Unit
from hermes.store.sqlite import open_store

def unit(number):
    entries = [AddEntry(task_id=f"t{number}", position=p, kind="user", at=0.0, body=b"x" * 300) for p in range(7)]
    row = EventRow(session_id="s", task_id=f"t{number}", seq=number + 1, type="entry.added", at=0.0, body=b"{}")
    return Unit(ops=(*entries[:3], AddEvent(row=row), *entries[3:]))

async def main():
    store = await open_store(Path(sys.argv[1]))
    number = await store.last_seq("s")
    while True:
        tickets = [store.submit(unit(number + n)) for n in range(20)]
        number += 20
        await tickets[-1].wait()
        print(number, flush=True)

anyio.run(main)
"""


@pytest.mark.fault("B088")
def test_a_killed_writer_leaves_whole_units_and_everything_that_was_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "runtime.db"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    for lines in (1, 3, 7, 20):  # after so many confirmations it is in the middle of the next batch
        command = [sys.executable, "-c", _WRITE, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
            assert process.stdout is not None
            confirmed = [int(process.stdout.readline()) for _ in range(lines)][-1]
            process.kill()
            confirmed = max([confirmed, *map(int, process.stdout.read().split())])
        db = open_writer(path)
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        events = db.execute("SELECT seq FROM events ORDER BY seq").fetchall()
        assert events == [(number + 1,) for number in range(len(events))] and len(events) >= confirmed
        sizes = db.execute("SELECT task_id, count(*) FROM entries GROUP BY task_id").fetchall()
        assert sorted(sizes) == sorted((f"t{number}", 7) for number in range(len(events)))
        db.close()


_SHARE = """
import sys, time
from pathlib import Path

import anyio

from hermes.store.ops import AddEntry, Unit
from hermes.store.sqlite import open_store

async def main():
    store = await open_store(Path(sys.argv[1]))
    print("ready", flush=True)
    sys.stdin.readline()
    slowest = 0.0
    for position in range(200):
        began = time.monotonic()
        row = AddEntry(task_id=sys.argv[2], position=position, kind="user", at=0.0, body=b"x")
        await store.submit(Unit(ops=(row,))).wait()
        slowest = max(slowest, time.monotonic() - began)
    await store.close()
    print(slowest, flush=True)

anyio.run(main)
"""


@pytest.mark.fault("B087")
def test_processes_that_write_to_one_journal_all_get_through(tmp_path: Path) -> None:
    path = tmp_path / "runtime.db"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    writing = [
        subprocess.Popen(
            [sys.executable, "-c", _SHARE, str(path), f"t{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        for number in range(3)
    ]
    for process in writing:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in writing:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    ends = [(*process.communicate(timeout=100), process.returncode) for process in writing]
    assert [(error, code) for _, error, code in ends] == [("", 0)] * 3
    assert max(float(output) for output, _, _ in ends) < 5, "half of the limit after which a file counts as held"
    db = open_writer(path)
    assert db.execute("SELECT count(*) FROM entries").fetchone() == (600,)
    db.close()


_FAIL = """
import resource, sys
from pathlib import Path

import anyio

from hermes.core.errors import StoreError
from hermes.store.ops import AddEntry, Unit
from hermes.store.sqlite import open_store

async def main():
    told = []
    store = await open_store(Path(sys.argv[1]), on_broken=told.append)
    await store.submit(Unit(ops=(AddEntry(task_id="t", position=0, kind="user", at=0.0, body=b"x"),))).wait()
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    many = tuple(AddEntry(task_id="t", position=n, kind="user", at=0.0, body=b"x" * 4000) for n in range(1, 400))
    tickets = [store.submit(Unit(ops=many)), store.submit(Unit(ops=many[:1]))]
    for ticket in tickets:
        try:
            await ticket.wait()
        except StoreError as error:
            print(type(error).__name__, error, "<-", type(error.__cause__.__cause__).__name__)
    print(len(told))
    await store.close()

anyio.run(main)
"""


def test_a_failing_disk_stops_the_journal_and_keeps_what_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "runtime.db"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    run = subprocess.run(
        [sys.executable, "-c", _FAIL, str(path)], capture_output=True, text=True, env=env, timeout=100, check=True
    )
    *errors, told = run.stdout.splitlines()
    assert len(errors) == 2 and told == "1" and run.stderr == ""
    for error in errors:
        assert error.startswith(("StoreError the journal", "StoreFull the journal")) and str(path) in error
        assert error.endswith("<- OperationalError")
    db = open_writer(path)
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert db.execute("SELECT position FROM entries").fetchall() == [(0,)]
    db.close()


def test_only_a_writer_of_ours_can_break_the_layout(tmp_path: Path) -> None:
    path = tmp_path / "runtime.db"
    open_writer(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA application_id = 7")
    db.close()
    with pytest.raises(StoreError, match="another program"):
        open_writer(path)
