"""What a command opens a runtime with, from settings, keys and flags. Opens nothing itself."""

from __future__ import annotations

import os

from hermes.cli.options import Sources
from hermes.compose import Parts
from hermes.compose.children import levels_above
from hermes.compose.taping import cassettes, replay_endpoint
from hermes.credentials import Endpoint

__all__ = ["parts_of", "parts_without_model"]


def parts_of(sources: Sources, record: str = "", replay: str = "") -> Parts:
    """What a runtime of the settings is opened with. `record` and `replay` are files, empty for none.

    Raises:
        HermesError: nothing is configured, or a setting cannot be used.
    """
    # before anything else is said: in a child's terminal there are no keys, which would hide the reason
    settings = sources.loaded.require()
    levels_above(settings, os.environ)
    file, cassette = cassettes(record, replay)
    if cassette is not None:
        endpoint = replay_endpoint(cassette, sources.options.model, settings.model.aliases)
    else:
        endpoint = sources.endpoint()
    return Parts(
        loaded=sources.loaded,
        endpoint=endpoint,
        record=file,
        replay=cassette,
        keys=sources.keys,
        variables=sources.variables,
        yolo=sources.options.yolo,
        observed=True,
    )


def parts_without_model(sources: Sources) -> Parts:
    """The same for what asks no model: nothing has to be configured. Raises `HermesError` for a setting that cannot
    be used."""
    sources.loaded.require()
    nothing = Endpoint(provider="", base_url="", api_key="", key_source="", model="")
    return Parts(
        loaded=sources.loaded,
        endpoint=nothing,
        keys=sources.keys,
        variables=sources.variables,
        yolo=sources.options.yolo,
    )
