"""The verbs of a board, each on SQLite and on PostgreSQL."""

from __future__ import annotations

import pytest

from hermes.core.errors import UsageError
from hermes.kanban.board import Board
from hermes.kanban.card import Card, Check, Claim, NewCard, Proof
from hermes.kanban.ending import Authority, Completion
from hermes.kanban.errors import BoardError, CardNotFound, ClaimLost, MoveRefused, StillRunning
from hermes.kanban.reading import CardFilter
from tests.kanban.conftest import HERE, StandingClock

ENDED = Proof(kind="ended", host_id=HERE.host_id)
ME = Authority(author="me")


def make(board: Board, title: str = "a card", **more: object) -> Card:
    return board.create(NewCard(title=title, **{"assignee": "coder", **more}), author="me").card  # type: ignore[arg-type]


def take(board: Board, card: Card) -> Claim:
    taken = board.claim(profiles=["coder"], card=card.id)
    assert taken is not None
    return taken.claim


def worker(claim: Claim) -> Authority:
    return Authority(author="coder", claim=claim)


def kinds(board: Board, card: Card) -> list[str]:
    return [event.kind for event in board.events(card=card.id)]


def test_a_card_from_its_creation_to_its_end(board: Board) -> None:
    card = make(board, "  write   it ", body="all of it\n", priority=3)
    assert (card.title, card.status, card.assignee, card.priority) == ("write it", "ready", "coder", 3)
    claim = take(board, card)
    running = board.find(card.id)
    assert (running.status, running.attempts, running.current_run_id) == ("running", 1, claim.run_id)
    done = board.complete(card.id, Completion(summary="written\nin two files", metadata={"files": 2}), worker(claim))
    assert (done.status, done.summary, done.result) == ("done", "written\nin two files", "written\nin two files")
    view = board.show(card.id[:5])
    assert [(run.outcome, run.metadata, run.profile) for run in view.runs] == [("completed", {"files": 2}, "coder")]
    assert kinds(board, card) == ["created", "claimed", "completed"]
    ended = view.events[-1]
    assert ended.author == "coder" and ended.payload == {"summary": "written"} and ended.run_id == claim.run_id


@pytest.mark.fault("B076")
def test_the_process_of_an_ended_run_keeps_its_card_until_it_is_proven_gone(board: Board) -> None:
    """A worker that has ended its run may still be closing: no second one beside it."""
    card = make(board)
    claim = take(board, card)
    board.block(card.id, "which colour?", worker(claim), kind="needs_input")
    board.answer(card.id, "blue", author="me")
    assert board.find(card.id).status == "ready"
    assert board.claim(profiles=["coder"]) is None
    assert [run.id for run in board.live_runs()] == [claim.run_id]
    board.release(claim.run_id, "completed", ENDED)
    again = board.claim(profiles=["coder"])
    assert again is not None and again.card.attempts == 2
    assert [run.outcome for run in board.runs(card.id)] == ["blocked", None]


def test_children_wait_for_their_parents(board: Board) -> None:
    first, second = make(board, "1"), make(board, "2")
    child = make(board, "3", parents=(first.id, second.id), tenant="shop")
    grandchild = make(board, "4", parents=(child.id,))
    assert (child.status, grandchild.status, grandchild.tenant) == ("todo", "todo", "shop")
    board.complete(first.id, Completion(summary="x"), ME)
    assert board.find(child.id).status == "todo"
    board.archive(second.id, ME)
    assert board.find(child.id).status == "ready"
    with pytest.raises(MoveRefused, match="waits for"):
        board.promote(grandchild.id, author="me")


def test_links_refuse_themselves_cycles_and_strangers(board: Board) -> None:
    first, second, third = make(board, "1"), make(board, "2"), make(board, "3")
    board.link(first.id, second.id, author="me")
    board.link(second.id, third.id, author="me")
    assert board.find(second.id).status == "todo"
    with pytest.raises(BoardError, match="itself"):
        board.link(first.id, first.id, author="me")
    with pytest.raises(BoardError, match=f"cycle \\({first.id} -> {second.id} -> {third.id} -> {first.id}\\)"):
        board.link(third.id, first.id, author="me")
    with pytest.raises(CardNotFound, match="t_nothing"):
        board.link("t_nothing", first.id, author="me")
    board.link(third.id, first.id, author="me", kind="follows")
    assert board.find(first.id).status == "ready"
    board.unlink(first.id, second.id, author="me")
    assert board.find(second.id).status == "ready"
    with pytest.raises(BoardError, match="not linked"):
        board.unlink(first.id, second.id, author="me")


def test_a_refused_move_says_what_is_possible_and_changes_nothing(board: Board) -> None:
    card = make(board)
    board.complete(card.id, Completion(summary="x"), ME)
    before = board.show(card.id)
    with pytest.raises(MoveRefused, match="is done: block starts from running, .*Possible from done: reopen, archive"):
        board.block(card.id, "why", ME)
    assert board.show(card.id) == before


def test_a_worker_that_lost_its_claim_writes_nothing(board: Board) -> None:
    card = make(board)
    old = take(board, card)
    board.release(old.run_id, "crashed", ENDED, error="killed")
    new = take(board, card)
    before = board.show(card.id)
    by = worker(old)
    for write in (
        lambda: board.heartbeat(old, author="coder"),
        lambda: board.complete(card.id, Completion(summary="late"), by),
        lambda: board.block(card.id, "late", by),
        lambda: board.request_review(card.id, "late", by),
        lambda: board.note_process(old, author="coder", pid=7),
        lambda: board.create(NewCard(title="late"), author="coder", claim=old),
        lambda: board.attach(card.id, "late.txt", b"late", author="coder", claim=old),
        lambda: board.report_check(old, Check(passed=False), author="coder"),
    ):
        with pytest.raises(ClaimLost, match=f"running in {new.run_id}"):
            write()
    assert board.show(card.id) == before
    assert board.complete(card.id, Completion(summary="mine"), worker(new)).status == "done"


@pytest.mark.fault("B075")
def test_a_running_card_is_parked_only_when_its_worker_is_gone(board: Board) -> None:
    card = make(board)
    claim = take(board, card)
    for move in (
        lambda: board.schedule(card.id, None, ME),
        lambda: board.block(card.id, "wait", ME),
        lambda: board.archive(card.id, ME),
        lambda: board.assign(card.id, "tester", author="me"),
    ):
        with pytest.raises(StillRunning, match=claim.run_id):
            move()
    elsewhere = Authority(author="me", proof=Proof(kind="ended", host_id="another"))
    with pytest.raises(StillRunning, match="not known on host"):
        board.schedule(card.id, None, elsewhere)
    assert board.find(card.id).status == "running"
    parked = board.schedule(card.id, None, Authority(author="me", proof=ENDED))
    assert parked.status == "scheduled" and board.live_runs() == []
    with pytest.raises(ClaimLost):
        board.heartbeat(claim, author="coder")


@pytest.mark.fault("B077")
def test_a_wish_to_stop_reaches_the_worker_and_holds_once_it_is_gone(board: Board) -> None:
    card, child = make(board), make(board, "next")
    board.link(card.id, child.id, author="me")
    claim = take(board, card)
    board.request_stop(card.id, "archived", author="me", reason="not wanted any more")
    beat = board.heartbeat(claim, author="coder")
    assert (beat.stop, beat.reason) == ("archived", "not wanted any more")
    assert board.find(card.id).status == "running" and board.claim(profiles=["coder"]) is None
    released = board.release(claim.run_id, "reclaimed", ENDED)
    assert released.card.status == "archived"
    assert board.find(child.id).status == "ready"


@pytest.mark.fault("B079")
def test_a_claim_by_hand_has_no_end_and_its_person_may_finish(board: Board, clock: StandingClock) -> None:
    card = make(board, assignee=None)
    taken = board.claim_by_hand(card.id, author="me")
    assert taken.claim.expires is None and taken.card.claim_expires is None
    clock.at += 100_000
    assert board.claim(profiles=["coder"]) is None
    with pytest.raises(MoveRefused, match="is running: claim starts from"):
        board.claim_by_hand(card.id, author="you")
    assert board.complete(card.id, Completion(summary="x"), ME).status == "done"
    assert board.live_runs() == []


def test_the_same_key_finds_the_same_card_until_it_is_archived(board: Board) -> None:
    order = NewCard(title="nightly", idempotency_key="2026-02-25")
    first = board.create(order, author="me")
    second = board.create(order, author="me")
    assert first.new and not second.new and second.card.id == first.card.id
    board.archive(first.card.id, ME)
    assert board.create(order, author="me").new


def test_a_repeated_call_gives_its_first_answer(board: Board) -> None:
    one = board.create(NewCard(title="x"), author="me", key="a:1:0")
    assert board.create(NewCard(title="x"), author="me", key="a:1:0") == one
    number = board.comment(one.card.id, "hello", author="me", key="a:2:0")
    assert board.comment(one.card.id, "hello", author="me", key="a:2:0") == number
    claim = take(board, make(board))
    done = board.complete("", Completion(summary="x"), worker(claim), key="a:3:0")
    assert board.complete("", Completion(summary="x"), worker(claim), key="a:3:0") == done
    assert len(board.cards()) == 2 and len(board.show(one.card.id).comments) == 1


def test_what_a_worker_says_it_made_is_verified(board: Board) -> None:
    card, other = make(board), make(board, "made by a person")
    claim = take(board, card)
    made = board.create(NewCard(title="follow-up", parents=(card.id,)), author="coder", claim=claim).card
    with pytest.raises(BoardError, match=f"{other.id} was not made by this worker; it made: {made.id}"):
        board.complete(card.id, Completion(summary="x", created_cards=(made.id, other.id)), worker(claim))
    assert board.find(card.id).status == "running"
    assert kinds(board, card)[-1] == "completion_blocked_hallucination"
    done = board.complete(card.id, Completion(summary="x", created_cards=(made.id,)), worker(claim))
    assert done.status == "done" and board.find(made.id).status == "ready"


@pytest.mark.fault("B083")
def test_a_card_behind_a_parked_one_is_told_and_may_follow_without_waiting(board: Board) -> None:
    parent = make(board)
    board.block(parent.id, "needs review", ME)
    made = board.create(NewCard(title="review it", parents=(parent.id,)), author="me")
    assert made.card.status == "todo"
    assert f"waits for {parent.id}, which is blocked" in made.warnings[0]
    free = board.create(NewCard(title="review it", follows=(parent.id,)), author="me")
    assert (free.card.status, free.warnings) == ("ready", ())


@pytest.mark.fault("B084")
def test_a_worker_that_splits_its_card_waits_for_the_parts(board: Board) -> None:
    card = make(board)
    claim = take(board, card)
    parts = [
        board.create(NewCard(title=f"part {n}", assignee="coder", parents=(card.id,)), author="coder", claim=claim).card
        for n in (1, 2)
    ]
    assert [part.status for part in parts] == ["todo", "todo"]
    assert board.block(card.id, "waits for the parts", worker(claim), kind="dependency").status == "todo"
    board.release(claim.run_id, "dependency_wait", ENDED)
    for number, part in enumerate(parts):
        taken = board.claim(profiles=["coder"])
        assert taken is not None and taken.card.id == part.id
        board.complete(part.id, Completion(summary=f"result {number}"), worker(taken.claim))
    last = board.claim(profiles=["coder"])
    assert last is not None and last.card.id == card.id
    assert [parent.summary for parent in board.show(card.id).parents] == ["result 0", "result 1"]


@pytest.mark.fault("B085")
def test_waiting_for_nothing_is_a_question_for_a_person(board: Board) -> None:
    card = make(board)
    claim = take(board, card)
    parked = board.block(card.id, "waits for the other card", worker(claim), kind="dependency")
    assert parked.status == "blocked" and "no card that it needs is open" in (parked.block_reason or "")
    board.release(claim.run_id, "blocked", ENDED)
    for _ in range(10):
        assert board.promote(author="dispatcher") == [] and board.claim(profiles=["coder"]) is None


def test_the_same_block_twice_goes_back_to_be_thought_through(board: Board) -> None:
    card = make(board)
    for expected in ("blocked", "triage"):
        claim = take(board, card)
        assert board.block(card.id, "no access", worker(claim), kind="capability").status == expected
        board.release(claim.run_id, "blocked", ENDED)
        if expected == "blocked":
            board.unblock(card.id, author="me")
    assert kinds(board, card)[-1] == "block_loop_detected"
    assert board.specify(card.id, author="me", body="with an account").status == "ready"


def test_questions_may_follow_each_other_once_they_are_answered(board: Board) -> None:
    card = make(board)
    for number in range(3):
        claim = take(board, card)
        board.block(card.id, f"question {number}?", worker(claim), kind="needs_input", choices=["yes", "no"])
        board.release(claim.run_id, "blocked", ENDED)
        (question,) = board.questions()
        assert (question.question, question.choices) == (f"question {number}?", ["yes", "no"])
        answered = board.answer(card.id if number else str(question.id), "yes", author="me")
        assert (answered.answer, answered.answered_by) == ("yes", "me")
        assert board.find(card.id).status == "ready"
    assert [comment.body for comment in board.show(card.id).comments][-1] == "Answer to: question 2?\n\nyes"
    with pytest.raises(CardNotFound, match="no open question"):
        board.answer(card.id, "yes", author="me")


def test_review_goes_to_the_reviewer_and_back(board: Board) -> None:
    card = make(board, reviewer="tester")
    first = take(board, card)
    assert board.complete(card.id, Completion(summary="done, I think"), worker(first)).status == "review"
    board.release(first.run_id, "completed", ENDED)
    assert board.claim(profiles=["coder"]) is None and board.claim(profiles=["coder"], step="review") is None
    judged = board.claim(profiles=["tester"], step="review")
    assert judged is not None and judged.card.step == "review"
    tester = Authority(author="tester", claim=judged.claim)
    assert board.request_changes(card.id, "the third case is missing", tester).status == "ready"
    board.release(judged.claim.run_id, "changes_requested", ENDED)
    again = take(board, card)
    board.complete(card.id, Completion(summary="with the third case"), worker(again))
    board.release(again.run_id, "completed", ENDED)
    last = board.claim(profiles=["tester"], step="review")
    assert last is not None
    done = board.complete(card.id, Completion(summary="good"), Authority(author="tester", claim=last.claim))
    assert done.status == "done"
    assert [run.outcome for run in board.runs(card.id)] == [
        "review_requested", "changes_requested", "review_requested", "completed",
    ]  # fmt: skip
    assert board.reopen(card.id, author="me").status == "review"


def test_a_reviewer_that_crashes_leaves_the_card_in_review(board: Board) -> None:
    card = make(board, reviewer="tester")
    board.request_review(card.id, "look", ME)
    taken = board.claim(profiles=["tester"], step="review")
    assert taken is not None
    assert board.release(taken.claim.run_id, "crashed", ENDED, error="x").card.status == "review"


@pytest.mark.fault("B090")
def test_done_needs_the_check_and_no_refused_command(board: Board) -> None:
    card = make(board, check_command="test -f out.txt")
    claim = take(board, card)
    with pytest.raises(BoardError, match="test -f out.txt\nit was not run"):
        board.complete(card.id, Completion(summary="x"), worker(claim))
    failed = Check(passed=False, output="no out.txt", exit_code=1)
    with pytest.raises(BoardError, match="no out.txt"):
        board.complete(card.id, Completion(summary="x", check=failed), worker(claim))
    with pytest.raises(BoardError, match="'rm -rf build' was refused"):
        board.complete(card.id, Completion(summary="x", check=Check(passed=True), denied="rm -rf build"), worker(claim))
    assert board.report_check(claim, failed, author="coder") == "again"
    assert board.find(card.id).status == "running"
    assert board.report_check(claim, failed, author="coder") == "review"
    assert board.find(card.id).status == "review"
    assert "no out.txt" in board.show(card.id).comments[-1].body
    assert board.complete(card.id, Completion(summary="good enough", override=True), ME).status == "done"


def test_reopening_holds_back_what_had_become_ready(board: Board) -> None:
    parent = make(board)
    child = make(board, "next", parents=(parent.id,))
    board.complete(parent.id, Completion(summary="x"), ME)
    assert board.find(child.id).status == "ready"
    board.reopen(parent.id, author="me", review=False)
    assert board.find(child.id).status == "todo" and kinds(board, child)[-1] == "descendant_invalidated"


def test_a_parked_card_becomes_ready_at_its_time(board: Board, clock: StandingClock) -> None:
    card = make(board, scheduled_at=clock.at + 60)
    assert card.status == "scheduled" and board.promote(author="dispatcher") == []
    clock.at += 61
    assert board.promote(author="dispatcher") == [card.id]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ({"title": "  "}, "needs a title"),
        ({"title": "x", "provider_override": "openai"}, "needs a model too"),
        ({"title": "x", "branch_name": "b"}, "needs the workspace worktree"),
        ({"title": "x", "workspace_kind": "dir", "workspace_path": "here"}, "absolute path"),
        ({"title": "x", "skills": ("a,b",)}, "no comma"),
        ({"title": "x", "skills": ("terminal",)}, "no toolset names"),
        ({"title": "x", "max_runtime_seconds": 0}, "max_runtime_seconds is 0"),
    ],
)
def test_orders_that_cannot_be(board: Board, order: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        board.create(NewCard(**order), author="me")  # type: ignore[arg-type]
    assert board.cards() == []


def test_unknown_profiles_are_named(board: Board) -> None:
    board.profiles = {"coder", "researcher"}
    with pytest.raises(UsageError, match="no profile 'codr'. Did you mean coder. Known: coder, researcher"):
        board.create(NewCard(title="x", assignee="Codr"), author="me")
    assert board.create(NewCard(title="x", assignee="Coder"), author="me").card.assignee == "coder"


def test_lists_and_their_orders(board: Board) -> None:
    low, high, other = make(board, "b", priority=-1), make(board, "a", priority=5), make(board, "C", assignee="tester")
    board.archive(other.id, ME)

    def ids(**wanted: object) -> list[str]:
        return [card.id for card in board.cards(CardFilter(**wanted))]  # type: ignore[arg-type]

    assert ids() == [high.id, low.id] and ids(sort="created-desc") == [high.id, low.id]
    assert ids(sort="title", archived=True) == [high.id, low.id, other.id]
    assert ids(assignee="Tester", status=("archived",)) == [other.id] and ids(limit=1) == [high.id]
    assert ids(text="B") == [low.id]
    with pytest.raises(UsageError, match="no state of a card"):
        ids(status=("open",))


def test_edits_say_what_changed(board: Board) -> None:
    card = make(board)
    changed = board.edit(card.id, {"priority": 4, "body": "more"}, author="me")
    assert (changed.priority, changed.body) == (4, "more")
    board.edit(card.id, {"priority": 4}, author="me")
    assert kinds(board, card)[1:] == ["reprioritized", "edited"]
    with pytest.raises(UsageError, match="status cannot be edited"):
        board.edit(card.id, {"status": "done"}, author="me")


def test_files_are_kept_in_the_board(board: Board) -> None:
    card = make(board)
    data = bytes(range(256)) * 64
    kept = board.attach(card.id, "../out/report.bin", data, author="coder", media_type="application/x")
    assert (kept.name, kept.size, kept.media_type) == ("report.bin", len(data), "application/x")
    board.attach(card.id, "report.bin", data + b"2", author="coder")
    (only,) = board.attachments(card.id)
    assert board.attachment(card.id, str(only.id)) == data + b"2"
    with pytest.raises(CardNotFound, match="it has: report.bin"):
        board.attachment(card.id, "other")
    with pytest.raises(UsageError, match="25 MB"):
        board.attach(card.id, "big", b"x" * (25 * 1024 * 1024 + 1), author="coder")
    board.detach(card.id, "report.bin", author="me")
    assert board.attachments(card.id) == []


def test_odd_characters_are_kept_or_replaced(board: Board) -> None:
    card = make(board, "emoji \U0001f600 cut \ud83d nul \0 end", body="ключ")
    assert card.title == "emoji \U0001f600 cut � nul � end"
    board.comment(card.id, "a\0b", author="ünï")
    assert board.show(card.id).comments[0].body == "a�b" and board.events(card=card.id)[-1].author == "ünï"


def test_figures(board: Board, clock: StandingClock) -> None:
    make(board)
    make(board, "x", assignee=None, triage=True)
    clock.at += 30
    found = board.stats()
    assert found.by_status["ready"] == 1 and found.by_status["triage"] == 1 and found.by_status["done"] == 0
    assert found.by_assignee == {"coder": {"ready": 1}, "": {"triage": 1}}
    assert found.oldest_ready_age_seconds == pytest.approx(30) and found.now == clock.at
