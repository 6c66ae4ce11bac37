"""Profiles: named agents of one root, each with settings, keys, persona and sessions of its own.

`<root>/profiles/<name>/profile.yaml` holds what a profile is for and which one it inherits from. Inheritance is by
reference: model, providers and credentials of the other one hold until the profile's own files say otherwise, and what
is changed there holds here. A folder without the file inherits no model and no key.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping

import msgspec

from hermes.config.files import locked, read_text, write_file
from hermes.config.home import DEFAULT_PROFILE, Home, check_profile_name, profile_names, unknown_profile
from hermes.core.errors import ConfigError, OperatorError, UsageError

__all__ = [
    "Profile",
    "change_profile",
    "check_new_name",
    "choose_profile",
    "create_profile",
    "delete_profile",
    "fill_profile",
    "heirs",
    "private_paths",
    "read_persona",
    "read_profile",
    "write_new_profile",
]

#: Names that would be mistaken for something else.
_RESERVED = frozenset({"hermes", "test", "tmp", "root", "sudo"})
#: Characters of a persona that are taken; a longer one would crowd out the work.
_PERSONA = 20_000


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What is written of a profile. `inherits` is the profile whose model and keys it uses; None: only its own.

    `description_auto` says that a model wrote the description.
    """

    name: str
    description: str = ""
    description_auto: bool = False
    inherits: str | None = None


def read_profile(home: Home) -> Profile:
    """What is written of the profile of `home`. Raises `ConfigError` for a file that cannot be used."""
    text = read_text(home.profile_file)
    if text is None:
        return Profile(name=home.profile)
    # edge: the YAML package takes a tenth of a second to import, which a home without a file need not pay
    from hermes.config.document import parse

    data = parse(home.profile_file, text).data
    known = {key: data[key] for key in ("description", "description_auto", "inherits") if data.get(key) is not None}
    try:
        found = msgspec.convert({**known, "name": home.profile}, Profile)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{home.profile_file}: {error}. Mend or remove the line.") from None
    if home.profile == DEFAULT_PROFILE:
        return msgspec.structs.replace(found, inherits=None)
    return found


def change_profile(home: Home, **values: str | bool | None) -> Profile:
    """Write some of the keys of `profile.yaml`; what others wrote there stays. Raises `OperatorError`."""
    # edge: the YAML package takes a tenth of a second to import, which only those pay who change something
    from hermes.config.edit import set_value

    home.prepare(home.run_dir)
    for key, value in values.items():
        set_value(home.profile_file, (key,), value, lock=home.run_dir / "config.lock")
    return read_profile(home)


def create_profile(origin: Home, name: str, *, description: str = "", clone: bool = False) -> Home:
    """Make a profile that inherits from the one of `origin`; `clone` copies its `config.yaml` and persona.

    Keys and logins are never copied: two copies of a login that changes with each renewal make each other worthless.

    Raises:
        UsageError: the name cannot be one, or there is such a profile.
        OperatorError: the folder cannot be written; nothing is left of it.
    """
    home = origin.of(name)
    check_new_name(origin, name)
    origin.of(DEFAULT_PROFILE).prepare(home.path.parent)
    with locked(home.path.parent / ".lock"):
        check_new_name(origin, name)
        try:
            home.prepare()
            if clone:
                _copy(origin, home)
            write_new_profile(home, description, origin.profile)
        except BaseException:
            shutil.rmtree(home.path, ignore_errors=True)
            raise
    return home


def check_new_name(beside: Home, name: str) -> None:
    """See that a profile may be called so. Raises `UsageError`: it cannot, or there is one."""
    check_profile_name(name)
    if name in _RESERVED or name == DEFAULT_PROFILE:
        raise UsageError(f"{name!r} cannot be the name of a profile: it is reserved. Choose another one.")
    path = beside.of(name).path
    if path.exists():
        raise UsageError(
            f"there is a profile {name!r} already ({path}); `hermes profile show {name}` has it. Nothing was changed."
        )


def write_new_profile(home: Home, description: str, inherits: str) -> None:
    """Write the `profile.yaml` of a profile that is being made. Raises `OperatorError`."""
    said = f"description: {json.dumps(description, ensure_ascii=False)}\n" if description else ""
    write_file(home.profile_file, f"{said}inherits: {inherits}\n", mode=0o600)


def _copy(origin: Home, home: Home) -> None:
    for source, target in ((origin.config_file, home.config_file), (origin.persona_file, home.persona_file)):
        text = read_text(source)
        if text is not None:
            write_file(target, text, mode=0o600)


def heirs(home: Home) -> list[str]:
    """The profiles that inherit from the one of `home` directly."""
    others = (home.of(name) for name in profile_names(home.root))
    return [each.profile for each in others if read_profile(each).inherits == home.profile]


def delete_profile(home: Home) -> None:
    """Remove a profile with its settings, keys and sessions.

    Raises:
        UsageError: it is the default one, or others inherit from it.
        OperatorError: the folder cannot be removed.
    """
    if home.profile == DEFAULT_PROFILE:
        raise UsageError("the profile default cannot be deleted: it is the home itself.")
    needing = heirs(home)
    if needing:
        raise UsageError(
            f"{', '.join(needing)} inherit model and keys from {home.profile}: delete them first, or change `inherits` "
            f"in {home.of(needing[0]).profile_file}. Nothing was deleted."
        )
    with locked(home.path.parent / ".lock"):
        try:
            shutil.rmtree(home.path)
        except OSError as error:
            raise OperatorError(f"cannot delete {error.filename or home.path}: {error.strerror}.") from error
        if (read_text(home.chosen_file) or "").strip() == home.profile:
            home.chosen_file.unlink(missing_ok=True)


def fill_profile(home: Home, files: Mapping[str, str]) -> None:
    """Write files into a profile that was just made (`profile_bundle`); its inheritance stays.

    Raises:
        OperatorError: one cannot be written; the profile is removed.
    """
    try:
        for name, text in files.items():
            if name != home.profile_file.name:
                target = home.path / name
                home.prepare(target.parent)
                write_file(target, text, mode=0o600, keep=False)
    except BaseException:
        shutil.rmtree(home.path, ignore_errors=True)
        raise


def choose_profile(home: Home) -> None:
    """Use the profile of `home` from now on where none is named. Raises `UsageError` if there is none."""
    if home.profile not in profile_names(home.root):
        raise UsageError(unknown_profile(home.profile, profile_names(home.root)))
    home.of(DEFAULT_PROFILE).prepare()
    write_file(home.chosen_file, f"{home.profile}\n", mode=0o600, keep=False)


def read_persona(home: Home) -> str:
    """Who the agent of this profile is, as its user wrote it; empty without a file. Raises as `read_text`."""
    text = (read_text(home.persona_file) or "").strip()
    if len(text) <= _PERSONA:
        return text
    return f"{text[:_PERSONA]}\n[… the rest of {home.persona_file} is left out: it has {len(text):,} characters]"


def private_paths(home: Home) -> tuple[str, ...]:
    """What tools of this profile's tasks must not read: its keys and journal, and everything of other profiles."""
    own = [home.env_file, home.auth_file, home.database]
    for name in profile_names(home.root):
        if name == home.profile:
            continue
        other = home.of(name)
        if name == DEFAULT_PROFILE:
            own += [other.env_file, other.auth_file, other.database, other.config_file, other.persona_file]
            own += [other.tasks_dir, other.logs_dir, other.path / "sessions", other.path / "memories"]
        else:
            own.append(other.path)
    return tuple(os.path.abspath(path) for path in own)
