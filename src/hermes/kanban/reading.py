"""Statements that only read: cards and what hangs on them, lists, the stream of events, the figures of a board."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

import msgspec
import sqlalchemy as sa

from hermes.core.errors import UsageError
from hermes.kanban import tables as t
from hermes.kanban.card import Attachment, Card, CardEvent, Comment, Link, LinkKind, Question, Run
from hermes.kanban.errors import CardNotFound
from hermes.kanban.moves import OPEN, STATUSES, Status
from hermes.kanban.store import Tx, values_of

__all__ = [
    "CARD_COLUMNS",
    "CardFilter",
    "CardView",
    "Related",
    "Sort",
    "attachments_of",
    "card_by_id",
    "cards_like",
    "comments_of",
    "events_after",
    "links_of",
    "open_parents",
    "questions_open",
    "resolve",
    "run_by_id",
    "runs_of",
    "runs_with_process",
    "view",
]

Sort = Literal["created", "created-desc", "priority", "priority-desc", "status", "assignee", "title", "updated"]
CARD_COLUMNS = [t.cards.c[name] for name in Card.__struct_fields__]
RUN_COLUMNS = [t.runs.c["metadata_" if name == "metadata" else name] for name in Run.__struct_fields__]
_CARD = sa.select(*CARD_COLUMNS).where(t.cards.c.id == sa.bindparam("wanted"))
_CARD_LOCKED = _CARD.with_for_update()
_ATTACHMENT_COLUMNS = [t.attachments.c[name] for name in Attachment.__struct_fields__]


class CardFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which cards a list shows; archived ones only with `archived` or by status."""

    assignee: str | None = None
    unassigned: bool = False
    status: tuple[Status, ...] = ()
    tenant: str | None = None
    archived: bool = False
    text: str | None = None
    sort: Sort = "priority-desc"
    limit: int | None = None


class Related(msgspec.Struct, frozen=True, kw_only=True):
    """A card at the other end of a link, with what it brought."""

    id: str
    title: str
    status: Status
    assignee: str | None
    kind: LinkKind
    summary: str | None
    result: str | None
    branch_name: str | None


class CardView(msgspec.Struct, frozen=True, kw_only=True):
    """A card with everything that hangs on it; `events` are the newest 50, oldest first."""

    task: Card
    parents: list[Related]
    children: list[Related]
    comments: list[Comment]
    events: list[CardEvent]
    runs: list[Run]
    attachments: list[Attachment]
    questions: list[Question]


def resolve(tx: Tx, name: str) -> str:
    """Return the id that `name` is or uniquely begins.

    Raises:
        CardNotFound: none, or several.
    """
    name = name.strip()
    if tx.value(sa.select(t.cards.c.id).where(t.cards.c.id == name)) is not None:
        return name
    found: list[str] = []
    if len(name) >= 3:
        like = sa.select(t.cards.c.id).where(t.cards.c.id.startswith(name, autoescape=True)).limit(6)
        found = [str(row[0]) for row in tx.rows(like)]
    if len(found) == 1:
        return found[0]
    if found:
        raise CardNotFound(f"{name!r} begins several cards: {', '.join(found)}. Write more of the id.")
    raise CardNotFound(f"there is no card {name!r} on this board. `hermes kanban list` shows the cards.")


def card_by_id(tx: Tx, card_id: str, *, lock: bool = False) -> Card:
    """Return a card by its full id; `lock` keeps others from changing it until the transaction ends.

    Raises:
        CardNotFound: there is none.
    """
    row = tx.row(_CARD_LOCKED if lock else _CARD, {"wanted": card_id})
    if row is None:
        raise CardNotFound(f"there is no card {card_id!r} on this board. `hermes kanban list` shows the cards.")
    return values_of(Card, [row])[0]


def ended(tx: Tx, ids: Collection[str]) -> dict[str, float]:
    """When each of these cards ended (seconds since the epoch), of those that are done or archived."""
    c, wanted = t.cards.c, sorted(ids)
    found: dict[str, float] = {}
    for start in range(0, len(wanted), 500):  # databases take only so many parameters
        rows = tx.rows(
            sa.select(c.id, sa.func.coalesce(c.completed_at, c.updated_at)).where(
                c.id.in_(wanted[start : start + 500]), c.status.in_(("done", "archived"))
            )
        )
        found.update((str(name), float(when)) for name, when in rows)
    return found


_ORDERS: dict[str, tuple[sa.ColumnElement[Any], ...]] = {
    "created": (t.cards.c.seq.asc(),),
    "created-desc": (t.cards.c.seq.desc(),),
    "priority": (t.cards.c.priority.asc(), t.cards.c.seq.asc()),
    "priority-desc": (t.cards.c.priority.desc(), t.cards.c.seq.asc()),
    "status": (
        sa.case({status: number for number, status in enumerate(STATUSES)}, value=t.cards.c.status),
        t.cards.c.priority.desc(),
        t.cards.c.seq.asc(),
    ),
    "assignee": (t.cards.c.assignee.asc(), t.cards.c.seq.asc()),
    "title": (sa.func.lower(t.cards.c.title).asc(), t.cards.c.seq.asc()),
    "updated": (t.cards.c.updated_at.desc(), t.cards.c.seq.asc()),
}


def cards_like(tx: Tx, wanted: CardFilter) -> list[Card]:
    """Return the cards that a filter lets through, in its order.

    Raises:
        UsageError: a state or an order that does not exist.
    """
    unknown = [status for status in wanted.status if status not in STATUSES]
    if unknown:
        raise UsageError(f"{unknown[0]!r} is no state of a card: {', '.join(STATUSES)}")
    if wanted.sort not in _ORDERS:
        raise UsageError(f"{wanted.sort!r} is no order: {', '.join(_ORDERS)}")
    statement = sa.select(*CARD_COLUMNS).order_by(*_ORDERS[wanted.sort])
    if wanted.status:
        statement = statement.where(t.cards.c.status.in_(wanted.status))
    elif not wanted.archived:
        statement = statement.where(t.cards.c.status != "archived")
    if wanted.unassigned:
        statement = statement.where(t.cards.c.assignee.is_(None))
    elif wanted.assignee is not None:
        statement = statement.where(t.cards.c.assignee == wanted.assignee.lower())
    if wanted.tenant is not None:
        statement = statement.where(t.cards.c.tenant == wanted.tenant)
    if wanted.text:
        like = wanted.text.lower()
        statement = statement.where(
            sa.or_(
                sa.func.lower(t.cards.c.title).contains(like, autoescape=True),
                sa.func.lower(t.cards.c.body).contains(like, autoescape=True),
            )
        )
    if wanted.limit is not None:
        statement = statement.limit(wanted.limit)
    return values_of(Card, tx.rows(statement))


def _related(tx: Tx, card_id: str, near: sa.Column[Any], far: sa.Column[Any]) -> list[Related]:
    columns = [t.links.c.kind if name == "kind" else t.cards.c[name] for name in Related.__struct_fields__]
    statement = (
        sa.select(*columns)
        .select_from(t.links.join(t.cards, t.cards.c.id == far))
        .where(near == card_id)
        .order_by(t.cards.c.seq)
    )
    return values_of(Related, tx.rows(statement))


def links_of(tx: Tx, card_id: str) -> tuple[list[Related], list[Related]]:
    """Return the parents and the children of a card."""
    parent, child = t.links.c.parent_id, t.links.c.child_id
    return _related(tx, card_id, child, parent), _related(tx, card_id, parent, child)


def open_parents(tx: Tx, card_id: str) -> list[Related]:
    """Return the cards that this one still needs."""
    return [parent for parent in links_of(tx, card_id)[0] if parent.kind == "needs" and parent.status in OPEN]


def comments_of(tx: Tx, card_id: str) -> list[Comment]:
    """Comments, oldest first."""
    columns = [t.comments.c[name] for name in Comment.__struct_fields__]
    return values_of(
        Comment, tx.rows(sa.select(*columns).where(t.comments.c.card_id == card_id).order_by(t.comments.c.id))
    )


def events_after(
    tx: Tx,
    after: int,
    *,
    card_id: str | None = None,
    kinds: Collection[str] = (),
    limit: int = 500,
    newest: bool = False,
) -> list[CardEvent]:
    """Events with an id above `after`, oldest first; with `newest` the last `limit` of them."""
    columns = [t.events.c[name] for name in CardEvent.__struct_fields__]
    statement = sa.select(*columns).where(t.events.c.id > after).limit(limit)
    if card_id is not None:
        statement = statement.where(t.events.c.card_id == card_id)
    if kinds:
        statement = statement.where(t.events.c.kind.in_(tuple(kinds)))
    order = t.events.c.id.desc() if newest else t.events.c.id.asc()
    found = values_of(CardEvent, tx.rows(statement.order_by(order)))
    return found[::-1] if newest else found


def runs_of(tx: Tx, card_id: str) -> list[Run]:
    """Attempts, oldest first."""
    return _runs(tx, t.runs.c.card_id == card_id)


def runs_with_process(tx: Tx) -> list[Run]:
    """Runs whose process is not known to be gone, on any host."""
    return _runs(tx, t.runs.c.exited_at.is_(None))


def run_by_id(tx: Tx, run_id: str) -> Run:
    """Return a run. Raises `CardNotFound`."""
    found = _runs(tx, t.runs.c.id == run_id)
    if not found:
        raise CardNotFound(f"there is no run {run_id!r} on this board. `hermes kanban runs CARD` shows a card's runs.")
    return found[0]


def _runs(tx: Tx, condition: sa.ColumnElement[bool]) -> list[Run]:
    return values_of(Run, tx.rows(sa.select(*RUN_COLUMNS).where(condition).order_by(t.runs.c.started_at)))


def attachments_of(tx: Tx, card_id: str) -> list[Attachment]:
    """Attachments without their bytes."""
    statement = sa.select(*_ATTACHMENT_COLUMNS).where(t.attachments.c.card_id == card_id)
    return values_of(Attachment, tx.rows(statement.order_by(t.attachments.c.id)))


def questions_open(tx: Tx, card_id: str | None = None, *, answered: bool = False) -> list[Question]:
    """Questions that wait for a person, oldest first; with `answered` the others too."""
    columns = [t.questions.c[name] for name in Question.__struct_fields__]
    statement = sa.select(*columns).order_by(t.questions.c.id)
    if card_id is not None:
        statement = statement.where(t.questions.c.card_id == card_id)
    if not answered:
        statement = statement.where(t.questions.c.answered_at.is_(None))
    return values_of(Question, tx.rows(statement))


def view(tx: Tx, card_id: str) -> CardView:
    """Return a card with everything that hangs on it. Raises `CardNotFound`."""
    card = card_by_id(tx, card_id)
    parents, children = links_of(tx, card_id)
    return CardView(
        task=card,
        parents=parents,
        children=children,
        comments=comments_of(tx, card_id),
        events=events_after(tx, 0, card_id=card_id, limit=50, newest=True),
        runs=runs_of(tx, card_id),
        attachments=attachments_of(tx, card_id),
        questions=questions_open(tx, card_id, answered=True),
    )


def all_links(tx: Tx, kinds: Sequence[LinkKind] = ("needs", "follows")) -> list[Link]:
    """Every link of the board."""
    statement = sa.select(t.links.c.parent_id, t.links.c.child_id, t.links.c.kind).where(t.links.c.kind.in_(kinds))
    return values_of(Link, tx.rows(statement))
