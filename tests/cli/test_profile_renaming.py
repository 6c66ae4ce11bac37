"""`hermes profile rename`: whatever says a profile's name says the new one, also where the rename was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.cli.kanban_parts import open_board_of
from hermes.cli.options import GlobalOptions, open_sources
from hermes.config import find_home, load
from hermes.config.profiles import read_profile
from hermes.kanban.board import Board
from hermes.kanban.board_lock import BoardLock
from hermes.kanban.card import Proof
from hermes.kanban.ending import Authority, Completion
from tests.cli.conftest import Ran

Hermes = Callable[..., Ran]
SETTINGS = "# the team\nkanban:\n  reviewer_profile: Coder  # judges\n  default_assignee: coder\n  day_usd: 3\n"


@pytest.fixture
def team(hermes: Hermes, hermes_home: Path) -> Path:
    """A profile `coder` with an heir, an alias, settings that name it, and two open cards and one that is done."""
    for args in (("create", "coder"), ("use", "coder"), ("alias", "coder", "--name", "dev")):
        assert hermes("profile", *args).code == 0
    assert hermes("profile", "create", "junior").code == 0
    (hermes_home / "config.yaml").write_text(SETTINGS, encoding="utf-8")
    (hermes_home / "profiles" / "junior" / "config.yaml").write_text("kanban: {orchestrator_profile: coder}\n")
    with _board() as board:
        for title in ("open", "judged", "done"):
            args = ("--reviewer", "coder") if title == "judged" else ("--assignee", "coder")
            card = hermes("kanban", "create", title, *args, "-q").out.strip()
            if title == "done":
                board.complete(card, Completion(summary="x"), Authority(author="me"))
    return hermes_home


def _board() -> Board:
    return open_board_of(open_sources(GlobalOptions())).board


def _all_follow(hermes: Hermes, root: Path) -> None:
    """See that nothing says the old name any more."""
    home = find_home(os.environ)
    assert home.profile == "builder" and not (root / "profiles" / "coder").exists()
    assert read_profile(home.of("junior")).inherits == "builder" and load(home.of("junior")).require()
    text = (root / "config.yaml").read_text(encoding="utf-8")
    assert "reviewer_profile: builder  # judges\n  default_assignee: builder\n" in text and text.startswith(
        "# the team"
    )
    assert "orchestrator_profile: builder" in (root / "profiles" / "junior" / "config.yaml").read_text()
    with _board() as board:
        cards = {card.title: card for card in board.cards()}
        found = {title: (card.assignee, card.reviewer) for title, card in cards.items()}
        assert found == {"open": ("builder", None), "judged": (None, "builder"), "done": ("builder", None)}
        kinds = [event.kind for event in board.events(card=cards["open"].id)]
    assert kinds == ["created", "assigned"], "everything happened once"
    assert "-p builder" in (Path(os.path.expanduser("~")) / ".local" / "bin" / "dev").read_text()
    assert not (root / "profiles" / ".renaming.json").exists()


def test_everything_that_says_the_name_follows(hermes: Hermes, team: Path) -> None:
    ran = hermes("profile", "rename", "coder", "builder")
    assert ran.code == 0, ran
    settings = ("kanban.reviewer_profile of default is builder now", "kanban.orchestrator_profile of junior is builder")
    for line in (*settings, "junior inherits from builder now", "2 open cards are for builder now"):
        assert line in ran.out, line
    _all_follow(hermes, team)


#: A rename whose process dies for good as soon as it comes to the boards.
KILLED = """
import os, sys
from hermes.cli.main import main
def die(event, arguments):
    if event == "os.rename" and str(arguments[1]).endswith("builder"):
        sys.addaudithook(lambda event, _: os._exit(137) if event == "sqlite3.connect" else None)
sys.addaudithook(die)
main(["profile", "rename", "coder", "builder"])
"""


def _killed() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], timeout=120, check=False)
    assert done.returncode == 137


def _left_after(root: Path, steps: int) -> None:
    """What a rename leaves that was killed after the folder was moved and so many files were changed."""
    (root / "profiles" / "coder").rename(root / "profiles" / "builder")
    alias = Path(os.path.expanduser("~")) / ".local" / "bin" / "dev"
    record = {"old": "coder", "new": "builder", "alias": str(alias)}
    (root / "profiles" / ".renaming.json").write_text(json.dumps(record))
    files = (root / "active_profile", root / "profiles/junior/profile.yaml", root / "profiles/junior/config.yaml")
    for file in files[:steps]:
        file.write_text(file.read_text().replace("coder", "builder"))


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
@pytest.mark.parametrize("command", [("profile", "list"), ("-p", "builder", "config", "path")])
def test_a_rename_that_was_killed_is_finished_by_the_next_command(
    hermes: Hermes, team: Path, steps: int, command: tuple[str, ...]
) -> None:
    _left_after(team, steps)
    ran = hermes(*command)
    assert ran.code == 0 and "the rename of coder to builder, which was cut off, is finished" in ran.err, ran
    _all_follow(hermes, team)
    assert hermes("profile", "list").err == ""


def test_a_process_that_dies_in_the_middle_leaves_what_is_needed_to_finish(hermes: Hermes, team: Path) -> None:
    _killed()
    assert (team / "profiles" / "builder").is_dir() and (team / "profiles" / ".renaming.json").is_file()
    assert "is finished" in hermes("kanban", "list").err
    _all_follow(hermes, team)


def test_one_that_was_killed_before_anything_was_moved_has_not_begun(hermes: Hermes, team: Path) -> None:
    (team / "profiles" / ".renaming.json").write_text('{"old": "coder", "new": "builder"}')
    assert hermes("profile", "show", "coder").code == 0
    assert not (team / "profiles" / ".renaming.json").exists() and (team / "profiles" / "coder").is_dir()
    assert hermes("profile", "rename", "coder", "builder").code == 0
    _all_follow(hermes, team)


def test_what_cannot_be_finished_yet_is_said_and_stops_nothing(hermes: Hermes, team: Path) -> None:
    _left_after(team, 1)
    (team / "config.yaml").write_text("kanban: [\n", encoding="utf-8")
    ran = hermes("profile", "list")
    assert ran.code == 0 and "cannot be finished yet" in ran.err and "config.yaml:" in ran.err
    (team / "config.yaml").write_text(SETTINGS, encoding="utf-8")
    assert "is finished" in hermes("profile", "list").err
    _all_follow(hermes, team)


def test_a_file_that_cannot_be_read_is_said_before_anything_is_moved(hermes: Hermes, team: Path) -> None:
    (team / "profiles" / "junior" / "config.yaml").write_text("kanban: [\n", encoding="utf-8")
    ran = hermes("profile", "rename", "coder", "builder")
    assert ran.code != 0 and "junior/config.yaml" in ran.err and (team / "profiles" / "coder").is_dir()
    assert not (team / "profiles" / ".renaming.json").exists()


def test_a_dispatcher_that_runs_as_the_profile_is_named(hermes: Hermes, team: Path) -> None:
    opened = open_board_of(open_sources(GlobalOptions()))
    opened.board.close()
    lock = BoardLock(opened.folder / "dispatcher.lock", ("-p", "coder"))
    assert lock.take()
    try:
        ran = hermes("profile", "rename", "coder", "builder")
        assert ran.code == 1 and "serves the board default as coder" in ran.err and (team / "profiles/coder").is_dir()
    finally:
        lock.release()
    assert hermes("profile", "rename", "coder", "builder").code == 0


def test_a_run_finds_its_session_by_the_new_name(hermes: Hermes, team: Path) -> None:
    with _board() as board:
        card = next(card for card in board.cards() if card.title == "open")
        for _ in range(2):
            claimed = board.claim(profiles=["coder", "builder"], card=card.id)
            assert claimed is not None
            board.note_process(claimed.claim, author="x", session_id="20260101_000000_abcdef", workspace="/w")
            proof = Proof(kind="ended", host_id=board.here.host_id)
            board.release(claimed.claim.run_id, "reclaimed", proof)
            if board.runs(card.id)[-1].profile == "coder":
                assert hermes("profile", "rename", "coder", "builder").code == 0
        earlier = board.resumable(board.runs(card.id)[-1])
        assert earlier is not None and earlier.profile == "builder"
