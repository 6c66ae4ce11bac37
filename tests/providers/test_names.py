"""Spellings of model names, and what is known of models."""

from __future__ import annotations

import pytest

from hermes.core.errors import ConfigError
from hermes.core.messages import Usage
from hermes.core.model import ModelProfile
from hermes.providers.names import matching, nearest, same_model, spellings
from hermes.providers.profiles import cost_of, profile_of, with_cost


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("claude-sonnet-4-6", "claude-sonnet-4.6", True),
        ("anthropic/claude-sonnet-4-6", "Claude-Sonnet-4.6", True),
        ("openrouter/anthropic/claude-sonnet-4.6", "anthropic/claude-sonnet-4-6", True),
        ("qwen3", "qwen3:latest", True),
        ("a/m-1", "b/m-1", False),
        ("claude-sonnet-4", "claude-sonnet-4-6", False),
        ("gpt-4o", "gpt-4o-2024-08-06", False),
        ("llama-3.1", "llama-31", False),
    ],
)
def test_same_model(a: str, b: str, same: bool) -> None:
    assert same_model(a, b) is same and same_model(b, a) is same


def test_spellings() -> None:
    assert spellings("anthropic/claude-sonnet-4-6") == (
        "anthropic/claude-sonnet-4.6",
        "claude-sonnet-4-6",
        "claude-sonnet-4.6",
    )
    assert spellings("claude-sonnet-4.6") == ("claude-sonnet-4-6",)
    assert spellings("gpt-4o-2024-08-06") == ()
    assert all(same_model("v/m-1-2-20250101", form) for form in spellings("v/m-1-2-20250101"))


def test_matching_and_nearest() -> None:
    offered = ("gpt-5", "anthropic/claude-sonnet-4.6", "claude-sonnet-4-5", "claude-sonnet-4-6")
    assert matching("claude-sonnet-4-6", offered) == ("anthropic/claude-sonnet-4.6",)
    assert nearest("claude-sonet-4.6", offered)[:2] == ("anthropic/claude-sonnet-4.6", "claude-sonnet-4-6")
    assert nearest("x", ()) == ()


def test_profiles() -> None:
    assert profile_of("anthropic/claude-opus-4.6").price_input == 5.0
    assert profile_of("claude-sonnet-4-6").window == 200_000
    assert profile_of("NousResearch/Hermes-4-405B").price_input is None
    assert profile_of("nobody-knows") == ModelProfile()
    assert profile_of("gpt-5-mini", {"window": 5, "price_input": 1}).price_input == 1.0


@pytest.mark.parametrize("overrides", [{"windo": 5}, {"window": "large"}])
def test_an_override_that_is_none(overrides: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"gpt-5.*(windo|int)"):
        profile_of("gpt-5", overrides)


def test_cost() -> None:
    profile = ModelProfile(price_input=1.0, price_output=2.0)
    assert cost_of(profile, Usage(input=1_000_000, cached=500_000, output=500_000)) == pytest.approx(2.0)
    assert cost_of(ModelProfile(), Usage(input=1)) is None
    assert with_cost(profile, Usage(input=1_000_000, cost_usd=9.0)).cost_usd == 9.0
