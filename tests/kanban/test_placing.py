"""Folders of cards: branches that build on each other, what they share, and how finished ones are joined."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hermes.core.errors import OperatorError
from hermes.kanban.board import Board
from hermes.kanban.boards import Boards
from hermes.kanban.card import Card, Check, NewCard
from hermes.kanban.ending import Authority, Completion
from hermes.kanban.errors import BoardError
from hermes.kanban.merging import merge_tree
from hermes.kanban.placing import Conflict, Place, place, remove_scratch, work_of, work_state
from hermes.kanban.tree import read_tree
from hermes.runtime.isolation import Isolation
from tests.kanban.conftest import HERE


def git(folder: Path | str, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def shell(card: Card, place: str, isolation: Isolation | None) -> Check:
    """Run a check as a plain process."""
    done = subprocess.run(["/bin/sh", "-c", card.check_command or ""], cwd=place, capture_output=True, check=False)
    return Check(passed=done.returncode == 0, exit_code=done.returncode)


class Desk:
    """A repository, a board, and cards that work there."""

    def __init__(self, base: Path, root: Path | None = None) -> None:
        self.repository = base / "app"
        self.repository.mkdir()
        git(self.repository, "init", "-q", "-b", "main")
        (self.repository / "a.txt").write_text("one\n")
        git(self.repository, "add", ".")
        git(self.repository, "commit", "-q", "-m", "first")
        self.folder = base / "board"
        self.board: Board = Boards(root or base / "root", HERE, environ={}).open()

    def card(self, title: str, *parents: Card, **more: object) -> Card:
        order = NewCard(
            title=title, assignee="coder", workspace_kind="worktree", workspace_path=str(self.repository),
            parents=tuple(parent.id for parent in parents), **more,  # type: ignore[arg-type]
        )  # fmt: skip
        return self.board.create(order, author="me").card

    def place(self, card: Card) -> Place:
        found = place(self.board.show(card.id), folder=self.folder)
        with self.board.database.write() as tx:
            tx.connection.exec_driver_sql("UPDATE cards SET branch_name = ? WHERE id = ?", (found.branch, card.id))
        return found

    def work(self, card: Card, name: str, text: str) -> Place:
        """Write and commit a file, and finish the card."""
        found = self.place(card)
        Path(found.workspace, name).write_text(text)
        git(found.workspace, "add", ".")
        git(found.workspace, "commit", "-q", "-m", card.title)
        self.board.complete(card.id, Completion(summary="ok", override=True), Authority(author="me"))
        return found


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.fault("B094")
def test_a_card_begins_where_the_cards_it_builds_on_ended(desk: Desk) -> None:
    first, second = desk.card("one"), desk.card("two")
    third = desk.card("three", first, second)
    desk.work(first, "b.txt", "b\n")
    desk.work(second, "c.txt", "c\n")
    at = desk.place(third)
    assert sorted(path.name for path in Path(at.workspace).glob("*.txt")) == ["a.txt", "b.txt", "c.txt"]
    assert at.branch == f"wt/{third.id}" and at.workspace == str(desk.repository / ".worktrees" / third.id)
    assert desk.place(third).workspace == at.workspace, "its review works where it did"
    # What comes after it needs its branch alone, though it names the earlier ones too.
    fourth = desk.card("four", third, first)
    desk.work(third, "d.txt", "d\n")
    assert git(desk.place(fourth).workspace, "rev-parse", "HEAD") == git(desk.repository, "rev-parse", f"wt/{third.id}")
    assert git(desk.repository, "status", "--porcelain") == "", "the worktrees are no change of the repository"


def test_branches_that_do_not_go_together_are_a_conflict_with_the_files(desk: Desk) -> None:
    first, second = desk.card("one"), desk.card("two")
    third = desk.card("three", first, second)
    desk.work(first, "a.txt", "mine\n")
    desk.work(second, "a.txt", "yours\n")
    with pytest.raises(Conflict, match=r"conflicts in a\.txt") as caught:
        desk.place(third)
    assert caught.value.files == ("a.txt",)
    assert not (desk.repository / ".worktrees" / third.id).exists()
    assert git(desk.repository, "branch", "--list", f"wt/{third.id}") == ""


@pytest.mark.fault("B096")
def test_a_folder_that_was_removed_is_made_again_with_the_work_of_its_branch(desk: Desk) -> None:
    card = desk.card("one")
    at = desk.place(card)
    Path(at.workspace, "kept.txt").write_text("kept\n")
    git(at.workspace, "add", ".")
    git(at.workspace, "commit", "-q", "-m", "kept")
    shutil.rmtree(at.workspace)
    again = desk.place(card)
    assert Path(again.workspace, "kept.txt").read_text() == "kept\n"
    git(desk.repository, "worktree", "remove", "--force", again.workspace)
    git(desk.repository, "checkout", "-q", f"wt/{card.id}")
    with pytest.raises(OperatorError, match="already (checked out|used)"):
        desk.place(card)


def test_what_a_worktree_holds_is_told(desk: Desk) -> None:
    card = desk.card("one")
    at = desk.work(card, "b.txt", "b\n")
    Path(at.workspace, "loose.txt").write_text("x")
    state = work_state(at.workspace, at.branch or "")
    assert state is not None and (state.commits, state.files, state.dirty) == (1, ("b.txt",), ("loose.txt",))
    assert work_of(desk.board.show(card.id)) is None, "no run of the card was here"
    again = desk.card("two")
    claimed = desk.board.claim(profiles=["coder"], card=again.id)
    assert claimed is not None
    at = desk.place(again)
    desk.board.note_process(claimed.claim, author="coder", workspace=at.workspace, branch_name=at.branch)
    found = work_of(desk.board.show(again.id))
    assert found is not None and (found.branch, found.path, found.commits) == (at.branch, at.workspace, 0)


def test_a_folder_that_is_not_there_is_named(desk: Desk, tmp_path: Path) -> None:
    order = NewCard(title="x", assignee="coder", workspace_kind="dir", workspace_path=str(tmp_path / "none"))
    card = desk.board.create(order, author="me").card
    with pytest.raises(OperatorError, match="workspace missing"):
        place(desk.board.show(card.id), folder=desk.folder)


def test_a_folder_in_no_repository_is_named_with_what_to_do(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    card = desk.board.create(
        NewCard(title="x", workspace_kind="worktree", workspace_path=str(tmp_path / "plain")), author="me"
    ).card
    with pytest.raises(OperatorError, match=f"plain is in no repository; run `git init` there.*unblock {card.id}"):
        place(desk.board.show(card.id), folder=desk.folder)


@pytest.mark.fault("B089")
def test_a_scratch_folder_stays_for_a_day(desk: Desk) -> None:
    card = desk.board.create(NewCard(title="x", assignee="coder"), author="me").card
    at = place(desk.board.show(card.id), folder=desk.folder)
    Path(at.workspace, "extra.csv").write_text("1\n")
    assert remove_scratch(desk.folder, {card.id: 1000.0}, 1000.0 + 3600) == [] and Path(at.workspace).is_dir()
    assert remove_scratch(desk.folder, {card.id: 1000.0}, 1000.0 + 90_000) == [card.id]


def test_finished_branches_are_joined_in_order_with_a_check_after_each(desk: Desk) -> None:
    first = desk.card("one", check_command="test -f b.txt")
    second = desk.card("two", first, check_command="test ! -f c.txt")
    third = desk.card("three", second)
    for card, name in ((first, "b.txt"), (second, "c.txt"), (third, "d.txt")):
        desk.work(card, name, "x\n")
    before = git(desk.repository, "rev-parse", "main")
    found = merge_tree(read_tree(desk.board, third.id), str(desk.repository), into=None, check=shell)
    assert [(each.card, each.outcome) for each in found] == [(first.id, "joined"), (second.id, "check")]
    assert "test ! -f c.txt: exit code 1" in found[-1].detail
    assert git(desk.repository, "rev-parse", "main") == before and git(desk.repository, "branch", "--list", "wt/*")
    assert git(desk.repository, "ls-tree", "--name-only", f"merge/{third.id}").split() == ["a.txt", "b.txt"]
    desk.board.edit(second.id, {"check_command": None}, author="me")
    found = merge_tree(read_tree(desk.board, third.id), str(desk.repository), into="main", check=shell)
    assert [each.outcome for each in found] == ["joined", "joined", "joined"]
    assert (desk.repository / "d.txt").exists(), "the checkout that stands on the branch has it"
    again = merge_tree(read_tree(desk.board, third.id), str(desk.repository), into="main", check=shell)
    assert {each.outcome for each in again} == {"there"}


def test_a_join_that_is_interrupted_in_a_check_keeps_nothing_unchecked(desk: Desk) -> None:
    first, second = desk.card("one", check_command="true"), desk.card("two", check_command="true")
    root = desk.card("root", first, second)
    desk.work(first, "b.txt", "x\n")
    desk.work(second, "c.txt", "x\n")

    def check(card: Card, place: str, isolation: Isolation | None) -> Check:
        if card.id == second.id:
            raise KeyboardInterrupt
        return Check(passed=True, output="")

    with pytest.raises(KeyboardInterrupt):
        merge_tree(read_tree(desk.board, root.id), str(desk.repository), into=None, check=check)
    assert git(desk.repository, "ls-tree", "--name-only", f"merge/{root.id}").split() == ["a.txt", "b.txt"]
    assert not (desk.repository / ".worktrees" / f"merge-{root.id}").exists()


def test_a_conflict_stops_the_join_with_the_branch_as_it_was(desk: Desk) -> None:
    first, second = desk.card("one"), desk.card("two")
    root = desk.card("root", first, second)
    desk.work(first, "a.txt", "mine\n")
    desk.work(second, "a.txt", "yours\n")
    found = merge_tree(read_tree(desk.board, root.id), str(desk.repository), into=None, check=shell)
    assert [(each.outcome, each.detail) for each in found] == [("joined", ""), ("conflict", "conflict in a.txt")]
    assert git(desk.repository, "show", f"merge/{root.id}:a.txt") == "mine"
    with pytest.raises(BoardError, match="nothing to merge"):
        merge_tree(read_tree(desk.board, desk.card("other").id), str(desk.repository), into=None, check=shell)
