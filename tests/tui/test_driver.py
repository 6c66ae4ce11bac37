"""A terminal that is slow, lent or gone, as the program's writer meets it."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import Any

import pytest
from textual.driver import Driver

from hermes.config import find_home
from hermes.tui.app import HermesApp
from hermes.tui.driver import MOST_PENDING, Lasting, lasting_driver
from hermes.tui.feed import Feed


class Broken(io.StringIO):
    """A stream whose terminal fails in some way."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def write(self, text: str) -> int:
        if not isinstance(self._error, UnicodeEncodeError) or not text.isascii():
            raise self._error
        return super().write(text)

    def flush(self) -> None:
        if isinstance(self._error, OSError):
            raise self._error


def test_a_lost_terminal_is_silent_and_another_fault_is_not() -> None:
    lost = Lasting(Broken(OSError(errno.EIO, "gone")))
    lost.write("x")
    lost.flush()
    assert lost.done == 1
    with pytest.raises(OSError, match="full"):
        Lasting(Broken(OSError(errno.ENOSPC, "full"))).write("x")


def test_what_the_encoding_lacks_becomes_a_question_mark() -> None:
    stream = Broken(UnicodeEncodeError("ascii", "❯", 0, 1, "not there"))
    Lasting(stream).write("❯ x")
    assert stream.getvalue() == "? x"


class LinuxDriver:
    """Stands for the terminal's driver: keeps what would be written."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._file = io.StringIO()
        self.written: list[str] = []
        self.closed = False

    def write(self, data: str) -> None:
        self.written.append(data)

    def suspend_application_mode(self) -> None:
        self.write("bye")

    def resume_application_mode(self) -> None:
        self.write("hello")

    def close(self) -> None:
        self.closed = True


class App:
    """Counts the pictures that are drawn anew."""

    def __init__(self) -> None:
        self.again = 0

    def refresh(self, **options: Any) -> None: ...

    def call_later(self, what: Any, **options: Any) -> None:
        self.again += 1


def opened() -> tuple[Any, App]:
    app = App()
    kind: type[Driver] = LinuxDriver  # type: ignore[assignment]
    return lasting_driver(kind)(app), app  # type: ignore[arg-type]


def test_nothing_waits_for_a_terminal_that_stands_still() -> None:
    driver, app = opened()
    for number in range(1_000):
        driver.write(str(number))
    assert len(driver.written) == MOST_PENDING + 1
    driver.close()
    assert not driver.closed  # its writer would be waited for
    for text in driver.written:
        driver._file.write(text)
    driver.write("next")
    assert driver.written[-1] == "next" and app.again == 1  # what was left out is drawn anew
    driver.close()
    assert driver.closed


def test_a_terminal_that_is_lent_is_left_alone() -> None:
    driver, _ = opened()
    driver.suspend_application_mode()
    driver.write("a picture")
    driver.resume_application_mode()
    driver.write("another")
    assert driver.written == ["bye", "hello", "another"]


def test_the_program_knows_while_its_terminal_is_lent(tmp_path: Path) -> None:
    """Ctrl+C in the editor is not meant for the conversation."""
    home = find_home({"HERMES_HOME": str(tmp_path)})
    app = HermesApp(Feed(str, lambda: "", {}), print, print, home=home, new_in=None)
    assert not app.lent
    driver, _ = opened()
    app._driver = driver
    driver.suspend_application_mode()
    assert app.lent
    driver.resume_application_mode()
    assert not app.lent
