"""One rollout as the batch sees it: what is asked for, what comes back, and who carries it out.

The batch knows no model, no tool and no supervisor; it hands a `RolloutRequest` to an `Engine` and judges the
`RolloutResult`. This module deliberately holds no behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, Protocol

import msgspec

from hermes.batch.verifiers import Verifier
from hermes.core.messages import Entry, Usage
from hermes.core.model import ModelProfile, ToolSpec
from hermes.core.result import CheckScore
from hermes.runtime.taping import TapeShare

__all__ = [
    "ChildRecord",
    "Engine",
    "RolloutError",
    "RolloutRequest",
    "RolloutResult",
    "RolloutState",
]

RolloutState = Literal["completed", "exhausted", "timed_out", "cancelled", "failed"]


def _ignore(phase: str) -> None:
    """Report to nobody."""


class RolloutRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at one dataset row.

    `key` is the identity of the rollout, the same over all runs; `index` and `rollout` are its place in the dataset and
    among the rollouts of that row. `system` is the batch's own system text and never becomes part of a row. `workspace`
    is an absolute directory, a copy of `cwd` where the row names one; empty as long as there is none; `borrows` are
    directories that it cannot do without. `image` is that
    of the container its commands run in; a rollout that asks for one runs nowhere else. `before` are the messages of
    its conversation before `prompt`. `extra` are fields of the request body of this endpoint. `verifiers` judge the
    work before its environment goes; `row` is the whole row, for them. `timeout` is seconds of running time, None =
    none. `twin` is which of the rollouts with its prompt it is, from 1, in the order of the run; 0 where nobody needs
    to know. `report` takes a few words about what the rollout is doing ("model", "tool terminal", "quota 12 s
    openrouter") whenever it advances.
    """

    key: str
    index: int
    prompt: str
    workspace: str = ""
    cwd: str | None = None
    borrows: tuple[str, ...] = ()
    image: str = ""
    rollout: int = 0
    attempt: int = 1
    system: str = ""
    toolsets: tuple[str, ...] = ()
    max_turns: int = 10
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    extra: Mapping[str, Any] = {}
    prefill: tuple[Mapping[str, str], ...] = ()
    before: tuple[Mapping[str, str], ...] = ()
    verifiers: tuple[Verifier, ...] = ()
    row: Mapping[str, Any] = {}
    timeout: float | None = None
    twin: int = 0
    report: Callable[[str], None] = _ignore


class RolloutError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a rollout failed.

    `kind` is a reason of `ModelError`, or environment_unavailable, crashed, timeout, empty_answer. `permanent` says
    that no other row can succeed at this endpoint before a person acts. `retry_after` is seconds after which it may.
    """

    kind: str
    message: str
    permanent: bool = False
    retry_after: float | None = None


class ChildRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The conversation of a child that the rollout spawned, at any depth."""

    task_id: str
    parent_id: str
    goal: str
    entries: tuple[Entry, ...] = ()
    usage: Usage = Usage()
    state: str = "completed"


class RolloutResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one attempt brought.

    `entries` is the whole history from the prompt on, without system text and prefill. `tools` are the tools that were
    offered. `call_success` holds, by "position:index" of a call, what the tool itself said of its success; calls that
    are not in it are judged by their result. `started_at` is seconds since the epoch, `duration` seconds. `partial`
    says that invalid calls in a row ended it. `calls` counts the calls of the whole tree, `denied` those of them that
    were not allowed, by what they would have done. `scores` are those of the row's verifiers, in their order. `tape` is
    what it got of a replay, on its way from one process to another; it stands in no record.
    """

    state: RolloutState
    exit_reason: str = ""
    entries: tuple[Entry, ...] = ()
    usage: Usage = Usage()
    api_calls: int = 0
    model: str = ""
    tools: tuple[ToolSpec, ...] = ()
    error: RolloutError | None = None
    started_at: float = 0.0
    duration: float = 0.0
    partial: bool = False
    call_success: dict[str, bool] = {}
    children: tuple[ChildRecord, ...] = ()
    calls: int = 0
    denied: dict[str, int] = {}
    scores: tuple[CheckScore, ...] = ()
    tape: TapeShare | None = None


class Engine(Protocol):
    """Carries rollouts out."""

    @property
    def model(self) -> str:
        """The model's name as it goes into the run's record."""

    @property
    def profile(self) -> ModelProfile:
        """What is known of the model: one that does not reason by itself is asked to write its reasoning down, and
        its prices go into the run's record."""

    @property
    def toolsets(self) -> Mapping[str, tuple[str, ...]]:
        """The toolsets there are, with the names of their tools."""

    @property
    def taped(self) -> bool:
        """Whether rollouts are recorded or replayed, and so are told which of those with their prompt they are."""

    async def run(self, request: RolloutRequest) -> RolloutResult:
        """Carry one rollout out, or go on with it. Failures come back as a result; cancellation stops it and its
        commands where they stand. An `OperatorError` says that nothing can be carried out any more."""

    def begun(self) -> Collection[str]:
        """The half-done rollouts, as `identity.session_name` calls them: those under way, and before any has begun
        what an earlier process left."""

    def keep_only(self, names: Collection[str]) -> None:
        """Let go of all half-done rollouts but these."""

    def settled(self, key: str, attempt: int) -> None:
        """The record of this attempt is synced: what it would have gone on from may go."""

    def spent(self) -> tuple[int, float]:
        """Tokens and US dollars used by this process, what is set aside for calls under way included."""

    def redact(self, data: bytes) -> bytes:
        """Return encoded JSON without the secrets this process knows: nothing is written before."""

    def waiting_for(self) -> str:
        """What everything waits for right now ("a key of openrouter, 12 s"), or an empty text if unknown."""
