from __future__ import annotations

import pytest

from hermes.batch.distribution import DISTRIBUTIONS, choose, distribution
from hermes.batch.identity import row_hash
from hermes.batch.plan import compare
from hermes.batch.rowtable import RowTable
from hermes.core.errors import UsageError


def rows(letters: str) -> RowTable:
    return RowTable.of(bytearray(b"".join(letter.encode() * 16 for letter in letters)))


def test_the_order_of_keys_makes_no_difference_and_equal_rows_get_ordinals() -> None:
    same = [row_hash({"prompt": "a", "cwd": "/"}), row_hash({"cwd": "/", "prompt": "a"})]
    assert same[0] == same[1] != row_hash({"prompt": "a"})
    table = RowTable.of(bytearray(bytes.fromhex("".join(same))))
    assert [table.row_id(position) for position in range(2)] == [f"{same[0]}:0", f"{same[0]}:1"]


@pytest.mark.parametrize(
    ("new", "added", "removed", "moved"),
    [("abc", 0, 0, 0), ("xabc", 1, 0, 0), ("bc", 0, 1, 0), ("acb", 0, 0, 2), ("xcb", 1, 1, 2)],
)
def test_changes_are_counted(new: str, added: int, removed: int, moved: int) -> None:
    known = rows("abc")
    changes = compare(known, known.positions_in(rows(new)))
    assert (changes.added, changes.removed, changes.moved) == (added, removed, moved)
    assert bool(changes) == (new != "abc")


def test_a_row_draws_the_same_toolsets_again_and_never_none() -> None:
    table = distribution("balanced", {"terminal", "file", "web"})
    draws = {table.draw(f"row{number}") for number in range(200)}
    assert table.draw("row1") == table.draw("row1")
    assert len(draws) == 7 and () not in draws


def test_shares_are_roughly_kept() -> None:
    table = distribution("terminal_tasks", {"browser", "vision"})
    browser = sum("browser" in table.draw(f"row{number}") for number in range(2000))
    assert 0.72 < browser / 2000 < 0.95


def test_missing_toolsets_are_named() -> None:
    table = distribution("default", {"terminal", "file"})
    assert table.draw("x") == ("terminal", "file")
    assert table.missing == ("web", "vision", "image_gen", "moa", "browser")
    assert choose(("file", "web"), table, "x", {"terminal", "file"}).missing == ("web",)
    with pytest.raises(UsageError, match="browser_only"):
        distribution("browser_only", {"terminal"})
    with pytest.raises(UsageError, match="unknown distribution 'x'"):
        distribution("x", {"terminal"})


def test_the_table_is_whole() -> None:
    assert len(DISTRIBUTIONS) == 17
    assert DISTRIBUTIONS["default"]["terminal"] == 100
