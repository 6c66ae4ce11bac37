"""Keeping and cutting output."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.environments.output import Output, OutputLimits, cut_middle


def hide(text: str) -> str:
    return text.replace("SECRETVALUE", "[redacted]")


def test_short_text_is_not_cut() -> None:
    assert cut_middle("abc", 3) == ("abc", False)


def test_the_middle_goes_at_line_ends() -> None:
    text = "".join(f"line {number}\n" for number in range(1000))
    cut, was_cut = cut_middle(text, 500, "/a/b")
    assert was_cut
    head, mark, tail = cut.partition("[…")
    assert head.endswith("\n\n")
    assert tail.endswith("line 999\n")
    assert "in /a/b …]\nline" in mark + tail
    assert len(cut) < 600


@pytest.mark.parametrize("chunk", [1, 7, 1000, 100_000])
@pytest.mark.parametrize("separator", ["\n", " ", ""])
def test_a_secret_is_never_written_in_parts(tmp_path: Path, chunk: int, separator: str) -> None:
    text = separator.join(f"{number:06d} SECRETVALUE" for number in range(8000 if chunk > 1 else 500))
    output = Output(tmp_path / "o" / "out.txt", hide, OutputLimits(visible=1000, memory=2000))
    data = text.encode()
    for start in range(0, len(data), chunk):
        output.feed(data[start : start + chunk])
        if start % (chunk * 50) == 0:
            output.spill()
    shown, cut, path = output.finish()
    assert cut
    assert "SECRET" not in shown
    assert (tmp_path / "o" / "out.txt").read_text() == hide(text)
    assert path == str(tmp_path / "o" / "out.txt")
    assert (tmp_path / "o" / "out.txt").stat().st_mode & 0o077 == 0


def test_a_private_key_is_held_back_until_its_end(tmp_path: Path) -> None:
    output = Output(tmp_path / "out.txt", hide, OutputLimits(memory=10))
    output.feed(b"a\n-----BEGIN X PRIVATE KEY-----\nabc\n")
    output.spill()
    assert (tmp_path / "out.txt").read_text() == "a\n"
    output.feed(b"def\n-----END X PRIVATE KEY-----\n")
    output.spill(final=True)
    assert (tmp_path / "out.txt").read_text().count("\n") == 5


def test_split_characters_are_joined(tmp_path: Path) -> None:
    output = Output(tmp_path / "out.txt", hide, OutputLimits(memory=4))
    for byte in "Привет ±\n".encode():
        output.feed(bytes([byte]))
        output.spill()
    output.spill(final=True)
    assert (tmp_path / "out.txt").read_text() == "Привет ±\n"


def test_new_text_repeats_an_open_line(tmp_path: Path) -> None:
    output = Output(tmp_path / "out.txt", hide, OutputLimits(), head=False)
    output.feed(b"one\nSECRET")
    assert output.new_text() == ("one\nSECRET", False)
    output.feed(b"VALUE\n")
    assert output.new_text() == ("[redacted]\n", False)
    assert output.new_text() == ("", False)


def test_new_text_says_what_was_lost(tmp_path: Path) -> None:
    output = Output(tmp_path / "out.txt", hide, OutputLimits(memory=10), head=False)
    output.feed(b"0123456789\n" * 10)
    text, lost = output.new_text()
    assert lost
    assert text.endswith("9\n")
