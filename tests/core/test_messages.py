"""Pieces of what an entry says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hermes.core.messages import opening


@given(st.text(alphabet="ab \n\t\u00a0é", max_size=200), st.integers(1, 8))
def test_a_text_opens_with_its_words_on_one_line(text: str, most: int) -> None:
    assert opening(text, most) == " ".join(text.split())[:most]


def test_only_the_beginning_of_a_long_text_is_gone_through() -> None:
    class Counted(str):
        def split(self, *args: object, **kwargs: object) -> list[str]:  # type: ignore[override]
            raise AssertionError("the whole text is taken apart")

    assert opening(Counted("many words " * 1_000), 40) == ("many words " * 4)[:40]
