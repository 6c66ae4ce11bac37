"""Which quality filters a run's merged files are made with. Values only; `filters` applies them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hermes.core.errors import UsageError
from hermes.core.names import did_you_mean

__all__ = ["DEFAULT_FILTERS", "FILTERS", "FilterSettings", "filter_settings"]

#: Every filter by its reason, with what it looks for.
FILTERS = {
    "no_reasoning": "no reply has reasoning",
    "hallucinated_tool": "a call of a tool that was not offered",
    "ambiguous_tags": "reasoning that holds a closing think tag",
    "empty": "the last reply has no text",
    "refused": "the last reply declines the task",
    "looping": "one call with the same arguments again and again",
    "too_long": "more tokens than --max_row_tokens",
    "duplicate": "the same conversation as a row before it",
}

#: Those that act when nothing is said.
DEFAULT_FILTERS = ("no_reasoning", "hallucinated_tool", "ambiguous_tags")


class FilterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The filters in force, in the order in which they are asked. `max_tokens` is the bound of `too_long`, in tokens of
    the whole rollout as the provider counted its last request and reply."""

    names: tuple[str, ...] = DEFAULT_FILTERS
    max_tokens: int = 32_768


def filter_settings(names: Iterable[str], max_tokens: int | None = None) -> FilterSettings:
    """Return settings for filters given by name; `default`, `all` and `none` are names too.

    Raises:
        UsageError: there is no such filter; those there are are named.
    """
    chosen: list[str] = []
    for name in names:
        if name == "none":
            continue
        more = DEFAULT_FILTERS if name == "default" else tuple(FILTERS) if name == "all" else (name,)
        for item in more:
            if item not in FILTERS:
                raise UsageError(
                    f"unknown filter {item!r}.{did_you_mean(item, FILTERS)} There are: "
                    f"{', '.join([*FILTERS, 'default', 'all', 'none'])}."
                )
            if item not in chosen:
                chosen.append(item)
    if max_tokens is not None and max_tokens < 1:
        raise UsageError(f"--max_row_tokens={max_tokens} cannot be used: it has to be at least 1.")
    return FilterSettings(names=tuple(chosen), max_tokens=max_tokens or FilterSettings().max_tokens)
