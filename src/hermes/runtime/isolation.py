"""A workspace of a task's own, as data: what it was made from, and what was found of it at the end."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["MODES", "Isolation", "WorkspaceMode", "read_mode"]

#: `shared` is the parent's own directory, `scratch` an empty one, `copy` a copy, `worktree` a checkout on a branch.
WorkspaceMode = Literal["shared", "scratch", "copy", "worktree"]
MODES: tuple[WorkspaceMode, ...] = ("shared", "scratch", "copy", "worktree")


def read_mode(value: object) -> WorkspaceMode | None:
    """The mode of this name; None where it is none."""
    return next((mode for mode in MODES if mode == value), None)


class Isolation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the workspace of a task is its own. All paths are absolute.

    `origin` is the directory it stands for; `top` the directory that is made, in which the task's workspace lies; of a
    worktree `repository` is the directory that all checkouts share, `checkout` the root of the one it was made from,
    `base` the commit it begins with, `branch` its own. `keep`: it belongs to more than one task and is never removed.
    """

    mode: WorkspaceMode
    origin: str
    top: str
    checkout: str = ""
    repository: str = ""
    base: str = ""
    branch: str = ""
    keep: bool = False

    @property
    def task_id(self) -> str:
        """The task that it was planned for."""
        return self.top.rpartition("/")[2]

    @property
    def record(self) -> str:
        """Of a worktree: the directory in which the repository keeps what belongs to it alone."""
        return f"{self.repository}/worktrees/{self.task_id}"
