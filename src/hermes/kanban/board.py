"""One board: every verb of it, each a transaction. Tools, command line, dispatcher and workers all go through here.

Calls block. `AsyncBoard` runs them on a thread for an event loop. `author` is who is named in the events: a profile, or
a person. What a worker does carries its `Claim`; what is done to a running card by others a `Proof` that its worker is
gone. A `key` (the key of a tool call) makes a verb safe to repeat: the second time gives the first answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from msgspec.structs import replace

from hermes.core.clock import NO_HOLD, Clock, Hold, held
from hermes.core.ids import random_hex
from hermes.kanban import claiming, creating, ending, leading, linking, reading, releasing
from hermes.kanban.board_cards import BoardCards
from hermes.kanban.budgets import Reserve, reserve, reserved, settle, spent
from hermes.kanban.card import BlockKind, Card, Check, Claim, Proof, Question, Worker
from hermes.kanban.claiming import Beat, Claimed
from hermes.kanban.creating import Part
from hermes.kanban.ending import Authority, Completion
from hermes.kanban.errors import MoveRefused, StillRunning
from hermes.kanban.leading import Failure, Lease, Queued, Reason
from hermes.kanban.moves import Outcome, Status, Step, check_move
from hermes.kanban.releasing import Released
from hermes.kanban.store import Location, Tx, open_database

__all__ = ["CLAIM_SECONDS", "AsyncBoard", "Board", "open_board"]

#: How long a claim holds without a sign of life: 15 minutes, as users of such boards know it.
CLAIM_SECONDS = 900.0
_T = TypeVar("_T")


def open_board(
    location: Location, here: Worker, *, clock: Clock | None = None, profiles: Collection[str] | None = None
) -> Board:
    """Open a board, made if it is not there; `profiles` are the names that may be assigned (None: not checked).

    Raises:
        StoreError, OperatorError: it cannot be used; the text says why and what to do.
    """
    return Board(open_database(location, clock=clock), here, profiles=profiles)


class Board(BoardCards):
    """An open board. `here` is the machine and home that acts. Close it, or use it as a context."""

    # -- workers ------------------------------------------------------------------------------------------------------

    def claim(
        self,
        *,
        profiles: Sequence[str],
        author: str = "dispatcher",
        card: str | None = None,
        ttl: float = CLAIM_SECONDS,
        step: Step = "work",
        profile: str | None = None,
        money: Reserve | None = None,
        worker: Worker | None = None,
    ) -> Claimed | None:
        """Take the first card of these profiles that may be taken, or `card` if it may; None if none.

        The attempt is counted now, before anything starts. `profile` is who runs it (default: assignee, or reviewer).

        Raises:
            BudgetSpent: the limits of `money` leave nothing for it; nothing was taken.
        """
        with self.database.write(alone=money is not None) as tx:
            return claiming.claim(
                tx, worker or self.here, profiles=profiles, author=author, card_id=card, ttl=ttl, step=step,
                profile=profile, money=money,
            )  # fmt: skip

    def claim_by_hand(self, name: str, *, author: str, ttl: float | None = None) -> Claimed:
        """Take a card for a person: no process, no signs of life needed, no end unless `ttl` (seconds) is given.

        Raises:
            MoveRefused: it cannot be taken in this state. StillRunning: not now.
        """
        with self.database.write() as tx:
            card = reading.card_by_id(tx, reading.resolve(tx, name), lock=True)
            check_move(card.id, card.status, "claim")
            step: Step = "review" if card.status == "review" else "work"
            taken = claiming.claim(
                tx, self.here, profiles=None, author=author, card_id=card.id, ttl=ttl, step=step, profile=author,
                manual=True,
            )  # fmt: skip
            if taken is None:
                raise StillRunning(
                    f"{card.id} is {card.status} and cannot be taken now: it waits for a card, a time, another host, "
                    f"or an earlier run's process. `hermes kanban why {card.id}` says which."
                )
            return taken

    def heartbeat(self, claim: Claim, *, author: str, note: str = "", ttl: float = CLAIM_SECONDS) -> Beat:
        """Prolong a claim; `Beat.stop` says that a person wants the run to end. Raises `ClaimLost`."""
        with self.database.write(alone=False) as tx:
            return claiming.heartbeat(tx, claim, author, ttl=ttl, note=note)

    def note_process(self, claim: Claim, *, author: str, **fields: str | int | None) -> None:
        """Write down where a run lives (`claiming.PROCESS_FIELDS`). Raises `ClaimLost`."""
        unknown = [name for name in fields if name not in claiming.PROCESS_FIELDS]
        if unknown:
            raise TypeError(f"a run has no field {unknown[0]!r}")
        with self.database.write(alone=False) as tx:
            claiming.note_process(tx, claim, author, fields)

    def release(
        self,
        run_id: str,
        outcome: Outcome,
        proof: Proof,
        *,
        author: str = "dispatcher",
        error: str = "",
        failure_limit: int | None = None,
        cooldown: float = 0.0,
    ) -> Released:
        """Record that a run's worker is gone, however the run stands; a card it still held is free again.

        Counts failures and puts the card aside at the limit. Raises `StillRunning` when the proof does not hold.
        """
        with self.database.write() as tx:
            return releasing.release(
                tx, run_id, outcome, proof, author=author, error=error, failure_limit=failure_limit, cooldown=cooldown
            )

    def note_work(self, run_id: str, commit: str, uncommitted: Sequence[str]) -> None:
        """Keep with a run that is over its branch's commit, and what it left uncommitted."""
        with self.database.write(alone=False) as tx:
            releasing.note_work(tx, run_id, commit, uncommitted)

    def request_stop(self, name: str, then: Status, *, author: str, reason: str = "") -> Card:
        """Ask a running card's worker to stop (`Beat.stop`); once it is released the card goes to `then`."""
        with self.database.write() as tx:
            card = reading.card_by_id(tx, reading.resolve(tx, name), lock=True)
            releasing.request_stop(tx, card, then, reason, author)
            return reading.card_by_id(tx, card.id)

    def forgive(self, run_ids: Sequence[str], *, author: str) -> None:
        """Take failures off their cards' counts: what broke was not theirs."""
        with self.database.write() as tx:
            releasing.forgive(tx, run_ids, author)

    def failures(self, since: float) -> list[Failure]:
        """Failed runs that ended after `since`, oldest first; the same error has the same fingerprint."""
        with self.database.read() as tx:
            return leading.failures_since(tx, since)

    def spend(self, run_id: str, *, usd: float, tokens: int, final: bool = False) -> bool:
        """Note what a run has taken so far; `final` gives the rest of its reservation back. False: it has none."""
        with self.database.write(alone=False) as tx:
            return settle(tx, run_id, usd=usd, tokens=tokens, final=final)

    def reserve_plan(self, name: str, money: Reserve, *, profile: str) -> str:
        """Set aside what planning a card may take; returns the name by which it is spent.

        Raises:
            BudgetSpent: a limit leaves nothing for it.
        """
        with self.database.write() as tx:
            card = reading.card_by_id(tx, reading.resolve(tx, name))
            run_id = f"plan_{random_hex(12)}"
            reserve(tx, money, card, run_id, profile)
            return run_id

    def reserved(self, run_id: str) -> tuple[float, int] | None:
        """Dollars and tokens set aside for a run; None where no money is counted."""
        with self.database.read() as tx:
            return reserved(tx, run_id)

    def spent(self, run_id: str) -> tuple[float, int] | None:
        """Dollars and tokens that a run has noted; None where no money is counted."""
        with self.database.read() as tx:
            return spent(tx, run_id)

    def clock(self) -> float:
        """The board's clock."""
        with self.database.read() as tx:
            return tx.now

    # -- moves --------------------------------------------------------------------------------------------------------

    def _moved(self, name: str, by: Authority, key: str | None, work: Callable[[Tx, str], Any]) -> Card:
        """Do a move; repeated with its key it is not done again, and the card is answered as it is now."""

        def once(tx: Tx) -> str:
            card_id = by.claim.card_id if by.claim is not None else reading.resolve(tx, name)
            work(tx, card_id)
            return card_id

        return self.find(self._once(key, str, once))

    def complete(self, name: str, done: Completion, by: Authority, *, key: str | None = None) -> Card:
        """Finish a card, or hand it to its reviewer (`status` tells).

        Raises:
            BoardError: an open parent, cards that were not made, a check that failed, a command that was refused.
            ClaimLost, StillRunning, MoveRefused: it is not this caller's to finish.
        """
        return self._moved(name, by, key, lambda tx, card_id: ending.complete(tx, card_id, done, by))

    def report_check(self, claim: Claim, check: Check, *, author: str, key: str | None = None) -> str:
        """Note a failed check: `again` (go on working), or `review` (the second time; the run has ended)."""
        return self._once(key, str, lambda tx: ending.report_check(tx, claim, check, author))

    def block(
        self, name: str, reason: str, by: Authority, *, kind: BlockKind | None = None, choices: Sequence[str] = (),
        key: str | None = None,
    ) -> Card:  # fmt: skip
        """Set a card aside: `blocked`, `todo` (it waits for cards), or `triage` (the same block again)."""
        return self._moved(
            name, by, key, lambda tx, card_id: ending.block(tx, card_id, reason, kind, by, choices=choices)
        )

    def unblock(self, name: str, *, author: str, key: str | None = None) -> Card:
        """Let a blocked or parked card go on."""
        by = Authority(author=author)
        return self._moved(name, by, key, lambda tx, card_id: ending.unblock(tx, card_id, author))

    def answer(self, name: str, text: str, *, author: str) -> Question:
        """Answer a card's open question (by card or question number); the card goes on."""
        with self.database.write() as tx:
            which = name if name.isdigit() else reading.resolve(tx, name)
            return ending.answer(tx, which, text, author)

    def request_review(
        self, name: str, summary: str, by: Authority, *, metadata: dict[str, Any] | None = None,
        reviewer: str | None = None, key: str | None = None,
    ) -> Card:  # fmt: skip
        """Hand a card to a reviewer."""
        self._known(reviewer)
        return self._moved(
            name, by, key,
            lambda tx, card_id: ending.request_review(tx, card_id, summary, by, metadata=metadata, reviewer=reviewer),
        )  # fmt: skip

    def request_changes(self, name: str, reason: str, by: Authority, *, key: str | None = None) -> Card:
        """Send a reviewed card back, with the reason as a comment."""
        return self._moved(name, by, key, lambda tx, card_id: ending.request_changes(tx, card_id, reason, by))

    def schedule(self, name: str, at: float | None, by: Authority) -> Card:
        """Park a card, until a time or for good. A running one needs its worker gone."""
        return self._moved(name, by, None, lambda tx, card_id: ending.schedule(tx, card_id, at, by))

    def archive(self, name: str, by: Authority) -> Card:
        """Put a card away. A running one needs its worker gone."""
        return self._moved(name, by, None, lambda tx, card_id: ending.archive(tx, card_id, by))

    def reopen(self, name: str, *, author: str, review: bool = True) -> Card:
        """Take a finished card up again, to be judged or worked on."""
        by = Authority(author=author)
        return self._moved(name, by, None, lambda tx, card_id: ending.reopen(tx, card_id, author, review=review))

    def specify(self, name: str, *, author: str, title: str | None = None, body: str | None = None) -> Card:
        """Make a task of a card in `triage`."""
        by = Authority(author=author)
        return self._moved(
            name, by, None, lambda tx, card_id: ending.specify(tx, card_id, author, title=title, body=body)
        )

    def split(
        self, name: str, parts: Sequence[Part], *, author: str, assignee: str | None, title: str | None = None,
        body: str | None = None, acceptance: str | None = None,
    ) -> list[Card]:  # fmt: skip
        """Make a task of a card in `triage`, with cards that it will wait for; all of it or nothing.

        Raises:
            BoardError: they wait for each other in a circle. MoveRefused: the card is not in triage.
        """
        for profile in (assignee, *(part.order.assignee for part in parts)):
            self._known(profile)
        with self.database.write() as tx:
            card = reading.card_by_id(tx, reading.resolve(tx, name), lock=True)
            check_move(card.id, card.status, "specify")
            made = [
                creating.create(
                    tx, replace(part.order, session_id=card.session_id), author=author, here=self.here, claim=None,
                    host_id=self._pin(tx, part.order.workspace_kind, part.order),
                ).card.id
                for part in parts
            ]  # fmt: skip
            for number, part in enumerate(parts):
                for other in part.needs:
                    linking.add_link(tx, author, made[other], made[number])
            for each in made:
                linking.add_link(tx, author, each, card.id)
            creating.assign(tx, card, assignee, author, self.here)
            if acceptance:
                creating.edit(tx, card.id, author, {"acceptance": acceptance})
            ending.specify(tx, card.id, author, title=title, body=body, kind="decomposed" if made else "specified")
            return [reading.card_by_id(tx, each) for each in made]

    def promote(self, name: str | None = None, *, author: str) -> list[str]:
        """Make ready what nothing holds back (its parents ended, its time came); returns the ids.

        With a name that card alone. Raises `MoveRefused` when it still needs an open one.
        """
        with self.database.write() as tx:
            if name is None:
                return linking.promote(tx, author)
            card = reading.card_by_id(tx, reading.resolve(tx, name), lock=True)
            check_move(card.id, card.status, "promote")
            waiting = reading.open_parents(tx, card.id)
            if waiting:
                names = ", ".join(f"{parent.id} ({parent.status})" for parent in waiting)
                raise MoveRefused(
                    f"{card.id} waits for {names}. Finish or archive them, or `hermes kanban unlink {waiting[0].id} "
                    f"{card.id}`. Nothing was changed."
                )
            if card.status == "triage":
                ending.specify(tx, card.id, author)
            elif card.status == "scheduled":
                ending.unblock(tx, card.id, author)
            else:
                linking.promote(tx, author, [card.id])
            return [card.id]

    # -- serving ------------------------------------------------------------------------------------------------------

    def lead(self, name: str, holder: str, *, token: str | None, ttl: float) -> tuple[bool, Lease]:
        """Take or keep a lease of the board by name (`dispatcher`); `token` is the one of the last success."""
        with self.database.write() as tx:
            return leading.lead(tx, name, holder, token, ttl)

    def let_go(self, name: str, token: str) -> None:
        """Give a lease back."""
        with self.database.write() as tx:
            leading.let_go(tx, name, token)

    def leader(self, name: str) -> Lease | None:
        """Who holds a lease now."""
        with self.database.read() as tx:
            return leading.leader(tx, name)

    def leaders(self, prefix: str) -> dict[str, Lease]:
        """Leases that hold now and whose names begin so."""
        with self.database.read() as tx:
            return leading.leaders(tx, prefix)

    def queue(self) -> list[Queued]:
        """Cards that are ready or wait for a review, in the order in which they are taken."""
        with self.database.read() as tx:
            return leading.queue(tx)

    def note_reasons(self, reasons: Sequence[Reason]) -> int:
        """Replace what the last pass noted of the cards it left alone; returns how many rows changed."""
        with self.database.write(alone=False) as tx:
            return leading.note_reasons(tx, reasons)

    def reasons(self, name: str | None = None) -> list[Reason]:
        """Why the last pass left cards alone."""
        with self.database.read() as tx:
            return leading.reasons_of(tx, None if name is None else reading.resolve(tx, name))

    def meta(self) -> dict[str, Any]:
        """What is noted of the board itself: `slug`, `shared_paths`, `paused`, and whatever its users put there."""
        with self.database.read() as tx:
            return leading.get_meta(tx)

    def set_meta(self, values: Mapping[str, Any]) -> None:
        """Note something of the board itself; None removes it."""
        with self.database.write() as tx:
            leading.put_meta(tx, values)

    def prune(self, *, keep_days: float) -> int:
        """Remove events of ended cards and remembered answers that are older; returns how many rows."""
        with self.database.write() as tx:
            return leading.prune(tx, before=tx.now - keep_days * 86_400)


class AsyncBoard:
    """A board for an event loop: `await board.run(lambda board: board.show(name))`.

    Each call runs on a thread, on SQLite one at a time; one that was begun is finished even if the caller is cancelled.
    """

    def __init__(self, board: Board, *, hold: Hold = NO_HOLD) -> None:
        self.board = board
        self._hold = hold
        self._limit = anyio.CapacityLimiter(4 if board.database.is_postgres else 1)

    async def run(self, work: Callable[[Board], _T]) -> _T:
        """Do something with the board and return what it returns; raises what it raises."""
        with held(self._hold):
            return await anyio.to_thread.run_sync(work, self.board, limiter=self._limit)

    async def close(self) -> None:
        """Close it."""
        await self.run(Board.close)
