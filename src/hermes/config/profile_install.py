"""Installing an offered profile, and bringing its changes into it later without losing what was changed here.

A profile is put together beside the others and becomes one of them in one step, so that a process that is killed
leaves none. `<profile>/installed/` holds what was brought as it was, and `origin.json` where it is from: what differs
from it was changed here. Of settings each is compared for itself; a file or setting that both sides changed stays as
it is here and is named.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from hermes.config.document import parse
from hermes.config.edit import set_value, unset_value
from hermes.config.files import locked, read_text, write_file
from hermes.config.home import DEFAULT_PROFILE, Home
from hermes.config.profile_changes import Change
from hermes.config.profile_offer import Offer, leaves
from hermes.config.profiles import check_new_name, read_profile, write_new_profile
from hermes.core.errors import ConfigError, OperatorError, TryLater, UsageError

__all__ = [
    "Origin",
    "OtherPlan",
    "apply",
    "brought",
    "differences",
    "own_files",
    "plan_update",
    "read_origin",
    "settle",
    "staged",
]

_CONFIG, _PROFILE = "config.yaml", "profile.yaml"
#: Seconds after which what a killed installation left is removed.
_LEFT = 86_400.0
_PREFIX = ".installing-"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a profile is from: `source` as it was given, `kind` folder, archive or git, `ref` and `commit` of git, `at`
    in seconds since the epoch."""

    source: str
    kind: Literal["folder", "archive", "git"]
    ref: str = ""
    commit: str = ""
    version: str = ""
    description: str = ""
    author: str = ""
    at: float = 0.0


class OtherPlan(TryLater):
    """A profile was changed since an update of it was planned; `what` says which of it."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} Nothing was updated; begin it again.")
        self.what = what


def _folder(home: Home) -> Path:
    return home.path / "installed"


def read_origin(home: Home) -> Origin | None:
    """Where a profile is from; None for one that was made here. Raises `ConfigError` for a damaged record."""
    path = _folder(home) / "origin.json"
    text = read_text(path)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Origin)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path}: {error}. Remove it; the profile then counts as made here.") from None


def brought(home: Home) -> dict[str, str]:
    """The files of a profile as they were brought, by their path in it. Raises as `read_text`."""
    folder = _folder(home) / "files"
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()] if folder.is_dir() else []
    return {path.relative_to(folder).as_posix(): read_text(path) or "" for path in paths}


@contextmanager
def staged(beside: Home, name: str, offer: Offer, origin: Origin) -> Iterator[Home]:
    """An offered profile that is no profile yet, named `name`; it is gone at the end unless `settle` took it.

    It inherits from `beside`, the profile in use.

    Raises:
        UsageError: the name cannot be one, or there is such a profile.
        OperatorError: it cannot be written.
    """
    check_new_name(beside, name)
    root = beside.of(DEFAULT_PROFILE)
    root.prepare(beside.root / "profiles")
    _clear(beside.root / "profiles")
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=beside.root / "profiles"))
    home = Home(root=beside.root, path=folder, profile=name)
    try:
        home.prepare()
        for path, text in offer.files.items():
            target = home.path / path
            home.prepare(target.parent)
            write_file(target, text, mode=0o600, keep=False)
        write_new_profile(home, offer.manifest.description, beside.profile)
        _record(home, offer, origin)
        yield home
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _clear(folder: Path) -> None:
    for path in folder.glob(f"{_PREFIX}*"):
        if time.time() - path.stat().st_mtime > _LEFT:
            shutil.rmtree(path, ignore_errors=True)


def settle(home: Home) -> Home:
    """Make a staged profile one of the profiles.

    Raises:
        UsageError: there is one of its name by now. OperatorError: it cannot be moved.
    """
    target = home.of(home.profile)
    with locked(target.path.parent / ".lock"):
        check_new_name(target, home.profile)
        try:
            home.path.rename(target.path)
        except OSError as error:
            raise OperatorError(f"cannot move {home.path} to {target.path}: {error.strerror}.") from error
    return target


def _record(home: Home, offer: Offer, origin: Origin) -> None:
    """Keep what was brought, and then where it is from: an update that is cut off before is begun anew."""
    folder = _folder(home) / "files"
    for path, text in offer.files.items():
        target = folder / path
        home.prepare(target.parent)
        if read_text(target) != text:
            write_file(target, text, mode=0o600, keep=False)
    for path in brought(home):
        if path not in offer.files:
            (folder / path).unlink()
    text = msgspec.json.format(msgspec.json.encode(origin)).decode()
    write_file(_folder(home) / "origin.json", text + "\n", mode=0o600, keep=False)


def _own(home: Home, path: str) -> str | None:
    return read_text(home.path / path)


def differences(home: Home) -> list[str]:
    """What of an installed profile was changed here: files, and of `config.yaml` settings by name."""
    found: list[str] = []
    base = brought(home)
    origin = read_origin(home)
    for path, text in base.items():
        own = _own(home, path)
        if own is None:
            found.append(f"{path} (removed)")
        elif path == _CONFIG and own != text:
            before, after = _settings(text), _settings(own)
            names = [".".join(key) for key in {**before, **after} if before.get(key) != after.get(key)]
            found += [f"{path}: {name}" for name in sorted(names)] or [f"{path} (layout or comments alone)"]
        elif own != text:
            found.append(path)
    if _CONFIG not in base and _own(home, _CONFIG) is not None:
        found.append(f"{_CONFIG} (made here)")
    if origin is not None and read_profile(home).description != origin.description:
        found.append("description")
    return found


def _settings(text: str) -> dict[tuple[str, ...], Any]:
    return dict(leaves(parse(Path(_CONFIG), text).data))


def own_files(home: Home, offer: Offer) -> dict[str, str]:
    """The texts of a profile as they are here, of files that were brought or are offered. Raises as `read_text`."""
    found = {path: _own(home, path) for path in {*brought(home), *offer.files}}
    return {path: text for path, text in found.items() if text is not None}


def plan_update(home: Home, offer: Offer) -> list[Change]:
    """What an offer would change in a profile that was installed before; nothing is changed yet.

    Raises:
        ConfigError: a `config.yaml` cannot be read.
    """
    found: list[Change] = []
    base, new = brought(home), offer.files
    for path in sorted({*base, *new}):
        own, before, after = _own(home, path), base.get(path), new.get(path)
        if before == after or own == after:
            continue
        if own == before:
            found.append(Change(what="add" if own is None else "remove" if after is None else "replace", file=path))
        elif path == _CONFIG and own is not None:
            found += _settings_changes(_settings(before or ""), _settings(own), _settings(after or ""))
        else:
            found.append(Change(what="keep", file=path))
    known, told = read_origin(home), offer.manifest.description
    if known is not None and read_profile(home).description == known.description != told:
        found.append(
            Change(what="set", file=_PROFILE, key=("description",), value=told, before=known.description or None)
        )
    return found


def _settings_changes(
    before: Mapping[tuple[str, ...], Any], own: Mapping[tuple[str, ...], Any], after: Mapping[tuple[str, ...], Any]
) -> Iterator[Change]:
    none = object()
    going = [key for key, was in before.items() if key not in after and own.get(key, none) == was]
    # first, since others may take their place
    yield from (Change(what="unset", file=_CONFIG, key=key, before=before[key]) for key in going)
    staying = [key for key in own if key not in going]
    for key in {**before, **after}:
        was, here, there = (each.get(key, none) for each in (before, own, after))
        if was == there or here == there or key in going:
            continue
        if here != was or _crosses(key, staying):
            yield Change(what="keep", file=_CONFIG, key=key)
        else:
            yield Change(what="set", file=_CONFIG, key=key, value=there, before=before.get(key))


def _crosses(key: tuple[str, ...], own: Collection[tuple[str, ...]]) -> bool:
    """Whether a setting here is a value where the other has a section, or the other way round."""
    return any(other != key and (other[: len(key)] == key or key[: len(other)] == other) for other in own)


def apply(home: Home, offer: Offer, origin: Origin, changes: Sequence[Change]) -> None:
    """Carry out what `plan_update` found. Killed in between, the next update goes on where it stood.

    The profile is looked at again once nothing else can change its settings or its name.

    Raises:
        OtherPlan: it was changed since the plan was made, so that the plan would be another one. Nothing was changed.
        UsageError: the profile was not installed, or is gone. OperatorError: a file cannot be written.
    """
    with locked(home.path.parent / ".lock"):
        if not home.path.is_dir():
            raise UsageError(f"{home.profile} was renamed or deleted meanwhile. Nothing was changed.")
        if read_origin(home) is None:
            raise UsageError(f"{home.profile} was made here and not installed; there is nothing to update it from.")
        home.prepare(home.run_dir)
        with locked(home.run_dir / "config.lock"):
            now = plan_update(home, offer)
            if now != changes:
                others = [each for each in [*now, *changes] if (each in now) != (each in changes)]
                names = ", ".join(dict.fromkeys(each.name for each in others))
                raise OtherPlan(f"{home.profile} was changed here while the update waited: {names}.")
            for change in changes:
                _carry_out(home, offer, change)
            _record(home, offer, origin)


def _carry_out(home: Home, offer: Offer, change: Change) -> None:
    path = home.path / change.file
    if change.what in ("add", "replace"):
        home.prepare(path.parent)
        write_file(path, offer.files[change.file], mode=0o600)
    elif change.what == "remove":
        path.unlink(missing_ok=True)
    elif change.what == "set":
        set_value(path, change.key, change.value, lock=None)
        if change.file == _PROFILE:
            set_value(path, ("description_auto",), False, lock=None)
    elif change.what == "unset":
        unset_value(path, change.key, lock=None)
