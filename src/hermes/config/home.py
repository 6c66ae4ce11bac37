"""Where everything of one user lives: the home folder and the paths inside it.

A home may be shared with another program of the same name, so nothing here lists, cleans or opens files; it only names
paths and makes the folder when something is about to be written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hermes.core.errors import OperatorError, UsageError

__all__ = ["DEFAULT_PROFILE", "Home", "find_home"]

DEFAULT_PROFILE = "default"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Home(msgspec.Struct, frozen=True, kw_only=True):
    """The folder of the active profile.

    `root` is the shared base (`~/.hermes`), `path` the profile's own folder; both are the same for `default`.
    """

    root: Path
    path: Path
    profile: str = DEFAULT_PROFILE

    @property
    def config_file(self) -> Path:
        """Settings, shared with other programs that know the format."""
        return self.path / "config.yaml"

    @property
    def env_file(self) -> Path:
        """Keys and other variables, `NAME=value` lines."""
        return self.path / ".env"

    @property
    def auth_file(self) -> Path:
        """The credential pool; read, never written."""
        return self.path / "auth.json"

    @property
    def database(self) -> Path:
        """Our own journal."""
        return self.path / "runtime.db"

    @property
    def run_dir(self) -> Path:
        """Locks of living processes."""
        return self.path / "run"

    @property
    def logs_dir(self) -> Path:
        """Log files."""
        return self.path / "logs"

    @property
    def tasks_dir(self) -> Path:
        """One folder a task for reports and overflow."""
        return self.path / "tasks"

    def prepare(self, *folders: Path) -> None:
        """Make the home (and `folders` inside it) with mode 0700; existing ones are left as they are.

        Raises:
            OperatorError: the folder cannot be made or written.
        """
        for folder in (self.path, *folders):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                reason = "a file of that name is in the way" if folder.exists() else (error.strerror or str(error))
                raise OperatorError(f"cannot make the folder {folder}: {reason}. {_CURE}") from error
            if not os.access(folder, os.W_OK | os.X_OK):
                raise OperatorError(f"the folder {folder} cannot be written by this user. {_CURE}")


_CURE = "Give this user write access to it, or point HERMES_HOME at a folder that can be written."


def find_home(environ: Mapping[str, str], profile: str | None = None) -> Home:
    """Find the home: HERMES_HOME, else `~/.hermes`; `profile` picks `<root>/profiles/<profile>`.

    Nothing is created. A HERMES_HOME that points into `<root>/profiles` is that profile's home.

    Raises:
        UsageError: the profile's name is not one, or there is no such profile.
        OperatorError: no home folder can be found for this user.
    """
    given = environ.get("HERMES_HOME", "").strip()
    if given:
        path = Path(os.path.abspath(os.path.expanduser(given)))
    else:
        user = environ.get("HOME", "").strip() or os.path.expanduser("~")
        if not os.path.isabs(user):
            raise OperatorError("no home folder is known for this user. Set HOME or HERMES_HOME.")
        path = Path(user) / ".hermes"
    root, current = (path.parent.parent, path.name) if path.parent.name == "profiles" else (path, DEFAULT_PROFILE)
    if profile is None:
        return Home(root=root, path=path, profile=current)
    if profile == DEFAULT_PROFILE:
        return Home(root=root, path=root)
    if not _NAME.fullmatch(profile):
        raise UsageError(
            f"{profile!r} is no profile name: use lower-case letters, digits, '-' and '_', not '-' or '_' first."
        )
    chosen = root / "profiles" / profile
    if not chosen.is_dir():
        names = (
            sorted(entry.name for entry in chosen.parent.iterdir() if entry.is_dir()) if chosen.parent.is_dir() else []
        )
        known = ", ".join([DEFAULT_PROFILE, *names])
        raise UsageError(f"there is no profile {profile!r} ({chosen} is missing). Known profiles: {known}.")
    return Home(root=root, path=chosen, profile=profile)
