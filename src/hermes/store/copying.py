"""Copies of a database before its layout changes: made beside it, found again, put back.

A program that is older than the layout refuses the file, so the copy is the way back. Knows no tables.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from pathlib import Path

import msgspec

__all__ = ["KEPT", "Kept", "copies", "copy_aside", "layout_of", "put_back"]

#: Copies that are kept; older ones go when a new one is made.
KEPT = 3
_NAME = re.compile(r"\.v(\d+)-\d{8}T\d{6}(?:-\d+)?")


class Kept(msgspec.Struct, frozen=True):
    """A copy of a database with the number of its layout."""

    path: Path
    layout: int


def layout_of(path: Path) -> int | None:
    """The number of a database's layout; None where there is no database.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    if not path.exists() or not path.stat().st_size:
        return None
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)
    try:
        version: int = db.execute("PRAGMA user_version").fetchone()[0]
        return version
    finally:
        db.close()


def copies(path: Path) -> list[Kept]:
    """The copies of a database, newest first."""
    found = []
    for each in path.parent.glob(path.name + ".v*"):
        match = _NAME.fullmatch(each.name[len(path.name) :])
        if match is not None:
            found.append((each.stat().st_mtime_ns, Kept(each, int(match[1]))))
    return [kept for _, kept in sorted(found, key=lambda one: one[0], reverse=True)]


def copy_aside(path: Path, layout: int) -> Path:
    """Copy what is committed of a database of this layout, also while others read and write it; returns the copy.

    Only the newest `KEPT` copies stay.

    Raises:
        sqlite3.Error: no room, or it cannot be read; nothing is left behind.
        OSError: the folder cannot be written.
    """
    copy = _free_name(path, layout)
    os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        source = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)
        try:
            target = sqlite3.connect(copy)
            try:
                source.backup(target)
            finally:
                target.close()
        finally:
            source.close()
    except BaseException:
        copy.unlink(missing_ok=True)
        raise
    for old in copies(path)[KEPT:]:
        old.path.unlink(missing_ok=True)
    return copy


def put_back(path: Path, kept: Kept) -> Path:
    """Put a copy in the place of a database that nobody has open; returns where that one is kept now.

    Raises:
        OSError: something cannot be moved.
    """
    aside = _free_name(path, layout_of(path) or 0)
    for end in ("-wal", "-shm"):  # they belong to the file that they stand beside, so they move with it, first
        beside = path.with_name(path.name + end)
        if beside.exists():
            beside.replace(aside.with_name(aside.name + end))
    path.replace(aside)
    kept.path.replace(path)
    return aside


def _free_name(path: Path, layout: int) -> Path:
    name = f"{path.name}.v{layout}-{time.strftime('%Y%m%dT%H%M%S')}"
    found, number = path.with_name(name), 1
    while found.exists():
        number += 1
        found = path.with_name(f"{name}-{number}")
    return found
