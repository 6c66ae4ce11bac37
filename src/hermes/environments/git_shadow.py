"""A worktree of git behind a boundary: what its commands commit is kept apart and brought home after each of them.

The repository is seen read-only, so nothing in a sandbox can change its settings, hooks, branches or history. New
objects and the task's own branch are written beside it; after a command the objects are checked and copied into the
repository, and only then is the branch moved there. So the repository never holds half of a commit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import tempfile
import threading
import zlib
from pathlib import Path

from hermes.core.environment import Files
from hermes.core.errors import OperatorError, ToolError
from hermes.environments.bounded import BoundedFiles, Mount
from hermes.environments.git import git, git_said

__all__ = ["GitShadow", "identity", "introduce"]

_HEX = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
#: Largest object that is brought home, bytes as it was before compression.
_LARGEST = 512 * 1024 * 1024


class GitShadow:
    """What the commands of the tasks in one worktree see of its repository: one for all of them.

    `repository` is the directory that all checkouts share, `record` the part of it that belongs to the tasks' checkout,
    `branch` its branch. Methods block, and may be called from several threads.
    """

    def __init__(self, state_dir: Path, repository: str, record: str, branch: str) -> None:
        self._repository = repository
        self._record = record
        self._branch = branch
        self._folder = state_dir / "git"
        self._lock = threading.RLock()
        self._prepared = False
        self._known = ""  # the commit at which both branches stood when they were last the same
        self._box = BoundedFiles([Mount(inside="/", outside=str(self._folder), writable=True)], {}, "the sandbox")

    @property
    def _ref(self) -> str:
        return f"refs/heads/{self._branch}"

    @property
    def _name(self) -> str:
        return self._branch.rpartition("/")[2]

    def mounts(self) -> list[Mount]:
        """What is seen, outer ones first."""
        space = f"refs/heads/{self._branch.rpartition('/')[0]}"
        real = f"{self._repository}/objects"
        found = [
            Mount(inside=self._repository, outside=self._repository),
            Mount(inside=f"{self._repository}/objects", outside=str(self._folder / "objects"), writable=True),
            Mount(inside=str(self._folder / "repository"), outside=real),
            Mount(inside=f"{self._repository}/{space}", outside=str(self._folder / "refs"), writable=True),
            Mount(inside=self._record, outside=self._record, writable=True),
            *(Mount(inside=path, outside=path) for path in self._fixed()),
        ]
        if os.path.isdir(f"{self._repository}/logs/{space}"):
            found.append(
                Mount(inside=f"{self._repository}/logs/{space}", outside=str(self._folder / "logs"), writable=True)
            )
        return found + [Mount(inside=path, outside=path) for path in _alternates(Path(real))]

    def _fixed(self) -> list[str]:
        """Files of the record that say where git looks, and may start programs."""
        paths = [f"{self._record}/{name}" for name in ("commondir", "gitdir", "config.worktree")]
        return [path for path in paths if os.path.exists(path)]

    def prepare(self) -> None:
        """Make what is mounted; what a lost process left is brought home first. Raises OSError, OperatorError."""
        with self._lock:
            if not self._prepared:
                self._prepare()
            self._prepared = True

    def _prepare(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in ("objects/info", "repository", "refs", "logs"):
            (self._folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        space = Path(self._repository, "refs", "heads", self._branch).parent
        space.mkdir(parents=True, exist_ok=True)
        if Path(self._repository, "logs").is_dir():
            Path(self._repository, "logs", "refs", "heads", self._branch).parent.mkdir(parents=True, exist_ok=True)
        config = Path(self._record, "config.worktree")
        if not config.exists():
            config.touch()
        self._box.replace("/objects/info/alternates", f"{self._folder}/repository\n".encode())
        try:
            self._known = (self._folder / "known").read_text(encoding="ascii")
        except FileNotFoundError:
            self._known = self._tip()
        self.bring_home()
        self._follow(self._tip())

    def _tip(self) -> str:
        """Where the branch stands in the repository; "" for nowhere."""
        tip = git(self._repository, "rev-parse", "--verify", "--quiet", self._ref)
        return tip.stdout.strip() if tip.returncode == 0 else ""

    def _follow(self, tip: str) -> None:
        """Let the commands see the branch where it stands."""
        if tip:
            self._box.replace(f"/refs/{self._name}", f"{tip}\n".encode())
            self._same(tip)

    def _same(self, tip: str) -> None:
        """Keep where both stand, for whoever goes on after a loss of this process."""
        self._known = tip
        self._box.replace("/known", tip.encode())

    def bring_home(self) -> str:
        """Copy new objects into the repository and move its branch; returns what could not be done, "" for nothing."""
        with self._lock:
            try:
                self._packs()
                self._loose()
                return self._move()
            except (OSError, ToolError, OperatorError, zlib.error) as error:
                return f"What was committed could not be brought into {self._repository}: {error}"

    def _loose(self) -> None:
        objects = Path(self._repository, "objects")
        for folder, kind in self._box.scan("/objects"):
            if kind != "folder" or not re.fullmatch("[0-9a-f]{2}", folder):
                continue
            for name, _ in self._box.scan(f"/objects/{folder}"):
                if not _HEX.fullmatch(folder + name):
                    continue
                target = objects / folder / name
                if not target.exists():
                    with open(self._box.open(f"/objects/{folder}/{name}"), "rb") as file:
                        _keep(file.read(_LARGEST), folder + name, target)
                os.unlink(self._folder / "objects" / folder / name)

    def _packs(self) -> None:
        packs = self._folder / "objects" / "pack"
        try:
            found = self._box.scan("/objects/pack")
        except (OSError, ToolError):
            return
        for name, kind in found:
            if kind != "file" or not name.endswith(".pack"):
                continue
            with open(self._box.open(f"/objects/pack/{name}"), "rb") as file:
                done = git(self._repository, "index-pack", "--strict", "--stdin", "--fix-thin", stdin=file.fileno())
            if done.returncode != 0:
                raise OperatorError(f"the pack {name} is not sound: {git_said(done)}")
            stem = name.removesuffix(".pack")
            for each in (".pack", ".idx", ".rev", ".keep", ".promisor", ".bitmap"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(packs / f"{stem}{each}")

    def _move(self) -> str:
        with open(self._box.open(f"/refs/{self._name}"), "rb") as file:
            wanted = file.read(100).decode("ascii", "replace").strip()
        if not _HEX.fullmatch(wanted):
            return f"the branch {self._branch} holds no commit any more; it was left as it was"
        if wanted == self._known:
            self._follow(self._moved())
            return ""
        done = git(self._repository, "update-ref", self._ref, wanted, self._known)
        if done.returncode != 0:
            return self._join(wanted, done)
        self._same(wanted)
        return ""

    def _moved(self) -> str:
        """Where the branch stands if somebody else moved it, "" otherwise. Read as a file, since it is asked after
        every command; packed refs come of housekeeping, which moves nothing."""
        try:
            tip = Path(self._repository, self._ref).read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            return ""
        return tip if tip != self._known and _HEX.fullmatch(tip) else ""

    def _join(self, wanted: str, refused: subprocess.CompletedProcess[str]) -> str:
        """What was committed here, where the branch is not where it was: neither side's commits are lost."""
        tip = self._tip()
        if git(self._repository, "merge-base", "--is-ancestor", tip, wanted).returncode == 0:
            done = git(self._repository, "update-ref", self._ref, wanted, tip)
            if done.returncode == 0:
                self._same(wanted)
                return ""
        if not tip or tip == self._known:
            return f"the branch {self._branch} could not be moved: {git_said(refused)}"
        kept = f"{self._branch}-{wanted[:12]}"
        done = git(self._repository, "update-ref", f"refs/heads/{kept}", wanted)
        if done.returncode != 0:  # followed now, the commits would be nobody's
            return f"the branch {self._branch} was moved from outside, and {kept} cannot be made: {git_said(done)}"
        self._follow(tip)
        return f"the branch {self._branch} was moved from outside; what was committed here is the branch {kept}"


def _keep(data: bytes, name: str, target: Path) -> None:
    """Write an object into the repository if it is what its name says."""
    reader = zlib.decompressobj()
    whole = reader.decompress(data, _LARGEST)
    digest = hashlib.sha1(whole, usedforsecurity=False) if len(name) == 40 else hashlib.sha256(whole)
    if digest.hexdigest() != name or reader.unconsumed_tail:
        raise OperatorError(f"the object {name} is not what its name says")
    target.parent.mkdir(exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix="tmp_obj_")
    with open(descriptor, "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), 0o444)
    os.rename(temporary, target)


def _alternates(objects: Path) -> list[str]:
    """Object directories of other repositories that this one reads from."""
    try:
        lines = (objects / "info" / "alternates").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    paths = [os.path.normpath(objects / line) for line in lines if line and not line.startswith("#")]
    return [path for path in paths if os.path.isdir(path)]


def identity() -> bytes:
    """A file of settings with the name and address that commits of this user carry, and nothing else of theirs."""
    found = []
    for name in ("user.name", "user.email"):
        with contextlib.suppress(OperatorError):  # without git nothing is committed either
            done = git("/", "config", "--global", "--get", name)
            if done.returncode == 0 and done.stdout.strip():
                quoted = done.stdout.strip().replace("\\", "\\\\").replace('"', '\\"')
                found.append(f'\t{name.partition(".")[2]} = "{quoted}"\n')
    return ("[user]\n" + "".join(found)).encode("utf-8", "surrogateescape") if found else b""


def introduce(files: Files, home: str, user: bytes) -> None:
    """Give a task's home the settings of `identity`, where it has none. Raises OSError, ToolError.

    By the task's own files: what a command made of that home may be a link.
    """
    try:
        files.stat(f"{home}/.gitconfig")
    except FileNotFoundError:
        if user:
            files.replace(f"{home}/.gitconfig", user)
    except (OSError, ToolError):
        return  # a command put something there that leads nowhere
