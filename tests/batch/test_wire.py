"""Lines between a run and its processes, whatever pieces a pipe makes of them."""

from __future__ import annotations

import pytest

from hermes.batch.wire import Lines

WHOLE = b"one\n\nthree and more\n" + b"x" * 1000 + b"\nno end"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_lines_come_out_whole_however_they_are_cut(size: int) -> None:
    lines = Lines()
    found = [line for start in range(0, len(WHOLE), size) for line in lines.feed(WHOLE[start : start + size])]
    assert found == [b"one", b"", b"three and more", b"x" * 1000]
    assert lines.feed(b" yet\n") == [b"no end yet"]
