"""The dispatcher with workers that are small programs: what it starts, what it ends, and why it leaves cards alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.kanban.card import Card, Claim, NewCard, Run
from hermes.kanban.dispatcher import Dispatcher, Passed
from hermes.kanban.ending import Authority
from hermes.kanban.errors import StillRunning
from hermes.kanban.reasons import why
from hermes.kanban.run_process import RUN_ID, ExitNote, RunFiles
from tests.kanban.test_workers import Lab, pass_and_wait

#: A worker that says that it has begun, and then does what it is told by a file.
PROGRAM = """
import os, signal, sys, time
home, mode = os.environ["HERMES_HOME"], os.environ.get("WORKER_MODE", "")
print("began", os.environ["HERMES_KANBAN_RUN_ID"], flush=True)
if "deaf" in mode:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "sleep" in mode:
    time.sleep(300)
if "kill" in mode:
    os.kill(os.getpid(), signal.SIGKILL)
if "much" in mode:
    print("x" * 100_000, flush=True)
sys.exit(int(mode) if mode.isdigit() else 0)
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path, ("coder", "tester", "default"))
    program = tmp_path / "worker.py"
    program.write_text(PROGRAM, encoding="utf-8")
    lab.environ["HERMES_BIN"] = f"{sys.executable} {program}"
    yield lab
    for run in lab.board.live_runs():
        if run.pid is not None and RUN_ID.encode() in _environment(run.pid):
            os.kill(run.pid, signal.SIGKILL)
    lab.board.close()


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def begun(lab: Lab, card: Card) -> Run:
    """The run of a card whose worker has said that it began."""
    until = time.monotonic() + 100
    run = lab.board.runs(card.id)[-1]
    while run.id not in (lab.log(card) if (lab.folder / "logs" / f"{card.id}.log").exists() else ""):
        assert time.monotonic() < until, "the worker did not begin"
        time.sleep(0.01)
    return run


def passes(lab: Lab, mode: str, number: int, dispatcher: Dispatcher | None = None) -> list[Passed]:
    lab.environ["WORKER_MODE"] = mode
    dispatcher = dispatcher or lab.dispatcher()
    return [pass_and_wait(dispatcher) for _ in range(number)]


@pytest.mark.fault("B072")
@pytest.mark.parametrize(("mode", "error"), [("1", "exit code 1"), ("kill", "killed by signal 9")])
def test_a_worker_that_dies_at_its_start_is_started_twice_in_ten_passes(lab: Lab, mode: str, error: str) -> None:
    card = lab.create("x")
    spawned = [each for passed in passes(lab, mode, 10) for each in passed.spawned]
    found = lab.board.find(card.id)
    assert len(spawned) == 2 and found.status == "blocked" and error in (found.last_failure_error or "")
    assert len(lab.board.events(card=card.id, kinds=["gave_up"])) == 1
    assert [(run.outcome, run.exited_at is not None) for run in lab.board.runs(card.id)] == [("crashed", True)] * 2


@pytest.mark.fault("B098")
def test_the_limit_of_the_card_holds_for_workers_that_kill_themselves(lab: Lab) -> None:
    card = lab.create("x", max_retries=3)
    assert sum(len(passed.spawned) for passed in passes(lab, "kill", 8)) == 3
    assert lab.board.find(card.id).attempts == 3


@pytest.mark.fault("B074")
def test_a_worker_that_ends_without_a_word_to_the_board_is_tried_once_more(lab: Lab) -> None:
    card = lab.create("x")
    spawned = [each for passed in passes(lab, "0", 5) for each in passed.spawned]
    found = lab.board.find(card.id)
    assert len(spawned) == 2 and found.status == "blocked"
    assert (found.last_failure_error or "").startswith("protocol: the worker ended without completing")


def test_a_rate_limit_costs_no_attempt_and_rests(lab: Lab) -> None:
    card = lab.create("x")
    dispatcher = lab.dispatcher()
    passes(lab, "75", 3, dispatcher)
    found = lab.board.find(card.id)
    assert (found.status, found.consecutive_failures, found.attempts) == ("ready", 0, 1)
    (reason,) = lab.board.reasons(card.id)
    assert reason.reason == "cooldown" and [run.outcome for run in lab.board.runs(card.id)] == ["rate_limited"]


@pytest.mark.fault("B070")
def test_a_killed_worker_is_seen_by_another_dispatcher_that_never_knew_it(lab: Lab) -> None:
    lab.environ["WORKER_MODE"] = "sleep"
    card = lab.create("x")
    first = lab.dispatcher()
    first.pass_once(sign=False)
    run = begun(lab, card)
    assert run.pid is not None
    second = lab.dispatcher()
    assert second.pass_once(sign=False).released == {}, "it lives"
    os.kill(run.pid, signal.SIGKILL)
    first.started[run.id].wait(timeout=100)
    lab.environ["WORKER_MODE"] = "0"
    passed = second.pass_once(sign=False)
    assert passed.released == {card.id: "ready"} and [each.card for each in passed.spawned] == [card.id]
    old, new = lab.board.runs(card.id)
    assert (old.outcome, old.counted, new.attempt) == ("crashed", True, 2)


@pytest.mark.fault("B077")
def test_a_deaf_worker_and_what_it_started_are_gone_before_the_card_is_free(lab: Lab) -> None:
    lab.environ["WORKER_MODE"] = "sleep deaf"
    card = lab.create("x")
    dispatcher = lab.dispatcher()
    dispatcher.pass_once(sign=False)
    run = begun(lab, card)
    beside = subprocess.Popen(
        ["sleep", "300"], env={RUN_ID: run.id, "PATH": os.environ["PATH"]}, start_new_session=True
    )
    lab.board.request_stop(card.id, "archived", author="me", reason="not wanted")
    passed = dispatcher.pass_once(sign=False)
    assert passed.released == {card.id: "archived"} and passed.spawned == []
    assert beside.wait(timeout=100) < 0 and dispatcher.started == {}
    assert lab.board.runs(card.id)[-1].outcome == "reclaimed"


@pytest.mark.fault("B075")
def test_a_running_card_is_not_parked_while_its_worker_lives(lab: Lab) -> None:
    lab.environ["WORKER_MODE"] = "sleep"
    card = lab.create("x")
    dispatcher = lab.dispatcher()
    dispatcher.pass_once(sign=False)
    begun(lab, card)
    with pytest.raises(StillRunning):
        lab.board.schedule(card.id, None, Authority(author="me"))
    assert dispatcher.pass_once(sign=False).spawned == []
    lab.board.request_stop(card.id, "scheduled", author="me")
    dispatcher.pass_once(sign=False)
    assert lab.board.find(card.id).status == "scheduled" and dispatcher.pass_once(sign=False).spawned == []


@pytest.mark.fault("B076")
def test_a_run_that_has_ended_keeps_its_card_until_its_process_is_gone(lab: Lab) -> None:
    lab.environ["WORKER_MODE"] = "sleep"
    card = lab.create("x")
    dispatcher = lab.dispatcher()
    dispatcher.pass_once(sign=False)
    run = begun(lab, card)
    with lab.board.database.read() as tx:
        secret = tx.connection.exec_driver_sql("SELECT claim_token FROM cards").scalar()
    claim = Claim(card_id=card.id, run_id=run.id, token=str(secret))
    lab.board.block(card.id, "more to come", Authority(author="coder", claim=claim))
    lab.board.unblock(card.id, author="me")
    passed = dispatcher.pass_once(sign=False)
    assert passed.spawned == [] and [(each.card_id, each.reason) for each in passed.left] == [
        (card.id, "still_running")
    ]
    assert run.pid is not None
    os.kill(run.pid, signal.SIGKILL)
    dispatcher.started[run.id].wait(timeout=100)
    assert [each.card for each in dispatcher.pass_once(sign=False).spawned] == [card.id]
    assert lab.board.runs(card.id)[0].outcome == "blocked"


@pytest.mark.fault("B095")
def test_a_worker_whose_folder_is_gone_is_ended_and_waits_for_a_person(lab: Lab, tmp_path: Path) -> None:
    lab.environ["WORKER_MODE"] = "sleep"
    card = lab.create("x")
    dispatcher = lab.dispatcher()
    dispatcher.pass_once(sign=False)
    run = begun(lab, card)
    with lab.board.database.write() as tx:
        tx.connection.exec_driver_sql("UPDATE runs SET workspace = ?", (str(tmp_path / "gone"),))
    assert dispatcher.pass_once(sign=False).spawned == []
    found = lab.board.find(card.id)
    assert found.status == "blocked" and "workspace missing" in (found.block_reason or "")
    assert lab.board.run(run.id).outcome == "crashed" and dispatcher.pass_once(sign=False).spawned == []


def test_a_run_over_its_time_is_ended(lab: Lab) -> None:
    lab.environ["WORKER_MODE"] = "sleep"
    card = lab.create("x", max_runtime_seconds=1)
    dispatcher = lab.dispatcher()
    dispatcher.pass_once(sign=False)
    run = begun(lab, card)
    with lab.board.database.write() as tx:
        tx.connection.exec_driver_sql("UPDATE runs SET started_at = started_at - 10")
    dispatcher.pass_once(sign=False)
    assert lab.board.run(run.id).outcome == "timed_out" and lab.board.find(card.id).consecutive_failures == 1


@pytest.mark.fault("B073")
def test_the_same_failure_of_several_cards_rests_the_board_and_costs_no_attempt(lab: Lab) -> None:
    cards = [lab.create(f"card {number}") for number in range(5)]
    dispatcher = lab.dispatcher()
    lab.environ["WORKER_MODE"] = "1"
    dispatcher.pass_once(sign=False)
    for run in lab.board.live_runs():
        dispatcher.started[run.id].wait(timeout=100)
        dispatcher.files.write_note(run.id, ExitNote(code=1, error=f"502 from the provider, request {run.attempt}00"))
    passed = dispatcher.pass_once(sign=False)
    assert passed.spawned == [] and {each.reason for each in passed.left} == {"failing"}
    assert {lab.board.find(card.id).consecutive_failures for card in cards} == {0}
    assert len([line for line in lab.said if line.startswith("the board rests")]) == 1
    dispatcher.pass_once(sign=False)
    assert len([line for line in lab.said if line.startswith("the board rests")]) == 1


@pytest.mark.fault("B082")
def test_each_card_left_alone_has_a_reason_and_a_cure(lab: Lab) -> None:
    lab.environ["WORKER_MODE"] = "sleep"
    lab.settings = type(lab.settings)(max_in_progress=1)
    running = lab.create("first", priority=9)
    capped, nobody = lab.create("second"), lab.create("third", assignee=None)
    foreign = lab.create("fourth", assignee="stranger") if lab.board.profiles is None else lab.create("fourth")
    parent = lab.create("idea", triage=True)
    waits = lab.create("fifth", parents=(parent.id,))
    dispatcher = lab.dispatcher()
    for _ in range(20):
        dispatcher.pass_once(sign=False)
    since = {each.card_id: each.since for each in lab.board.reasons()}
    assert set(since) == {capped.id, nobody.id, foreign.id}
    dispatcher.pass_once(sign=False)
    assert {each.card_id: each.since for each in lab.board.reasons()} == since, "written again without need"
    words = {card.id: why(lab.board, lab.board.show(card.id)) for card in (running, capped, nobody, foreign, waits)}
    assert words[running.id].reason == "running" and words[waits.id].cure == f"hermes kanban why {parent.id}"
    assert words[capped.id].reason == "no_dispatcher", "nobody serves the board, which comes first"
    dispatcher.pass_once()
    assert why(lab.board, lab.board.show(capped.id)).reason == "cap"
    assert why(lab.board, lab.board.show(nobody.id)).cure == f"hermes kanban assign {nobody.id} PROFILE"
    assert why(lab.board, lab.board.show(foreign.id)).reason == "no_profile"
    dispatcher.leave()
    assert not [event for event in lab.board.events() if event.kind == "reconciled"], "a full board is no alarm"


@pytest.mark.fault("B082")
def test_a_worker_that_ended_unnoticed_is_said_to_be_gone_and_not_to_work(lab: Lab) -> None:
    card = lab.create("x")
    passes(lab, "1", 1)
    files = RunFiles(lab.folder / "runs")
    assert why(lab.board, lab.board.show(card.id)).reason == "running", "without files nothing is known of it"
    found = why(lab.board, lab.board.show(card.id), files=files)
    assert (found.reason, found.cure) == ("worker_gone", "hermes kanban dispatch")
    lab.environ["WORKER_MODE"] = "sleep"
    dispatcher = lab.dispatcher()
    dispatcher.pass_once(sign=False)
    assert why(lab.board, lab.board.show(card.id), files=files).reason == "running"


def test_a_card_left_over_by_a_pass_of_few_workers_is_told_so(lab: Lab) -> None:
    lab.environ["WORKER_MODE"] = "sleep"
    first, second = lab.create("x"), lab.create("y")
    passed = lab.dispatcher().pass_once(most=1, sign=False)
    assert [each.card for each in passed.spawned] == [first.id]
    (left,) = passed.left
    assert (left.card_id, left.reason, left.cure) == (second.id, "pass", "hermes kanban dispatch")


@pytest.mark.fault("B080")
def test_one_of_two_dispatchers_serves_and_the_other_takes_over(lab: Lab) -> None:
    first, second = lab.dispatcher(), lab.dispatcher()
    assert first.lock.take() and not second.lock.take()
    holder = second.lock.holder()
    assert holder is not None and holder.pid == os.getpid()
    first.lock.release()
    assert second.lock.take()
    second.lock.release()


def test_money_that_is_not_there_starts_nothing_and_says_so(lab: Lab) -> None:
    lab.settings = type(lab.settings)(card_usd=1.0, day_usd=1.5, max_in_progress=2)
    cards = [lab.create(f"card {number}") for number in range(2)]
    dispatcher = lab.dispatcher()
    lab.environ["WORKER_MODE"] = "sleep"
    assert len(dispatcher.pass_once(sign=False).spawned) == 2, "half of the day's money each"
    for run in lab.board.live_runs():
        lab.board.spend(run.id, usd=0.75, tokens=10)
    third = lab.create("third")
    lab.settings = type(lab.settings)(card_usd=1.0, day_usd=1.5, max_in_progress=3)
    passed = lab.dispatcher().pass_once(sign=False)
    (reason,) = passed.left
    assert (reason.card_id, reason.reason) == (third.id, "budget") and "kanban.day_usd" in reason.detail
    assert lab.board.find(third.id).attempts == 0 and len(cards) == 2


def test_logs_are_bounded(lab: Lab) -> None:
    lab.settings = type(lab.settings)(worker_log_rotate_bytes=4096)
    card = lab.create("x", max_retries=9)
    dispatcher = lab.dispatcher()
    passes(lab, "much", 3, dispatcher)
    logs = lab.folder / "logs"
    dispatcher.pass_once(sign=False)
    assert sorted(path.name for path in logs.iterdir()) == [f"{card.id}.log", f"{card.id}.log.1"]
    assert (logs / f"{card.id}.log.1").stat().st_size <= 4096


def test_a_dry_run_changes_nothing(lab: Lab) -> None:
    card = lab.create("x")
    before = lab.board.last_event()
    passed = lab.dispatcher().pass_once(dry_run=True)
    assert [each.card for each in passed.spawned] == [card.id] and lab.board.last_event() == before
    assert lab.board.find(card.id).attempts == 0


@pytest.mark.fault("B091")
def test_a_worker_is_told_its_board_and_none_of_its_starters_variables(lab: Lab) -> None:
    lab.environ |= {"HERMES_KANBAN_TASK": "t_00000000", "HERMES_KANBAN_BOARD": "other", "HERMES_DEPTH": "1"}
    dispatcher = lab.dispatcher()
    card = lab.create("x")
    claimed = lab.board.claim(profiles=["coder"])
    assert claimed is not None
    found = dispatcher._launcher.variables(claimed, "coder")  # type: ignore[attr-defined]
    assert found["HERMES_KANBAN_DB"] == str(lab.home / "kanban-board.db") and found["HERMES_KANBAN_TASK"] == card.id
    assert found["HERMES_KANBAN_BOARD"] == "default" and "HERMES_DEPTH" not in found


@pytest.mark.fault("B093")
def test_only_the_home_that_wrote_default_works_on_it(lab: Lab) -> None:
    card = lab.board.create(NewCard(title="x", assignee="default"), author="me").card
    with lab.board.database.write() as tx:
        tx.connection.exec_driver_sql("UPDATE cards SET home_id = 'another'")
    passed = lab.dispatcher().pass_once(sign=False)
    assert passed.spawned == [] and [(each.card_id, each.reason) for each in passed.left] == [(card.id, "other_home")]
