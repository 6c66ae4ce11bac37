"""Statements that make and change cards without moving work: create, edit, assign, comment, attach."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import sqlalchemy as sa

from hermes.core.errors import UsageError
from hermes.core.ids import random_hex
from hermes.core.toolsets import KNOWN_TOOLSETS
from hermes.kanban import tables as t
from hermes.kanban.card import MAX_ATTACHMENT, Attachment, Card, Claim, NewCard, Worker
from hermes.kanban.errors import BoardError, CardNotFound
from hermes.kanban.linking import add_link
from hermes.kanban.moves import OPEN, Status
from hermes.kanban.reading import attachments_of, card_by_id, open_parents, resolve
from hermes.kanban.store import AnyRow, Tx

__all__ = [
    "EDITABLE",
    "Created",
    "Part",
    "add_comment",
    "assign",
    "attach",
    "attachment_data",
    "create",
    "detach",
    "edit",
    "pinned_home",
]

_TOOLSETS = frozenset(info.name for info in KNOWN_TOOLSETS)
_NEW_CARD = t.cards.insert()
_SEQ = sa.select(t.cards.c.seq).where(t.cards.c.id == sa.bindparam("wanted"))
#: The longest title; longer ones are descriptions.
_TITLE = 300


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """A card that was made, or found by its idempotency key (`new` is False). `warnings` are sentences for a person."""

    card: Card
    new: bool
    warnings: tuple[str, ...] = ()


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One card of several that are made together; `needs` are places among them of those that have to be done first."""

    order: NewCard
    needs: tuple[int, ...] = ()


def name_of(profile: str | None) -> str | None:
    """A profile's name as it is stored: lower case, None for nobody."""
    found = (profile or "").strip().lower()
    return found or None


def pinned_home(profile: str | None, here: Worker) -> str | None:
    """Every home has a profile called `default`, so the name means the one of the home that wrote it."""
    return here.home_id if profile == "default" else None


def check_new(order: NewCard) -> None:
    """Check what can be judged without the board. Raises `UsageError`."""
    if not order.title.strip():
        raise UsageError("a card needs a title")
    if order.provider_override and not order.model_override:
        raise UsageError("a provider for a card needs a model too: give both, or neither")
    if order.branch_name and order.workspace_kind != "worktree":
        raise UsageError(f"a branch needs the workspace worktree; this card has {order.workspace_kind}")
    if order.workspace_kind == "dir" and not (order.workspace_path and os.path.isabs(order.workspace_path)):
        raise UsageError(f"the workspace dir needs an absolute path, not {order.workspace_path!r}")
    for skill in order.skills:
        if "," in skill or skill in _TOOLSETS:
            raise UsageError(f"{skill!r} is no skill: skill names have no comma and are no toolset names")
    for name in ("max_runtime_seconds", "max_retries", "goal_max_turns", "budget_usd", "budget_tokens"):
        value = getattr(order, name)
        if value is not None and value < (0 if name == "max_retries" else 1e-9):
            raise UsageError(f"{name} is {value}: give a positive number, or leave it out")


def create(tx: Tx, order: NewCard, *, author: str, here: Worker, claim: Claim | None, host_id: str | None) -> Created:
    """Make a card; a known idempotency key of a card that is not archived returns that card.

    `claim` is the worker's that makes it; `host_id` pins it to a machine.

    Raises:
        UsageError, CardNotFound, BoardError: what cannot be is named; nothing was made.
    """
    check_new(order)
    if order.idempotency_key:
        known = tx.value(
            sa.select(t.cards.c.id).where(
                t.cards.c.idempotency_key == order.idempotency_key, t.cards.c.status != "archived"
            )
        )
        if known is not None:
            return Created(card=card_by_id(tx, str(known)), new=False)
    parents = [resolve(tx, name) for name in dict.fromkeys(order.parents)]
    follows = [resolve(tx, name) for name in dict.fromkeys(order.follows)]
    above = [card_by_id(tx, card_id) for card_id in (*parents, *follows)]
    root = resolve(tx, order.subtask_of) if order.subtask_of else None
    card_id = _new_id(tx)
    status: Status = "triage" if order.triage else (order.initial_status or "ready")
    if order.scheduled_at is not None and status == "ready":
        status = "scheduled"
    elif status == "ready" and any(card.status in OPEN for card in above[: len(parents)]):
        status = "todo"
    tenant = order.tenant or next((card.tenant for card in above if card.tenant), None)
    values = _values(order, status, author, here, claim)
    # What is made of a card is heard of where the card is.
    others = [card_by_id(tx, claim.card_id), *above] if claim is not None else above
    session = order.session_id or next((card.session_id for card in others if card.session_id), None)
    values.update(id=card_id, tenant=tenant, host_id=host_id, created_at=tx.now, updated_at=tx.now, session_id=session)
    tx.run(_NEW_CARD, values)
    tx.event("created", author, card_id, None, title=values["title"], assignee=values["assignee"], status=status)
    for parent in parents:
        add_link(tx, author, parent, card_id)
    for parent in follows:
        add_link(tx, author, parent, card_id, "follows")
    if root is not None:
        add_link(tx, author, card_id, root)
    return Created(card=card_by_id(tx, card_id), new=True, warnings=_parked(tx, card_id) if parents else ())


def _values(order: NewCard, status: Status, author: str, here: Worker, claim: Claim | None) -> dict[str, Any]:
    assignee = name_of(order.assignee)
    values: dict[str, Any] = {name: getattr(order, name) for name in _COPIED}
    values.update(
        title=" ".join(order.title.split())[:_TITLE],
        assignee=assignee,
        reviewer=name_of(order.reviewer),
        status=status,
        skills=list(order.skills),
        created_by=author,
        attempts=0,
        consecutive_failures=0,
        block_recurrences=0,
        check_failures=0,
        step="work",
        block_kind="needs_input" if status == "blocked" else None,
        home_id=pinned_home(assignee, here),
        created_card=claim.card_id if claim else None,
        created_run=claim.run_id if claim else None,
    )
    return values


_COPIED = (
    "body", "priority", "workspace_kind", "workspace_path", "branch_name", "idempotency_key", "max_runtime_seconds",
    "max_retries", "model_override", "provider_override", "reasoning_effort", "goal_mode", "goal_max_turns",
    "session_id", "acceptance", "check_command", "budget_usd", "budget_tokens", "scheduled_at",
)  # fmt: skip


def _new_id(tx: Tx) -> str:
    while True:
        card_id = f"t_{random_hex(8)}"
        if tx.value(_SEQ, {"wanted": card_id}) is None:
            return card_id


def _parked(tx: Tx, card_id: str) -> tuple[str, ...]:
    return tuple(
        f"{card_id} waits for {parent.id}, which is {parent.status} and does not end by itself; a card that shall not "
        f"wait for it is linked with kind follows"
        for parent in open_parents(tx, card_id)
        if parent.status in ("blocked", "review", "triage", "scheduled")
    )


#: What `edit` may change, each with the event that says so.
EDITABLE: Mapping[str, str] = {
    "title": "edited",
    "body": "edited",
    "priority": "reprioritized",
    "tenant": "edited",
    "skills": "edited",
    "acceptance": "edited",
    "check_command": "edited",
    "reviewer": "edited",
    "max_runtime_seconds": "edited",
    "max_retries": "edited",
    "budget_usd": "edited",
    "budget_tokens": "edited",
    "model_override": "model_override_set",
    "provider_override": "model_override_set",
    "reasoning_effort": "model_override_set",
}


def edit(tx: Tx, card_id: str, author: str, changes: Mapping[str, Any]) -> None:
    """Change fields of a card that is not archived. Raises `UsageError` for a field or value that cannot be."""
    unknown = [name for name in changes if name not in EDITABLE]
    if unknown:
        raise UsageError(f"{unknown[0]} cannot be edited; what can: {', '.join(EDITABLE)}")
    card = card_by_id(tx, card_id, lock=True)
    if card.status == "archived":
        raise BoardError(f"{card_id} is archived and is not changed any more")
    after = {**{name: getattr(card, name) for name in EDITABLE}, **changes}
    check_new(NewCard(**{**after, "skills": tuple(after["skills"])}))
    before = {name: getattr(card, name) for name, value in changes.items() if getattr(card, name) != value}
    if not before:
        return
    tx.run(t.cards.update().where(t.cards.c.id == card_id).values(**changes, updated_at=tx.now))
    for kind in dict.fromkeys(EDITABLE[name] for name in before):
        fields = {name: changes[name] for name in before if EDITABLE[name] == kind}
        tx.event(kind, author, card_id, fields=fields)


def assign(tx: Tx, card: Card, profile: str | None, author: str, here: Worker) -> None:
    """Give a card to a profile, or to nobody; another one starts with a clean count of failures."""
    wanted = name_of(profile)
    if card.assignee == wanted:
        return
    tx.run(
        t.cards.update()
        .where(t.cards.c.id == card.id)
        .values(
            assignee=wanted,
            home_id=pinned_home(wanted, here),
            consecutive_failures=0,
            last_failure_error=None,
            updated_at=tx.now,
        )
    )
    tx.event("assigned", author, card.id, **{"from": card.assignee or "", "to": wanted or ""})


def add_comment(tx: Tx, card_id: str, body: str, author: str, run_id: str | None = None) -> int:
    """Write a comment and return its number. Raises `UsageError` for an empty one."""
    if not body.strip():
        raise UsageError("a comment needs a text")
    number = tx.value(
        t.comments.insert()
        .values(card_id=card_id, author=author, body=body, created_at=tx.now)
        .returning(t.comments.c.id)
    )
    tx.run(t.cards.update().where(t.cards.c.id == card_id).values(updated_at=tx.now))
    tx.event("commented", author, card_id, run_id, comment_id=number)
    return int(number)


def attach(
    tx: Tx, card_id: str, name: str, data: bytes, author: str, *, media_type: str = "", run_id: str | None = None
) -> Attachment:
    """Keep a file with a card; one of the same name is replaced. Raises `UsageError` above 25 MB."""
    plain = os.path.basename(name.strip().replace("\\", "/")) or "attachment"
    if len(data) > MAX_ATTACHMENT:
        raise UsageError(
            f"{plain} has {len(data):,} bytes; a card keeps files up to {MAX_ATTACHMENT:,} (25 MB): leave it in a "
            "dir: workspace and name its path in a comment"
        )
    tx.run(t.attachments.delete().where(t.attachments.c.card_id == card_id, t.attachments.c.name == plain))
    tx.run(
        t.attachments.insert().values(
            card_id=card_id,
            name=plain,
            media_type=media_type or "application/octet-stream",
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            created_by=author,
            created_at=tx.now,
            data=data,
        )
    )
    tx.event("attached", author, card_id, run_id, name=plain, size=len(data))
    return next(each for each in attachments_of(tx, card_id) if each.name == plain)


def _attachment(tx: Tx, card_id: str, name: str, columns: Collection[sa.Column[Any]]) -> AnyRow:
    which = t.attachments.c.name == name
    if name.isdigit():
        which = sa.or_(which, t.attachments.c.id == int(name))
    row = tx.row(sa.select(*columns).where(t.attachments.c.card_id == card_id, which))
    if row is None:
        names = ", ".join(each.name for each in attachments_of(tx, card_id)) or "none"
        raise CardNotFound(f"{card_id} has no attachment {name!r}; it has: {names}")
    return row


def attachment_data(tx: Tx, card_id: str, name: str) -> bytes:
    """The bytes of an attachment, by name or number. Raises `CardNotFound`."""
    return bytes(_attachment(tx, card_id, name, [t.attachments.c.data])[0])


def detach(tx: Tx, card_id: str, name: str, author: str) -> None:
    """Remove an attachment, by name or number. Raises `CardNotFound`."""
    number, plain = _attachment(tx, card_id, name, [t.attachments.c.id, t.attachments.c.name])
    tx.run(t.attachments.delete().where(t.attachments.c.id == number))
    tx.event("edited", author, card_id, detached=plain)
