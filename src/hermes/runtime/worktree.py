"""Worktrees of git: a checkout on a branch of the task's own, beside the checkout that it was made from. Blocking.

It works from a linked checkout as from the first one. Git is told the directories it has to use, because files in a
task's checkout that say so may have been written by the task.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import msgspec

from hermes.core.errors import OperatorError
from hermes.core.result import WorkspaceReport
from hermes.environments.git import git, git_said
from hermes.runtime.isolation import Isolation

__all__ = ["checkout_of", "make", "outside_state", "plan", "settle"]

#: Ignored directories that programs make by themselves: a checkout in which nothing else stands is empty.
_CACHES = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"})
#: Changed files of a checkout that are looked at one by one.
_MOST = 2_000


def checkout_of(folder: str) -> str | None:
    """The root of the checkout that `folder` lies in, None for none. Raises OperatorError without git."""
    done = git(folder, "rev-parse", "--show-toplevel")
    return done.stdout.rstrip("\n") or None if done.returncode == 0 else None


def plan(origin: str, top: str, checkout: str | None) -> tuple[str, Isolation, list[str]]:
    """(workspace, isolation, notes) of a worktree at `top` that stands for `origin`.

    Raises:
        OperatorError: `origin` is in no repository, or nothing is committed yet.
    """
    if checkout is None:
        raise OperatorError(
            f"environment_unavailable: a worktree needs a git repository and {origin} is in none. Use workspace copy "
            "or scratch, or run git init and commit first."
        )
    done = git(origin, "rev-parse", "--path-format=absolute", "--git-common-dir", "--verify", "HEAD^{commit}")
    if done.returncode != 0:
        raise OperatorError(
            f"environment_unavailable: a worktree begins with a commit and {checkout} has none yet ({git_said(done)}). "
            "Commit first, or use workspace copy."
        )
    repository, base = done.stdout.splitlines()[:2]
    isolation = Isolation(
        mode="worktree",
        origin=origin,
        top=top,
        checkout=checkout,
        repository=repository,
        base=base,
        branch=f"hermes/{os.path.basename(top)}",
    )
    below = os.path.relpath(os.path.realpath(origin), os.path.realpath(checkout))
    workspace = top if below == "." else os.path.join(top, below)
    notes = []
    if git(checkout, "status", "--porcelain", "--untracked-files=normal").stdout.strip():
        notes.append(f"the worktree begins with commit {base[:12]}; what is not committed in {checkout} is not in it")
    return workspace, isolation, notes


def make(isolation: Isolation, begun: bool) -> None:
    """See that the checkout is there: made now, or found again.

    A record of git whose checkout is gone is pruned; a branch that is there is checked out with what it has.

    Raises:
        OperatorError: it cannot be made, or was deleted under a task that had begun.
    """
    top, branch, repository = isolation.top, isolation.branch, isolation.repository
    half = _half_made(isolation)
    if half:
        shutil.rmtree(top, ignore_errors=True)
        os.unlink(os.path.join(isolation.record, "locked"))
    elif os.path.exists(os.path.join(top, ".git")):
        return
    has_branch = git(repository, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}").returncode == 0
    if begun and has_branch and not half:
        raise OperatorError(
            f"workspace_missing: the workspace {top} was deleted while the task worked in it: what it had committed "
            f"is on the branch {branch} of {repository}; start the task again."
        )
    git(repository, "worktree", "prune")
    os.makedirs(os.path.dirname(top), exist_ok=True, mode=0o700)
    what = [top, branch] if has_branch else ["--no-track", "-b", branch, top, isolation.base]
    done = git(repository, "worktree", "add", *what)
    if done.returncode != 0:
        raise OperatorError(f"environment_unavailable: the worktree {top} could not be made: {git_said(done)}")
    workspace = os.path.join(top, os.path.relpath(isolation.origin, isolation.checkout))
    os.makedirs(workspace, exist_ok=True)  # a directory in which nothing is committed
    if not os.path.isdir(isolation.record):
        raise OperatorError(f"environment_unavailable: git keeps the worktree {top} not in {isolation.record}")


def _half_made(isolation: Isolation) -> bool:
    """Whether git was killed while it made the checkout: it locks the record until all files stand in it."""
    try:
        with open(os.path.join(isolation.record, "locked"), encoding="utf-8", errors="replace") as file:
            return file.read(100).strip() == "initializing"
    except OSError:
        return False


def _git(isolation: Isolation, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Git in the task's checkout, with the directories it has to use."""
    places = {
        "GIT_DIR": isolation.record,
        "GIT_COMMON_DIR": isolation.repository,
        "GIT_WORK_TREE": isolation.top,
    }
    done = git(isolation.top, *arguments, env=places)
    if done.returncode != 0:
        raise OperatorError(f"git {' '.join(arguments[:2])} in {isolation.top}: {git_said(done)}")
    return done


def settle(isolation: Isolation) -> WorkspaceReport:
    """What the checkout holds at the end of its task; an empty one is removed with its branch.

    Raises:
        OperatorError: git cannot say. Nothing was removed.
    """
    report = WorkspaceReport(mode="worktree", path=isolation.top, branch=isolation.branch, base=isolation.base)
    if not os.path.isdir(isolation.top):
        if not os.path.isdir(isolation.record):
            return msgspec.structs.replace(report, removed=True)  # it was never made, or removed before
        return msgspec.structs.replace(
            report, error=f"{isolation.top} was deleted while the task worked in it", commits=_commits(isolation)
        )
    lines = _git(isolation, "status", "--porcelain", "-z", "--ignored", "--untracked-files=all").stdout.split("\0")
    changed = [line for line in lines if line and not line.startswith("!!")]
    ignored = [line[3:].rstrip("/") for line in lines if line.startswith("!!")]
    kept = [path for path in ignored if _CACHES.isdisjoint(path.split("/"))]
    head = _git(isolation, "rev-parse", "HEAD").stdout.strip()
    named = git(isolation.repository, "symbolic-ref", "--short", "HEAD", env={"GIT_DIR": isolation.record})
    report = msgspec.structs.replace(
        report,
        branch=named.stdout.strip() or isolation.branch,
        commits=_commits(isolation, head),
        dirty=bool(changed or kept),
    )
    unmoved = head == isolation.base and report.branch == isolation.branch and not report.commits
    if unmoved and not isolation.keep and not report.dirty and _remove(isolation):
        return msgspec.structs.replace(report, removed=True)
    return report


def _commits(isolation: Isolation, head: str = "") -> int:
    """Commits of the task's branch, and of where its checkout stands, that its base has not."""
    tips = [tip for tip in (isolation.branch, head) if tip]
    done = git(isolation.repository, "rev-list", "--count", *tips, "--not", isolation.base)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdecimal() else 0


def _remove(isolation: Isolation) -> bool:
    """Remove the checkout and its branch; git refuses where something is left, and then it stays."""
    if git(isolation.repository, "worktree", "remove", isolation.top).returncode != 0:
        return False
    # only if it still stands where it began
    git(isolation.repository, "update-ref", "-d", f"refs/heads/{isolation.branch}", isolation.base)
    return True


def outside_state(checkout: str, but: str) -> dict[str, str]:
    """What a checkout looks like, to be compared: `HEAD` and each changed or untracked file outside of `but` with its
    time and size. Empty where git cannot say."""
    head = git(checkout, "rev-parse", "--symbolic-full-name", "HEAD")
    tip = git(checkout, "rev-parse", "HEAD")
    listed = git(checkout, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
    if listed.returncode != 0:
        return {}
    state = {"HEAD": f"{head.stdout.strip()} {tip.stdout.strip()}"}
    for line in listed.stdout.split("\0")[:_MOST]:
        path = os.path.join(checkout, line[3:])
        if not line or path.startswith(but.rstrip("/") + "/"):
            continue
        try:
            status = os.lstat(path)
            state[path] = f"{line[:2]} {status.st_mtime_ns} {status.st_size}"
        except OSError:
            state[path] = line[:2]
    return state
