"""A checkout of a repository for one rollout: own files, own index, own branches, at the commit of the row's `cwd`.

The first rollout of a repository has the history of that commit taken over, once a run; each checkout borrows those
objects. So rollouts neither wait for each other nor leave a record, a branch or an object in the repository they stand
for, whenever they are killed; and what is not committed there, its other branches and stashes are not seen.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from hermes.core.errors import OperatorError
from hermes.environments.git import git, git_said

__all__ = ["REPOSITORIES", "Uncheckable", "borrowed", "check_out", "remark"]

#: Beside the workspaces: what their checkouts borrow from.
REPOSITORIES = ".repositories"
#: Settings of a repository that say how its files are written, and whose commits they are.
_CARRIED = (
    r"^(core\.(autocrlf|eol|filemode|symlinks|ignorecase|precomposeunicode|longpaths)|user\.(name|email)"
    r"|extensions\.objectformat)$"
)


class Uncheckable(Exception):
    """Git could not take over what a checkout needs; the text says why."""


class _Source(msgspec.Struct, frozen=True, kw_only=True):
    """`common` is the directory that all checkouts share, `branch` "" where none is checked out."""

    common: str
    commit: str
    branch: str


def remark(folder: Path) -> str:
    """What whoever runs the rows of `folder` should know of how it is taken, "" for nothing (blocking)."""
    if not _is_repository(folder):
        return ""
    try:
        found = _look(folder)
        if isinstance(found, str):
            return f"{folder} is copied and not checked out: {found}"
        changed = git(str(folder), "status", "--porcelain", "-z", "--no-renames").stdout.count("\0")
    except OperatorError:
        return ""  # its rows will say so
    files = "1 file is" if changed == 1 else f"{changed:,} files are"
    left_out = f"{files} not committed there and not seen by its rows; --cwd_mode=copy copies them"
    return f"rows of {folder} begin at commit {found.commit[:12]}: {left_out}" if changed else ""


def _is_repository(folder: Path) -> bool:
    return os.path.lexists(folder / ".git")


def check_out(folder: Path, target: Path) -> bool:
    """Make `target` a checkout of the repository `folder` and return whether it is one; nothing is made otherwise.

    `folder` is the root of a checkout of its own or a linked one. A directory below one is none: the project around it
    is no part of the row. All rollouts of a run begin at the commit at which the first of them began.

    Raises:
        Uncheckable: git failed.
        OSError: the files could not be written.
    """
    if not _is_repository(folder):
        return False
    store = target.parent / REPOSITORIES / hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:16]
    try:
        if not store.is_dir() and not _take_over(folder, store):
            return False
        _fill(store, target)
    except OperatorError as error:
        raise Uncheckable(str(error).removeprefix("environment_unavailable: ")) from None
    return True


def borrowed(workspace: Path) -> tuple[str, ...]:
    """Directories beside a workspace that its checkout borrows from; to be asked before a command runs in it."""
    alternates = f"{workspace}/.git/objects/info/alternates"
    try:
        if not os.path.isfile(alternates):
            return ()
        with open(alternates, encoding="utf-8") as file:
            line = file.read(4096).strip()
    except (OSError, ValueError):
        return ()
    objects = Path(os.path.normpath(workspace / ".git" / "objects" / line))
    return (str(objects),) if objects.parent.parent == workspace.parent / REPOSITORIES else ()


def _look(folder: Path) -> str | _Source:
    """What is to be checked out, or why that cannot be."""
    asked = ("--show-toplevel", "--git-common-dir", "HEAD^{commit}", "--symbolic-full-name", "HEAD")
    done = git(str(folder), "rev-parse", "--path-format=absolute", *asked)
    if done.returncode != 0:
        return f"git finds no commit in it ({git_said(done)})"
    lines = done.stdout.removesuffix("\n").split("\n")
    if len(lines) != 4:
        return "its path has a line break"
    top, common, commit, name = lines
    if os.path.realpath(top) != os.path.realpath(folder):
        return "it is not the root of its checkout"
    if (folder / ".gitmodules").exists():
        return "it has submodules"
    if os.path.isdir(f"{common}/lfs/objects"):
        return "it has files that git-lfs keeps elsewhere"
    if git(common, "config", "--get", "extensions.partialClone").returncode == 0:
        return "it is a partial clone"
    return _Source(common=common, commit=commit, branch=name.removeprefix("refs/heads/") if name != "HEAD" else "")


def _take_over(folder: Path, store: Path) -> bool:
    """Make the repository that checkouts of `folder` borrow from; one process and one thread at a time."""
    found = _look(folder)
    if isinstance(found, str):
        return False
    store.parent.mkdir(parents=True, exist_ok=True)
    with _alone(store.with_suffix(".lock")):
        if store.is_dir():
            return True
        building = store.with_suffix(f".{os.getpid()}.new")
        shutil.rmtree(building, ignore_errors=True)
        try:
            _build(found, str(building))
            building.rename(store)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return True


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock that a process which ends lets go."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _build(source: _Source, building: str) -> None:
    settings = git(source.common, "config", "--local", "-z", "--get-regexp", _CARRIED).stdout
    carried = [entry.partition("\n")[::2] for entry in settings.split("\0") if entry]
    sha256 = ["--object-format=sha256"] if ("extensions.objectformat", "sha256") in carried else []
    _done("/", "init", "-q", "--bare", "--template=", *sha256, building)
    fetch = ("fetch", "-q", "--no-tags", "--no-write-fetch-head", "--update-shallow", "--no-recurse-submodules")
    _done(building, "-c", "protocol.version=2", *fetch, source.common, source.commit)
    if source.branch:
        _done(building, "update-ref", f"refs/heads/{source.branch}", source.commit)
        _done(building, "symbolic-ref", "HEAD", f"refs/heads/{source.branch}")
    else:
        _done(building, "update-ref", "--no-deref", "HEAD", source.commit)
    for name, value in carried:
        if name != "extensions.objectformat":
            _done(building, "config", name, value)
    _done(building, "config", "core.bare", "false")


def _done(folder: str, *arguments: str) -> None:
    done = git(folder, *arguments)
    if done.returncode != 0:
        raise Uncheckable(git_said(done))


def _fill(store: Path, target: Path) -> None:
    """Lay out the repository of one checkout, and let git write its files."""
    mine = target / ".git"
    target.mkdir(parents=True)
    shutil.copytree(store, mine, ignore=lambda folder, _: ["objects"] if folder == str(store) else [])
    for name in ("info", "pack"):
        (mine / "objects" / name).mkdir(parents=True)
    # relative, so that a run's folder can be moved
    shared = os.path.relpath(store / "objects", mine / "objects")
    (mine / "objects" / "info" / "alternates").write_text(f"{shared}\n", encoding="utf-8")
    _done(str(target), "read-tree", "--reset", "-u", "HEAD")
