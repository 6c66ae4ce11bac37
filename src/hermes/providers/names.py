"""Model names as people write them: which of them mean the same model, and what else a name may be spelled as.

`claude-sonnet-4-6`, `claude-sonnet-4.6` and `anthropic/claude-sonnet-4-6` are one model. A name is sent as it was
written; the other spellings matter only after an endpoint refused it. Dated names stay different from undated ones.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

__all__ = ["matching", "nearest", "same_model", "spellings"]

_BETWEEN_DIGITS = re.compile(r"(?<=\d)[._-](?=\d)")
# A version such as 4-6, not a part of a date such as 2024-08-06.
_DASHED_VERSION = re.compile(r"(?<!\d)(?<!\d-)(\d{1,2})-(\d{1,2})(?!\d)")
_DOTTED_VERSION = re.compile(r"(?<=\d)\.(?=\d)")


def _split(name: str) -> tuple[str, str]:
    """Return (vendor, model): the part before the last slash, and the rest without a `:latest`."""
    vendor, _, model = name.strip().lower().rpartition("/")
    return vendor.rpartition("/")[2], _BETWEEN_DIGITS.sub("-", model.removesuffix(":latest"))


def same_model(a: str, b: str) -> bool:
    """Whether two names mean one model: case, `4-6` against `4.6` and a missing vendor make no difference."""
    (vendor_a, model_a), (vendor_b, model_b) = _split(a), _split(b)
    return model_a == model_b and (vendor_a == vendor_b or not vendor_a or not vendor_b)


def spellings(name: str) -> tuple[str, ...]:
    """Return the other ways to write `name` that need no catalogue: dots and dashes, and without its vendor."""
    bare = name.rpartition("/")[2]
    found: list[str] = []
    for form in (name, bare):
        found += [form, _DASHED_VERSION.sub(r"\1.\2", form), _DOTTED_VERSION.sub("-", form)]
    return tuple(form for form in dict.fromkeys(found) if form and form != name)


def matching(name: str, catalogue: Iterable[str]) -> tuple[str, ...]:
    """Return the names of `catalogue` that mean the same model as `name`, without `name` itself."""
    return tuple(known for known in catalogue if known != name and same_model(name, known))


def nearest(name: str, catalogue: Sequence[str], count: int = 3) -> tuple[str, ...]:
    """Return the `count` names of `catalogue` closest to `name`, best first."""
    wanted = _split(name)[1]

    def distance(known: str) -> float:
        return difflib.SequenceMatcher(None, wanted, _split(known)[1]).ratio()

    return tuple(sorted(dict.fromkeys(catalogue), key=distance, reverse=True)[:count])
