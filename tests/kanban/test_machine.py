"""A board under arbitrary sequences of verbs, against what must hold after each of them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hermes.kanban.board import Board
from hermes.kanban.card import Claim, NewCard, Proof
from hermes.kanban.ending import Authority, Completion
from hermes.kanban.errors import BoardError, ClaimLost
from hermes.kanban.moves import MOVES, OPEN, OUTCOMES, STATUSES, allowed
from hermes.kanban.reading import CardFilter, all_links
from hermes.kanban.store import Location, open_database
from tests.kanban.conftest import HERE, StandingClock

ME = Authority(author="me")
ENDED = Proof(kind="ended", host_id=HERE.host_id)
PICK = st.integers(min_value=0, max_value=7)
FAILED = st.sampled_from(["crashed", "timed_out", "stale", "rate_limited", "reclaimed", "spawn_failed"])


class BoardMachine(RuleBasedStateMachine):
    """Cards, workers that come, go and return too late, and persons who interfere."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="hermes-board-")
        self.clock = StandingClock()
        path = Path(self.folder.name) / "kanban-board.db"
        self.board = Board(open_database(Location(slug="default", path=path), clock=self.clock), HERE)
        self.ids: list[str] = []
        self.claims: list[Claim] = []  # every claim there ever was
        self.gone: set[str] = set()
        self.attempts: dict[str, int] = {}
        self.last_event = 0

    def teardown(self) -> None:
        self.board.close()
        self.folder.cleanup()

    @initialize()
    def begin(self) -> None:
        self.make(None)
        self.make(None)

    def card(self, pick: int) -> str:
        return self.ids[pick % len(self.ids)]

    def may(self, work: Any) -> Any:
        """Do something that may be refused; refused, it has changed nothing but perhaps told an event."""
        before = {card.id: card for card in self.board.cards(CardFilter(archived=True))}
        try:
            return work()
        except BoardError:
            assert {card.id: card for card in self.board.cards(CardFilter(archived=True))} == before
            return None

    @rule(parent=st.none() | PICK)
    def make(self, parent: int | None) -> None:
        if len(self.ids) < 8:
            parents = (self.card(parent),) if parent is not None and self.ids else ()
            order = NewCard(title="x", assignee="coder", parents=parents, max_retries=3)
            self.ids.append(self.board.create(order, author="me").card.id)

    @rule(parent=PICK, child=PICK, kind=st.sampled_from(["needs", "follows"]))
    def link(self, parent: int, child: int, kind: Any) -> None:
        self.may(lambda: self.board.link(self.card(parent), self.card(child), author="me", kind=kind))

    @rule(parent=PICK, child=PICK)
    def unlink(self, parent: int, child: int) -> None:
        self.may(lambda: self.board.unlink(self.card(parent), self.card(child), author="me"))

    @rule(step=st.sampled_from(["work", "review"]))
    def claim(self, step: Any) -> None:
        taken = self.board.claim(profiles=["coder"], step=step)
        if taken is not None:
            busy = {claim.card_id for claim in self.claims if claim.run_id not in self.gone}
            assert taken.card.id not in busy, "two workers of one card"
            self.claims.append(taken.claim)
            self.attempts[taken.card.id] = taken.card.attempts

    @rule(pick=PICK, verb=st.sampled_from(["complete", "block", "question", "split", "review", "changes", "beat"]))
    def work(self, pick: int, verb: str) -> None:
        if not self.claims:
            return
        claim = self.claims[pick % len(self.claims)]
        by = Authority(author="coder", claim=claim)
        card = self.board.find(claim.card_id)
        holds = card.current_run_id == claim.run_id

        def do() -> Any:
            board, name = self.board, claim.card_id
            if verb == "complete":
                return board.complete(name, Completion(summary="x"), by)
            if verb == "block":
                return board.block(name, "cannot", by, kind="capability")
            if verb == "question":
                return board.block(name, "which?", by, kind="needs_input")
            if verb == "split":
                if len(self.ids) < 8:
                    order = NewCard(title="part", assignee="coder", parents=(name,))
                    self.ids.append(board.create(order, author="coder", claim=claim).card.id)
                return board.block(name, "waits", by, kind="dependency")
            if verb == "review":
                return board.request_review(name, "look", by)
            if verb == "changes":
                return board.request_changes(name, "again", by)
            return board.heartbeat(claim, author="coder")

        if holds:
            try:
                do()
            except ClaimLost:  # pragma: no cover
                raise AssertionError("a claim that holds was refused") from None
            except BoardError:
                pass
            return
        try:
            do()
        except ClaimLost:
            return
        raise AssertionError(f"{verb} of a lost claim was accepted")

    @rule(pick=PICK, outcome=FAILED)
    def release(self, pick: int, outcome: Any) -> None:
        if self.claims:
            claim = self.claims[pick % len(self.claims)]
            self.board.release(claim.run_id, outcome, ENDED, error="it died")
            self.gone.add(claim.run_id)

    @rule(
        pick=PICK,
        verb=st.sampled_from(["complete", "block", "unblock", "schedule", "archive", "reopen", "specify", "promote"]),
        proven=st.booleans(),
    )
    def person(self, pick: int, verb: str, proven: bool) -> None:
        name = self.card(pick)
        card = self.board.find(name)
        by = Authority(author="me", proof=ENDED if proven else None)
        verbs: dict[str, Any] = {
            "complete": lambda: self.board.complete(name, Completion(summary="x"), by),
            "block": lambda: self.board.block(name, "wait", by),
            "unblock": lambda: self.board.unblock(name, author="me"),
            "schedule": lambda: self.board.schedule(name, None, by),
            "archive": lambda: self.board.archive(name, by),
            "reopen": lambda: self.board.reopen(name, author="me", review=proven),
            "specify": lambda: self.board.specify(name, author="me"),
            "promote": lambda: self.board.promote(name, author="me"),
        }
        done = self.may(verbs[verb])
        if done is not None and card.status == "running":
            assert proven, "a running card was moved without proof"
            self.gone.add(str(card.current_run_id))

    @rule(pick=PICK, then=st.sampled_from(["archived", "blocked", "scheduled", "ready"]))
    def wish(self, pick: int, then: Any) -> None:
        self.may(lambda: self.board.request_stop(self.card(pick), then, author="me"))

    @rule(pick=PICK)
    def answer(self, pick: int) -> None:
        self.may(lambda: self.board.answer(self.card(pick), "this one", author="me"))

    @rule()
    def tick(self) -> None:
        self.clock.at += 10
        self.board.promote(author="dispatcher")

    @invariant()
    def states_agree(self) -> None:
        cards = {card.id: card for card in self.board.cards(CardFilter(archived=True))}
        with self.board.database.read() as tx:
            needs = all_links(tx, ["needs"])
        for link in needs:
            waits = cards[link.parent_id].status in OPEN
            assert not (waits and cards[link.child_id].status == "ready"), "ready, though it needs an open card"
        alive = {run.id: run for run in self.board.live_runs()}
        held = {claim.run_id for claim in self.claims} - self.gone
        assert set(alive) == held
        for card in cards.values():
            assert card.status in STATUSES and (card.status == "archived" or allowed(card.status))
            assert (card.status == "running") == (card.current_run_id is not None)
            assert card.status != "running" or card.current_run_id in alive
            assert card.attempts >= self.attempts.get(card.id, 0)
            assert card.status != "done" or card.completed_at is not None

    @invariant()
    def no_cycle(self) -> None:
        with self.board.database.read() as tx:
            edges = [(link.parent_id, link.child_id) for link in all_links(tx, ["needs"])]
        left = set(self.ids)
        while left:
            free = {each for each in left if not any(child == each and parent in left for parent, child in edges)}
            assert free, "a cycle"
            left -= free

    @invariant()
    def every_end_has_an_outcome(self) -> None:
        for name in self.ids:
            for run in self.board.runs(name):
                assert (run.outcome is None) == (run.ended_at is None)
                assert run.outcome is None or run.outcome in OUTCOMES


@pytest.mark.timeout(600)  # ten seconds of work, which a busy machine does in minutes
class TestBoard(BoardMachine.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(
        max_examples=25,
        stateful_step_count=25,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )


def test_the_table_is_whole() -> None:
    """Every state can be left, or is the last; every verb starts and ends in states there are."""
    for verb, move in MOVES.items():
        assert set(move.sources) <= set(STATUSES) and set(move.targets) <= set(STATUSES), verb
        assert move.sources and move.targets and move.meaning
    for status in STATUSES:
        assert allowed(status) or status == "archived"
        assert any(status in move.targets for move in MOVES.values())
