"""Git as this program calls it: without a question, a hook, a pager or a setting that starts a program.

What it is called on may have been written by a task, so nothing that stands there may run on this machine. Blocking.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from hermes.core.errors import OperatorError

__all__ = ["git", "git_said", "has_branch"]

#: Seconds that a call may take; making the checkout of a large repository is the longest.
TIMEOUT = 300.0
_HARMLESS = (
    "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "maintenance.auto=false",
    "-c", "core.untrackedCache=false", "-c", "core.quotePath=false",
)  # fmt: skip


def git(
    folder: str, *arguments: str, env: Mapping[str, str] | None = None, stdin: int = subprocess.DEVNULL
) -> subprocess.CompletedProcess[str]:
    """Run git in `folder`; `env` adds variables, `stdin` is a descriptor. Its exit code is the caller's to judge.

    Raises:
        OperatorError: there is no git here, or it took too long.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    clean |= {"LC_ALL": "C.UTF-8", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", **(env or {})}
    try:
        return subprocess.run(
            ["git", *_HARMLESS, *arguments],
            cwd=folder,
            env=clean,
            stdin=stdin,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=TIMEOUT,
            check=False,
        )
    except FileNotFoundError:
        missing = folder if not os.path.isdir(folder) else "git"
        raise OperatorError(f"environment_unavailable: {missing} does not exist, and a worktree needs it") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OperatorError(f"environment_unavailable: git {arguments[0]} in {folder} failed: {error}") from None


def has_branch(repository: str, branch: str) -> bool:
    """Whether a repository has a branch of that name. Raises as `git`."""
    return git(repository, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}").returncode == 0


def git_said(done: subprocess.CompletedProcess[str], lines: Sequence[str] = ()) -> str:
    """The line of a failed call that says why."""
    said = [line for line in (*done.stderr.splitlines(), *lines) if line.strip()]
    return said[-1].removeprefix("fatal: ") if said else f"exit code {done.returncode}"
