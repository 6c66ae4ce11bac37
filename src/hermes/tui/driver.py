"""A terminal that may be slow, lent to an editor, or gone: nothing that is written to it makes the program wait.

It keeps no picture: what was not shown is drawn anew once the terminal takes it again.
"""

from __future__ import annotations

import errno
from typing import IO, Any, cast

from textual.driver import Driver

__all__ = ["Lasting", "lasting_driver"]

_LOST = (errno.EIO, errno.EPIPE, errno.EBADF, errno.ENXIO)
#: Pictures on their way to the terminal above which further ones are left out; the queue to it takes 30.
MOST_PENDING = 20


class Lasting:
    """A stream whose loss is silent: a writer that ends would leave whoever waits for it for ever.

    `done` counts the writes that are over.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.done = 0

    def write(self, text: str) -> int:
        """Write, or drop where the terminal is gone; what its encoding lacks becomes `?`."""
        try:
            return self._stream.write(text)
        except UnicodeEncodeError:
            return self._stream.write(text.encode("ascii", "replace").decode("ascii"))
        except OSError as error:
            if error.errno not in _LOST:
                raise
            return len(text)
        finally:
            self.done += 1

    def flush(self) -> None:
        """Flush, where there is something to flush to."""
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
            self._lasting = Lasting(cast("IO[str]", vars(self)["_file"]))
            self._file = cast("IO[str]", self._lasting)
            self._given = 0
            self._left_out = False
            self.away = False

        @property
        def _stalled(self) -> bool:
            return self._given - self._lasting.done > MOST_PENDING

        def write(self, data: str) -> None:
            if self.away:
                return  # the terminal is lent; all is drawn again when it comes back
            if self._stalled:
                self._left_out = True
                return
            self._given += 1
            super().write(data)
            if self._left_out:
                self._left_out = False
                self._app.call_later(self._app.refresh, layout=True)

        def suspend_application_mode(self) -> None:
            super().suspend_application_mode()
            self.away = True

        def resume_application_mode(self) -> None:
            self.away = False
            super().resume_application_mode()

        def close(self) -> None:
            if not self._stalled:  # else its writer would be waited for as long as the terminal stands still
                super().close()

    return LastingDriver
