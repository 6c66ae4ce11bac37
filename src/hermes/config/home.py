"""Where everything of one user lives: the home folder and the paths inside it.

A home may be shared with another program of the same name, so nothing here cleans or changes files; it names paths,
reads which profile was chosen for good, and makes the folder when something is about to be written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

import msgspec

from hermes.core.errors import OperatorError, UsageError

__all__ = [
    "DEFAULT_PROFILE", "RENAMING", "Home", "base_home", "check_profile_name", "find_home", "profile_names",
    "unknown_profile",
]  # fmt: skip

DEFAULT_PROFILE = "default"
#: What stands in the folder of the profiles while one is renamed.
RENAMING = ".renaming.json"
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
        """The profile's own credential pool; `Loaded.auth_file` is the one in force."""
        return self.path / "auth.json"

    @property
    def profile_file(self) -> Path:
        """What a profile is for and what it inherits from."""
        return self.path / "profile.yaml"

    @property
    def persona_file(self) -> Path:
        """Who the profile's agent is, in the user's words; part of its system text."""
        return self.path / "SOUL.md"

    @property
    def chosen_file(self) -> Path:
        """The name of the profile that is used where none is named."""
        return self.root / "active_profile"

    def of(self, profile: str) -> Home:
        """The home of another profile of this root; does not look whether there is one."""
        path = self.root if profile == DEFAULT_PROFILE else self.root / "profiles" / profile
        return Home(root=self.root, path=path, profile=profile)

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


def profile_names(root: Path) -> list[str]:
    """The profiles below a root, `default` first."""
    folder = root / "profiles"
    found = (each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else ()
    return [DEFAULT_PROFILE, *sorted(name for name in found if _NAME.fullmatch(name) and name != DEFAULT_PROFILE)]


def check_profile_name(name: str) -> str:
    """Return a profile's name. Raises `UsageError` for what cannot be one."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no profile name: use lower-case letters, digits, '-' and '_', not '-' or '_' first."
        )
    return name


def unknown_profile(name: str, known: list[str]) -> str:
    """What to say of a profile that is not there: the nearest name, and all of them."""
    near = get_close_matches(name, known, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return (
        f"there is no profile {name!r}.{hint} Known profiles: {', '.join(known)}; `hermes profile create {name}` makes "
        "one."
    )


def find_home(environ: Mapping[str, str], profile: str | None = None) -> Home:
    """Find the home: HERMES_HOME, else `~/.hermes`; in it `profile`, else the one of `hermes profile use`.

    Nothing is created. A HERMES_HOME that points into `<root>/profiles` is that profile's home.

    Raises:
        UsageError: the profile's name is not one, or there is no such profile.
        OperatorError: no home folder can be found for this user, or a file is in its place.
    """
    home = base_home(environ)
    if profile is None:
        return home if home.profile != DEFAULT_PROFILE else _chosen(home)
    return _existing(home.of(DEFAULT_PROFILE if profile == DEFAULT_PROFILE else check_profile_name(profile)))


def base_home(environ: Mapping[str, str]) -> Home:
    """The home that HERMES_HOME points to, else `~/.hermes`; looks for no profile.

    Raises:
        OperatorError: as `find_home`.
    """
    given = environ.get("HERMES_HOME", "").strip()
    if given:
        path = Path(os.path.abspath(os.path.expanduser(given)))
    else:
        user = environ.get("HOME", "").strip() or os.path.expanduser("~")
        if not os.path.isabs(user):
            raise OperatorError("no home folder is known for this user. Set HOME or HERMES_HOME.")
        path = Path(user) / ".hermes"
    if path.is_file():
        raise OperatorError(f"{path} is a file, and a home is a folder. Point HERMES_HOME at one, or move the file.")
    if path.parent.name == "profiles":
        return Home(root=path.parent.parent, path=path, profile=path.name)
    return Home(root=path, path=path)


def _existing(home: Home, more: str = "") -> Home:
    if home.profile != DEFAULT_PROFILE and not home.path.is_dir():
        raise UsageError(unknown_profile(home.profile, profile_names(home.root)) + more)
    return home


def _chosen(home: Home) -> Home:
    try:
        name = home.chosen_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return home
    if not name or name == DEFAULT_PROFILE:
        return home
    more = f" ({home.chosen_file} names it; `hermes profile use default` changes that.)"
    return _existing(home.of(check_profile_name(name)), more)
