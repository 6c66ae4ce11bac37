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
from typing import Any, Literal

import msgspec

import hermes
from hermes.core.errors import OperatorError, UsageError

__all__ = ["PACKAGE", "Installation", "Version", "change_commands", "environment", "find_installation", "newest", "run"]

PACKAGE = "hermes-tasktree"
Kind = Literal["checkout", "uv", "pipx", "pip"]
#: Seconds for a question to git, to an index, to a tool.
PATIENCE = 120.0
_NEW = re.compile(r"(?:Would install|\+).*?\bhermes[-_]tasktree(?:==|-)(\d[^\s,(]*)")
_OUTDATED = re.compile(r"^hermes-tasktree v(\S+) \[latest: (\S+)\]", re.MULTILINE)
_PROGRAM_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
#: A change of these files in a checkout means that what it needs may have changed.
_NEEDS = ("requirements.lock", "pyproject.toml")


class Version(msgspec.Struct, frozen=True):
    """A version, and of a checkout the commit too, which decides."""

    number: str
    commit: str = ""

    def __str__(self) -> str:
        return f"{self.number} ({self.commit[:10]})" if self.commit else self.number


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """One installation: `place` is the checkout, or the environment. `wanted` is what pip was or is asked for."""

    kind: Kind
    place: Path
    python: Path
    version: Version
    wanted: str = PACKAGE

    def __str__(self) -> str:
        how = {"checkout": "a git checkout", "uv": "uv tool", "pipx": "pipx", "pip": "pip"}[self.kind]
        return f"hermes {self.version}, {how} in {self.place}"


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
    version = Version(hermes.__version__)
    if (prefix / "uv-receipt.toml").is_file():
        return Installation(kind="uv", place=prefix, python=python, version=version)
    if (prefix / "pipx_metadata.json").is_file():
        return Installation(kind="pipx", place=prefix, python=python, version=version)
    stdlib = Path(sysconfig.get_path("stdlib")) if stdlib is None else stdlib
    if (
        prefix == (Path(sys.base_prefix) if base_prefix is None else base_prefix)
        and (stdlib / "EXTERNALLY-MANAGED").exists()
    ):
        raise OperatorError(
            f"hermes in {module.parent} belongs to the Python of the system ({prefix}), which its package manager "
            "updates. Install it with `uv tool install` or `pipx install`; the home stays as it is."
        )
    wanted = _wanted((recorded or _record)(), module)
    return Installation(kind="pip", place=prefix, python=python, version=version, wanted=wanted)


def _record() -> str | None:
    try:
        return importlib.metadata.distribution(PACKAGE).read_text("direct_url.json") or ""
    except importlib.metadata.PackageNotFoundError:
        return None


def _wanted(record: str | None, module: Path) -> str:
    """What pip is to be asked for: the place the package came from, where that can have a newer one."""
    if record is None:
        raise OperatorError(
            f"hermes in {module.parent} is neither a git checkout nor installed by uv, pipx or pip; update it the way "
            "it was put there."
        )
    if not record:
        return PACKAGE
    source = json.loads(record)
    url = source["url"]
    if "vcs_info" in source:
        asked = source["vcs_info"].get("requested_revision")
        return f"{PACKAGE} @ {source['vcs_info']['vcs']}+{url}" + (f"@{asked}" if asked else "")
    return f"{PACKAGE} @ {url}" if "dir_info" in source else PACKAGE  # a file of a wheel is always the same version


def newest(installation: Installation) -> Version | None:
    """The version that an update brings; the present one if that is the newest, None where the tool cannot tell.

    Raises:
        OperatorError: nothing can be asked: no network, no such tool, or its refusal.
        UsageError: the checkout has changes or commits of its own.
    """
    if installation.kind == "checkout":
        return _newest_commit(installation)
    now = installation.version
    if installation.kind == "uv":
        text = run(("uv", "tool", "list", "--outdated"), installation)
        match = _OUTDATED.search(text)
        if match is None and _receipt_source(installation.place):
            return None
        return Version(match[2]) if match is not None else now
    if installation.kind == "pipx":
        main = json.loads((installation.place / "pipx_metadata.json").read_text(encoding="utf-8"))["main_package"]
        # a number that pipx noted when a version was brought back does not hold `pipx upgrade` either
        wanted = re.sub(r"==[^\s;@]+$", "", main.get("package_or_url") or PACKAGE)
        asked = (*main.get("pip_args", ()), wanted)
        text = run(("pipx", "runpip", _name(installation), "install", "--dry-run", "--upgrade", *asked), installation)
    else:
        asked = (installation.wanted,)
        text = run((*_pip_install(installation), "--dry-run", "--upgrade", *asked), installation)
    match = _NEW.search(text)
    if match is None or (match[1] == now.number and asked == (PACKAGE,)):
        return now
    # a folder or a repository brings what it has now, often under the same number
    return Version(match[1]) if match[1] != now.number else None


def _receipt_source(place: Path) -> bool:
    """Whether uv installed it from somewhere that has no list of versions: git, a folder, an address."""
    receipt: dict[str, Any] = tomllib.loads((place / "uv-receipt.toml").read_text(encoding="utf-8"))
    return any(
        set(one) & {"git", "directory", "editable", "path", "url"}
        for one in receipt.get("tool", {}).get("requirements", ())
        if one.get("name") == PACKAGE
    )


def _newest_commit(installation: Installation) -> Version:
    top = installation.place
    if dirty := _git(top, "status", "--porcelain", "--untracked-files=no"):
        files = ", ".join(line.split(maxsplit=1)[-1] for line in dirty.splitlines()[:5])
        raise UsageError(f"the checkout {top} has changes of its own ({files}). Commit or take them back, then update.")
    try:
        upstream = _git(top, "rev-parse", "--abbrev-ref", "@{upstream}")
    except OperatorError:
        branch = _git(top, "rev-parse", "--abbrev-ref", "HEAD")
        raise OperatorError(
            f"the checkout {top} is on {branch!r}, which follows no other branch. `git branch --set-upstream-to "
            "origin/main` (or `git switch main`) says where updates come from."
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
    found = _PROGRAM_VERSION.search(_git(top, "show", "@{upstream}:src/hermes/__init__.py"))
    return Version(found[1] if found is not None else "unknown", _git(top, "rev-parse", "@{upstream}"))


def change_commands(installation: Installation, target: Version | None, *, back: bool = False) -> list[tuple[str, ...]]:
    """The commands that bring `target`; `back`: an earlier version, named exactly."""
    if installation.kind == "checkout":
        assert target is not None
        move = ("reset", "--keep") if back else ("merge", "--ff-only", "--quiet")
        moved = ("git", "-C", str(installation.place), *move, target.commit)
        changed = _git(installation.place, "diff", "--name-only", "HEAD", target.commit, "--", *_NEEDS)
        return [moved, *(_needs(installation) if changed else ())]
    if back:
        assert target is not None
        exact = f"{PACKAGE}=={target.number}"
        if installation.kind == "uv":
            return [("uv", "pip", "install", "--python", str(installation.python), exact)]
        if installation.kind == "pipx":
            return [("pipx", "runpip", _name(installation), "install", exact)]
        return [(*_pip_install(installation), exact)]
    if installation.kind == "uv":
        return [("uv", "tool", "upgrade", _name(installation))]
    if installation.kind == "pipx":
        return [("pipx", "upgrade", _name(installation))]
    return [(*_pip_install(installation), "--upgrade", installation.wanted)]


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
