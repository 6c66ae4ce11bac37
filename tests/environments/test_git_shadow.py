"""The branch of a worktree behind a boundary and the same branch outside: neither takes commits from the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.environments.git_shadow import GitShadow
from tests.runtime.repository import Checkout, new_repository

BRANCH = "hermes/sa-1"


@pytest.fixture
def repository(tmp_path: Path) -> Checkout:
    checkout = new_repository(tmp_path / "repo")
    checkout.git("worktree", "add", "-q", "-b", BRANCH, str(tmp_path / "sa-1"))
    return checkout


def shadow_of(repository: Checkout) -> GitShadow:
    common = repository.path / ".git"
    shadow = GitShadow(repository.path.parent / "state", str(common), str(common / "worktrees" / "sa-1"), BRANCH)
    shadow.prepare()
    return shadow


def seen(repository: Checkout) -> Path:
    """The branch as commands behind the boundary read and write it."""
    return repository.path.parent / "state" / "git" / "refs" / "sa-1"


def commit(repository: Checkout, parent: str, text: str) -> str:
    return repository.git("commit-tree", "-p", parent, "-m", text, "HEAD^{tree}")


def test_a_branch_moved_from_outside_is_followed(repository: Checkout) -> None:
    shadow = shadow_of(repository)
    theirs = commit(repository, BRANCH, "theirs")
    repository.git("update-ref", f"refs/heads/{BRANCH}", theirs)
    assert shadow.bring_home() == ""
    assert seen(repository).read_text().strip() == theirs == repository.git("rev-parse", BRANCH)


def test_of_two_sides_that_moved_both_are_kept(repository: Checkout) -> None:
    shadow = shadow_of(repository)
    ours, theirs = (commit(repository, BRANCH, text) for text in ("ours", "theirs"))
    repository.git("update-ref", f"refs/heads/{BRANCH}", theirs)
    seen(repository).write_text(ours + "\n")
    kept = f"{BRANCH}-{ours[:12]}"
    assert shadow.bring_home().endswith(f"what was committed here is the branch {kept}")
    assert (repository.git("rev-parse", BRANCH), repository.git("rev-parse", kept)) == (theirs, ours)
    assert seen(repository).read_text().strip() == theirs and shadow.bring_home() == ""


def test_what_cannot_be_kept_beside_is_not_let_go(repository: Checkout) -> None:
    shadow = shadow_of(repository)
    ours, theirs = (commit(repository, BRANCH, text) for text in ("ours", "theirs"))
    repository.git("update-ref", f"refs/heads/{BRANCH}", theirs)
    kept = f"{BRANCH}-{ours[:12]}"
    lock = repository.path / ".git" / "refs" / "heads" / f"{kept}.lock"
    lock.touch()
    seen(repository).write_text(ours + "\n")
    assert f"{kept} cannot be made" in shadow.bring_home()
    assert seen(repository).read_text().strip() == ours
    lock.unlink()
    assert shadow.bring_home().endswith(f"is the branch {kept}")
    assert repository.git("rev-parse", kept) == ours and seen(repository).read_text().strip() == theirs


def test_what_builds_on_the_others_is_taken_over(repository: Checkout) -> None:
    shadow = shadow_of(repository)
    theirs = commit(repository, BRANCH, "theirs")
    repository.git("update-ref", f"refs/heads/{BRANCH}", theirs)
    ours = commit(repository, theirs, "ours")
    seen(repository).write_text(ours + "\n")
    assert shadow.bring_home() == "" and repository.git("rev-parse", BRANCH) == ours


def test_a_commit_that_was_replaced_before_everything_died_comes_home(repository: Checkout) -> None:
    first = shadow_of(repository)
    old = commit(repository, BRANCH, "old")
    seen(repository).write_text(old + "\n")
    assert first.bring_home() == "" and repository.git("rev-parse", BRANCH) == old
    amended = commit(repository, "main", "amended")
    seen(repository).write_text(amended + "\n")
    shadow_of(repository)
    assert repository.git("rev-parse", BRANCH) == amended


def test_what_stood_still_takes_nothing_back_after_a_loss(repository: Checkout) -> None:
    shadow_of(repository)
    theirs = commit(repository, BRANCH, "theirs")
    repository.git("update-ref", f"refs/heads/{BRANCH}", theirs)
    shadow_of(repository)
    assert seen(repository).read_text().strip() == theirs == repository.git("rev-parse", BRANCH)
