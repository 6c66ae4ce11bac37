"""What stands in the composer and was not sent, kept in the home so that neither an exit nor a crash loses it.

One file for a session, one for a folder in which nothing was said yet. It keeps text as it was typed, readable by the
user alone; sending it removes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

from hermes.config import Home
from hermes.core.errors import OperatorError

__all__ = ["Drafts"]

#: Characters of a draft that are kept.
MOST = 1_000_000


class Drafts:
    """The drafts of one home."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._folder = home.path / "drafts"

    def _file(self, session_id: str, workspace: str) -> Path:
        name = session_id or "new-" + hashlib.sha256(workspace.encode("utf-8", "surrogateescape")).hexdigest()[:12]
        return self._folder / f"{name}.txt"

    def load(self, session_id: str, workspace: str) -> str:
        """The draft of a session, or of a folder where `session_id` is empty; empty where there is none."""
        try:
            return self._file(session_id, workspace).read_text(encoding="utf-8", errors="replace")[:MOST]
        except OSError:
            return ""

    def save(self, session_id: str, workspace: str, text: str) -> None:
        """Keep a draft (blocking); an empty one is removed. The file is whole at every moment.

        Raises:
            OperatorError: it cannot be written.
        """
        file = self._file(session_id, workspace)
        if not text.strip():
            with contextlib.suppress(FileNotFoundError):
                file.unlink()
            return
        self._home.prepare(self._folder)
        new = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as stream:
                stream.write(text[:MOST])
            new.replace(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink()
            raise OperatorError(f"the draft cannot be kept in {file}: {error.strerror or error}") from error
