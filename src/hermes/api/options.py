"""How a runtime is opened from Python: options, read and checked. Reads settings and keys; starts nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from hermes.api.functions import read_functions
from hermes.compose import Parts
from hermes.compose.taping import cassettes, replay_endpoint
from hermes.config import find_home, load
from hermes.core.clock import NO_HOLD, Clock, Hold, SystemClock
from hermes.core.errors import UsageError
from hermes.core.model import Model
from hermes.credentials import Endpoint, EndpointFlags, find_endpoint, find_keys, read_auth_file

__all__ = ["Options", "parts_of", "read_options"]

OnExit = Literal["suspend", "cancel"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a runtime is opened. Empty and None mean: as configured.

    `model` is a name, or a `Model` of your own that then answers for every task. `settings` are dotted keys as in
    `config.yaml`. `memory` keeps nothing on disk. `record` is the file in which every reply and result is kept,
    `replay` one from which all of them come. `on_exit`: what leaving does to tasks that still run; a suspended one can
    be resumed. `tools` are functions of yours that every task may call. `clock` and `hold` are for simulated time.
    """

    model: str | Model = ""
    provider: str = ""
    base_url: str = ""
    api_key: str = ""
    toolsets: tuple[str, ...] | None = None
    tools: tuple[Callable[..., Any], ...] = ()
    settings: Mapping[str, Any] = {}
    workspace: str = ""
    environ: Mapping[str, str] | None = None
    memory: bool = False
    yolo: bool = False
    record: str = ""
    replay: str = ""
    on_exit: OnExit = "suspend"
    clock: Clock | None = None
    hold: Hold = NO_HOLD


def parts_of(options: Options) -> Parts:
    """Read settings and keys as the command line does. Raises UsageError, OperatorError."""
    environ = os.environ if options.environ is None else options.environ
    home = find_home(environ)
    loaded = load(home, environ, options.settings)
    settings = loaded.require()
    keys = find_keys(environ, loaded.dotenv, read_auth_file(loaded.auth_file), loaded.inherited)
    variables = {**loaded.dotenv, **environ}
    own = options.model if not isinstance(options.model, str) else None
    file, cassette = cassettes(options.record, options.replay)
    if cassette is not None:
        named = options.model if isinstance(options.model, str) else options.model.name
        endpoint = replay_endpoint(cassette, named, settings.model.aliases)
    elif isinstance(options.model, str):
        flags = EndpointFlags(
            model=options.model, provider=options.provider, base_url=options.base_url, api_key=options.api_key
        )
        endpoint = find_endpoint(settings, flags, keys, variables)
    else:
        endpoint = Endpoint(provider="own", base_url="", api_key="", key_source="none", model=options.model.name)
    return Parts(
        loaded=loaded,
        endpoint=endpoint,
        keys=keys,
        variables=variables,
        environ=environ,
        yolo=options.yolo,
        model=own,
        record=file,
        replay=cassette,
        memory=options.memory,
        watchdog=options.clock is None,
        clock=options.clock or SystemClock(),
        hold=options.hold,
    )


def read_options(given: Mapping[str, Any]) -> Options:
    """Check the options of `open`. Raises UsageError."""
    unknown = [name for name in given if name not in Options.__struct_fields__]
    if unknown:
        raise UsageError(f"unknown option {unknown[0]!r}; known: {', '.join(Options.__struct_fields__)}")
    toolsets = given.get("toolsets")
    if isinstance(toolsets, str):
        raise UsageError(f"toolsets has to be a list of names, not the string {toolsets!r}")
    if given.get("on_exit", "suspend") not in ("suspend", "cancel"):
        raise UsageError(f"on_exit is 'suspend' or 'cancel', not {given['on_exit']!r}")
    tools = tuple(given.get("tools") or ())
    read_functions(tools)
    return Options(**{**given, "toolsets": tuple(toolsets) if toolsets is not None else None, "tools": tools})
