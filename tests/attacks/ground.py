"""The ground on which attacks are tried: a workspace, a neighbour that must not change, and a home with keys.

It stands beside the sources, or in the user's home where these lie in a temporary directory: that is a place where
commands may write.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
KEY = "PLANTED-8f1b6c2e-KEY"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One attack of `cases.yaml`. `expected` is what stops it where there is no sandbox: the gate before anything ran,
    a limit, or what is done to text before a screen shows it."""

    id: str
    family: str
    tries: str
    tool: str
    call: dict[str, Any]
    expected: Literal["gate", "bound", "screen"] = "gate"


def cases() -> list[Case]:
    """All attacks, in the order of the file."""
    found = YAML(typ="safe").load(Path(__file__).with_name("cases.yaml").read_text("utf-8"))
    return msgspec.convert(found, list[Case])


class Ground:
    """The directories of one attack. `git` is a repository to copy (see `repository`), for many of them."""

    def __init__(self, root: Path, git: Path | None = None) -> None:
        self.root = root
        self.workspace = root / "ws"
        self.outside = root / "outside"
        self.home = root / "home"
        self.runtime = root / "runtime-home"
        for folder in (self.workspace / "sub", self.outside, self.home / ".ssh", self.home / ".aws", self.runtime):
            folder.mkdir(parents=True)
        (self.outside / "victim.txt").write_text("safe\n")
        for place in (".ssh/id_ed25519", ".aws/credentials", ".bashrc"):
            (self.home / place).write_text(f"# PRIVATE {KEY}\n")
        (self.runtime / ".env").write_text(f"OPENROUTER_API_KEY={KEY}\n")
        note = self.workspace / "note.txt"
        note.write_text("hello\n")
        (self.workspace / "link").symlink_to(self.outside)
        (self.workspace / "filelink").symlink_to(self.outside / "victim.txt")
        (self.workspace / "keylink").symlink_to(self.home / ".ssh" / "id_ed25519")
        (self.workspace / "evil.sh").write_text(f"rm -rf {self.outside}/victim.txt\n")
        with tarfile.open(self.workspace / "a.tar", "w") as archive:
            archive.add(note, "note.txt")
        if git is None:
            repository(self.workspace)
        else:
            shutil.copytree(git / ".git", self.workspace / ".git")

    def call(self, case: Case) -> dict[str, Any]:
        """The arguments of a case with the places of this ground; a shell knows its own home."""
        names = {"$OUT": str(self.outside), "$HERMES_HOME": str(self.runtime)}
        if "command" not in case.call:
            names["$HOME"] = str(self.home)
        return {name: _filled(value, names) for name, value in case.call.items()}

    def state(self) -> dict[str, str]:
        """What stands outside of the workspace, by path: contents, links, modes."""
        found: dict[str, str] = {}
        for top in (self.outside, self.home, self.runtime):
            for folder, names, files in os.walk(top):
                for name in (*names, *files):
                    path = Path(folder, name)
                    status = path.lstat()
                    body = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
                    found[str(path)] = f"{status.st_mode:o} {status.st_size if body else 0} {body}"
        return found


def repository(folder: Path) -> Path:
    """Make a repository in a folder with a note, and return the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "note.txt").write_text("hello\n")
    environ = {"GIT_CONFIG_GLOBAL": "/dev/null", "HOME": str(folder), "PATH": os.environ["PATH"]}
    for words in (["init", "-q", "--template=", "."], ["add", "note.txt"], ["commit", "-q", "-m", "first"]):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.invalid"]
        subprocess.run(["git", *who, *words], cwd=folder, env=environ, check=True)
    (folder / ".git" / "hooks").mkdir()
    return folder


def _filled(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for name, place in names.items():
            value = value.replace(name, place)
    return value


@contextmanager
def prepared() -> Iterator[Path]:
    """A directory that is neither temporary nor a home, removed at the end."""
    places = (ROOT, Path(pwd.getpwuid(os.getuid()).pw_dir))
    place = next(
        (path for path in places if not path.is_relative_to("/tmp") and not path.is_relative_to("/var/tmp")), ROOT
    )
    root = Path(tempfile.mkdtemp(prefix=".attacks-", dir=place))
    try:
        yield root
    finally:
        for folder, _, _ in os.walk(root):
            os.chmod(folder, 0o700)
        shutil.rmtree(root, ignore_errors=True)
