"""Profiles that come as a file from anybody: what is damaged or swollen is refused in a sentence."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.config.profile_bundle import bundle, read_bundle
from hermes.core.errors import UsageError


def packed(members: dict[str, bytes | None]) -> bytes:
    """A tar archive of these files, and folders where there is no content."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            member.size = len(data or b"")
            archive.addfile(member, io.BytesIO(data or b""))
    return plain.getvalue()


def test_what_was_packed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "coder.tar.gz"
    files = {"SOUL.md": "Ты внимателен.\n", "agents/scout.md": "Look.\n"}
    path.write_bytes(bundle("coder", files))
    assert read_bundle(path) == ("coder", files)


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress], ids=["gz", "xz", "bz2"])
@pytest.mark.parametrize("way", ["cut", "damaged"])
def test_a_damaged_file_is_refused(tmp_path: Path, compress: Callable[[bytes], bytes], way: str) -> None:
    text = random.Random(7).randbytes(200_000).hex().encode()
    whole = bytearray(compress(packed({"coder/SOUL.md": text})))
    middle = len(whole) // 2
    if way == "cut":
        del whole[middle:]
    else:
        whole[middle : middle + 5_000] = bytes(5_000)
    path = tmp_path / "coder.tar"
    path.write_bytes(whole)
    with pytest.raises(UsageError, match=r"coder\.tar is no profile that `hermes profile export` wrote"):
        read_bundle(path)


def test_folders_without_end_are_too_much(tmp_path: Path) -> None:
    path = tmp_path / "coder.tar"
    path.write_bytes(packed({"coder/SOUL.md": b"x", **{f"coder/{number}": None for number in range(300)}}))
    with pytest.raises(UsageError, match="too large or too much"):
        read_bundle(path)
