"""The values of a board: cards and what hangs on them. Frozen, without behaviour of their own beyond reading a word.

Times are seconds since the epoch with fractions, money is US dollars. Text is whatever a person or a model wrote. The
states and their moves are in `moves`; the tables in `tables`.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any, Literal

import msgspec

from hermes.core.errors import UsageError
from hermes.kanban.moves import Outcome, Status, Step

__all__ = [
    "BLOCK_KINDS",
    "MAX_ATTACHMENT",
    "Attachment",
    "BlockKind",
    "Card",
    "CardEvent",
    "Check",
    "Claim",
    "Comment",
    "Link",
    "LinkKind",
    "NewCard",
    "Proof",
    "Question",
    "Run",
    "Worker",
    "WorkspaceKind",
    "fingerprint",
    "parse_workspace",
]

#: Bytes of one attachment: 25 MB, the limit users of such boards know.
MAX_ATTACHMENT = 25 * 1024 * 1024

WorkspaceKind = Literal["scratch", "dir", "worktree"]
#: `needs`: the child waits until the parent is done or archived. `follows`: the child reads the parent's result and
#: waits for nothing (a review, a card that continues a parked one).
LinkKind = Literal["needs", "follows"]
BlockKind = Literal["dependency", "needs_input", "capability", "transient"]
BLOCK_KINDS: tuple[BlockKind, ...] = ("dependency", "needs_input", "capability", "transient")


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Card(_Value, frozen=True, kw_only=True):
    """One card as it stands.

    `home_id` is set where only one home's profile is meant, `host_id` where its files are on one machine.
    `not_before` holds dispatch back (a cooldown). `claim_expires` is None for a claim made by hand. `attempts` counts
    runs, before they start; `consecutive_failures` is what the circuit breaker looks at.
    `stop_requested` is the state a running card shall go to once its worker is gone.
    """

    seq: int
    id: str
    title: str
    body: str
    assignee: str | None
    status: Status
    priority: int
    created_by: str
    created_at: float
    updated_at: float
    started_at: float | None
    completed_at: float | None
    workspace_kind: WorkspaceKind
    workspace_path: str | None
    branch_name: str | None
    tenant: str | None
    result: str | None
    summary: str | None
    idempotency_key: str | None
    attempts: int
    consecutive_failures: int
    last_failure_error: str | None
    max_runtime_seconds: int | None
    max_retries: int | None
    skills: list[str]
    model_override: str | None
    provider_override: str | None
    reasoning_effort: str | None
    goal_mode: bool
    goal_max_turns: int | None
    session_id: str | None
    step: Step
    reviewer: str | None
    block_kind: BlockKind | None
    block_reason: str | None
    block_recurrences: int
    acceptance: str | None
    check_command: str | None
    check_failures: int
    budget_usd: float | None
    budget_tokens: int | None
    scheduled_at: float | None
    not_before: float | None
    home_id: str | None
    host_id: str | None
    created_card: str | None
    created_run: str | None
    current_run_id: str | None
    claim_expires: float | None
    stop_requested: Status | None
    stop_reason: str | None


class NewCard(_Value, frozen=True, kw_only=True):
    """What `create` is asked for. `subtask_of` is a card that will need this one; `follows` never makes it wait.

    `initial_status` may be `blocked`; `triage` puts it aside to be specified first. `scheduled_at` parks it until then.
    `acceptance` says in words when it is done, `check_command` is run in the workspace and has to succeed.
    """

    title: str
    body: str = ""
    assignee: str | None = None
    parents: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    subtask_of: str | None = None
    tenant: str | None = None
    priority: int = 0
    workspace_kind: WorkspaceKind = "scratch"
    workspace_path: str | None = None
    branch_name: str | None = None
    triage: bool = False
    initial_status: Literal["blocked"] | None = None
    idempotency_key: str | None = None
    max_runtime_seconds: int | None = None
    max_retries: int | None = None
    skills: tuple[str, ...] = ()
    model_override: str | None = None
    provider_override: str | None = None
    reasoning_effort: str | None = None
    goal_mode: bool = False
    goal_max_turns: int | None = None
    session_id: str | None = None
    reviewer: str | None = None
    acceptance: str | None = None
    check_command: str | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
    scheduled_at: float | None = None


class Worker(_Value, frozen=True, kw_only=True):
    """Who takes cards: the machine, the home whose profiles it runs, and the process once there is one.

    `host_id` and `boot_id` come from the machine and not from its name, which may change under a running worker.
    """

    host_id: str
    home_id: str
    boot_id: str = ""
    pid: int | None = None
    process_started: str = ""


class Claim(_Value, frozen=True, kw_only=True):
    """The right to write for one run of one card: `token` is new with each claim and fences every write of a worker.

    `expires` is None where the claim has no end (made by hand).
    """

    card_id: str
    run_id: str
    token: str
    expires: float | None = None


class Proof(_Value, frozen=True, kw_only=True):
    """Why a run's worker can write nothing more. `host_id` is where that was found out.

    `ended`: its process was seen to end, or is no longer there, on that host. `never_started`: there was none.
    `lease`: it is on another host and its lease ran out, which the board checks by its own clock.
    """

    kind: Literal["ended", "never_started", "lease"]
    host_id: str
    detail: str = ""


class Check(_Value, frozen=True, kw_only=True):
    """What came of a card's check command: `output` is its last lines."""

    passed: bool
    output: str = ""
    exit_code: int | None = None


class Run(_Value, frozen=True, kw_only=True):
    """One attempt at a card. `ended_at` is when its outcome was known, `exited_at` when its process was gone too."""

    id: str
    card_id: str
    attempt: int
    profile: str | None
    step: Step
    manual: bool
    host_id: str
    home_id: str
    boot_id: str
    pid: int | None
    process_started: str
    workspace: str | None
    session_id: str | None
    branch_name: str | None
    git_commit: str | None
    started_at: float
    heartbeat_at: float | None
    expires: float | None
    ended_at: float | None
    exited_at: float | None
    outcome: Outcome | None
    summary: str | None
    metadata: dict[str, Any] | None
    error: str | None
    error_fingerprint: str | None
    counted: bool


class Comment(_Value, frozen=True, kw_only=True):
    """Something said about a card."""

    id: int
    card_id: str
    author: str
    body: str
    created_at: float


class CardEvent(_Value, frozen=True, kw_only=True):
    """One change: `id` only grows, so that whoever watches asks for what is newer."""

    id: int
    card_id: str | None
    run_id: str | None
    kind: str
    author: str
    payload: dict[str, Any]
    created_at: float


class Link(_Value, frozen=True, kw_only=True):
    """`child_id` comes after `parent_id`."""

    parent_id: str
    child_id: str
    kind: LinkKind


class Attachment(_Value, frozen=True, kw_only=True):
    """A file that is kept with its card, without its bytes."""

    id: int
    card_id: str
    name: str
    media_type: str
    size: int
    sha256: str
    created_by: str
    created_at: float


class Question(_Value, frozen=True, kw_only=True):
    """What a worker asked a person; `answered_at` is None while it waits."""

    id: int
    card_id: str
    run_id: str | None
    question: str
    choices: list[str]
    asked_by: str
    asked_at: float
    answer: str | None
    answered_by: str | None
    answered_at: float | None


def parse_workspace(text: str) -> tuple[WorkspaceKind, str | None]:
    """Read `scratch`, `dir:<absolute path>`, `worktree` or `worktree:<path>`.

    Raises:
        UsageError: it is none of them, or a path is not absolute.
    """
    kind, _, path = text.partition(":")
    if kind == "scratch" and not path:
        return "scratch", None
    if kind == "worktree" and (not path or os.path.isabs(path)):
        return "worktree", path or None
    if kind == "dir" and os.path.isabs(path):
        return "dir", os.path.normpath(path)
    raise UsageError(
        f"{text!r} is no workspace: write scratch, dir:/absolute/path, worktree or worktree:/absolute/path"
    )


_VARYING = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}|\d+", re.IGNORECASE)


def fingerprint(error: str) -> str:
    """Return 12 hex digits that are the same for errors that differ only in numbers, ids and spaces."""
    plain = " ".join(_VARYING.sub("#", error).lower().split())[:500]
    return hashlib.sha256(plain.encode("utf-8", "replace")).hexdigest()[:12]
