"""How much a model should think: one list of words for every wire format, and the words of each format for them.

An endpoint that does not know what is sent here refuses the request; nothing is quietly left out.
"""

from __future__ import annotations

import re

from hermes.providers.classify import Origin, error_of

__all__ = ["EFFORTS", "THINKING_TOKENS", "adaptive_effort", "checked_effort", "openai_effort", "thinking_tokens"]

#: Every word, from none to the most.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")

#: Tokens of thinking where a format counts them instead of naming a level.
THINKING_TOKENS = {
    "minimal": 1_024,
    "low": 4_096,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 32_000,
    "max": 48_000,
    "ultra": 63_000,
}
#: Speaks Chat Completions and knows no word above `high`.
GOOGLE_HOST = "generativelanguage.googleapis.com"
#: Fewer are refused by the format that counts them.
_LEAST_TOKENS = 1_024

_ADAPTIVE = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "max": "max", "ultra": "max"}


def checked_effort(effort: str | None, origin: Origin) -> str:
    """Return the word, empty where none was given.

    Raises:
        ModelError: it is none of `EFFORTS`.
    """
    if not effort or effort in EFFORTS:
        return effort or ""
    raise error_of(
        origin,
        "format_error",
        f"unknown reasoning effort {effort!r}",
        permanent=True,
        advice=f"There are {', '.join(EFFORTS)}.",
    )


def openai_effort(effort: str, host: str = "") -> str:
    """The word that OpenAI's formats have for it at `host`; what is above their highest becomes the highest."""
    if effort in ("xhigh", "max", "ultra"):
        return "high" if host == GOOGLE_HOST else "xhigh"
    return effort


def thinking_tokens(effort: str, max_tokens: int) -> int:
    """Tokens of thinking within a reply of `max_tokens`, a quarter of which stays for the answer; 0: no room."""
    most = min(THINKING_TOKENS.get(effort, 0), max_tokens * 3 // 4)
    return most if most >= _LEAST_TOKENS else 0


def adaptive_effort(effort: str, model: str) -> str:
    """The level of models that decide themselves how long they think; only later ones than 4.6 know `xhigh`."""
    if effort == "xhigh":
        return "high" if re.search(r"4[.-]6", model) else "xhigh"
    return _ADAPTIVE[effort]
