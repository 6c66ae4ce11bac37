"""`.env` is read leniently and edited one line at a time."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hermes.config.dotenv import parse_dotenv, read_dotenv, set_variable, unset_variable
from hermes.core.errors import ConfigError, UsageError

TEXT = (
    "# keys\r\nexport A=1 # one\r\n B = two words \r\nC='s #x' # c\r\n"
    'D="q\\"\\n"\r\nE=\r\nbroken\r\nA=last\r\nF=#x\r\n'
)


def test_reading() -> None:
    assert parse_dotenv(TEXT) == {"A": "last", "B": "two words", "C": "s #x", "D": 'q"\n', "E": "", "F": ""}


def test_a_missing_file_is_empty_and_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    assert read_dotenv(tmp_path / ".env") == {}
    (tmp_path / ".env").write_bytes(b"\xef\xbb\xbfA=1\n")
    assert read_dotenv(tmp_path / ".env") == {"A": "1"}


def test_bytes_that_are_no_text_name_their_line(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"A=1\nB=\xff\n")
    with pytest.raises(ConfigError, match=r"\.env:2: byte 0xff is not UTF-8"):
        read_dotenv(tmp_path / ".env")


def test_setting_keeps_every_other_line_and_closes_the_file_to_others(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_bytes(TEXT.encode())
    os.chmod(path, 0o644)
    set_variable(path, "B", "new value")
    set_variable(path, "NEW", "sk-1")
    expected = TEXT.replace(" B = two words \r\n", 'B="new value"\r\n') + "NEW=sk-1\r\n"
    assert path.read_bytes() == expected.encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    backup = path.with_name(".env.bak")
    assert backup.read_bytes() == TEXT.encode() and stat.S_IMODE(backup.stat().st_mode) == 0o600


@pytest.mark.parametrize("value", ["", "plain", 'a"b', "back\\slash", "a b", "#x", "a#b", "'q'", "$HOME", "é"])
def test_what_is_set_is_read_back(tmp_path: Path, value: str) -> None:
    set_variable(tmp_path / ".env", "K", value)
    assert read_dotenv(tmp_path / ".env") == {"K": value}


def test_setting_replaces_every_line_of_that_name_and_unsetting_removes_them(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("A=1\nB=2\nA=3")
    set_variable(path, "A", "4")
    assert path.read_text() == "A=4\nB=2\n"
    assert unset_variable(path, "A") and not unset_variable(path, "A")
    assert path.read_text() == "B=2\n"


def test_a_line_break_or_a_bad_name_is_refused(tmp_path: Path) -> None:
    for name, value in (("A", "x\ny"), ("A-B", "x")):
        with pytest.raises(UsageError):
            set_variable(tmp_path / ".env", name, value)
    assert not (tmp_path / ".env").exists()
