"""The settings of the board; `hermes.config.schema` holds them among all others. Opens nothing."""

from __future__ import annotations

import os
from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["KanbanSettings"]


class KanbanSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The board of cards, and what its workers may use together."""

    database_url: Annotated[
        str,
        Meta(
            description="`postgresql://USER:PASSWORD@HOST/DATABASE` for boards that several hosts share; better as "
            "`${NAME}`. Empty: a file of this home."
        ),
    ] = ""
    board: Annotated[
        str, Meta(description="Board of this profile where none is named; empty: the current one of the home.")
    ] = ""
    max_in_progress: Annotated[
        int | None,
        Meta(description="Workers at once; null: by memory and processors, from 2 to 8.", ge=1),
    ] = None
    max_in_progress_per_profile: Annotated[
        int | None, Meta(description="Workers of one profile at once; null: no limit of its own.", ge=1)
    ] = None
    dispatch_interval_seconds: Annotated[
        float, Meta(description="Seconds between two passes over a board on which nothing happens.", gt=0)
    ] = 60.0
    dispatch_in_session: Annotated[
        bool, Meta(description="Serve the board from a conversation that has it turned on, while it is open.")
    ] = True
    failure_limit: Annotated[
        int, Meta(description="Failures in a row after which a card waits for a person.", ge=1)
    ] = 2
    dispatch_stale_timeout_seconds: Annotated[
        float,
        Meta(description="Seconds of a run after which an hour without a sign of life ends it; 0: never.", ge=0),
    ] = 14_400.0
    default_assignee: Annotated[str, Meta(description="Profile that gets cards nobody is named for; empty: none.")] = ""
    orchestrator_profile: Annotated[
        str, Meta(description="Profile that splits goals into cards; empty: the one that asks.")
    ] = ""
    auto_decompose: Annotated[
        bool, Meta(description="Let a model plan cards in triage by itself while the board is served.")
    ] = True
    auto_decompose_per_tick: Annotated[
        int, Meta(description="Cards in triage that one pass over the board begins to plan.", ge=1)
    ] = 3
    reviewer_profile: Annotated[
        str, Meta(description="Profile that judges cards which name no reviewer; empty: a person does.")
    ] = ""
    default_workdir: Annotated[
        str, Meta(description="Repository of worktree cards that name none, where the board says nothing.")
    ] = ""
    worker_log_rotate_bytes: Annotated[
        int, Meta(description="Bytes of a card's log after which it is put aside; one old log is kept.", ge=4096)
    ] = 2_097_152
    keep_days: Annotated[
        float,
        Meta(description="Days that events and logs of ended cards are kept; 0: for ever. Cards stay.", ge=0),
    ] = 30.0
    card_usd: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="US dollars that one card may take in all its attempts; 0 and null: no limit."),
    ] = 5.0
    day_usd: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="US dollars that all cards of a board may take in a day (UTC); 0 and null: no limit."),
    ] = 25.0
    card_tokens: Annotated[
        Annotated[int, Meta(ge=0)] | None, Meta(description="Tokens of one card; 0 and null: no limit.")
    ] = 5_000_000
    day_tokens: Annotated[
        Annotated[int, Meta(ge=0)] | None, Meta(description="Tokens of a board in a day; 0 and null: no limit.")
    ] = 25_000_000

    @property
    def workers_at_once(self) -> int:
        """Workers at once: as configured, else one for each 512 MiB and at most two for each processor, from 2 to 8."""
        if self.max_in_progress is not None:
            return self.max_in_progress
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (512 * 1024 * 1024)
        return max(2, min(8, memory, 2 * (os.cpu_count() or 1)))

    @property
    def limits(self) -> str:
        """The limits in force, as a sentence for a person."""
        money = [f"${value:g} {what}" for value, what in ((self.card_usd, "a card"), (self.day_usd, "a day")) if value]
        tokens = [
            f"{value:,} tokens {what}"
            for value, what in ((self.card_tokens, "a card"), (self.day_tokens, "a day"))
            if value
        ]
        spending = ", ".join([*money, *tokens]) or "no limit on money or tokens"
        return f"at most {self.workers_at_once} workers at once, {spending}"
