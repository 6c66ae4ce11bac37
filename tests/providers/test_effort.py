"""One list of words for how much to think, in the words of each server."""

from __future__ import annotations

from typing import get_args

import pytest

from hermes.config.endpoints import Effort
from hermes.providers.effort import EFFORTS, GOOGLE_HOST, adaptive_effort, openai_effort, thinking_tokens


def test_settings_and_providers_know_the_same_words() -> None:
    assert set(EFFORTS) == set(get_args(Effort)) - {""}


@pytest.mark.parametrize(
    ("effort", "openai", "google", "adaptive"),
    [
        ("none", "none", "none", None),
        ("minimal", "minimal", "minimal", "low"),
        ("high", "high", "high", "high"),
        ("xhigh", "xhigh", "high", "xhigh"),
        ("max", "xhigh", "high", "max"),
        ("ultra", "xhigh", "high", "max"),
    ],
)
def test_what_is_above_the_highest_becomes_the_highest(
    effort: str, openai: str, google: str, adaptive: str | None
) -> None:
    assert (openai_effort(effort), openai_effort(effort, GOOGLE_HOST)) == (openai, google)
    if adaptive is not None:
        assert adaptive_effort(effort, "claude-opus-4-7") == adaptive


def test_more_effort_never_thinks_less() -> None:
    tokens = [thinking_tokens(effort, 200_000) for effort in EFFORTS]
    assert tokens == sorted(tokens) and tokens[0] == 0 and len(set(tokens)) == len(EFFORTS)
