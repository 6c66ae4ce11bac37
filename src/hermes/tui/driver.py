"""A terminal that may go away: what is written to a lost one is dropped, so that nothing waits for it."""

from __future__ import annotations

import errno
from typing import IO, Any, cast

from textual.driver import Driver

__all__ = ["lasting_driver"]

_LOST = (errno.EIO, errno.EPIPE, errno.EBADF, errno.ENXIO)


class _Lasting:
    """A stream whose loss is silent: a writer that ends would leave whoever waits for it for ever."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            if error.errno not in _LOST:
                raise
        except UnicodeEncodeError:
            return self._stream.write(text.encode("ascii", "replace").decode("ascii"))
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            if error.errno not in _LOST:
                raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def lasting_driver(kind: type[Driver]) -> type[Driver]:
    """The driver of `kind` that bears the loss of its terminal; any other than the one for terminals as it is."""
    if kind.__name__ != "LinuxDriver":
        return kind

    class LastingDriver(kind):  # type: ignore[valid-type,misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._file = cast("IO[str]", _Lasting(cast("IO[str]", vars(self)["_file"])))

    return LastingDriver
