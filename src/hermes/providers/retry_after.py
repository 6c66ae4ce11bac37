"""How long a provider asks to wait: headers, bodies and sentences → seconds.

Reads what is there and guesses nothing; caps and back-off belong to whoever waits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

__all__ = ["parse_duration", "parse_retry_after"]

_DURATION_PART = re.compile(
    r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|d(?:ays?)?|h(?:(?:ou)?rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)"
)
_SECONDS = {"ms": 0.001, "mi": 0.001, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_SENTENCE = re.compile(
    r"(?:try again|retry|resets?|available again)\s*(?:in|after)\s*(?:about\s*)?"
    r"((?:\d+(?:\.\d+)?\s*(?:milliseconds?|ms|days?|hours?|hrs?|minutes?|mins?|seconds?|secs?|[dhms])[\s,and]*)+)",
    re.IGNORECASE,
)
_FIELD = re.compile(
    r'"(?:retryDelay|quotaResetDelay|retry_after|retry_after_seconds)"\s*:\s*"?(\d+(?:\.\d+)?)\s*(ms|s|m|h)?'
)
_RESET_AT = re.compile(r'"(?:resets_at|reset_at|quotaResetTimeStamp|X-RateLimit-Reset)"\s*:\s*"?([0-9T:.Z+-]+)')

_ANTHROPIC = "anthropic-ratelimit"
#: (what is left, when it begins anew) of each limit that providers report beside their answers.
_LIMITS = (
    *((f"x-ratelimit-remaining-{kind}", f"x-ratelimit-reset-{kind}") for kind in ("requests", "tokens")),
    *(
        (f"{_ANTHROPIC}-{kind}-remaining", f"{_ANTHROPIC}-{kind}-reset")
        for kind in ("requests", "tokens", "input-tokens", "output-tokens")
    ),
)


def parse_duration(text: str) -> float | None:
    """Return the seconds of `4hr 5min`, `6m0s`, `250ms` or `20 seconds`; None for what is none."""
    total, found = 0.0, False
    for number, unit in _DURATION_PART.findall(text.lower()):
        key = "ms" if unit.startswith(("ms", "milli")) else unit[0]
        total += float(number) * _SECONDS[key]
        found = True
    return total if found else None


def _moment(text: str, now: float) -> float | None:
    """Seconds from `now` to a moment: epoch seconds or milliseconds, an ISO date or an HTTP date."""
    value = text.strip()
    try:
        number = float(value)
    except ValueError:
        number = None
    if number is not None:
        if number > 1e11:
            number /= 1_000
        return max(0.0, number - now) if number > 1e9 else max(0.0, number)
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            at = parse(value)
        except (ValueError, TypeError):
            continue
        return max(0.0, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now)
    return None


def _exhausted(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds until the last of the limits that have nothing left begins anew, where the headers say so."""
    waits: list[float] = []
    for remaining, reset in _LIMITS:
        if headers.get(remaining, "").strip() != "0":
            continue
        given = headers.get(reset, "")
        wait = _moment(given, now)
        wait = parse_duration(given) if wait is None else wait
        if wait is not None:
            waits.append(wait)
    return max(waits) if waits else None


def parse_retry_after(headers: Mapping[str, str], text: str, now: float) -> float | None:
    """Return the seconds to wait by `headers` (lower-case names or a case-insensitive mapping) or the body's `text`.

    `now` is seconds since the epoch. None where nothing is said.
    """
    milliseconds = headers.get("retry-after-ms", "")
    if milliseconds.strip().isdigit():
        return float(milliseconds) / 1_000
    if (given := headers.get("retry-after")) is not None and (seconds := _moment(given, now)) is not None:
        return seconds
    if (reset := _exhausted(headers, now)) is not None:
        return reset
    if (field := _FIELD.search(text)) is not None:
        return float(field[1]) * _SECONDS[field[2] or "s"]
    if (sentence := _SENTENCE.search(text)) is not None:
        return parse_duration(sentence[1])
    if (moment := _RESET_AT.search(text)) is not None:
        return _moment(moment[1], now)
    return None
