"""Every mark of a fault has a row in the table, and every row a test that carries the mark or a reason why not."""

from __future__ import annotations

from tests.faults import TABLE, Row, marks, missing, render, rows


def test_marks_and_table_agree() -> None:
    assert missing(marks(), rows(TABLE.read_text(encoding="utf-8"))) == [], "run: python -m tests.faults --write"


def test_what_does_not_agree_is_named() -> None:
    found = {"B001": ["tests/a.py::test_one"], "B002": ["tests/a.py::test_two"], "B003": ["tests/a.py::test_three"]}
    table = {
        "B001": Row("first", ("tests/a.py::test_one", "tests/a.py::test_gone")),
        "B003": Row("third", reason="the board"),
        "B004": Row("fourth"),
    }
    assert missing(found, table) == [
        "B001: tests/a.py::test_gone carries no such mark",
        "B002: marked in tests/a.py::test_two, but it has no row",
        "B003: stands under Later, but tests/a.py::test_three holds it",
        "B004: neither a test nor a reason",
    ]


def test_the_table_is_made_anew_with_its_words() -> None:
    text = (
        "# Faults\n\n| id | fault | held by |\n|---|---|---|\n| B002 | second | `tests/a.py::test_gone` |\n\n"
        "## Later\n\nWhy.\n\n| id | fault | waits for |\n|---|---|---|\n| B001 | first | the board |\n"
    )
    made = render(text, {"B001": ["tests/a.py::test_one"]})
    assert rows(made) == {
        "B001": Row("first", ("tests/a.py::test_one",)),
        "B002": Row("second", reason="nothing holds it yet"),
    }
    assert made.startswith("# Faults\n") and "## Later\n\nWhy.\n" in made
    assert render(made, {"B001": ["tests/a.py::test_one"]}) == made
