"""Temperature, top_p and seed: what was asked for reaches the endpoint, or the request is refused by its name.

Whoever samples groups of answers would otherwise get other ones than they asked for, and never know. No default is
chosen here.
"""

from __future__ import annotations

import re

from hermes.core.errors import ModelError
from hermes.core.model import ModelRequest
from hermes.providers.classify import Origin, error_of

__all__ = ["SAMPLING", "refuse_sampling", "refused_sampling", "sampling_of"]

#: The fields of a request that say how to sample.
SAMPLING = ("temperature", "top_p", "seed")


def sampling_of(request: ModelRequest) -> dict[str, float | int]:
    """What the request says of sampling, by the names that all formats share."""
    return {name: value for name in SAMPLING if (value := getattr(request, name)) is not None}


def refused_sampling(message: str, request: ModelRequest) -> str:
    """The wish about sampling that an endpoint's refusal (lower case) names; empty for none."""
    return next((name for name in sampling_of(request) if re.search(rf"\b{name}\b", message)), "")


def refuse_sampling(origin: Origin, name: str, why: str, detail: str = "", status: int | None = None) -> ModelError:
    """The error for a wish that cannot be sent; no other request with it can succeed either."""
    return error_of(
        origin,
        "format_error",
        f"{origin.host} takes no {name} for {origin.model}: {why}",
        detail,
        status=status,
        permanent=True,
        advice=f"Leave {name} out, or choose another model.",
    )
