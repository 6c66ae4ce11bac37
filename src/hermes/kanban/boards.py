"""Which boards there are, which one is meant, and where each lives.

The default board is `<root>/kanban-board.db`; another has a folder `<root>/kanban/boards/<slug>/` with `board.json` and
its own `kanban-board.db`. With `kanban.database_url` the rows of all boards are in that PostgreSQL database, and only
folders for workspaces and logs are here. `<root>` is shared by all profiles, which is how they work together. Files of
another program of the same name (`kanban.db`) are never touched.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hermes.core.clock import Clock
from hermes.core.codec import decode_json, encode_json
from hermes.core.errors import OperatorError, UsageError
from hermes.core.ids import random_hex
from hermes.kanban.board import Board, open_board
from hermes.kanban.card import Worker
from hermes.kanban.errors import BoardError
from hermes.kanban.store import Location, postgres_boards, rename_schema

__all__ = ["DEFAULT_BOARD", "BoardInfo", "Boards", "check_slug", "shared_root"]

DEFAULT_BOARD = "default"
FILE = "kanban-board.db"
_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class BoardInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is written of a board beside its rows; `default_workdir` is an absolute folder on this host."""

    slug: str
    name: str = ""
    description: str = ""
    default_workdir: str | None = None
    created_at: float | None = None


def check_slug(text: str) -> str:
    """Return a board's short name in lower case. Raises `UsageError` for what is none."""
    slug = text.strip().lower()
    if not _SLUG.fullmatch(slug):
        raise UsageError(
            f"{text!r} is no board name: use up to 64 letters, digits, '-' and '_', a letter or digit first"
        )
    return slug


def shared_root(root: Path, environ: Mapping[str, str]) -> Path:
    """Where the boards of a home's `root` are: there, unless HERMES_KANBAN_HOME says otherwise."""
    moved = environ.get("HERMES_KANBAN_HOME", "").strip()
    return Path(os.path.abspath(os.path.expanduser(moved))) if moved else root


class Boards:
    """The boards of one root. `url` is `kanban.database_url`, `preferred` the profile's own board (`kanban.board`)."""

    def __init__(
        self,
        root: Path,
        here: Worker,
        *,
        environ: Mapping[str, str],
        url: str | None = None,
        preferred: str | None = None,
        profiles: Collection[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.root = shared_root(root, environ)
        self.here = here
        self.url = url or None
        self._environ = environ
        self._preferred = preferred or None
        self._profiles = profiles
        self._clock = clock

    def folder(self, slug: str) -> Path:
        """Where a board's `board.json`, `workspaces` and `logs` are."""
        base = self.root / "kanban"
        return base if slug == DEFAULT_BOARD else base / "boards" / slug

    def location(self, slug: str) -> Location:
        """Where a board's rows are. Does not look whether it exists."""
        if self.url is not None:
            return Location(slug=slug, url=self.url)
        return Location(slug=slug, path=self._file(slug))

    def names(self) -> list[str]:
        """Boards that exist, `default` first."""
        found: set[str] = set()
        if self.url is not None:
            found.update(postgres_boards(self.url))
        else:
            base = self.root / "kanban" / "boards"
            if base.is_dir():
                found.update(each.name for each in base.iterdir() if (each / FILE).is_file() or _is_ours(each))
        found.discard(DEFAULT_BOARD)
        return [DEFAULT_BOARD, *sorted(found)]

    def existing(self) -> list[str]:
        """Boards that have rows already; to open one of these makes nothing."""
        if self.url is not None:
            return sorted(postgres_boards(self.url))
        return [name for name in self.names() if self._file(name).is_file()]

    def _file(self, slug: str) -> Path:
        return (self.root if slug == DEFAULT_BOARD else self.folder(slug)) / FILE

    def current(self, flag: str | None = None) -> str:
        """Which board is meant: `flag`, HERMES_KANBAN_BOARD, the profile's own, `<root>/kanban/current`, default.

        Raises:
            UsageError: it does not exist; nothing falls back to another board.
        """
        chosen, source = self._chosen(flag)
        slug = check_slug(chosen)
        if slug not in self.names():
            raise UsageError(
                f"there is no board {slug!r} ({source}); known: {', '.join(self.names())}. "
                f"`hermes kanban boards create {slug}` makes it."
            )
        return slug

    def _chosen(self, flag: str | None) -> tuple[str, str]:
        if flag:
            return flag, "asked for"
        named = self._environ.get("HERMES_KANBAN_BOARD", "").strip()
        if named:
            return named, "HERMES_KANBAN_BOARD"
        if self._preferred:
            return self._preferred, "kanban.board"
        pointer = self.root / "kanban" / "current"
        try:
            text = pointer.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            text = ""
        return (text, str(pointer)) if text else (DEFAULT_BOARD, "default")

    def open(self, flag: str | None = None) -> Board:
        """Open the board that is meant (`current`); a worker's `HERMES_KANBAN_DB` names its file outright.

        Raises:
            UsageError, StoreError, OperatorError: it does not exist, or cannot be used.
        """
        direct = self._environ.get("HERMES_KANBAN_DB", "").strip()
        if direct and not flag and self.url is None:
            path = Path(direct)
            if not path.is_file():
                raise UsageError(f"HERMES_KANBAN_DB names {direct}, which is not there; no other board was opened")
            slug = self._environ.get("HERMES_KANBAN_BOARD", "").strip() or DEFAULT_BOARD
            return self._open(Location(slug=check_slug(slug), path=path))
        return self._open(self.location(self.current(flag)))

    def _open(self, location: Location) -> Board:
        return open_board(location, self.here, clock=self._clock, profiles=self._profiles)

    def info(self, slug: str) -> BoardInfo:
        """What is written of a board. Raises `BoardError` for a `board.json` that cannot be read."""
        return msgspec.convert({**self._json(slug), "slug": slug}, BoardInfo, strict=False)

    def create(self, slug: str, *, name: str = "", description: str = "", default_workdir: str | None = None) -> Board:
        """Make a board and open it. Raises `UsageError` if there is one."""
        slug = check_slug(slug)
        if slug in self.names() and slug != DEFAULT_BOARD:
            raise UsageError(f"there is a board {slug!r} already; `hermes kanban boards switch {slug}` uses it")
        board = self._open(self.location(slug))
        self.change(
            slug, name=name or slug, description=description, default_workdir=default_workdir, created_at=time.time()
        )
        return board

    def change(self, slug: str, **fields: Any) -> BoardInfo:
        """Write something of a board into its `board.json`; what others wrote there stays."""
        workdir = fields.get("default_workdir")
        if workdir is not None and not os.path.isabs(workdir):
            raise UsageError(f"the working folder of a board is an absolute path, not {workdir!r}")
        known = self._json(slug)
        _write(self.folder(slug) / "board.json", encode_json({**known, **fields, "slug": slug}) + b"\n")
        return self.info(slug)

    def switch(self, slug: str) -> str:
        """Make a board the one that is meant where nothing else says; it has to exist."""
        slug = self.current(slug)
        _write(self.root / "kanban" / "current", f"{slug}\n".encode())
        return slug

    def remove(self, slug: str, *, delete: bool = False) -> Path | None:
        """Put a board away under `boards/_archived` and return where, or delete it.

        Raises:
            UsageError: there is none, or it is the default one.
            BoardError: workers run.
        """
        slug = self.current(slug)
        if slug == DEFAULT_BOARD:
            raise UsageError("the default board cannot be removed; archive its cards instead")
        with self._open(self.location(slug)) as board:
            running = board.live_runs()
        if running:
            raise BoardError(f"{len(running)} workers of {slug!r} run ({running[0].card_id}, …); let them end first")
        stamp = time.strftime("%Y%m%d-%H%M%S")
        if self.url is not None:
            rename_schema(self.location(slug), None if delete else f"archived_{stamp}_{slug}"[:63])
        folder = self.folder(slug)
        target = folder.parent / "_archived" / f"{slug}-{stamp}"
        if folder.is_dir() and delete:
            shutil.rmtree(folder)
        elif folder.is_dir():
            target.parent.mkdir(exist_ok=True)
            folder.rename(target)
        if self._chosen(None)[0] == slug:
            (self.root / "kanban" / "current").unlink(missing_ok=True)
        return None if delete else target

    def _json(self, slug: str) -> dict[str, Any]:
        path = self.folder(slug) / "board.json"
        try:
            found = decode_json(path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            raise BoardError(f"{path} cannot be read ({error}); mend or remove it") from error
        return found if isinstance(found, dict) else {}


def _is_ours(folder: Path) -> bool:
    """A folder that another program made for a board of the same name counts too, once a board is wanted there."""
    return folder.name != "_archived" and (folder / "board.json").is_file()


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = path.with_name(f".{path.name}.{random_hex(8)}")
        fresh.write_bytes(data)
        fresh.replace(path)
    except OSError as error:
        raise OperatorError(
            f"cannot write {path} ({error.strerror or error}); make its folder writable for this user"
        ) from error
