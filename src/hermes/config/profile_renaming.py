"""Another name for a profile, with everything in the home that says its name: heirs, the choice for good, settings.

What is about to be done is written down first and stays until all of it is done, so that a rename that was killed is
finished by the next command: before the folder was moved it is as if it had never begun, after that the rest follows.
The boards, which are no files of the home, are the caller's part.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from hermes.config.document import parse
from hermes.config.edit import set_value
from hermes.config.files import locked, read_text, write_file
from hermes.config.home import DEFAULT_PROFILE, RENAMING, Home, profile_names
from hermes.config.profiles import change_profile, check_new_name, read_profile
from hermes.core.errors import OperatorError, UsageError

__all__ = ["NAMING", "Renaming", "finishing", "renaming"]

#: The settings whose values are names of profiles, by their names in the section `kanban`.
NAMING = ("default_assignee", "orchestrator_profile", "reviewer_profile")


class Renaming(msgspec.Struct, frozen=True, kw_only=True):
    """A rename; `alias` is the path of the command that the profile has, empty for none. `followed` says in words what
    else in the home got the new name."""

    old: str
    new: str
    alias: str = ""
    followed: tuple[str, ...] = ()


def _record(home: Home) -> Path:
    return home.root / "profiles" / RENAMING


@contextmanager
def renaming(home: Home, name: str, alias: str = "") -> Iterator[tuple[Home, Renaming]]:
    """Rename a profile that nobody uses; what else follows is done within, and counts as done at a clean end.

    Raises:
        UsageError: it is the default one, or the new name cannot be one.
        ConfigError: a file that may say the name cannot be read. OperatorError: the folder cannot be moved.
            Nothing was changed.
    """
    if home.profile == DEFAULT_PROFILE:
        raise UsageError("the profile default cannot be renamed: it is the home itself.")
    check_new_name(home, name)
    _mentions(home, home.profile)
    record, target = _record(home), home.of(name)
    with locked(record.parent / ".lock"):
        check_new_name(home, name)
        wanted = Renaming(old=home.profile, new=name, alias=alias)
        write_file(record, msgspec.json.encode(wanted).decode() + "\n", mode=0o600, keep=False)
        try:
            home.path.rename(target.path)
        except OSError as error:
            record.unlink(missing_ok=True)
            raise OperatorError(f"cannot move {home.path} to {target.path}: {error.strerror}.") from error
        yield target, _follow(home, wanted)
        record.unlink()


@contextmanager
def finishing(home: Home) -> Iterator[tuple[Home, Renaming] | None]:
    """Finish a rename that was cut off: the home of the renamed profile and what was wanted, None where nothing is left
    to do (it had not begun, or whoever did it has just come to its end). As `renaming`.

    Raises:
        TryLater: whoever does it is still at it. OperatorError: a file cannot be read or written.
    """
    record = _record(home)
    with locked(record.parent / ".lock"):
        text = read_text(record)
        wanted = msgspec.json.decode(text, type=Renaming) if text is not None else None
        moved = wanted is not None and home.of(wanted.new).path.is_dir()
        if wanted is None or not moved:
            record.unlink(missing_ok=True)
            yield None
            return
        yield home.of(wanted.new), _follow(home, wanted)
        record.unlink()


def _mentions(home: Home, name: str) -> tuple[list[Home], list[tuple[Home, str]]]:
    """The profiles that inherit from one of this name, and the settings that say it.

    Raises:
        ConfigError: a file cannot be read.
    """
    heirs, settings = [], []
    for each in map(home.of, profile_names(home.root)):
        if read_profile(each).inherits == name:
            heirs.append(each)
        section = parse(each.config_file, read_text(each.config_file) or "").data.get("kanban")
        said = section if isinstance(section, dict) else {}
        settings += [(each, key) for key in NAMING if str(said.get(key) or "").strip().lower() == name]
    return heirs, settings


def _follow(home: Home, wanted: Renaming) -> Renaming:
    """Bring the new name to whatever says the old one; may be done again."""
    followed: list[str] = []
    if (read_text(home.chosen_file) or "").strip() == wanted.old:
        write_file(home.chosen_file, f"{wanted.new}\n", mode=0o600, keep=False)
    heirs, settings = _mentions(home, wanted.old)
    for each in heirs:
        change_profile(each, inherits=wanted.new)
        followed.append(f"{each.profile} inherits from {wanted.new} now")
    for each, key in settings:
        each.prepare(each.run_dir)
        set_value(each.config_file, ("kanban", key), wanted.new, lock=each.run_dir / "config.lock")
        followed.append(f"kanban.{key} of {each.profile} is {wanted.new} now")
    return msgspec.structs.replace(wanted, followed=tuple(followed))
