"""Statements over the links between cards: which wait for which, cycles, and moving on what nothing holds back."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from hermes.kanban import tables as t
from hermes.kanban.card import LinkKind
from hermes.kanban.errors import BoardError
from hermes.kanban.moves import OPEN
from hermes.kanban.store import Tx

__all__ = [
    "add_link",
    "hold_back",
    "promote",
    "promote_children",
    "reaches",
    "remove_link",
    "wait_for_own_children",
]


_PARENT = t.cards.alias("parent")
_CHILD = t.cards.alias("child")
#: Whether the card of the statement needs one that is open.
_HELD_BACK = sa.exists(
    sa.select(sa.literal(1))
    .select_from(t.links.join(_PARENT, _PARENT.c.id == t.links.c.parent_id))
    .where(t.links.c.child_id == t.cards.c.id, t.links.c.kind == "needs", _PARENT.c.status.in_(OPEN))
)


def promote(tx: Tx, author: str, only: Sequence[str] | None = None) -> list[str]:
    """Make ready what waited for its time or its parents and does no longer; `only` looks at these cards.

    Returns the ids of the cards that became ready.
    """
    if only is None:
        due = (
            t.cards.update()
            .where(t.cards.c.status == "scheduled", t.cards.c.scheduled_at <= tx.now)
            .values(status="todo", scheduled_at=None, updated_at=tx.now)
            .returning(t.cards.c.id)
        )
        woken = [str(row[0]) for row in tx.rows(due)]
        tx.events("status", author, [(card_id, None, {"from": "scheduled", "to": "todo"}) for card_id in woken])
    statement = (
        t.cards.update()
        .where(t.cards.c.status == "todo", ~_HELD_BACK)
        .values(status="ready", updated_at=tx.now)
        .returning(t.cards.c.id)
    )
    if only is not None:
        if not only:
            return []
        statement = statement.where(t.cards.c.id.in_(only))
    ready = [str(row[0]) for row in tx.rows(statement)]
    tx.events("promoted", author, [(card_id, None, {}) for card_id in ready])
    return ready


def promote_children(tx: Tx, author: str, card_id: str) -> list[str]:
    """Make ready the children of a card that has just ended."""
    children = tx.rows(sa.select(t.links.c.child_id).where(t.links.c.parent_id == card_id, t.links.c.kind == "needs"))
    return promote(tx, author, [str(row[0]) for row in children])


def hold_back(tx: Tx, author: str, card_id: str, kind: str = "status") -> bool:
    """Send a ready card back to `todo` while it needs an open one; returns whether it was."""
    moved = tx.run(
        t.cards.update()
        .where(t.cards.c.id == card_id, t.cards.c.status == "ready", _HELD_BACK)
        .values(status="todo", updated_at=tx.now)
    )
    if moved:
        tx.event(kind, author, card_id, **{"from": "ready", "to": "todo"})
    return bool(moved)


def reaches(tx: Tx, start: str, goal: str) -> list[str]:
    """Return the chain of cards by which `goal` waits for `start` over any number of `needs`, empty if it does not."""
    before: dict[str, str] = {}
    edge = [start]
    while edge:
        found = tx.rows(
            sa.select(t.links.c.parent_id, t.links.c.child_id).where(
                t.links.c.parent_id.in_(edge[:500]), t.links.c.kind == "needs"
            )
        )
        edge = edge[500:]
        for parent, child in found:
            if child in before or child == start:
                continue
            before[child] = parent
            edge.append(child)
            if child == goal:
                chain = [goal]
                while chain[-1] != start:
                    chain.append(before[chain[-1]])
                return chain[::-1]
    return []


def add_link(tx: Tx, author: str, parent_id: str, child_id: str, kind: LinkKind = "needs") -> None:
    """Link two cards; a ready child of an open parent goes back to `todo`. Linked ones get the new kind.

    Raises:
        BoardError: a card linked to itself, or a cycle, which names its cards.
    """
    if parent_id == child_id:
        raise BoardError(f"{parent_id} cannot be linked to itself. Nothing was changed.")
    if kind == "needs":
        chain = reaches(tx, child_id, parent_id)
        if chain:
            raise BoardError(
                f"{child_id} cannot need {parent_id}: that would be a cycle ({' -> '.join([*chain, child_id])}). "
                "Nothing was changed; remove one of these links first, or link with kind follows."
            )
    key = (t.links.c.parent_id == parent_id, t.links.c.child_id == child_id)
    known = tx.value(sa.select(t.links.c.kind).where(*key))
    if known == kind:
        return
    if known is None:
        tx.run(t.links.insert().values(parent_id=parent_id, child_id=child_id, kind=kind))
    else:
        tx.run(t.links.update().where(*key).values(kind=kind))
    tx.event("linked", author, child_id, parent=parent_id, link=kind)
    if kind == "needs":
        hold_back(tx, author, child_id)
    else:
        promote(tx, author, [child_id])


def remove_link(tx: Tx, author: str, parent_id: str, child_id: str) -> None:
    """Remove a link; a child that nothing holds back any more becomes ready. Raises `BoardError` without one."""
    gone = tx.run(t.links.delete().where(t.links.c.parent_id == parent_id, t.links.c.child_id == child_id))
    if not gone:
        raise BoardError(f"{child_id} is not linked to {parent_id}; `hermes kanban show {child_id}` shows its links.")
    tx.event("unlinked", author, child_id, parent=parent_id)
    promote(tx, author, [child_id])


def wait_for_own_children(tx: Tx, author: str, card_id: str) -> list[str]:
    """Turn round the links to open cards that this card's worker made and that need it: it needs them now.

    A worker that splits its card and waits for the parts would else wait for cards that wait for it. Links whose
    turning would close a cycle stay. Returns the cards it now waits for.
    """
    child = _CHILD
    own = tx.rows(
        sa.select(child.c.id)
        .select_from(t.links.join(child, child.c.id == t.links.c.child_id))
        .where(
            t.links.c.parent_id == card_id,
            t.links.c.kind == "needs",
            child.c.created_card == card_id,
            child.c.status.in_(OPEN),
        )
        .order_by(child.c.seq)
    )
    turned = [str(row[0]) for row in own]
    for each in turned:
        tx.run(t.links.delete().where(t.links.c.parent_id == card_id, t.links.c.child_id == each))
    kept: list[str] = []
    for each in turned:
        if reaches(tx, card_id, each):
            tx.run(t.links.insert().values(parent_id=card_id, child_id=each, kind="needs"))
            continue
        tx.run(t.links.insert().values(parent_id=each, child_id=card_id, kind="needs"))
        tx.event("unlinked", author, each, parent=card_id)
        tx.event("linked", author, card_id, parent=each, link="needs", subtask=True)
        kept.append(each)
    promote(tx, author, kept)
    return kept
