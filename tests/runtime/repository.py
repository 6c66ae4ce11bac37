"""A repository for tests of workspaces: a first checkout and a linked one, with what git says of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["Checkout", "new_repository"]

_IDENTITY = ("-c", "user.name=T", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false")


class Checkout:
    """A checkout at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def git(self, *arguments: str) -> str:
        """What git prints; fails where it fails."""
        done = subprocess.run(["git", *_IDENTITY, *arguments], cwd=self.path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def state(self) -> tuple[str, str, str, list[str]]:
        """Branch, commit, status and the names in it."""
        names = sorted(path.name for path in self.path.iterdir())
        return self.git("branch", "--show-current"), self.git("rev-parse", "HEAD"), self.git("status", "-s"), names

    def linked(self, path: Path) -> Checkout:
        """A checkout linked to this one, on a branch of its own."""
        self.git("worktree", "add", "-q", "-b", path.name, str(path))
        return Checkout(path)

    def worktrees(self) -> list[str]:
        """The paths of all checkouts."""
        lines = self.git("worktree", "list", "--porcelain").splitlines()
        return [line.removeprefix("worktree ") for line in lines if line.startswith("worktree ")]

    def branches(self) -> list[str]:
        """All branches."""
        return self.git("for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()


def new_repository(path: Path) -> Checkout:
    """A repository with one commit of `README` and `src/a.py`, and an identity for whoever commits in it."""
    (path / "src").mkdir(parents=True)
    checkout = Checkout(path)
    checkout.git("init", "-q", "-b", "main")
    checkout.git("config", "user.name", "T")
    checkout.git("config", "user.email", "t@example.invalid")
    (path / "README").write_text("one\n")
    (path / "src" / "a.py").write_text("a = 1\n")
    (path / ".gitignore").write_text("data/\n__pycache__/\n")
    checkout.git("add", "-A")
    checkout.git("commit", "-qm", "first")
    return checkout
