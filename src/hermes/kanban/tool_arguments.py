"""Arguments of the board's tools, as models write them. `board` names another board; a worker's is its own."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hermes.kanban.card import BlockKind, LinkKind, WorkspaceKind
from hermes.kanban.moves import Status

__all__ = [
    "Attach", "Attachments", "Block", "CardArgument", "Comment", "Complete", "Create", "Heartbeat", "Link", "List",
    "RequestChanges", "RequestReview",
]  # fmt: skip


def _about(text: str) -> Meta:
    return Meta(description=text)


class _Board(msgspec.Struct, frozen=True, kw_only=True):
    board: Annotated[str | None, _about("Another board, by name.")] = None


class CardArgument(_Board, frozen=True, kw_only=True):
    """A card; a worker may leave it out."""

    task_id: Annotated[str | None, _about("Card id; your own card if left out.")] = None


class List(_Board, frozen=True, kw_only=True):
    """Which cards."""

    assignee: Annotated[str | None, _about("Only this profile's.")] = None
    status: Annotated[Status | None, _about("Only in this state.")] = None
    tenant: Annotated[str | None, _about("Only of this tenant.")] = None
    include_archived: bool = False
    limit: Annotated[int, Meta(ge=1, le=200, description="At most so many, up to 200.")] = 50


class Create(_Board, frozen=True, kw_only=True):
    """A new card."""

    title: Annotated[str, _about("What is to be done, in one line.")]
    assignee: Annotated[str, _about("Profile that does it.")]
    body: Annotated[str, _about("All its worker needs to know; it sees nothing of your conversation.")] = ""
    parents: Annotated[list[str], _about("Cards that have to be done first; their results are given to it.")] = []
    follows: Annotated[list[str], _about("Cards whose results it reads without waiting for them.")] = []
    subtask: Annotated[
        bool, _about("A part of your own card: your card will wait for it after kanban_block with kind dependency.")
    ] = False
    tenant: str | None = None
    priority: Annotated[int, _about("Higher is taken first.")] = 0
    workspace_kind: WorkspaceKind | None = None
    workspace_path: Annotated[str | None, _about("Absolute folder for dir, repository for worktree.")] = None
    triage: Annotated[bool, _about("True: a raw idea that has to be specified first.")] = False
    idempotency_key: Annotated[str | None, _about("A card with this key is made once.")] = None
    max_runtime_seconds: int | None = None
    initial_status: Literal["blocked"] | None = None
    skills: Annotated[list[str], _about("Leave it out: workers load no skills; say in body what has to be known.")] = []
    goal_mode: Annotated[bool, _about("A hard goal: its worker is sent on until it ended the card.")] = False
    goal_max_turns: Annotated[int | None, _about("How often it is sent on at most; 20 if left out.")] = None
    session_id: str | None = None
    acceptance: Annotated[str | None, _about("When it is done, in words that can be checked.")] = None
    check: Annotated[str | None, _about("Command that has to succeed in its workspace when it is done.")] = None
    reviewer: Annotated[str | None, _about("Profile that judges the result.")] = None


class Complete(CardArgument, frozen=True, kw_only=True):
    """The end of a card."""

    summary: Annotated[str, _about("What was done; the cards that follow read it.")] = ""
    result: Annotated[str, _about("The result itself, if it is text.")] = ""
    metadata: dict[str, Any] | None = None
    created_cards: Annotated[list[str], _about("Ids of cards you made; they are verified.")] = []
    artifacts: Annotated[list[str], _about("Files to keep with the card; a scratch folder is deleted later.")] = []


class Block(CardArgument, frozen=True, kw_only=True):
    """Why a card cannot go on."""

    reason: Annotated[str, _about("What is missing. For needs_input: the question itself.")]
    kind: Annotated[
        BlockKind | None,
        _about("dependency: waits for cards; needs_input: a person answers; capability: you cannot; transient: later."),
    ] = None
    choices: Annotated[list[str], _about("Possible answers to a question.")] = []


class Heartbeat(CardArgument, frozen=True, kw_only=True):
    """A sign of life."""

    note: Annotated[str, _about("Where you stand, in one line.")] = ""


class Comment(_Board, frozen=True, kw_only=True):
    """A remark."""

    task_id: str
    body: str


class Link(_Board, frozen=True, kw_only=True):
    """A dependency."""

    parent_id: Annotated[str, _about("Has to be done first.")]
    child_id: Annotated[str, _about("Waits.")]
    kind: Annotated[LinkKind, _about("follows: the child reads the result and does not wait.")] = "needs"


class RequestReview(CardArgument, frozen=True, kw_only=True):
    """Asking for a judgement."""

    summary: str
    metadata: dict[str, Any] | None = None
    reviewer: str | None = None


class RequestChanges(CardArgument, frozen=True, kw_only=True):
    """A judgement that is no."""

    reason: Annotated[str, _about("Exactly what has to change.")]


class Attach(CardArgument, frozen=True, kw_only=True):
    """A file to keep."""

    path: Annotated[str, _about("File in the workspace, up to 25 MB.")]


class Attachments(CardArgument, frozen=True, kw_only=True):
    """Files kept with a card; with `save` one is written into the workspace."""

    save: Annotated[str | None, _about("Name of one to write into your workspace.")] = None
