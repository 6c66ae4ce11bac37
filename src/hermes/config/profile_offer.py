"""A profile that somebody offers for installation: its files by name, and what its manifest says of it.

The manifest is `distribution.yaml` (name, version, description, author, `hermes_requires`, `env_requires`); without one
the name is the folder's. Only the files of a profile are taken, by name and size; keys, logins and sessions never, and
settings that hold one are refused. What is offered may come from anybody. Reads no network.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hermes.config.document import parse
from hermes.config.profile_bundle import FILE_NAME, MOST_BYTES, MOST_FILES
from hermes.core.errors import OperatorError, UsageError

__all__ = ["MANIFEST", "Manifest", "Needed", "Offer", "flat", "leaves", "notable", "read_folder", "read_offer"]

MANIFEST = "distribution.yaml"
#: Files that hold keys, logins or work of whoever had the profile: named when they are left out.
_PRIVATE = re.compile(r"\.env(?:\..*)?|auth\.json|.*\.(?:db|sqlite|pem|key)|(?:sessions|memories|tasks|run)(?:/.*)?")
#: Settings whose values are secrets, by their last part.
_SECRET = re.compile(r"(?:.*_)?(?:api_?key|token|password|passwd|secret)", re.IGNORECASE)
#: Characters of the shortest value that counts as a secret: stand-ins of local servers are shorter.
_SHORTEST = 8
#: Settings that say whom to ask, run something, or let something run.
_NOTABLE = re.compile(
    r"(?:.*\.)?(?:base_url|key_env|command|webhook|database_url|host_commands|rules|env_passthrough|allowed_networks"
    r"|subagent_auto_approve|docker_\w+|sandbox_\w+|backend)|approvals(?:\..*)?|toolsets|platform_toolsets(?:\..*)?"
    r"|custom_providers|fallback_providers|agent\.disabled_toolsets"
)
_VARIABLE = re.compile(r"\$\{\w+\}")


class Needed(msgspec.Struct, frozen=True, kw_only=True):
    """A variable that a profile needs, as its manifest says."""

    name: str
    description: str = ""
    required: bool = True


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a profile by whoever offers it; texts of one line, empty where nothing is said."""

    name: str = ""
    version: str = ""
    description: str = ""
    author: str = ""
    hermes_requires: str = ""
    env_requires: tuple[Needed, ...] = ()


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A profile that can be installed: its `files` by their path in it, and names that were left out."""

    manifest: Manifest
    files: Mapping[str, str]
    left_out: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings it brings, by their dotted names."""
        return flat(self.files.get("config.yaml", ""))


def flat(text: str) -> dict[str, Any]:
    """The settings in the text of a `config.yaml` by their dotted names; lists and empty sections are values.

    Raises:
        ConfigError: it is no such text.
    """
    return {".".join(path): value for path, value in leaves(parse(Path("config.yaml"), text).data)}


def leaves(data: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value of nested sections with its path."""
    for name, value in data.items():
        path = (*above, str(name))
        if isinstance(value, dict) and value:
            yield from leaves(value, path)
        else:
            yield path, value


def notable(settings: Mapping[str, Any]) -> list[str]:
    """Of these settings the names of those a person should look at before the profile runs."""
    return [name for name, value in settings.items() if _NOTABLE.fullmatch(name) or _VARIABLE.search(str(value))]


def read_folder(folder: Path) -> Offer:
    """Read what a folder offers; links in it are not followed.

    Raises:
        UsageError: it holds no profile, or a key. OperatorError: it cannot be read.
    """
    names = [path.name for path in _listed(folder)]
    agents = folder / "agents"
    if "agents" in names and not agents.is_symlink() and agents.is_dir():
        names += [f"agents/{path.name}" for path in _listed(agents)]

    def read(name: str) -> bytes | None:
        path = folder / name
        try:
            found = path.lstat()
            return path.read_bytes() if stat.S_ISREG(found.st_mode) and found.st_size <= MOST_BYTES else None
        except OSError as error:
            raise OperatorError(f"cannot read {path}: {error.strerror}.") from error

    return read_offer(names, read, str(folder), folder.resolve().name)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise OperatorError(f"cannot read {folder}: {error.strerror}.") from error


def read_offer(names: list[str], read: Callable[[str], bytes | None], where: str, called: str) -> Offer:
    """Make an offer of what stands at a place: `names` are the files there, `read` gives one's bytes (None: it is no
    plain file, or too large), `where` names the place in errors, `called` is its name where the manifest has none.

    Raises:
        UsageError: there is no profile, or a file of it cannot be used or holds a key.
    """
    files: dict[str, str] = {}
    for name in names:
        if not FILE_NAME.fullmatch(name) or name == "profile.yaml":
            continue
        data = read(name)
        if data is None or len(files) >= MOST_FILES:
            raise UsageError(f"{where}: {name} is a link, or too large or too much; nothing was taken from it.")
        try:
            files[name] = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise UsageError(f"{where}: {name} is not UTF-8; nothing was taken from it.") from None
    described = read("profile.yaml") if "profile.yaml" in names else None
    if not (files.keys() - {MANIFEST}):
        raise UsageError(
            f"{where} holds no profile: neither SOUL.md nor config.yaml nor agents/*.md stands at its top."
        )
    _refuse_keys(where, files.get("config.yaml", ""))
    manifest = _manifest(files.get(MANIFEST, ""), (described or b"").decode("utf-8", "replace"), called)
    left_out = tuple(name for name in names if _PRIVATE.fullmatch(name))
    return Offer(manifest=manifest, files=files, left_out=left_out)


def _refuse_keys(where: str, text: str) -> None:
    for name, value in _scalars(parse(Path("config.yaml"), text).data):
        secret = _SECRET.fullmatch(name.rpartition(".")[2]) and len(str(value)) >= _SHORTEST
        if secret and not _VARIABLE.search(str(value)):
            raise UsageError(
                f"{where}/config.yaml: {name} holds a key, which a profile does not bring along: its author has to "
                "write ${NAME} in its place. Nothing was taken from it."
            )


def _scalars(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every text and number in nested sections and lists, with its dotted name."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _scalars(inner, f"{name}.{key}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from _scalars(inner, name)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield name, value


def _manifest(text: str, profile: str, called: str) -> Manifest:
    data = parse(Path(MANIFEST), text).data
    said = {
        name: " ".join(str(value).split())[:500] for name, value in data.items() if isinstance(value, str | int | float)
    }
    needed = data.get("env_requires")
    found = [
        Needed(
            name=str(each.get("name")),
            description=" ".join(str(each.get("description") or "").split())[:200],
            required=each.get("required", True) is not False,
        )
        for each in (needed if isinstance(needed, list) else ())
        if isinstance(each, dict) and re.fullmatch(r"[A-Za-z_]\w{0,99}", str(each.get("name")))
    ]
    described = said.get("description") or " ".join(
        str(parse(Path("profile.yaml"), profile).data.get("description") or "").split()
    )
    known = {name: said[name] for name in ("version", "author", "hermes_requires") if name in said}
    return Manifest(name=said.get("name") or called, description=described, env_requires=tuple(found[:50]), **known)
