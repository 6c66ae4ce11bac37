"""What is known of well-known models beforehand: context window, largest output, prices.

A dated table by name pattern (list prices as of `REVIEWED`, US dollars per million tokens); the user's own figures win
over it, and so does a cost that the provider reports. Open-weight models have no price here: it depends on who serves
them. A name that matches nothing gets cautious defaults, never an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from hermes.core.errors import ConfigError
from hermes.core.messages import Usage
from hermes.core.model import ModelProfile

__all__ = ["REVIEWED", "cost_of", "profile_of", "with_cost"]


#: Month in which the table was last held against the providers' lists.
REVIEWED = "2025-12"


def _known(
    window: int,
    max_output: int,
    price_input: float | None = None,
    price_output: float | None = None,
    price_cached: float | None = None,
    price_cache_write: float | None = None,
    *,
    thinking: bool = False,
) -> ModelProfile:
    return ModelProfile(
        window=window,
        max_output=max_output,
        price_input=price_input,
        price_output=price_output,
        price_cached=price_cached,
        price_cache_write=price_cache_write,
        thinking=thinking,
    )


# The first pattern found in the name (lower case, dots between digits as dashes) holds.
_TABLE: tuple[tuple[str, ModelProfile], ...] = (
    (r"claude.*opus-4-([5-9])", _known(200_000, 64_000, 5.0, 25.0, 0.5, 6.25, thinking=True)),
    (r"claude.*opus", _known(200_000, 32_000, 15.0, 75.0, 1.5, 18.75, thinking=True)),
    (r"claude.*haiku-4", _known(200_000, 64_000, 1.0, 5.0, 0.1, 1.25, thinking=True)),
    (r"claude.*haiku", _known(200_000, 8_192, 0.8, 4.0, 0.08, 1.0)),
    (r"claude.*sonnet-4|claude-3-7", _known(200_000, 64_000, 3.0, 15.0, 0.3, 3.75, thinking=True)),
    (r"claude", _known(200_000, 8_192, 3.0, 15.0, 0.3, 3.75)),
    (r"gpt-5.*nano", _known(400_000, 128_000, 0.05, 0.4, 0.005, thinking=True)),
    (r"gpt-5.*mini", _known(400_000, 128_000, 0.25, 2.0, 0.025, thinking=True)),
    (r"gpt-5", _known(400_000, 128_000, 1.25, 10.0, 0.125, thinking=True)),
    (r"gpt-4-1.*nano", _known(1_047_576, 32_768, 0.1, 0.4, 0.025)),
    (r"gpt-4-1.*mini", _known(1_047_576, 32_768, 0.4, 1.6, 0.1)),
    (r"gpt-4-1", _known(1_047_576, 32_768, 2.0, 8.0, 0.5)),
    (r"gpt-4o-mini", _known(128_000, 16_384, 0.15, 0.6, 0.075)),
    (r"gpt-4o", _known(128_000, 16_384, 2.5, 10.0, 1.25)),
    (r"gpt-oss", _known(131_072, 32_768, thinking=True)),
    (r"(^|/)o[34]-mini", _known(200_000, 100_000, 1.1, 4.4, 0.275, thinking=True)),
    (r"(^|/)o3", _known(200_000, 100_000, 2.0, 8.0, 0.5, thinking=True)),
    (r"gemini-3.*pro", _known(1_048_576, 65_536, 2.0, 12.0, 0.2, thinking=True)),
    (r"gemini.*pro", _known(1_048_576, 65_536, 1.25, 10.0, 0.125, thinking=True)),
    (r"gemini.*flash-lite", _known(1_048_576, 65_536, 0.1, 0.4, 0.01, thinking=True)),
    (r"gemini.*flash", _known(1_048_576, 65_536, 0.3, 2.5, 0.03, thinking=True)),
    (r"deepseek.*(r1|reasoner)", _known(65_536, 32_768, thinking=True)),
    (r"deepseek", _known(131_072, 8_192)),
    (r"hermes-4", _known(131_072, 16_384, thinking=True)),
    (r"hermes", _known(131_072, 8_192)),
    (r"qwen.*(thinking|qwq)|qwq", _known(131_072, 32_768, thinking=True)),
    (r"qwen-?3", _known(131_072, 32_768, thinking=True)),
    (r"qwen", _known(32_768, 8_192)),
    (r"kimi", _known(262_144, 32_768, thinking=True)),
    (r"glm-4", _known(131_072, 32_768, thinking=True)),
    (r"llama-?4", _known(1_048_576, 16_384)),
    (r"llama-?3-?[123]", _known(131_072, 8_192)),
    (r"llama", _known(8_192, 4_096)),
    (r"mistral|mixtral|magistral|devstral", _known(131_072, 16_384)),
    (r"smollm", _known(8_192, 1_024)),
)

#: Names of models that look at pictures, and of those that do not; of all others it is not known.
_SEEING = re.compile(
    r"claude-(?!2|instant)|gpt-(?:4o|4-1|4-turbo|5)|chatgpt-4o|\bo[134](?!-mini)|o4-mini|gemini|gemma-?3|pixtral|llava|"
    r"qwen.*[-_]vl|llama-?4|llama-?3-2.*vision|grok-4|internvl|minicpm-v|kimi-vl|glm-4-[15]v|mistral-(?:medium|small)-3|"
    r"vision|multimodal"
)
_BLIND = re.compile(r"gpt-3-5|gpt-oss|o[13]-mini|deepseek|claude-(?:2|instant)|qwen3-coder|kimi-k2|codestral|devstral")
_DEFAULT = ModelProfile()
_FIELDS = frozenset(ModelProfile.__struct_fields__)


def profile_of(name: str, overrides: Mapping[str, Any] | None = None) -> ModelProfile:
    """Return what is known of the model `name`; `overrides` are fields of `ModelProfile` that win.

    Raises:
        ConfigError: an override that is no field of a profile, or has the wrong type.
    """
    wanted = re.sub(r"(?<=\d)\.(?=\d)", "-", name.lower())
    profile = next((known for pattern, known in _TABLE if re.search(pattern, wanted)), _DEFAULT)
    sees = True if _SEEING.search(wanted) else False if _BLIND.search(wanted) else None
    profile = msgspec.structs.replace(profile, images=sees)
    if not overrides:
        return profile
    unknown = sorted(set(overrides) - _FIELDS)
    if unknown:
        raise ConfigError(
            f"model {name}: unknown setting {unknown[0]!r}; known are {', '.join(ModelProfile.__struct_fields__)}"
        )
    try:
        return msgspec.convert({**msgspec.to_builtins(profile), **overrides}, ModelProfile)
    except msgspec.ValidationError as error:
        raise ConfigError(f"model {name}: {error}") from None


def cost_of(profile: ModelProfile, usage: Usage) -> float | None:
    """Return what `usage` costs in US dollars by the prices of `profile`, None where they are unknown."""
    if profile.price_input is None or profile.price_output is None:
        return None
    cached_price = profile.price_input if profile.price_cached is None else profile.price_cached
    write_price = profile.price_input if profile.price_cache_write is None else profile.price_cache_write
    fresh = max(0, usage.input - usage.cached - usage.cache_write)
    prompt = fresh * profile.price_input + usage.cached * cached_price + usage.cache_write * write_price
    return (prompt + usage.output * profile.price_output) / 1e6


def with_cost(profile: ModelProfile, usage: Usage) -> Usage:
    """Return `usage` with its cost by `profile`, unless the provider named one."""
    if usage.cost_usd is not None or profile.price_input is None:
        return usage
    return msgspec.structs.replace(usage, cost_usd=cost_of(profile, usage))
