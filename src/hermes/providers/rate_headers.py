"""What a provider says of its limits: how many requests and tokens are left, and when all of them are back.

It reads the two families of headers in use (`x-ratelimit-…`, `anthropic-ratelimit-…`) and the sentences with which
refusals name a limit where there are no headers, and draws no conclusions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from hermes.providers.retry_after import parse_duration, parse_retry_after

__all__ = ["RateReport", "names_tokens", "read_rate_headers", "read_rate_text"]

_PER = {"sec": 1.0, "min": 60.0, "hou": 3_600.0, "day": 86_400.0}
_NUMBER = r"(\d(?:[\d,_]*\d)?(?:\.\d+)?)"
#: `tokens per min (TPM): Limit 30000, Used 28500, Requested 2500`
_LIMIT_USED = re.compile(
    rf"(requests?|tokens?) per (sec|min|hou|day)\w*[^.:]*:\s*"
    rf"limit:?\s*{_NUMBER}(?:,\s*(?:used|current):?\s*{_NUMBER})?",
    re.IGNORECASE,
)
#: `rate limit of 40,000 input tokens per minute`
_LIMIT_OF = re.compile(
    rf"limit of {_NUMBER} (?:\w+ )?(requests?|tokens?) per (sec|min|hou|day)",
    re.IGNORECASE,
)
_TOKENS = re.compile(
    r"\btokens? per (?:sec|min|hou|day)|\b(?:TPM|TPD|ITPM|OTPM)\b|token (?:rate )?limit|too many tokens", re.I
)

_KINDS = ("requests", "tokens")
_NAMES = {
    kind: (
        tuple(f"x-ratelimit-{what}-{kind}" for what in ("limit", "remaining", "reset")),
        tuple(f"anthropic-ratelimit-{kind}-{what}" for what in ("limit", "remaining", "reset")),
    )
    for kind in _KINDS
}


class RateReport(msgspec.Struct, frozen=True, gc=False):
    """Of `limit` requests or tokens (`kind`) `remaining` are left; all of them are back in `reset` seconds."""

    kind: str
    limit: float
    remaining: float
    reset: float


def read_rate_headers(headers: Mapping[str, str], now: float) -> tuple[RateReport, ...]:
    """Return what `headers` (any case-insensitive mapping) say; empty for most servers. `now`: seconds since the epoch.

    A report that lacks a part, or has one that is no number, is left out.
    """
    found = []
    for kind in _KINDS:
        for limit, remaining, reset in _NAMES[kind]:
            if (most := headers.get(limit)) is None:
                continue
            seconds = _seconds(headers.get(reset, ""), now)
            try:
                report = RateReport(kind, float(most), float(headers.get(remaining, "")), seconds or 0.0)
            except ValueError:
                continue
            if seconds is not None:
                found.append(report)
            break
    return tuple(found)


def read_rate_text(text: str) -> RateReport | None:
    """Return the limit that the words of a refusal name; None for most. At a refusal nothing is left, unless the words
    say how much is used."""
    if (found := _LIMIT_USED.search(text)) is not None:
        kind, per, limit, used = found[1], found[2], _number(found[3]), _number(found[4] or found[3])
    elif (found := _LIMIT_OF.search(text)) is not None:
        kind, per, limit, used = found[2], found[3], _number(found[1]), _number(found[1])
    else:
        return None
    seconds = _PER[per.lower()]
    if limit <= 0 or used <= 0:
        return None
    return RateReport(kind.lower().rstrip("s") + "s", limit, max(0.0, limit - used), seconds * min(1.0, used / limit))


def names_tokens(text: str) -> bool:
    """Whether the words of a refusal say that it was the number of tokens that was too much."""
    return _TOKENS.search(text) is not None


def _number(text: str) -> float:
    return float(text.replace(",", "").replace("_", ""))


def _seconds(text: str, now: float) -> float | None:
    """`6m0s`, `250ms`, plain seconds or a moment."""
    duration = parse_duration(text) if text[-1:] in ("s", "m", "h", "d") else None
    return duration if duration is not None else parse_retry_after({"retry-after": text}, "", now)
