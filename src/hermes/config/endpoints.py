"""The settings of servers and models by name; `hermes.config.schema` holds them among all others. Asks nobody."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

__all__ = ["EFFORTS", "Effort", "FallbackSettings", "ModelOverride", "ProviderSettings", "RouteSettings"]

Effort = Literal["", "none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"]
#: The words themselves.
EFFORTS: tuple[str, ...] = tuple(word for word in get_args(Effort) if word)
ApiMode = Literal["", "chat_completions", "anthropic_messages", "codex_responses"]


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint of the user's own."""

    name: str = ""
    base_url: str = ""
    api_key: str = ""
    key_env: str = ""
    model: str = ""
    api_mode: ApiMode = ""


class ModelOverride(msgspec.Struct, frozen=True, kw_only=True):
    """What the user knows better of one model. Prices are US dollars for a million tokens."""

    context_length: int | None = None
    max_output: int | None = None
    price_input: float | None = None
    price_output: float | None = None
    price_cached: float | None = None
    price_cache_write: float | None = None
    thinking: bool | None = None
    images: bool | None = None
    tool_calling: Literal["", "native", "schema"] = ""
    api_mode: ApiMode = ""


class RouteSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model that children may be given by name. `api_key` goes to the host of `base_url` or `provider` alone."""

    model: str = ""
    provider: str = ""
    base_url: str = ""
    api_key: str = ""
    reasoning_effort: Effort = ""
    request_overrides: dict[str, Any] = {}
    api_mode: ApiMode = ""
    description: str = ""


class FallbackSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A model that answers where the configured one cannot. `key_env` names the variable of its key."""

    provider: str = ""
    model: str = ""
    base_url: str = ""
    key_env: str = ""
    context_length: int | None = None
