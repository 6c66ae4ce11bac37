"""One tiny request, to see whether a model answers: shared by `hermes model test`, `setup` and `doctor`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import anyio

from hermes.core.errors import ModelError
from hermes.core.messages import Text, User
from hermes.core.model import ModelRequest
from hermes.credentials import Endpoint, is_embedded
from hermes.providers.catalog import Catalog
from hermes.providers.endpoint import Endpoint as Address
from hermes.providers.endpoint import api_mode_of

__all__ = ["address_of", "try_model", "with_catalog"]

_Value = TypeVar("_Value")

#: Seconds that the request may take.
PATIENCE = 60.0


def address_of(endpoint: Endpoint) -> Address:
    """An endpoint as the catalogue takes it."""
    return Address(base_url=endpoint.base_url, api_key=endpoint.api_key, api_mode=endpoint.api_mode)


async def with_catalog(overrides: Mapping[str, Any], work: Callable[[Catalog], Awaitable[_Value]]) -> _Value:
    """Do `work` with a catalogue that asks once, and close it."""
    catalog = Catalog(overrides, attempts=1)
    try:
        return await work(catalog)
    finally:
        with anyio.CancelScope(shield=True):
            await catalog.close()


def try_model(endpoint: Endpoint, overrides: Mapping[str, Any]) -> str:
    """Make one tiny request; returns what came of it in one line. `overrides` are those of the settings.

    Raises:
        ModelError: it was refused, or nothing answered; the text says what is wrong and what to do.
    """
    return anyio.run(with_catalog, overrides, lambda catalog: _tried(catalog, endpoint))


async def _tried(catalog: Catalog, endpoint: Endpoint) -> str:
    address = address_of(endpoint)
    asked = catalog.model(endpoint.model, address)
    request = ModelRequest(
        system="You are brief.", entries=(User(content=(Text("Answer with the word ok."),)),), max_tokens=64
    )
    began = time.monotonic()
    tokens = 0
    try:
        with anyio.fail_after(PATIENCE):
            async with asked.stream(request) as deltas:
                async for delta in deltas:
                    usage = getattr(delta, "usage", None)
                    tokens = usage.total if usage is not None else tokens
    except TimeoutError:
        raise ModelError(
            f"{address.host} did not answer within {PATIENCE:g} s. Check the address.", reason="timeout"
        ) from None
    where = "this machine" if is_embedded(endpoint.model) else f"{address.host} ({api_mode_of(address)})"
    counted = f", {tokens} tokens" if tokens else ""
    return f"{asked.name} answers at {where} after {time.monotonic() - began:.1f} s{counted}"
