"""The half of a board's verbs that moves no work: reading, and cards with what hangs on them. `board` has the whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
import sqlalchemy as sa

from hermes.core.errors import UsageError
from hermes.kanban import claiming, creating, leading, linking, reading, releasing, renaming, repairing
from hermes.kanban import tables as t
from hermes.kanban.budgets import Spending, spending
from hermes.kanban.card import (
    Attachment,
    Card,
    CardEvent,
    Claim,
    Link,
    LinkKind,
    NewCard,
    Proof,
    Question,
    Run,
    Worker,
)
from hermes.kanban.creating import Created
from hermes.kanban.errors import MoveRefused
from hermes.kanban.leading import Notification, Stats
from hermes.kanban.reading import CardFilter, CardView
from hermes.kanban.repairing import Mended
from hermes.kanban.store import Database, Location, Tx

__all__ = ["BoardCards"]

_T = TypeVar("_T")


class BoardCards:
    """The half of `Board` that moves no work. `here` is the machine and home that acts."""

    def __init__(self, database: Database, here: Worker, *, profiles: Collection[str] | None = None) -> None:
        self.database = database
        self.here = here
        self.profiles = profiles

    @property
    def location(self) -> Location:
        """Where it is."""
        return self.database.location

    def close(self) -> None:
        """Close its connections."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _once(self, key: str | None, kind: type[_T], work: Callable[[Tx], _T]) -> _T:
        with self.database.write() as tx:
            if key is not None:
                known = tx.value(sa.select(t.calls.c.answer).where(t.calls.c.key == key))
                if known is not None:
                    return msgspec.convert(known, kind)
            answer = work(tx)
            if key is not None:
                tx.run(t.calls.insert().values(key=key, answer=msgspec.to_builtins(answer), created_at=tx.now))
            return answer

    def _known(self, profile: str | None) -> None:
        name = creating.name_of(profile)
        if name is not None and self.profiles is not None and name not in self.profiles:
            near = get_close_matches(name, self.profiles, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise UsageError(
                f"there is no profile {name!r}.{hint} Known: {', '.join(sorted(self.profiles)) or 'none'}; "
                f"`hermes profile create {name}` makes one."
            )

    # -- reading ------------------------------------------------------------------------------------------------------

    def cards(self, wanted: CardFilter | None = None) -> list[Card]:
        """Cards that a filter lets through, in its order."""
        with self.database.read() as tx:
            return reading.cards_like(tx, wanted or CardFilter())

    def ended(self, ids: Collection[str]) -> dict[str, float]:
        """When each of these cards ended, of those that have."""
        with self.database.read() as tx:
            return reading.ended(tx, ids)

    def find(self, name: str) -> Card:
        """A card by its id or the beginning of it. Raises `CardNotFound`."""
        with self.database.read() as tx:
            return reading.card_by_id(tx, reading.resolve(tx, name))

    def show(self, name: str) -> CardView:
        """A card with everything that hangs on it. Raises `CardNotFound`."""
        with self.database.read() as tx:
            return reading.view(tx, reading.resolve(tx, name))

    def events(
        self, after: int = 0, *, card: str | None = None, kinds: Collection[str] = (), limit: int = 500
    ) -> list[CardEvent]:
        """Events newer than number `after`, oldest first."""
        with self.database.read() as tx:
            card_id = reading.resolve(tx, card) if card is not None else None
            return reading.events_after(tx, after, card_id=card_id, kinds=kinds, limit=limit)

    def newest_events(
        self, *, card: str | None = None, kinds: Collection[str] = (), limit: int = 50
    ) -> list[CardEvent]:
        """The newest events, oldest first."""
        with self.database.read() as tx:
            card_id = reading.resolve(tx, card) if card is not None else None
            return reading.events_after(tx, 0, card_id=card_id, kinds=kinds, limit=limit, newest=True)

    def last_event(self) -> int:
        """The number of the newest event, 0 without any."""
        with self.database.read() as tx:
            return int(tx.value(sa.select(sa.func.max(t.events.c.id))) or 0)

    def run(self, run_id: str) -> Run:
        """A run by its id. Raises `CardNotFound`."""
        with self.database.read() as tx:
            return reading.run_by_id(tx, run_id)

    def runs(self, name: str) -> list[Run]:
        """Attempts at a card, oldest first."""
        with self.database.read() as tx:
            return reading.runs_of(tx, reading.resolve(tx, name))

    def live_runs(self) -> list[Run]:
        """Runs, on any host, whose process is not known to be gone; each keeps its card from being taken."""
        with self.database.read() as tx:
            return reading.runs_with_process(tx)

    def resumable(self, run: Run) -> Run | None:
        """The newest earlier run of the same card, profile, step, home and workspace that has a session to go on with.

        None where there is none: the worker then starts anew with `worker_context`.
        """
        earlier = [
            each
            for each in self.runs(run.card_id)
            if each.id != run.id
            and each.session_id
            and (each.profile, each.step, each.workspace, each.host_id, each.home_id)
            == (run.profile, run.step, run.workspace, run.host_id, run.home_id)
        ]
        return earlier[-1] if earlier else None

    def questions(self, *, answered: bool = False) -> list[Question]:
        """Questions that wait for a person; with `answered` all."""
        with self.database.read() as tx:
            return reading.questions_open(tx, answered=answered)

    def all_links(self) -> list[Link]:
        """Every link of the board."""
        with self.database.read() as tx:
            return reading.all_links(tx)

    def stats(self) -> Stats:
        """The board in numbers."""
        with self.database.read() as tx:
            return leading.stats(tx)

    def spending(self, by: str, since: str | None = None) -> list[Spending]:
        """Spending by `card`, `profile` or `day`; `since` is a date such as 2026-02-25."""
        with self.database.read() as tx:
            return spending(tx, by, since)

    # -- cards and what hangs on them ---------------------------------------------------------------------------------

    def create(self, order: NewCard, *, author: str, claim: Claim | None = None, key: str | None = None) -> Created:
        """Make a card; a known `idempotency_key` returns the card that has it. `claim` is the asking worker's."""
        self._known(order.assignee)
        self._known(order.reviewer)

        def work(tx: Tx) -> Created:
            if claim is not None:
                claiming.held(tx, claim)
            return creating.create(
                tx,
                order,
                author=author,
                here=self.here,
                claim=claim,
                host_id=self._pin(tx, order.workspace_kind, order),
            )

        return self._once(key, Created, work)

    def _pin(self, tx: Tx, kind: str, order: NewCard) -> str | None:
        """Where several hosts share a board, a folder is meant on the host that named it, unless it is shared too."""
        if kind == "scratch" or not self.database.is_postgres:
            return None
        shared = leading.get_meta(tx).get("shared_paths") or []
        path = Path(order.workspace_path or "/")
        return None if any(path.is_relative_to(each) for each in shared) else self.here.host_id

    def edit(self, name: str, changes: Mapping[str, Any], *, author: str) -> Card:
        """Change fields of a card (`creating.EDITABLE`)."""
        self._known(changes.get("reviewer"))
        with self.database.write() as tx:
            card_id = reading.resolve(tx, name)
            creating.edit(tx, card_id, author, changes)
            return reading.card_by_id(tx, card_id)

    def assign(self, name: str, profile: str | None, *, author: str) -> Card:
        """Give a card to a profile, None to nobody. Raises `StillRunning` while a worker has it."""
        self._known(profile)
        with self.database.write() as tx:
            card = reading.card_by_id(tx, reading.resolve(tx, name), lock=True)
            if card.status == "running" and card.current_run_id is not None:
                releasing.check_proof(tx, reading.run_by_id(tx, card.current_run_id), None)
            creating.assign(tx, card, profile, author, self.here)
            return reading.card_by_id(tx, card.id)

    def reassign(self, name: str, profile: str | None, *, author: str, reason: str = "") -> Card:
        """Give a card to another profile also while it runs: its worker is asked to stop, and the next run is the
        other's. From a person it is taken at once."""
        self._known(profile)
        with self.database.write() as tx:
            card = reading.card_by_id(tx, reading.resolve(tx, name), lock=True)
            run = reading.run_by_id(tx, card.current_run_id) if card.current_run_id is not None else None
            if run is not None and run.manual:
                proof = Proof(kind="ended", host_id=self.here.host_id, detail=reason or "given to somebody else")
                releasing.release(tx, run.id, "reclaimed", proof, author=author)
            elif run is not None:
                releasing.request_stop(tx, card, "ready", reason, author)
            creating.assign(tx, reading.card_by_id(tx, card.id), profile, author, self.here)
            return reading.card_by_id(tx, card.id)

    def link(
        self,
        parent: str,
        child: str,
        *,
        author: str,
        kind: LinkKind = "needs",
        key: str | None = None,
        claim: Claim | None = None,
    ) -> tuple[str, str]:
        """Make `child` wait for `parent` (`needs`), or only read it (`follows`); returns both ids in full.

        `claim` is the asking worker's.
        """

        def work(tx: Tx) -> tuple[str, str]:
            if claim is not None:
                claiming.held(tx, claim)
            pair = reading.resolve(tx, parent), reading.resolve(tx, child)
            linking.add_link(tx, author, *pair, kind)
            return pair

        return self._once(key, tuple[str, str], work)

    def unlink(self, parent: str, child: str, *, author: str) -> None:
        """Remove a link; the child becomes ready when nothing else holds it back."""
        with self.database.write() as tx:
            linking.remove_link(tx, author, reading.resolve(tx, parent), reading.resolve(tx, child))

    def comment(self, name: str, body: str, *, author: str, key: str | None = None, claim: Claim | None = None) -> int:
        """Write a comment and return its number. `claim` is the asking worker's."""

        def work(tx: Tx) -> int:
            if claim is not None:
                claiming.held(tx, claim)
            return creating.add_comment(tx, reading.resolve(tx, name), body, author)

        return self._once(key, int, work)

    def attach(
        self, name: str, file_name: str, data: bytes, *, author: str, media_type: str = "", claim: Claim | None = None
    ) -> Attachment:
        """Keep a file of at most 25 MB with a card."""
        with self.database.write() as tx:
            if claim is not None:
                claiming.held(tx, claim)
            return creating.attach(tx, reading.resolve(tx, name), file_name, data, author, media_type=media_type)

    def attachments(self, name: str) -> list[Attachment]:
        """Attachments of a card, without their bytes."""
        with self.database.read() as tx:
            return reading.attachments_of(tx, reading.resolve(tx, name))

    def attachment(self, name: str, file_name: str) -> bytes:
        """The bytes of an attachment, by name or number."""
        with self.database.read() as tx:
            return creating.attachment_data(tx, reading.resolve(tx, name), file_name)

    def detach(self, name: str, file_name: str, *, author: str) -> None:
        """Remove an attachment."""
        with self.database.write() as tx:
            creating.detach(tx, reading.resolve(tx, name), file_name, author)

    def heartbeat_by_hand(self, name: str, *, author: str, note: str = "") -> Card:
        """Say that a person still works on a card that was claimed by hand; a worker sends its own signs of life.

        Raises:
            MoveRefused: nobody works on it, or a worker does.
        """
        with self.database.write() as tx:
            card = reading.card_by_id(tx, reading.resolve(tx, name), lock=True)
            run = reading.run_by_id(tx, card.current_run_id) if card.current_run_id is not None else None
            if run is None:
                raise MoveRefused(
                    f"{card.id} is {card.status} and nobody works on it; `hermes kanban claim {card.id}`."
                )
            if not run.manual:
                raise MoveRefused(
                    f"{card.id} is worked on by {run.profile}, which sends its own signs of life; `hermes kanban show "
                    f"{card.id}` has the last one. Nothing was changed."
                )
            token = str(tx.value(sa.select(t.runs.c.token).where(t.runs.c.id == run.id)))
            claim = Claim(card_id=card.id, run_id=run.id, token=token)
            span = (run.expires or 0.0) - (run.heartbeat_at or run.started_at)  # as long again as it was taken for
            claiming.heartbeat(tx, claim, author, ttl=span, note=note or "still at it")
            return reading.card_by_id(tx, card.id)

    def rename_profile(self, old: str, new: str, *, author: str) -> list[str]:
        """Give what is for one profile to its new name; returns the open cards among it. May be done again."""
        with self.database.write() as tx:
            return renaming.rename_profile(tx, self.here, old, new, author)

    def repair(self, *, dry_run: bool = False) -> list[Mended]:
        """Put right what contradicts itself (`repairing`); with `dry_run` only say it."""
        with self.database.write() as tx:
            return repairing.repair(tx, dry_run=dry_run)

    def notify(self, name: str, occasions: Collection[str] | None, *, author: str) -> Card:
        """Have a card's occasions told (`telling.OCCASIONS`), or, with None, no longer beyond what is told anyway."""
        with self.database.write() as tx:
            card = reading.card_by_id(tx, reading.resolve(tx, name))
            leading.put_notification(tx, card.id, occasions, author)
            return card

    def notifications(self) -> list[Notification]:
        """Cards that somebody wants to be told of, oldest wish first."""
        with self.database.read() as tx:
            return leading.notifications(tx)

    def settle_plans(self, card_id: str) -> None:
        """Give back what plans of a card set aside and did not spend; the processes that made them are gone."""
        r = t.reservations.c
        with self.database.write(alone=False) as tx:
            mine = (r.card_id == card_id, r.run_id.startswith("plan_", autoescape=True), r.settled.is_(False))
            tx.run(t.reservations.update().where(*mine).values(settled=True))

    def take_news(self, kinds: Collection[str]) -> list[CardEvent]:
        """Events of these kinds since anybody took them, at most 200; the first time on a board none."""
        with self.database.read() as tx:
            newest = int(tx.value(sa.select(sa.func.max(t.events.c.id))) or 0)
            known = leading.get_meta(tx).get("told_up_to")
        if known == newest:
            return []
        with self.database.write() as tx:
            known = leading.get_meta(tx).get("told_up_to")
            newest = int(tx.value(sa.select(sa.func.max(t.events.c.id))) or 0)
            leading.put_meta(tx, {"told_up_to": newest})
            return [] if known is None else reading.events_after(tx, int(known), kinds=kinds, limit=200, newest=True)

    def once_a_day(self, what: str, day: str) -> bool:
        """Whether this is the first time on that day that `what`, a name of the board's own notes, is asked for."""
        with self.database.read() as tx:
            if leading.get_meta(tx).get(what) == day:
                return False
        with self.database.write() as tx:
            first = leading.get_meta(tx).get(what) != day
            leading.put_meta(tx, {what: day})
            return first

    def note(
        self,
        kind: str,
        *,
        author: str,
        card: str | None = None,
        run_id: str | None = None,
        claim: Claim | None = None,
        **payload: Any,
    ) -> None:
        """Write down an event that moves nothing (`respawn_guarded`, `reconciled`, …); `claim` is the worker's."""
        with self.database.write(alone=False) as tx:
            if claim is not None:
                claiming.held(tx, claim)
            tx.event(kind, author, card, run_id, **payload)
