"""The folder that a card is worked on in: an empty one, a given one, or a checkout on a branch of the card's own.

A worktree begins where the cards it builds on ended: at a parent's branch, several merged. All runs of a card, its
reviews included, share one. Nothing is pushed and no branch is deleted. Blocking.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hermes.core.errors import OperatorError
from hermes.environments.git import git, git_said, has_branch
from hermes.kanban.card import Card, Run
from hermes.kanban.reading import CardView
from hermes.runtime import worktree
from hermes.runtime.isolation import Isolation

__all__ = [
    "Conflict",
    "Place",
    "WorkState",
    "commit_rest",
    "place",
    "remove_scratch",
    "work_of",
    "work_state",
    "worktree_of",
]

#: Seconds for which the scratch folder of an ended card is kept.
KEEP_SCRATCH = 24 * 3600.0
_AUTHOR = {
    "GIT_AUTHOR_NAME": "hermes", "GIT_AUTHOR_EMAIL": "hermes@localhost",
    "GIT_COMMITTER_NAME": "hermes", "GIT_COMMITTER_EMAIL": "hermes@localhost",
}  # fmt: skip


class Conflict(OperatorError):
    """The branches that a card builds on do not go together; `files` are those that both changed."""

    def __init__(self, message: str, files: Sequence[str]) -> None:
        super().__init__(message)
        self.files = tuple(files)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a card is worked on; `isolation` of a worktree, with its branch."""

    workspace: str
    isolation: Isolation | None = None

    @property
    def branch(self) -> str | None:
        """The branch of a worktree."""
        return self.isolation.branch if self.isolation is not None else None


class WorkState(msgspec.Struct, frozen=True, kw_only=True):
    """What a card's worktree holds: commits that its base has not, files they changed, and what is not committed."""

    branch: str
    path: str
    commit: str
    commits: int
    files: tuple[str, ...]
    dirty: tuple[str, ...]


def place(view: CardView, *, folder: Path, default_repository: str = "") -> Place:
    """See that the folder of a card is there; `folder` is the board's.

    Raises:
        Conflict: the branches it builds on cannot be merged.
        OperatorError: it cannot be had; the text says what is missing.
    """
    card = view.task
    if card.workspace_kind == "scratch":
        path = folder / "workspaces" / card.id
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Place(workspace=str(path))
    if card.workspace_kind == "dir":
        if not card.workspace_path or not os.path.isdir(card.workspace_path):
            raise OperatorError(
                f"workspace missing: {card.workspace_path} is no folder on this machine; make it, then "
                f"`hermes kanban unblock {card.id}`"
            )
        return Place(workspace=card.workspace_path)
    return _worktree(view, default_repository)


def _worktree(view: CardView, default_repository: str) -> Place:
    card = view.task
    origin = card.workspace_path or default_repository
    if not origin or not os.path.isdir(origin):
        raise OperatorError(
            f"workspace missing: {card.id} works in a git worktree and "
            + (f"{origin} is no folder here" if origin else "names no repository")
            + "; set kanban.default_workdir, or make the card again with --workspace worktree:/path/to/repository"
        )
    checkout = worktree.checkout_of(origin)
    if checkout is None:
        raise OperatorError(
            f"workspace missing: {card.id} works in a git worktree and {origin} is in no repository; run `git init` "
            f"there and commit, then `hermes kanban unblock {card.id}`"
        )
    top = os.path.join(checkout, ".worktrees", card.id)
    workspace, planned, _ = worktree.plan(origin, top, checkout)
    branch = card.branch_name or f"wt/{card.id}"
    isolation = msgspec.structs.replace(planned, branch=branch, keep=True)
    _ignore(isolation.repository)
    if not os.path.exists(os.path.join(top, ".git")):
        bases = [] if has_branch(isolation.repository, branch) else _branches(view, isolation.repository)
        if bases:
            isolation = msgspec.structs.replace(isolation, base=_commit(isolation.repository, bases[0]))
        worktree.make(isolation, begun=False)
        _merge(isolation, bases[1:], card)
    return Place(workspace=workspace, isolation=isolation)


def _commit(repository: str, branch: str) -> str:
    return git(repository, "rev-parse", f"refs/heads/{branch}^{{commit}}").stdout.strip()


def _branches(view: CardView, repository: str) -> list[str]:
    """Branches of the cards that this one builds on, oldest card first, those that another holds left out."""
    named = [each.branch_name for each in view.parents if each.branch_name]
    found = [branch for branch in dict.fromkeys(named) if has_branch(repository, branch)]

    def within(one: str, other: str) -> bool:
        return git(repository, "merge-base", "--is-ancestor", one, other).returncode == 0

    kept: list[str] = []
    for branch in found:
        if not any(within(branch, other) for other in kept):
            kept = [*(other for other in kept if not within(other, branch)), branch]
    return kept


def _ignore(repository: str) -> None:
    """Keep the worktrees out of the status of the checkout they lie in."""
    path = Path(repository) / "info" / "exclude"
    try:
        known = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        if "/.worktrees/" not in known.splitlines():
            path.parent.mkdir(exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(("" if known.endswith("\n") or not known else "\n") + "/.worktrees/\n")
    except OSError as error:
        raise OperatorError(f"{path} cannot be written ({error.strerror or error})") from error


def _merge(isolation: Isolation, branches: Sequence[str], card: Card) -> None:
    for branch in branches:
        done = git(isolation.top, "merge", "--no-edit", "-m", f"Merge {branch} for {card.id}", branch, env=_AUTHOR)
        if done.returncode == 0:
            continue
        files = git(isolation.top, "diff", "--name-only", "--diff-filter=U").stdout.splitlines()
        git(isolation.top, "merge", "--abort")
        # The half-made checkout is no work of anybody: the next try begins anew.
        git(isolation.repository, "worktree", "remove", "--force", isolation.top)
        git(isolation.repository, "branch", "-D", isolation.branch)
        why = f"in {', '.join(files[:20])}" if files else f"({git_said(done)})"
        raise Conflict(
            f"the branches {card.id} builds on do not go together: {branch} conflicts {why}. Merge them by hand, then "
            f"`hermes kanban unblock {card.id}`.",
            files,
        )


def _checkout(top: str) -> tuple[str, dict[str, str]]:
    """The checkout that a card's worktree lies in, and the directories that git has to use in the worktree: what a
    worker wrote there may name others."""
    checkout = os.path.dirname(os.path.dirname(top))
    shared = git(checkout, "rev-parse", "--path-format=absolute", "--git-common-dir").stdout.strip()
    record = os.path.join(shared, "worktrees", os.path.basename(top))
    return checkout, {"GIT_DIR": record, "GIT_COMMON_DIR": shared, "GIT_WORK_TREE": top}


def work_state(top: str, branch: str) -> WorkState | None:
    """What a card's worktree holds now, None where it is not there. Raises `OperatorError` without git."""
    if not os.path.isdir(top):
        return None
    checkout, places = _checkout(top)
    head = git(top, "rev-parse", "HEAD", env=places).stdout.strip()
    main = git(checkout, "rev-parse", "HEAD").stdout.strip()
    base = git(top, "merge-base", main, head, env=places).stdout.strip() or main
    count = git(top, "rev-list", "--count", f"{base}..{head}", env=places).stdout.strip()
    files = git(top, "diff", "--name-only", f"{base}..{head}", env=places).stdout.splitlines()
    dirty = [line[3:] for line in git(top, "status", "--porcelain", env=places).stdout.splitlines()]
    return WorkState(
        branch=branch, path=top, commit=head, commits=int(count or 0), files=tuple(files), dirty=tuple(dirty)
    )


def commit_rest(top: str, card: Card) -> str:
    """Commit everything that a card's worktree holds and git does not ignore; returns the commit.

    Raises:
        OperatorError: git refused; nothing was committed.
    """
    _, places = _checkout(top)
    message = f"Work in progress of {card.id}: {card.title}"
    quiet = ("-c", "commit.gpgsign=false", "commit", "--no-verify", "-q", "-m", message)
    for arguments in (("add", "--all"), quiet):
        done = git(top, *arguments, env={**places, **_AUTHOR})
        if done.returncode != 0:
            raise OperatorError(f"what {card.id} left in {top} cannot be committed: {git_said(done)}")
    return git(top, "rev-parse", "HEAD", env=places).stdout.strip()


def work_of(view: CardView) -> WorkState | None:
    """What the worktree of a card on this machine holds; None without one. Raises `OperatorError` without git."""
    card = view.task
    if card.workspace_kind != "worktree" or not card.branch_name:
        return None
    places = [top for run in view.runs if (top := worktree_of(run))]
    return work_state(places[-1], card.branch_name) if places else None


def worktree_of(run: Run) -> str:
    """The worktree that a run worked in, empty for none."""
    before, mark, _ = (run.workspace or "").partition(f"{os.sep}.worktrees{os.sep}{run.card_id}")
    return before + mark if mark else ""


def remove_scratch(folder: Path, ended: dict[str, float], now: float) -> list[str]:
    """Remove the scratch folders of cards that ended (card, when) more than a day ago; returns the cards."""
    removed = []
    for card_id, when in ended.items():
        path = folder / "workspaces" / card_id
        if now - when > KEEP_SCRATCH and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
            removed.append(card_id)
    return removed
