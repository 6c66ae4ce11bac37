"""Joining the branches of a goal's finished cards, in the order in which they build on each other.

Each is merged into one branch of the same repository, in a checkout made for it; after each the card's check is run by
whoever asks for the join (it runs what workers wrote, so not as a plain process from here), and at the first that
fails, or conflicts, it stops with the branch as it was before. Nothing is pushed, no branch is deleted, and the
checkout that a person works in is not touched unless it stands on that very branch. Blocking.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from hermes.core.errors import OperatorError
from hermes.environments.git import git, git_said, has_branch
from hermes.kanban.card import Card, Check
from hermes.kanban.errors import BoardError
from hermes.kanban.tree import Tree
from hermes.runtime import worktree
from hermes.runtime.isolation import Isolation

__all__ = ["Merged", "RunCheck", "merge_tree"]

#: Runs a card's check in a checkout; `Isolation` where the checkout was made for the join. Raises `OperatorError`.
RunCheck = Callable[[Card, str, Isolation | None], Check]


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one card's branch: `joined`, `there` (nothing new), `conflict` or `check` (its output)."""

    card: str
    branch: str
    outcome: str
    commit: str = ""
    detail: str = ""


def merge_tree(
    tree: Tree,
    repository: str,
    *,
    into: str | None,
    check: RunCheck,
    tell: Callable[[Merged], None] = lambda merged: None,
) -> list[Merged]:
    """Join the branches of the done cards of a tree; `into` is the branch (None: `merge/<root>`, made at HEAD).

    A check that may not run counts as one that fails.

    Raises:
        BoardError: no card of it has a finished branch.
        OperatorError: the repository or the branch cannot be used.
    """
    checkout = worktree.checkout_of(repository) if os.path.isdir(repository) else None
    if checkout is None:
        raise OperatorError(f"{repository} is in no git repository; name one that is")
    done = [
        card
        for card in tree.cards
        if card.status == "done" and card.branch_name and has_branch(checkout, card.branch_name)
    ]
    if not done:
        raise BoardError(f"no card under {tree.root} is done and has a branch in {checkout}; there is nothing to merge")
    target = into or f"merge/{tree.root}"
    place, own = _checkout_of_branch(checkout, target, tree.root)
    isolation = _isolation(checkout, place, target) if own else None
    found: list[Merged] = []
    try:
        for card in done:
            found.append(_join(place, isolation, card, check))
            tell(found[-1])
            if found[-1].outcome in ("conflict", "check"):
                break
    finally:
        if own:
            git(checkout, "worktree", "remove", "--force", place)
    return found


def _checkout_of_branch(checkout: str, branch: str, root: str) -> tuple[str, bool]:
    """A clean checkout that stands on the branch, and whether it was made for this."""
    current, where = "", ""
    for line in git(checkout, "worktree", "list", "--porcelain").stdout.splitlines():
        if line.startswith("worktree "):
            current = line.removeprefix("worktree ")
        elif line == f"branch refs/heads/{branch}":
            where = current
    if where:
        if git(where, "status", "--porcelain", "--untracked-files=no").stdout.strip():
            raise OperatorError(f"{where} stands on {branch} and has changes that are not committed; commit them first")
        return where, False
    git(checkout, "worktree", "prune")
    place = str(Path(checkout) / ".worktrees" / f"merge-{root}")
    what = [place, branch] if has_branch(checkout, branch) else ["-b", branch, place, "HEAD"]
    done = git(checkout, "worktree", "add", *what)
    if done.returncode != 0:
        raise OperatorError(f"the branch {branch} cannot be checked out: {git_said(done)}")
    return place, True


def _isolation(checkout: str, place: str, branch: str) -> Isolation:
    """The checkout that was made for a join, as its commands have to know it."""
    _, planned, _ = worktree.plan(checkout, place, checkout)
    return msgspec.structs.replace(planned, branch=branch, keep=True)


def _join(place: str, isolation: Isolation | None, card: Card, check: RunCheck) -> Merged:
    branch = card.branch_name or ""
    before = git(place, "rev-parse", "HEAD").stdout.strip()
    message = f"Merge {branch}: {card.title}"
    done = git(place, "merge", "--no-ff", "--no-edit", "-m", message, branch, env=_author(place))
    if done.returncode != 0:
        files = git(place, "diff", "--name-only", "--diff-filter=U").stdout.split()
        git(place, "merge", "--abort")
        said = git_said(done, done.stdout.splitlines())
        detail = f"conflict in {', '.join(files)}" if files else said
        return Merged(card=card.id, branch=branch, outcome="conflict", commit=before, detail=detail)
    after = git(place, "rev-parse", "HEAD").stdout.strip()
    if after == before:
        return Merged(card=card.id, branch=branch, outcome="there", commit=after)
    if card.check_command:
        try:
            failed = _failed(card.check_command, lambda: check(card, place, isolation))
        except BaseException:  # Ctrl+C: what nobody has checked is not joined
            git(place, "reset", "--hard", before)
            raise
        if failed is not None:
            git(place, "reset", "--hard", before)
            return Merged(card=card.id, branch=branch, outcome="check", commit=before, detail=failed)
    return Merged(card=card.id, branch=branch, outcome="joined", commit=after)


def _author(place: str) -> dict[str, str]:
    """Who commits: whoever git says, else this program."""
    if git(place, "config", "user.email").stdout.strip():
        return {}
    who = {"NAME": "hermes", "EMAIL": "hermes@localhost"}
    return {f"GIT_{role}_{field}": value for role in ("AUTHOR", "COMMITTER") for field, value in who.items()}


def _failed(command: str, run: Callable[[], Check]) -> str | None:
    """Why a check stops the join, None where it passes."""
    try:
        found = run()
    except OperatorError as error:
        return str(error)
    if found.passed:
        return None
    ended = f"exit code {found.exit_code}" if found.exit_code is not None else "it was stopped"
    return "\n".join(filter(None, [f"{command}: {ended}", found.output]))
