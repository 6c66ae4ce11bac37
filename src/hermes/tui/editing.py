"""What stands in the composer, in the person's own editor. The terminal is theirs meanwhile; tasks go on."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

from textual.app import App, SuspendNotSupported

from hermes.core.errors import OperatorError

__all__ = ["edited"]


async def edited(app: App[None], text: str, environ: Mapping[str, str]) -> str:
    """`text` as it was saved by `$VISUAL` or `$EDITOR` (else `vi`).

    Raises:
        OperatorError: the editor cannot be started, failed, or left something that is not text.
    """
    wanted = environ.get("VISUAL") or environ.get("EDITOR") or "vi"
    try:
        command = shlex.split(wanted) or ["vi"]
    except ValueError as error:
        raise OperatorError(f"{wanted} is no command ({error}); set EDITOR to your editor") from None
    descriptor, name = tempfile.mkstemp(prefix="hermes-", suffix=".md")
    file = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        try:
            with app.suspend():
                process = await asyncio.create_subprocess_exec(*command, name)
                code = await process.wait()
        except SuspendNotSupported as error:
            raise OperatorError("this terminal cannot be handed to an editor") from error
        except OSError as error:
            raise OperatorError(
                f"{command[0]} cannot be started ({error.strerror}); set EDITOR to your editor"
            ) from error
        if code:
            raise OperatorError(f"{command[0]} ended with exit code {code}; the text is as it was")
        return file.read_text(encoding="utf-8").rstrip("\n")
    except UnicodeDecodeError as error:
        raise OperatorError("the editor left something that is not UTF-8; the text is as it was") from error
    finally:
        file.unlink(missing_ok=True)
