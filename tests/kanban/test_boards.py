"""Which board is meant and where it lives, the ids of a home, and copying another program's board."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

import pytest

from hermes.core.errors import UsageError
from hermes.kanban.board import Board
from hermes.kanban.boards import Boards
from hermes.kanban.card import NewCard, parse_workspace
from hermes.kanban.errors import BoardError
from hermes.kanban.foreign import import_foreign
from hermes.kanban.place import this_worker
from tests.kanban.conftest import HERE


def boards(root: Path, **more: str) -> Boards:
    environ = {name: value for name, value in more.items() if name.isupper()}
    return Boards(root, HERE, environ=environ, url=more.get("url"), preferred=more.get("preferred"))


def test_boards_are_made_listed_switched_and_put_away(tmp_path: Path) -> None:
    root = tmp_path / "root"
    here = boards(root)
    assert here.names() == ["default"] and here.current() == "default" and not root.exists()
    here.create("Shop", name="The shop", default_workdir="/srv/shop").close()
    assert here.names() == ["default", "shop"]
    info = here.info("shop")
    assert (info.slug, info.name, info.default_workdir) == ("shop", "The shop", "/srv/shop")
    assert (root / "kanban" / "boards" / "shop" / "kanban-board.db").is_file()
    here.switch("shop")
    with here.open() as board:
        board.create(NewCard(title="x"), author="me")
    with boards(root).open() as board, here.open("default") as other:
        assert len(board.cards()) == 1 and other.cards() == []
    assert (root / "kanban-board.db").is_file()
    with pytest.raises(UsageError, match="already"):
        here.create("shop")
    kept = here.remove("shop")
    assert kept is not None and (kept / "kanban-board.db").is_file() and here.current() == "default"
    with pytest.raises(UsageError, match="default board cannot be removed"):
        here.remove("default")


def test_a_board_whose_workers_run_is_not_put_away(tmp_path: Path) -> None:
    here = boards(tmp_path)
    with here.create("shop") as board:
        board.create(NewCard(title="x", assignee="coder"), author="me")
        board.claim(profiles=["coder"])
    with pytest.raises(BoardError, match="1 workers of 'shop' run"):
        here.remove("shop")
    assert here.names() == ["default", "shop"]


@pytest.mark.fault("B092")
def test_what_a_profile_says_wins_over_the_homes_pointer_and_an_unknown_board_is_an_error(tmp_path: Path) -> None:
    here = boards(tmp_path)
    for slug in ("b1", "b2", "b3"):
        here.create(slug).close()
    here.switch("b1")
    profile = boards(tmp_path, preferred="b2")
    assert profile.current() == "b2"
    assert boards(tmp_path, preferred="b2", HERMES_KANBAN_BOARD="b3").current() == "b3"
    assert boards(tmp_path, HERMES_KANBAN_BOARD="b3").current("b1") == "b1"
    for lost in (boards(tmp_path, preferred="gone"), boards(tmp_path, HERMES_KANBAN_BOARD="gone")):
        with pytest.raises(UsageError, match="no board 'gone' .*known: default, b1, b2, b3"):
            lost.open()
    with pytest.raises(UsageError, match="no board name"):
        here.current("../etc")
    assert sorted(each.name for each in (tmp_path / "kanban" / "boards").iterdir()) == ["b1", "b2", "b3"]


@pytest.mark.fault("B091")
def test_all_profiles_share_the_root_and_a_worker_is_told_the_file(tmp_path: Path) -> None:
    here = boards(tmp_path)
    with here.open() as board:
        card = board.create(NewCard(title="x"), author="me").card
        path = str(board.location)
    worker = boards(tmp_path / "elsewhere", HERMES_KANBAN_DB=path)
    with worker.open() as board:
        assert board.find(card.id).title == "x"
    with pytest.raises(UsageError, match="is not there; no other board was opened"):
        boards(tmp_path, HERMES_KANBAN_DB=str(tmp_path / "gone.db")).open()
    moved = boards(tmp_path / "elsewhere", HERMES_KANBAN_HOME=str(tmp_path))
    with moved.open() as board:
        assert board.find(card.id).title == "x"


def test_boards_in_a_database_are_seen_from_every_host(tmp_path: Path, new_database: str) -> None:
    one, two = boards(tmp_path / "1", url=new_database), boards(tmp_path / "2", url=new_database)
    one.create("shop").close()
    assert two.names() == ["default", "shop"]
    with one.open("shop") as here, two.open("shop") as there:
        card = here.create(NewCard(title="x"), author="me").card
        assert there.find(card.id).title == "x"
    two.remove("shop")
    assert one.names() == ["default"]


def test_a_folder_is_meant_on_the_host_that_named_it_unless_it_is_shared(postgres: str, tmp_path: Path) -> None:
    here = boards(tmp_path, url=postgres)
    with here.open() as board:
        order = NewCard(title="x", workspace_kind="dir", workspace_path="/data/shop")
        assert board.create(order, author="me").card.host_id == HERE.host_id
        board.set_meta({"shared_paths": ["/data"]})
        assert board.create(order, author="me").card.host_id is None
        assert board.create(NewCard(title="y"), author="me").card.host_id is None


@pytest.mark.fault("B081")
def test_machine_and_home_have_ids_that_stay(tmp_path: Path) -> None:
    one, again = this_worker(tmp_path / "a", {}), this_worker(tmp_path / "a", {})
    other = this_worker(tmp_path / "b", {})
    assert one == again and one.pid is None and one.boot_id
    assert one.home_id != other.home_id and len(one.host_id) == 16
    assert this_worker(tmp_path / "a", {"HERMES_KANBAN_HOST_ID": "h2"}).host_id == "h2"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("scratch", ("scratch", None)),
        ("dir:/a/b/../c", ("dir", "/a/c")),
        ("worktree", ("worktree", None)),
        ("worktree:/repo", ("worktree", "/repo")),
    ],
)
def test_workspaces(text: str, found: tuple[str, str | None]) -> None:
    assert parse_workspace(text) == found


@pytest.mark.parametrize("text", ["", "dir:", "dir:here", "scratch:/x", "worktree:here", "cloud"])
def test_what_is_no_workspace(text: str) -> None:
    with pytest.raises(UsageError, match="is no workspace: write scratch"):
        parse_workspace(text)


FOREIGN = """
CREATE TABLE tasks (id TEXT PRIMARY KEY, title TEXT, body TEXT, assignee TEXT, status TEXT, priority INTEGER DEFAULT 0,
  created_at INTEGER, claim_lock TEXT, skills TEXT, workspace_kind TEXT, completion_contract TEXT, new_column TEXT);
CREATE TABLE task_links (parent_id TEXT, child_id TEXT);
CREATE TABLE task_comments (id INTEGER PRIMARY KEY, task_id TEXT, author TEXT, body TEXT, created_at INTEGER);
CREATE TABLE task_runs (id INTEGER PRIMARY KEY, task_id TEXT, profile TEXT, outcome TEXT, summary TEXT,
  metadata TEXT, started_at INTEGER, ended_at INTEGER);
CREATE TABLE secrets_of_theirs (x TEXT);
INSERT INTO tasks VALUES ('t_00000001', 'first', '', 'Coder', 'done', 2, 1700000000, NULL, '["git"]', NULL, 'ok', 'x');
INSERT INTO tasks VALUES ('t_00000002', 'second', NULL, 'coder', 'running', 0, 1700000001, 'h', NULL, 'dir', NULL, '');
INSERT INTO tasks VALUES ('t_00000003', 'third', '', NULL, 'ready', 0, 1700000002, NULL, NULL, 'moon', NULL, '');
INSERT INTO tasks VALUES ('t_00000004', 'fourth', '', NULL, 'pondering', 0, 1700000003, NULL, NULL, NULL, NULL, '');
INSERT INTO tasks VALUES ('t_00000005', '', '', NULL, 'ready', 0, 1700000003, NULL, NULL, NULL, NULL, '');
INSERT INTO task_links VALUES ('t_00000001', 't_00000002'), ('t_00000002', 't_00000003'),
  ('t_00000003', 't_00000002'), ('t_gone', 't_00000003');
INSERT INTO task_comments VALUES (1, 't_00000001', 'eve', 'hello', 1700000005);
INSERT INTO task_runs VALUES (1, 't_00000001', 'coder', 'completed', 'fine', '{"n": 1}', 1700000001, 1700000002);
INSERT INTO task_runs VALUES (2, 't_00000002', 'coder', 'exploded', NULL, 'no json', 1700000001, NULL);
"""


def test_another_programs_board_is_copied_and_never_touched(board: Board, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    path = folder / "kanban.db"
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode=WAL")
    db.executescript(FOREIGN)  # held open: most of it is in the write-ahead log
    before = {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in folder.iterdir()}
    done = import_foreign(board, path, author="me")
    assert {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in folder.iterdir()} == before
    assert (done.cards, done.known, done.links, done.comments, done.runs) == (4, 0, 2, 1, 2)
    first, second = board.show("t_00000001"), board.show("t_00000002")
    assert (first.task.status, first.task.assignee, first.task.skills, first.task.acceptance) == (
        "done", "coder", ["git"], "ok",
    )  # fmt: skip
    assert first.comments[0].body == "hello" and first.runs[0].metadata == {"n": 1} and first.task.attempts == 1
    assert second.task.status == "ready" and second.runs[0].outcome == "reclaimed"
    assert board.find("t_00000003").status == "todo" and board.find("t_00000004").status == "triage"
    told = "\n".join(done.notes)
    for part in (
        "'pondering'",
        "held by a worker",
        "'moon'",
        "cycle",
        "'exploded'",
        "secrets_of_theirs",
        "without title",
    ):
        assert part in told
    again = import_foreign(board, path, author="me")
    assert (again.cards, again.known, again.links, again.comments, again.runs) == (0, 4, 0, 0, 0)
    db.close()


def test_what_is_no_board_is_refused(board: Board, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all, but long enough to look like one" * 20)
    with pytest.raises(UsageError, match="cannot be read as a board"):
        import_foreign(board, tmp_path / "text.db", author="me")
    with pytest.raises(UsageError, match="is no file"):
        import_foreign(board, tmp_path / "gone.db", author="me")
    assert board.cards() == []
