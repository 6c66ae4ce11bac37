"""Money and tokens of cards and days, as rows: set aside before a run starts, corrected by what it really took.

A reservation counts as the larger of what was set aside and what was spent until it is settled, then as what was spent;
so runs side by side never spend the same dollar. Only the board's spending is known here, not prices.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import sqlalchemy as sa

from hermes.config.kanban import KanbanSettings
from hermes.kanban import tables as t
from hermes.kanban.card import Card
from hermes.kanban.errors import BudgetSpent
from hermes.kanban.store import Tx

__all__ = ["Reserve", "Spending", "day_of", "reserve", "reserved", "settle", "share_of", "spending", "spent"]


class Reserve(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may take, and the limits in force (None and 0: none). A card's own limits win over `card_*`.

    Without `usd` or `tokens` nothing is set aside: a run starts as long as something is left. With `partial` less is
    set aside where less is left, down to a twentieth.
    """

    usd: float = 0.0
    tokens: int = 0
    card_usd: float | None = None
    card_tokens: int | None = None
    day_usd: float | None = None
    day_tokens: int | None = None
    partial: bool = False


def share_of(settings: KanbanSettings) -> Reserve:
    """What a run may take: a share of the day's limit, so that all workers together stay within it."""
    width = settings.workers_at_once
    usd = [each for each in (settings.card_usd, (settings.day_usd or 0) / width) if each]
    tokens = [each for each in (settings.card_tokens, (settings.day_tokens or 0) // width) if each]
    return Reserve(
        usd=min(usd, default=0.0), tokens=int(min(tokens, default=0)), partial=True,
        card_usd=settings.card_usd, card_tokens=settings.card_tokens,
        day_usd=settings.day_usd, day_tokens=settings.day_tokens,
    )  # fmt: skip


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """Spent and set aside of one card, profile or day (`name`)."""

    name: str
    usd: float
    tokens: int
    reserved_usd: float
    reserved_tokens: int
    runs: int


def _taken(reserved: sa.Column[Any], spent: sa.Column[Any]) -> sa.ColumnElement[Any]:
    open_amount = sa.case((reserved > spent, reserved), else_=spent)
    return sa.func.coalesce(sa.func.sum(sa.case((t.reservations.c.settled, spent), else_=open_amount)), 0)


def _used(tx: Tx, condition: sa.ColumnElement[bool]) -> tuple[float, int]:
    r = t.reservations.c
    row = tx.row(
        sa.select(_taken(r.reserved_usd, r.spent_usd), _taken(r.reserved_tokens, r.spent_tokens)).where(condition)
    )
    return (float(row[0]), int(row[1])) if row is not None else (0.0, 0)


def day_of(seconds: float) -> str:
    """The date in UTC, by which days are counted."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def reserve(tx: Tx, money: Reserve, card: Card, run_id: str, profile: str | None) -> None:
    """Set aside what a run may take; the transaction has to be alone in the board.

    Raises:
        BudgetSpent: a limit leaves less than that; the text names it and what is left.
    """
    day = day_of(tx.now)
    card_usd = card.budget_usd if card.budget_usd is not None else money.card_usd
    card_tokens = card.budget_tokens if card.budget_tokens is not None else money.card_tokens
    of_card = _used(tx, t.reservations.c.card_id == card.id)
    of_day = _used(tx, t.reservations.c.day == day)
    usd, tokens = money.usd, money.tokens
    if money.partial:
        usd = _within(usd, (card_usd, of_card[0]), (money.day_usd, of_day[0]))
        tokens = int(_within(tokens, (card_tokens, of_card[1]), (money.day_tokens, of_day[1])))
    _check(f"card {card.id}", "budget_usd", "$", card_usd, of_card[0], usd)
    _check(f"card {card.id}", "budget_tokens", "tokens", card_tokens, of_card[1], tokens)
    _check(f"the board today ({day})", "kanban.day_usd", "$", money.day_usd, of_day[0], usd)
    _check(f"the board today ({day})", "kanban.day_tokens", "tokens", money.day_tokens, of_day[1], tokens)
    tx.run(
        t.reservations.insert().values(
            run_id=run_id,
            card_id=card.id,
            profile=profile,
            day=day,
            reserved_tokens=tokens,
            reserved_usd=usd,
            spent_tokens=0,
            spent_usd=0.0,
            settled=False,
        )
    )


def _within(wanted: float, *limits: tuple[float | None, float]) -> float:
    """As much of what is wanted as (limit, used) leave, and never less than a twentieth: less starts nothing."""
    left = min([wanted, *(limit - used for limit, used in limits if limit)])
    return max(left, wanted / 20)


def _check(whose: str, setting: str, unit: str, limit: float | None, used: float, wanted: float) -> None:
    if not limit or (used + wanted <= limit and used < limit):
        return

    def amount(value: float) -> str:
        return f"${value:g}" if unit == "$" else f"{value:,.0f} {unit}"

    raise BudgetSpent(
        f"{whose} has spent or set aside {amount(used)} of {amount(limit)} and a run needs {amount(wanted)}: raise "
        f"{setting}, or wait. Nothing was started."
    )


def settle(tx: Tx, run_id: str, *, usd: float, tokens: int, final: bool) -> bool:
    """Note what a run has taken so far (its whole, not the difference); `final` gives the rest back. False: no row."""
    changed = tx.run(
        t.reservations.update()
        .where(t.reservations.c.run_id == run_id, t.reservations.c.settled.is_(False))
        .values(spent_usd=usd, spent_tokens=tokens, settled=final)
    )
    return bool(changed)


def reserved(tx: Tx, run_id: str) -> tuple[float, int] | None:
    """What was set aside for a run, in dollars and tokens; None where no money is counted."""
    r = t.reservations.c
    row = tx.row(sa.select(r.reserved_usd, r.reserved_tokens).where(r.run_id == run_id))
    return None if row is None else (float(row[0]), int(row[1]))


def spent(tx: Tx, run_id: str) -> tuple[float, int] | None:
    """What a run has noted so far, in dollars and tokens; None where no money is counted."""
    r = t.reservations.c
    row = tx.row(sa.select(r.spent_usd, r.spent_tokens).where(r.run_id == run_id))
    return None if row is None else (float(row[0]), int(row[1]))


def spending(tx: Tx, by: str, since: str | None = None) -> list[Spending]:
    """Spending by `card`, `profile` or `day`, largest first; `since` is a day."""
    r = t.reservations.c
    column: sa.ColumnElement[str] = {
        "card": r.card_id,
        "profile": sa.func.coalesce(r.profile, "nobody"),
        "day": r.day,
    }[by]
    still = sa.case((r.settled, 0), else_=1)
    statement = (
        sa.select(
            column,
            sa.func.sum(r.spent_usd).label("usd"),
            sa.func.sum(r.spent_tokens).label("tokens"),
            sa.func.sum(r.reserved_usd * still),
            sa.func.sum(r.reserved_tokens * still),
            sa.func.count(),
        )
        .group_by(column)
        .order_by(sa.text("usd DESC"), sa.text("tokens DESC"))
    )
    if since is not None:
        statement = statement.where(r.day >= since)
    return [
        Spending(
            name=row[0],
            usd=float(row[1]),
            tokens=int(row[2]),
            reserved_usd=float(row[3]),
            reserved_tokens=int(row[4]),
            runs=int(row[5]),
        )
        for row in tx.rows(statement)
    ]
