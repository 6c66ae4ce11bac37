"""What a profile takes over from the one it was made from: model, providers and keys, and the board that all share.

Values are taken over as they are in force there, with that profile's variables put in, so that a secret of one is never
looked up under the same name in another. Opens no file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

__all__ = [
    "KEY_PREFIXES",
    "SEARCH_KEYS",
    "dropped",
    "has_model_keys",
    "has_pool",
    "is_passed_on",
    "joined",
    "passed_variables",
]

#: Settings that say whom to ask.
_TAKEN = frozenset(
    {"providers", "custom_providers", "models", "fallback_providers", "fallback_model", "credential_pool_strategies"}
)
#: Which server is asked, and with what: whoever names one of them names all, or a key would go to another server.
_SERVER = ("model.provider", "model.base_url", "model.api_key", "model.api_mode")
_FALLBACKS = ("fallback_providers", "fallback_model")
#: `<prefix>_API_KEY` and `<prefix>_BASE_URL` of `.env` are the keys of model providers.
KEY_PREFIXES = (
    "OPENROUTER", "OPENAI", "ANTHROPIC", "NOUS", "GEMINI", "GOOGLE", "VLLM", "OLLAMA", "LMSTUDIO", "LLAMACPP",
)  # fmt: skip
_MODEL_KEYS = frozenset(f"{prefix}_{end}" for prefix in KEY_PREFIXES for end in ("API_KEY", "BASE_URL"))
#: Keys of the services that search the web, and the address of one of the user's own.
SEARCH_KEYS = frozenset({"BRAVE_SEARCH_API_KEY", "TAVILY_API_KEY", "EXA_API_KEY", "SEARXNG_URL"})


def is_passed_on(key: str, *, everything: bool) -> bool:
    """Whether a setting holds in profiles that inherit. The board belongs to all, so it needs no inheritance."""
    return key.startswith("kanban.") or (everything and (key in _TAKEN or key.startswith("model.")))


def joined(theirs: Any, own: Any) -> Any:
    """An own value over an inherited one: entries by name are joined, everything else is replaced."""
    return {**theirs, **own} if isinstance(theirs, dict) and isinstance(own, dict) else own


def dropped(own: Collection[str]) -> set[str]:
    """The inherited settings that do not hold beside those the profile has itself (`own`)."""
    found: set[str] = set()
    if any(key in own for key in _SERVER):
        found.update(("model.default", *_SERVER))
    if any(key in own for key in _FALLBACKS):
        found.update(_FALLBACKS)
    return found.difference(own)


def has_pool(text: str | None) -> bool:
    """Whether the text of an `auth.json` holds a credential; what cannot be read counts as one, and is told later."""
    if text is None:
        return False
    try:
        pool = json.loads(text).get("credential_pool") or {}
        return any(pool.values())
    except (ValueError, AttributeError):
        return True


def has_model_keys(variables: Collection[str]) -> bool:
    """Whether keys of model providers are among these variables."""
    return not _MODEL_KEYS.isdisjoint(variables)


def passed_variables(theirs: Mapping[str, str], named: Collection[str], *, model_keys: bool) -> dict[str, str]:
    """Of another profile's variables what holds here: keys of searches, those that settings name (`named`), and with
    `model_keys` those of model providers. No other variable is passed on."""
    wanted = {*SEARCH_KEYS, *named, *(_MODEL_KEYS if model_keys else ())}
    return {name: value for name, value in theirs.items() if name in wanted}
