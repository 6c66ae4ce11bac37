"""The circuit breaker, the money, and who serves a board."""

from __future__ import annotations

import pytest

from hermes.kanban.board import Board
from hermes.kanban.budgets import Reserve
from hermes.kanban.card import NewCard, Proof, fingerprint
from hermes.kanban.ending import Authority, Completion
from hermes.kanban.errors import BudgetSpent
from hermes.kanban.leading import Reason
from tests.kanban.conftest import HERE, THERE, StandingClock

ENDED = Proof(kind="ended", host_id=HERE.host_id)


def run_once(board: Board, card: str, outcome: str, **more: object) -> bool:
    taken = board.claim(profiles=["coder"], card=card)
    if taken is None:
        return False
    board.release(taken.claim.run_id, outcome, ENDED, **more)  # type: ignore[arg-type]
    return True


@pytest.mark.fault("B072")
@pytest.mark.parametrize("outcome", ["crashed", "stale", "spawn_failed", "timed_out"])
def test_a_card_that_dies_at_its_start_is_tried_twice(board: Board, outcome: str) -> None:
    card = board.create(NewCard(title="x", assignee="coder"), author="me").card
    assert [run_once(board, card.id, outcome, error="exit 1") for _ in range(10)] == [True, True] + [False] * 8
    found = board.find(card.id)
    assert (found.status, found.consecutive_failures, found.last_failure_error) == ("blocked", 2, "exit 1")
    gave_up = board.events(card=card.id, kinds=["gave_up"])
    assert [event.payload for event in gave_up] == [
        {"failures": 2, "effective_limit": 2, "limit_source": "default", "error": "exit 1"}
    ]


@pytest.mark.fault("B098")
@pytest.mark.parametrize(("own", "configured", "runs"), [(3, None, 3), (None, 4, 4), (1, 4, 1)])
def test_attempts_are_counted_before_they_start_and_the_nearest_limit_counts(
    board: Board, own: int | None, configured: int | None, runs: int
) -> None:
    card = board.create(NewCard(title="x", assignee="coder", max_retries=own), author="me").card
    for number in range(10):
        taken = board.claim(profiles=["coder"], card=card.id)
        if taken is None:
            break
        assert board.find(card.id).attempts == number + 1
        board.release(taken.claim.run_id, "crashed", ENDED, failure_limit=configured)
    assert number == runs and board.find(card.id).attempts == runs


@pytest.mark.fault("B073")
def test_the_same_error_of_all_cards_is_seen_and_not_counted_against_them(board: Board, clock: StandingClock) -> None:
    cards = [board.create(NewCard(title=str(n), assignee="coder"), author="me").card for n in range(5)]
    began = clock.at
    clock.at += 1
    for number, card in enumerate(cards):
        run_once(board, card.id, "crashed", error=f"502 from provider, request {number}00{number}")
    failures = board.failures(began)
    assert len({failure.error_fingerprint for failure in failures}) == 1 and len(failures) == 5
    board.forgive([failure.run_id for failure in failures], author="dispatcher")
    board.forgive([failure.run_id for failure in failures], author="dispatcher")
    assert {board.find(card.id).consecutive_failures for card in cards} == {0}
    assert not any(failure.counted for failure in board.failures(began))


@pytest.mark.fault("B073")
def test_promotion_never_resets_the_count(board: Board) -> None:
    parent = board.create(NewCard(title="p"), author="me").card
    card = board.create(NewCard(title="x", assignee="coder"), author="me").card
    run_once(board, card.id, "crashed", error="boom")
    board.link(parent.id, card.id, author="me")
    board.unlink(parent.id, card.id, author="me")
    run_once(board, card.id, "crashed", error="boom")
    assert board.find(card.id).status == "blocked"


def test_a_rate_limit_counts_for_nothing_and_waits(board: Board, clock: StandingClock) -> None:
    card = board.create(NewCard(title="x", assignee="coder"), author="me").card
    assert run_once(board, card.id, "rate_limited", cooldown=300.0)
    assert board.find(card.id).consecutive_failures == 0
    assert board.claim(profiles=["coder"]) is None
    clock.at += 301
    assert board.claim(profiles=["coder"]) is not None


@pytest.mark.parametrize("reset", ["unblock", "assign", "reclaim"])
def test_what_resets_the_count(board: Board, reset: str) -> None:
    card = board.create(NewCard(title="x", assignee="coder", max_retries=1), author="me").card
    run_once(board, card.id, "crashed")
    assert board.find(card.id).consecutive_failures == 1
    if reset == "unblock":
        board.unblock(card.id, author="me")
    elif reset == "assign":
        board.assign(card.id, "tester", author="me")
    else:
        board.edit(card.id, {"max_retries": 5}, author="me")
        board.unblock(card.id, author="me")
        run_once(board, card.id, "crashed")
        run_once(board, card.id, "reclaimed")
    assert board.find(card.id).consecutive_failures == 0


@pytest.mark.fault("B074")
def test_a_run_that_completed_and_then_died_stays_done(board: Board) -> None:
    card = board.create(NewCard(title="x", assignee="coder"), author="me").card
    taken = board.claim(profiles=["coder"])
    assert taken is not None
    board.complete(card.id, Completion(summary="x"), Authority(author="coder", claim=taken.claim))
    released = board.release(taken.claim.run_id, "crashed", ENDED, error="killed")
    assert (released.card.status, released.counted) == ("done", False)
    assert [run.outcome for run in board.runs(card.id)] == ["completed"] and board.live_runs() == []
    assert board.claim(profiles=["coder"]) is None


@pytest.mark.fault("B093")
def test_a_card_for_the_default_profile_is_its_own_homes(board: Board) -> None:
    board.create(NewCard(title="x", assignee="default"), author="me")
    board.create(NewCard(title="y", assignee="coder"), author="me")
    taken = board.claim(profiles=["default", "coder"], worker=THERE)
    assert taken is not None and taken.card.title == "y"
    assert board.claim(profiles=["default", "coder"], worker=THERE) is None
    mine = board.claim(profiles=["default"])
    assert mine is not None and mine.card.title == "x"


def test_money_is_set_aside_before_a_run_and_given_back_after(board: Board, clock: StandingClock) -> None:
    cards = [board.create(NewCard(title=str(n), assignee="coder"), author="me").card for n in range(3)]
    money = Reserve(usd=2.0, card_usd=3.0, day_usd=5.0)
    first = board.claim(profiles=["coder"], card=cards[0].id, money=money)
    second = board.claim(profiles=["coder"], card=cards[1].id, money=money)
    assert first is not None and second is not None
    with pytest.raises(BudgetSpent, match=r"the board today .* has spent or set aside \$4 of \$5 and a run needs \$2"):
        board.claim(profiles=["coder"], card=cards[2].id, money=money)
    assert board.find(cards[2].id).status == "ready" and board.find(cards[2].id).attempts == 0
    assert board.spend(first.claim.run_id, usd=0.5, tokens=1000, final=True)
    third = board.claim(profiles=["coder"], card=cards[2].id, money=money)
    assert third is not None
    board.spend(third.claim.run_id, usd=2.75, tokens=9000)
    assert [(each.name, each.usd, each.tokens) for each in board.spending("card")][0] == (cards[2].id, 2.75, 9000)
    (day,) = board.spending("day")
    assert (day.usd, day.reserved_usd, day.runs) == (3.25, 4.0, 3)
    board.spend(third.claim.run_id, usd=2.75, tokens=9000, final=True)
    assert not board.spend(third.claim.run_id, usd=0, tokens=0)
    board.release(third.claim.run_id, "crashed", ENDED)
    with pytest.raises(BudgetSpent, match=f"card {cards[2].id} has spent or set aside"):
        board.claim(profiles=["coder"], card=cards[2].id, money=money)
    clock.at += 86_400
    board.edit(cards[2].id, {"budget_usd": 10.0}, author="me")
    assert board.claim(profiles=["coder"], card=cards[2].id, money=money) is not None


def test_what_a_profile_spent_follows_its_name_and_no_other_homes(board: Board) -> None:
    money = Reserve(usd=1.0, tokens=10)
    mine, theirs, planned = (
        board.create(NewCard(title=title, assignee="coder"), author="me").card
        for title in ("mine", "theirs", "planned")
    )
    for card, worker, usd in ((mine, HERE, 0.25), (theirs, THERE, 0.5)):
        taken = board.claim(profiles=["coder"], card=card.id, money=money, worker=worker)
        assert taken is not None
        board.spend(taken.claim.run_id, usd=usd, tokens=1, final=True)
    board.spend(board.reserve_plan(planned.id, money, profile="coder"), usd=0.125, tokens=1, final=True)
    for _ in range(2):
        board.rename_profile("coder", "builder", author="me")
        spent = [(each.name, each.usd, each.runs) for each in board.spending("profile")]
        assert spent == [("coder", 0.5, 1), ("builder", 0.375, 2)]


@pytest.mark.fault("B080")
def test_one_leads_and_another_takes_over(board: Board, clock: StandingClock) -> None:
    led, lease = board.lead("dispatcher", "a", token=None, ttl=30)
    assert led and not board.lead("dispatcher", "b", token=None, ttl=30)[0]
    # A second process of the same name has not the token.
    assert not board.lead("dispatcher", "a", token=None, ttl=30)[0]
    clock.at += 20
    assert board.lead("dispatcher", "a", token=lease.token, ttl=30)[0]
    clock.at += 31
    assert board.leader("dispatcher") is None
    taken, new = board.lead("dispatcher", "b", token=None, ttl=30)
    assert taken and not board.lead("dispatcher", "a", token=lease.token, ttl=30)[0]
    board.let_go("dispatcher", new.token)
    assert board.lead("dispatcher", "a", token=None, ttl=30)[0]


@pytest.mark.fault("B082")
def test_why_cards_were_left_alone_is_kept_until_it_changes(board: Board, clock: StandingClock) -> None:
    one, two = (board.create(NewCard(title=n, assignee="coder"), author="me").card for n in "12")
    cap = [Reason(card_id=card.id, reason="cap", detail="4 of 4 run", cure="wait") for card in (one, two)]
    assert board.note_reasons(cap) == 2
    since = board.reasons(one.id)[0].since
    clock.at += 60
    assert board.note_reasons(cap) == 0 and board.reasons(one.id)[0].since == since
    assert board.note_reasons([Reason(card_id=one.id, reason="no profile")]) == 2
    (left,) = board.reasons()
    assert (left.card_id, left.reason, left.since) == (one.id, "no profile", clock.at)


def test_errors_are_the_same_but_for_numbers_and_ids() -> None:
    assert fingerprint("pid 17: 0xdead request 0123456789ab  failed") == fingerprint(
        "PID 4: 0x1 request ffffffff failed"
    )
    assert fingerprint("no such file") != fingerprint("permission denied")


def test_old_events_of_ended_cards_go(board: Board, clock: StandingClock) -> None:
    done, still = (board.create(NewCard(title=n), author="me", key=n).card for n in "12")
    board.complete(done.id, Completion(summary="x"), Authority(author="me"))
    clock.at += 31 * 86_400
    newest = board.last_event()
    assert board.prune(keep_days=30) == 3
    assert [event.id for event in board.events(card=done.id)] == [newest], "its number is never given again"
    board.comment(still.id, "later", author="me")
    clock.at += 31 * 86_400
    assert board.prune(keep_days=30) == 1 and board.events(card=done.id) == []
    assert len(board.events(card=still.id)) == 2


def test_a_run_goes_on_in_the_session_of_the_last_one_in_the_same_place(board: Board) -> None:
    card = board.create(NewCard(title="x", assignee="coder", max_retries=9), author="me").card
    first = board.claim(profiles=["coder"])
    assert first is not None
    board.note_process(first.claim, author="coder", pid=7, workspace="/w/1", session_id="s1")
    board.release(first.claim.run_id, "crashed", ENDED)
    again = board.claim(profiles=["coder"])
    assert again is not None
    board.note_process(again.claim, author="coder", pid=8, workspace="/w/1")
    found = board.resumable(board.run(again.claim.run_id))
    assert found is not None and (found.session_id, found.id) == ("s1", first.claim.run_id)
    board.note_process(again.claim, author="coder", workspace="/w/2")
    assert board.resumable(board.run(again.claim.run_id)) is None
    assert board.find(card.id).attempts == 2


def test_no_limit_is_none_or_zero_and_a_spent_one_stops_even_who_asks_for_nothing(board: Board) -> None:
    card = board.create(NewCard(title="x", assignee="coder", max_retries=9), author="me").card
    first = board.claim(profiles=["coder"], money=Reserve(tokens=10**9, card_tokens=0, day_tokens=None))
    assert first is not None
    board.spend(first.claim.run_id, usd=1.0, tokens=500, final=True)
    board.release(first.claim.run_id, "rate_limited", ENDED)
    with pytest.raises(BudgetSpent, match="500 tokens of 500 tokens and a run needs 0 tokens"):
        board.claim(profiles=["coder"], money=Reserve(card_tokens=500))
    assert board.claim(profiles=["coder"], card=card.id, money=Reserve(card_tokens=501)) is not None
