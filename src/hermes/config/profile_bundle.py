"""A profile as one file, to be taken to another home: its settings, persona, description and agent types.

Never its keys, logins or sessions: they are not in the file, and a file that would hold a key is not made. What is read
may come from anybody, so only the files of a profile are taken, by name and size.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from hermes.config.files import read_text
from hermes.config.home import Home, check_profile_name
from hermes.core.errors import OperatorError, UsageError

__all__ = ["FILE_NAME", "MOST_BYTES", "MOST_FILES", "bundle", "pack_profile", "read_bundle"]

_FILES = ("config.yaml", "SOUL.md", "profile.yaml", "distribution.yaml")
#: The files of a profile that may be taken along.
FILE_NAME = re.compile(r"(?:config\.yaml|SOUL\.md|profile\.yaml|distribution\.yaml|agents/[\w.-]{1,100}\.md)")
#: Bytes of one file, and files of a bundle.
MOST_BYTES, MOST_FILES = 1_000_000, 200


def pack_profile(home: Home) -> dict[str, str]:
    """The files of a profile that go into a bundle, by their path within it. Raises as `read_text`."""
    found = {name: text for name in _FILES if (text := read_text(home.path / name)) is not None}
    for path in sorted((home.path / "agents").glob("*.md")):
        text = read_text(path)
        if text is not None and FILE_NAME.fullmatch(f"agents/{path.name}"):
            found[f"agents/{path.name}"] = text
    return found


def bundle(name: str, files: Mapping[str, str]) -> bytes:
    """A gzipped tar archive of these files below a folder of the profile's name."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, text in files.items():
            data = text.encode()
            member = tarfile.TarInfo(f"{name}/{path}")
            member.size, member.mode = len(data), 0o600
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def read_bundle(path: Path) -> tuple[str, dict[str, str]]:
    """(profile's name, files by their path within it) of a bundle.

    Raises:
        UsageError: it is none, or holds what is no part of a profile. OperatorError: it cannot be read.
    """
    try:
        with tarfile.open(path, mode="r:*") as archive:
            found = _members(path, archive)
            for _ in range(2):  # the sum that tells a damaged file stands behind the padding
                if archive.fileobj is not None:
                    archive.fileobj.read(tarfile.RECORDSIZE)
            return found
    except (tarfile.TarError, EOFError, UnicodeDecodeError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise UsageError(f"{path} is no profile that `hermes profile export` wrote ({error}).") from None
    except OSError as error:
        raise OperatorError(f"cannot read {path}: {error.strerror or error}.") from error


def _members(path: Path, archive: tarfile.TarFile) -> tuple[str, dict[str, str]]:
    names: set[str] = set()
    found: dict[str, str] = {}
    for number, member in enumerate(archive):
        name, _, inner = member.name.removeprefix("./").partition("/")
        wanted = member.isdir() or member.isfile() and FILE_NAME.fullmatch(inner) and member.size <= MOST_BYTES
        if number >= MOST_FILES or not wanted:
            raise UsageError(
                f"{path} holds {member.name[:100]!r}, which is no part of a profile, or too large or too much; nothing "
                "was taken from it."
            )
        if member.isdir():
            continue
        file = archive.extractfile(member)
        assert file is not None
        names.add(name)
        found[inner] = file.read(MOST_BYTES).decode("utf-8-sig")
    if len(names) != 1 or not found:
        raise UsageError(f"{path} holds {len(names)} profiles; a bundle has one.")
    return check_profile_name(names.pop()), found
