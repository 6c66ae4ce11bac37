"""What a provider's headers say of its limits: how many requests and tokens are left, and when all of them are back.

It reads the two families in use (`x-ratelimit-…`, `anthropic-ratelimit-…`) and draws no conclusions.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hermes.providers.retry_after import parse_duration, parse_retry_after

__all__ = ["RateReport", "read_rate_headers"]

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


def _seconds(text: str, now: float) -> float | None:
    """`6m0s`, `250ms`, plain seconds or a moment."""
    duration = parse_duration(text) if text[-1:] in ("s", "m", "h", "d") else None
    return duration if duration is not None else parse_retry_after({"retry-after": text}, "", now)
