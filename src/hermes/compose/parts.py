"""What a runtime is opened with, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from hermes.config import Home, Loaded, Settings
from hermes.core.clock import NO_HOLD, Clock, Hold, SystemClock
from hermes.core.model import Model
from hermes.credentials import Endpoint, Key
from hermes.credentials.redact import Redactor
from hermes.delegation.toolset import Delegation
from hermes.kanban.seat import Seat
from hermes.runtime.cassette import Cassette
from hermes.runtime.recovery import Recovery
from hermes.runtime.runtime import Runtime
from hermes.runtime.spec import ModelChoice
from hermes.runtime.standstill import awake_clock
from hermes.runtime.taping import Tape
from hermes.runtime.workspaces import Workspaces
from hermes.store.ops import Store

__all__ = ["Assembly", "Parts"]


def _as_it_is(store: Store) -> Store:
    return store


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime is opened with. `model` replaces every model (for tests and simulations); `journal` is where the
    database stands (None: `<home>/runtime.db`), `memory` keeps nothing on disk; with `traceless` not even memory holds
    what has ended, for runs of any length whose record is elsewhere. `secrets` are replaced wherever something is
    written. `observed` says that a person follows the run: live transcripts are written, the configured
    notifications sent, and old sessions removed once a day. `seat` is a worker's place at its card (None: by
    the variables of the environment). `wrap_store` puts something between runtime and journal
    (a test's store that fails). The `watchdog` finds what blocks the loop, and by `awake`, a clock that goes on while
    the machine sleeps, that nothing ran at all. `record` is the file to which every reply and result is kept, `replay`
    is the cassette from which all of them come."""

    loaded: Loaded
    endpoint: Endpoint
    keys: tuple[Key, ...] = ()
    secrets: tuple[str, ...] = ()
    record: Path | None = None
    replay: Cassette | None = None
    variables: Mapping[str, str] = {}
    environ: Mapping[str, str] = {}
    yolo: bool = False
    model: Model | None = None
    journal: Path | None = None
    memory: bool = False
    traceless: bool = False
    observed: bool = False
    state_root: Path | None = None
    wrap_store: Callable[[Store], Store] = _as_it_is
    watchdog: bool = True
    awake: Callable[[], float] = awake_clock
    seat: Seat | None = None
    clock: Clock = SystemClock()
    hold: Hold = NO_HOLD


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """An open runtime with what faces need beside it. `check` raises for a model that cannot be had;
    `workspaces` makes workspaces of tasks' own; `tape` is what records or replays;
    `persona` is who the profile's agent is."""

    runtime: Runtime
    settings: Settings
    endpoint: Endpoint
    home: Home
    redactor: Redactor
    model: Model
    delegation: Delegation
    recovery: Recovery
    check: Callable[[ModelChoice], None]
    workspaces: Workspaces
    tape: Tape | None = None
    persona: str = ""
