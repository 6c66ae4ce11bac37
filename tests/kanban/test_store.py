"""The database of a board: what may be opened, what is refused, and what its clock, disk and neighbours may do."""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from hermes.core.errors import OperatorError, StoreError, StoreFull, UsageError
from hermes.kanban import tables as t
from hermes.kanban.board import Board, open_board
from hermes.kanban.card import NewCard, Proof
from hermes.kanban.errors import StillRunning
from hermes.kanban.store import APPLICATION_ID, MIGRATIONS, Location, open_database
from hermes.store.copying import copies
from tests.kanban.conftest import HERE, THERE, StandingClock


def test_a_file_of_ours_is_marked_and_private(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kanban-board.db"
    with open_board(Location(slug="default", path=path), HERE) as board:
        board.create(NewCard(title="x"), author="me")
    header = path.read_bytes()[:100]
    assert int.from_bytes(header[68:72], "big") == APPLICATION_ID
    assert path.stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert db.execute("SELECT version, name FROM migrations").fetchall() == [
            (number, name) for number, (name, _) in enumerate(MIGRATIONS, start=1)
        ]
    db.close()


def test_a_foreign_file_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "kanban.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE tasks (id TEXT)")
    db.close()
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(StoreError, match="belongs to another program and was left untouched"):
        open_board(Location(slug="default", path=path), HERE)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert [each.name for each in tmp_path.glob("kanban*")] == ["kanban.db"]


def test_a_newer_board_is_refused_in_a_sentence(location: Location) -> None:
    with open_database(location) as database, database.write() as tx:
        tx.run(t.migrations.insert().values(version=len(MIGRATIONS) + 1, name="later", applied_at=0))
        if not database.is_postgres:
            tx.connection.exec_driver_sql(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(StoreError, match="has version 3 and this program knows up to 2; it was left untouched"):
        open_database(location)


def test_a_full_disk_is_said_and_the_board_stays_whole(tmp_path: Path) -> None:
    location = Location(slug="default", path=tmp_path / "kanban-board.db")
    with Board(open_database(location, max_pages=60), HERE) as board:
        kept = board.create(NewCard(title="kept"), author="me").card
        with pytest.raises(StoreFull, match="the board .*kanban-board.db cannot grow"):
            board.attach(kept.id, "big", b"x" * 1_000_000, author="me")
        assert board.attachments(kept.id) == [] and board.find(kept.id).title == "kept"
    with open_board(location, HERE) as board:
        board.attach(kept.id, "big", b"x" * 1_000_000, author="me")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://u:topsecret@h/d", "names mysql"),
        ("no url", "is no URL"),
        ("postgresql://u:topsecret@127.0.0.1:1/d", "cannot be reached"),
    ],
)
def test_an_address_that_cannot_be_used_is_told_without_its_password(url: str, message: str) -> None:
    with pytest.raises((UsageError, StoreError), match=message) as caught:
        open_database(Location(slug="default", url=url))
    assert "topsecret" not in str(caught.value)


def test_long_names_have_schemas_of_their_own() -> None:
    one, two = ("a" * 63 + tail for tail in "bc")
    schemas = {Location(slug=slug, url="postgresql://h/d").schema for slug in (one, two)}
    assert len(schemas) == 2 and all(len(schema) <= 63 for schema in schemas)
    assert Location(slug="shop", url="postgresql://h/d").schema == "kanban_shop"


def test_boards_of_one_database_are_apart(postgres: str, clock: StandingClock) -> None:
    first, second = (Location(slug=f"x{time.monotonic_ns()}-{n}", url=postgres) for n in (1, 2))
    with open_board(first, HERE, clock=clock) as one, open_board(second, HERE, clock=clock) as two:
        one.create(NewCard(title="x"), author="me")
        assert len(one.cards()) == 1 and two.cards() == []


def test_the_servers_clock_counts_for_leases(postgres: str) -> None:
    location = Location(slug=f"clock{time.monotonic_ns()}", url=postgres)
    with open_board(location, HERE) as board:
        card = board.create(NewCard(title="x", assignee="coder"), author="me").card
        taken = board.claim(profiles=["coder"], ttl=500)
        with board.database.read() as tx:
            server = tx.value(sa.select(sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)))
        assert taken is not None and taken.claim.expires == pytest.approx(server + 500, abs=30)
        assert board.find(card.id).claim_expires == taken.claim.expires


def test_the_lease_of_another_host_ends_by_the_boards_clock_and_never_on_the_same_host(
    board: Board, clock: StandingClock
) -> None:
    card = board.create(NewCard(title="x", assignee="coder"), author="me").card
    taken = board.claim(profiles=["coder"], ttl=60, worker=THERE)
    assert taken is not None
    here, there = (Proof(kind="lease", host_id=worker.host_id) for worker in (HERE, THERE))
    with pytest.raises(StillRunning, match="lease has not run out"):
        board.release(taken.claim.run_id, "stale", here)
    clock.at += 50
    board.heartbeat(taken.claim, author="coder", ttl=60)
    clock.at += 30
    with pytest.raises(StillRunning):
        board.release(taken.claim.run_id, "stale", here)
    clock.at += 31
    with pytest.raises(StillRunning, match="on the same host its process has to be looked for"):
        board.release(taken.claim.run_id, "stale", there)
    assert board.release(taken.claim.run_id, "stale", here).card.status == "ready"
    assert board.find(card.id).consecutive_failures == 0  # it had shown that it lived


CHILD = """
import sys
from pathlib import Path
from hermes.kanban.board import open_board
from hermes.kanban.card import NewCard, Worker
from hermes.kanban.store import Location
slug, path, url, what, count = sys.argv[1:]
me = Worker(host_id="h" * 16, home_id="o" * 16)
with open_board(Location(slug=slug, path=Path(path) if path else None, url=url or None), me) as board:
    print("ready", flush=True)
    sys.stdin.readline()
    if what == "claim":
        while (taken := board.claim(profiles=["coder"])) is not None:
            print(taken.card.id, flush=True)
    else:
        cards = [card.id for card in board.cards()]
        for number in range(int(count)):
            board.comment(cards[number % len(cards)], f"{what} {number}", author=what)
            print(number, flush=True)
"""


def child(location: Location, what: str, count: int = 0) -> subprocess.Popen[str]:
    arguments = [location.slug, str(location.path or ""), location.url or "", what, str(count)]
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


def begin(children: list[subprocess.Popen[str]]) -> None:
    for each in children:
        assert each.stdout is not None and each.stdout.readline() == "ready\n"
    for each in children:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()


def test_a_board_opened_twice_in_a_process_stays_one_board_for_others(tmp_path: Path) -> None:
    location = Location(slug="default", path=tmp_path / "kanban-board.db")
    with open_board(location, HERE) as board:
        board.create(NewCard(title="one"), author="me")
        open_board(location, HERE).close()
        for number in range(2):
            other = child(location, f"w{number}", 1)
            begin([other])
            assert other.communicate(timeout=100)[1] == ""
            board.create(NewCard(title=f"and {number}"), author="me")
    with open_board(location, HERE) as board:
        assert [card.title for card in board.cards()] == ["one", "and 0", "and 1"]
        assert [each.author for each in board.events(0, kinds=["commented"])] == ["w0", "w1"]


def test_processes_that_claim_at_once_get_each_card_once(location: Location) -> None:
    with open_board(location, HERE) as board:
        for number in range(60):
            board.create(NewCard(title=str(number), assignee="coder"), author="me")
        wanted = {card.id for card in board.cards()}
    children = [child(location, "claim") for _ in range(4)]
    begin(children)
    answers = [each.communicate(timeout=100) for each in children]
    assert [answer[1] for answer in answers] == [""] * 4 and [each.returncode for each in children] == [0] * 4
    took = [line for out, _ in answers for line in out.split()]
    assert len(took) == 60 and set(took) == wanted


@pytest.mark.fault("B087")
@pytest.mark.fault("B088")
def test_writers_wait_for_each_other_and_a_killed_one_breaks_nothing(tmp_path: Path) -> None:
    location = Location(slug="default", path=tmp_path / "kanban-board.db")
    with open_board(location, HERE) as board:
        for number in range(3):
            board.create(NewCard(title=str(number)), author="me")
    children = [child(location, f"w{number}", 40) for number in range(3)] + [child(location, "victim", 100_000)]
    begin(children)
    victim = children[3]
    assert victim.stdout is not None
    for _ in range(10):
        last = victim.stdout.readline()
    victim.send_signal(signal.SIGKILL)
    rest = victim.stdout.read()  # with what was read ahead, which `communicate` would leave out
    victim.communicate(timeout=100)
    for each in children[:3]:
        _, errors = each.communicate(timeout=100)
        assert errors == "" and each.returncode == 0
    with open_board(location, HERE) as board:
        written = [comment for card in board.cards() for comment in board.show(card.id).comments]
        by = {name: sum(1 for comment in written if comment.author == name) for name in ("w0", "w1", "w2", "victim")}
        confirmed = int((rest.split() or [last])[-1]) + 1
        assert (by["w0"], by["w1"], by["w2"]) == (40, 40, 40)
        assert confirmed <= by["victim"] <= confirmed + 1
    with sqlite3.connect(location.path or "") as db:
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    db.close()


def test_a_board_is_copied_before_its_layout_changes(tmp_path: Path) -> None:
    location = Location(slug="default", path=tmp_path / "kanban-board.db")
    assert location.path is not None
    open_database(location, migrations=MIGRATIONS[:1]).close()
    with sqlite3.connect(location.path) as db:
        db.execute("DROP TABLE notifications")
    db.close()
    assert copies(location.path) == []
    with open_database(location) as database, database.read() as tx:
        assert tx.rows(t.notifications.select()) == []
    (kept,) = copies(location.path)
    assert kept.layout == 1
    open_database(location).close()
    assert copies(location.path) == [kept], "nothing changes, nothing is copied"
    with open_database(Location(slug="default", path=kept.path), migrations=MIGRATIONS[:1]) as old, old.read() as tx:
        assert [row[1] for row in tx.rows(t.migrations.select())] == ["first"]


def test_threads_share_one_board(board: Board) -> None:
    for number in range(20):
        board.create(NewCard(title=str(number), assignee="coder"), author="me")
    took: list[str] = []

    def work() -> None:
        while (taken := board.claim(profiles=["coder"])) is not None:
            took.append(taken.card.id)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert len(took) == len(set(took)) == 20


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OperatorError, match="cannot write in"):
        open_board(Location(slug="default", path=tmp_path / "file" / "kanban-board.db"), HERE)
