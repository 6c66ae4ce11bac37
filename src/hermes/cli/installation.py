"""How this program came onto this machine, and the commands that bring another version of it.

Four ways: a git checkout, a tool of uv, an application of pipx, a package of pip. Finding out reads files and changes
nothing; the commands are those of the tool that installed it, so that the tool still knows what it has.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec

import hermes
from hermes.core.errors import OperatorError, UsageError

__all__ = [
    "PACKAGE",
    "Installation",
    "Version",
    "branch_of",
    "change_commands",
    "environment",
    "find_installation",
    "following",
    "newest",
    "run",
]

PACKAGE = "hermes-tasktree"
Kind = Literal["checkout", "uv", "pipx", "pip"]
#: Seconds for a question to git, to an index, to a tool.
PATIENCE = 120.0
_NEW = re.compile(r"(?:Would install|\+).*?\bhermes[-_]tasktree(?:==|-)(\d[^\s,(]*)")
_OUTDATED = re.compile(r"^hermes-tasktree v(\S+) \[latest: (\S+)\]", re.MULTILINE)
_PROGRAM_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_COMMIT = re.compile(r"[0-9a-f]{40}")
#: A change of these files in a checkout means that what it needs may have changed.
_NEEDS = ("requirements.lock", "pyproject.toml")


class Version(msgspec.Struct, frozen=True):
    """A version, and of a checkout the commit too, which decides."""

    number: str
    commit: str = ""

    def __str__(self) -> str:
        return f"{self.number} ({self.commit[:10]})" if self.commit else self.number


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """One installation: `place` is the checkout, or the environment. `folder` is one that the package was built from,
    `origin` a repository, such as `git+https://…`. `branch` is the one that is to be followed; empty where it is the
    one that is followed already."""

    kind: Kind
    place: Path
    python: Path
    version: Version
    folder: Path | None = None
    origin: str = ""
    branch: str = ""

    @property
    def checkout(self) -> Path | None:
        """The checkout that it runs from, or was built from."""
        if self.kind == "checkout":
            return self.place
        return self.folder if self.folder is not None and (self.folder / ".git").exists() else None

    @property
    def wanted(self) -> str:
        """What pip is to be asked for: the place the package came from, where that can have a newer one."""
        if self.folder is not None:
            return f"{PACKAGE} @ {self.folder.as_uri()}"
        return f"{PACKAGE} @ {self.origin}" + (f"@{self.branch}" if self.branch else "") if self.origin else PACKAGE

    def __str__(self) -> str:
        how = {"checkout": "a git checkout", "uv": "uv tool", "pipx": "pipx", "pip": "pip"}[self.kind]
        built = f" from {self.folder or self.origin}" if self.folder or self.origin else ""
        return f"hermes {self.version}, {how} in {self.place}{built}"


def find_installation(
    *,
    module: Path | None = None,
    prefix: Path | None = None,
    base_prefix: Path | None = None,
    python: Path | None = None,
    recorded: Callable[[], str | None] | None = None,
    stdlib: Path | None = None,
) -> Installation:
    """How the running program was installed; the arguments stand for what this process says of itself. `recorded`
    gives the text of pip's `direct_url.json`, empty without one, None where pip knows of no such package.

    Raises:
        OperatorError: it was installed in none of the four ways, or belongs to the system's package manager.
    """
    module = Path(hermes.__file__) if module is None else module
    prefix = Path(sys.prefix) if prefix is None else prefix
    python = Path(sys.executable) if python is None else python
    top = module.resolve().parents[2]
    if (top / ".git").exists() and (top / "pyproject.toml").is_file():
        version = Version(hermes.__version__, _git(top, "rev-parse", "HEAD"))
        return Installation(kind="checkout", place=top, python=python, version=version)
    kind: Kind = "pip"
    if (prefix / "uv-receipt.toml").is_file():
        kind = "uv"
    elif (prefix / "pipx_metadata.json").is_file():
        kind = "pipx"
    stdlib = Path(sysconfig.get_path("stdlib")) if stdlib is None else stdlib
    system = prefix == (Path(sys.base_prefix) if base_prefix is None else base_prefix)
    if kind == "pip" and system and (stdlib / "EXTERNALLY-MANAGED").exists():
        raise OperatorError(
            f"hermes in {module.parent} belongs to the Python of the system ({prefix}), which its package manager "
            "updates. Install it with `uv tool install` or `pipx install`; the home stays as it is."
        )
    record = (recorded or _record)()
    if record is None:
        raise OperatorError(
            f"hermes in {module.parent} is neither a git checkout nor installed by uv, pipx or pip; update it the way "
            "it was put there."
        )
    return _from_record(
        record, Installation(kind=kind, place=prefix, python=python, version=Version(hermes.__version__))
    )


def _record() -> str | None:
    try:
        return importlib.metadata.distribution(PACKAGE).read_text("direct_url.json") or ""
    except importlib.metadata.PackageNotFoundError:
        return None


def _from_record(record: str, plain: Installation) -> Installation:
    """Add where the package was built from. A file of a wheel is always the same version, so it does not count."""
    source = json.loads(record) if record else {}
    number = plain.version.number
    if "vcs_info" in source:
        asked = source["vcs_info"]
        return msgspec.structs.replace(
            plain,
            origin=f"{asked['vcs']}+{source['url']}",
            # A commit is what the way back leaves behind; nothing newer ever comes of it.
            branch="" if _COMMIT.fullmatch(revision := asked.get("requested_revision") or "") else revision,
            version=Version(number, asked["commit_id"]),
        )
    if "dir_info" in source:
        found = msgspec.structs.replace(plain, folder=Path(unquote(urlsplit(source["url"]).path)))
        top = found.checkout
        commit = _git(top, "rev-parse", "HEAD") if top is not None else ""
        return msgspec.structs.replace(found, version=Version(number, commit))
    return plain


def branch_of(installation: Installation) -> str:
    """The branch that a checkout is on, HEAD for none; empty where there is no checkout."""
    top = installation.checkout
    return _git(top, "rev-parse", "--abbrev-ref", "HEAD") if top is not None else ""


def following(installation: Installation, branch: str) -> Installation:
    """The installation, to follow another branch from now on.

    Raises:
        UsageError: it comes from no repository, or only the tool that installed it can do that.
    """
    if installation.checkout is None and not installation.origin:
        raise UsageError(f"--branch is for what comes from a git repository, and this is {installation}.")
    if installation.checkout is None and installation.kind != "pip":
        how = {"uv": "uv tool install --force", "pipx": "pipx install --force"}[installation.kind]
        raise UsageError(
            f"{installation.kind} keeps which branch it follows, and changes it by installing anew: "
            f"{how} '{PACKAGE} @ {installation.origin}@{branch}'"
        )
    return msgspec.structs.replace(installation, branch=branch)


def newest(installation: Installation) -> Version | None:
    """The version that an update brings; the present one if that is the newest, None where the tool cannot tell.

    Raises:
        OperatorError: nothing can be asked: no network, no such tool, or its refusal.
        UsageError: the checkout has changes or commits of its own.
    """
    now = installation.version
    if installation.checkout is not None:
        found = _newest_commit(installation, installation.checkout)
        return None if found == now and not _as_built(installation) else found
    if installation.origin.startswith("git+"):
        asked = ("git", "ls-remote", "--exit-code", installation.origin.removeprefix("git+"))
        there = run((*asked, installation.branch or "HEAD"), installation).split()
        return now if now.commit in there else None
    if installation.folder is not None or installation.origin:
        return None
    if installation.kind == "uv":
        match = _OUTDATED.search(run(("uv", "tool", "list", "--outdated"), installation))
        return Version(match[2]) if match is not None else now
    if installation.kind == "pipx":
        main = json.loads((installation.place / "pipx_metadata.json").read_text(encoding="utf-8"))["main_package"]
        install = ("pipx", "runpip", _name(installation), "install", *main.get("pip_args", ()))
    else:
        install = _pip_install(installation)
    match = _NEW.search(run((*install, "--dry-run", "--upgrade", PACKAGE), installation))
    return Version(match[1]) if match is not None else now


def _as_built(installation: Installation) -> bool:
    """Whether the files that run are those of the checkout they were built from."""
    if installation.kind == "checkout":
        return True
    assert installation.folder is not None
    source, built = installation.folder / "src/hermes", Path(hermes.__file__).parent
    return all(
        (built / file.relative_to(source)).is_file()
        and (built / file.relative_to(source)).read_bytes() == file.read_bytes()
        for file in source.rglob("*.py")
    )


def _newest_commit(installation: Installation, top: Path) -> Version:
    if dirty := _git(top, "status", "--porcelain", "--untracked-files=no"):
        files = ", ".join(line.split(maxsplit=1)[-1] for line in dirty.splitlines()[:5])
        raise UsageError(f"the checkout {top} has changes of its own ({files}). Commit or take them back, then update.")
    if installation.branch:
        return _version_of(top, _branch_there(top, installation.branch))
    try:
        upstream = _git(top, "rev-parse", "--abbrev-ref", "@{upstream}")
    except OperatorError:
        branch = _git(top, "rev-parse", "--abbrev-ref", "HEAD")
        raise OperatorError(
            f"the checkout {top} is on {branch!r}, which follows no other branch. `git branch --set-upstream-to "
            "origin/main` (or `hermes update --branch main`) says where updates come from."
        ) from None
    _git(top, "fetch", "--quiet")
    if int(_git(top, "rev-list", "--count", "@{upstream}..HEAD")):
        behind = int(_git(top, "rev-list", "--count", "HEAD..@{upstream}"))
        if not behind:
            return installation.version
        raise UsageError(
            f"the checkout {top} has commits that {upstream} has not, so it cannot simply be moved on. Rebase or merge "
            "them yourself."
        )
    return _version_of(top, "@{upstream}")


def _branch_there(top: Path, branch: str) -> str:
    """Fetch, and return what the other side has under this name.

    Raises:
        UsageError: nothing, or the branch of this name here has commits of its own.
    """
    _git(top, "fetch", "--quiet", "origin")
    names = _git(top, "for-each-ref", "--format=%(refname)", "refs/remotes/origin", f"refs/heads/{branch}").split()
    there = f"refs/remotes/origin/{branch}"
    if there not in names:
        known = [name.removeprefix("refs/remotes/origin/") for name in names if name.startswith("refs/remotes/origin/")]
        raise UsageError(
            f"origin has no branch {branch!r}; it has {', '.join(name for name in known if name != 'HEAD')[:500]}."
        )
    if f"refs/heads/{branch}" in names and int(_git(top, "rev-list", "--count", f"{there}..refs/heads/{branch}")):
        raise UsageError(
            f"the branch {branch} of {top} has commits that origin has not, so it cannot simply be moved on. Rebase or "
            "merge them yourself."
        )
    return there


def _version_of(top: Path, commit: str) -> Version:
    found = _PROGRAM_VERSION.search(_git(top, "show", f"{commit}:src/hermes/__init__.py"))
    return Version(found[1] if found is not None else "unknown", _git(top, "rev-parse", commit))


def _switch(top: Path, branch: str, commit: str) -> list[tuple[str, ...]]:
    """The command that has a checkout stand on a branch; none if it does."""
    if not branch or branch == _git(top, "rev-parse", "--abbrev-ref", "HEAD"):
        return []
    if branch == "HEAD":
        return [("git", "-C", str(top), "switch", "--quiet", "--detach", commit)]
    new = not _git(top, "for-each-ref", f"refs/heads/{branch}")
    made = ("--create", branch, "--track", f"origin/{branch}") if new else (branch,)
    return [("git", "-C", str(top), "switch", "--quiet", *made)]


def change_commands(installation: Installation, target: Version | None, *, back: bool = False) -> list[tuple[str, ...]]:
    """The commands that bring `target`; `back`: an earlier version, named exactly, on `branch` if that is named."""
    commands: list[tuple[str, ...]] = []
    top = installation.checkout
    if top is not None and target is not None:
        commands += _switch(top, installation.branch, target.commit)
        move = ("reset", "--keep") if back else ("merge", "--ff-only", "--quiet")
        commands.append(("git", "-C", str(top), *move, target.commit))
    if installation.kind == "checkout":
        assert target is not None
        changed = _git(installation.place, "diff", "--name-only", "HEAD", target.commit, "--", *_NEEDS)
        return [*commands, *(_needs(installation) if changed else ())]
    if back and top is None and installation.folder is not None:
        raise OperatorError(
            f"hermes was built from {installation.folder}, which keeps no older versions. Put them there and run "
            "hermes update."
        )
    if back and installation.folder is None:
        assert target is not None
        exact = f"{PACKAGE} @ {installation.origin}@{target.commit}" if target.commit else f"{PACKAGE}=={target.number}"
        if installation.kind == "uv":
            return [("uv", "pip", "install", "--python", str(installation.python), exact)]
        if installation.kind == "pipx":
            return [("pipx", "runpip", _name(installation), "install", exact)]
        return [(*_pip_install(installation), exact)]
    if installation.kind == "uv":
        return [*commands, ("uv", "tool", "upgrade", _name(installation))]
    if installation.kind == "pipx":
        return [*commands, ("pipx", "upgrade", _name(installation))]
    return [*commands, (*_pip_install(installation), "--upgrade", installation.wanted)]


def _needs(installation: Installation) -> list[tuple[str, ...]]:
    lock = installation.place / "requirements.lock"
    install = _pip_install(installation)
    return [
        (*install, "--no-deps", "--require-hashes", "-r", str(lock)),
        (*install, "--no-deps", "--no-build-isolation", "--editable", str(installation.place)),
    ]


def _pip_install(installation: Installation) -> tuple[str, ...]:
    """pip of the environment, to install; an environment that uv made has none."""
    made = installation.place / "pyvenv.cfg"
    if installation.kind == "pip" and made.is_file() and re.search(r"(?m)^uv\s*=", made.read_text(encoding="utf-8")):
        if shutil.which("uv") and not list(installation.place.glob("lib/python*/site-packages/pip")):
            return ("uv", "pip", "install", "--python", str(installation.python))
    return (str(installation.python), "-m", "pip", "--disable-pip-version-check", "install")


def _name(installation: Installation) -> str:
    return installation.place.name


def environment(installation: Installation, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the commands: uv and pipx are pointed at the installation that runs, wherever it is."""
    found = {**environ, "GIT_TERMINAL_PROMPT": "0"}
    if installation.kind == "uv":
        found["UV_TOOL_DIR"] = str(installation.place.parent)
        receipt = tomllib.loads((installation.place / "uv-receipt.toml").read_text(encoding="utf-8"))
        points = receipt.get("tool", {}).get("entrypoints", ())
        paths = [Path(one["install-path"]).parent for one in points if isinstance(one, dict) and "install-path" in one]
        if paths:
            found["UV_TOOL_BIN_DIR"] = str(paths[0])
    elif installation.kind == "pipx" and installation.place.parent.name == "venvs":
        found["PIPX_HOME"] = str(installation.place.parent.parent)
    return found


def run(command: Sequence[str], installation: Installation, *, shown: bool = False) -> str:
    """Run a command of git, uv, pipx or pip; returns what it said. `shown`: to the terminal, returns nothing.

    Raises:
        OperatorError: there is no such program, or it failed; with its last words.
    """
    if shutil.which(command[0]) is None:
        raise OperatorError(f"this installation needs {command[0]} to be updated, and it is not on PATH.")
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=None if shown else subprocess.PIPE,
            stderr=None if shown else subprocess.STDOUT,
            env=environment(installation, os.environ),
            timeout=None if shown else PATIENCE,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise OperatorError(f"`{' '.join(command)}` did not answer within {PATIENCE:g} s.") from None
    if done.returncode:
        words = " ".join((done.stdout or "").split())[-500:]
        raise OperatorError(f"`{' '.join(command)}` failed with code {done.returncode}{': ' + words if words else ''}.")
    return done.stdout or ""


def _git(top: Path, *arguments: str) -> str:
    asked = Installation(kind="checkout", place=top, python=Path(sys.executable), version=Version(""))
    return run(("git", "-C", str(top), *arguments), asked).strip()
