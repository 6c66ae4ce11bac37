"""The shorter names of what can be done with a card: each goes through the same moves and leaves the same events."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes.cli.kanban_parts import open_board_of
from hermes.cli.options import GlobalOptions, open_sources
from hermes.kanban.board import Board
from tests.cli.conftest import Ran

Hermes = Callable[..., Ran]


@pytest.fixture
def card(hermes: Hermes, hermes_home: Path) -> str:
    for name in ("coder", "builder"):
        (hermes_home / "profiles" / name).mkdir(parents=True)
    return hermes("kanban", "create", "Write it", "--assignee", "coder", "-q").out.strip()


def _board() -> Board:
    return open_board_of(open_sources(GlobalOptions())).board


def _task(hermes: Hermes, card: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(hermes("kanban", "show", card, "--json").out)["task"]
    return found


def _kinds(card: str) -> list[str]:
    with _board() as board:
        return [event.kind for event in board.events(card=card)]


def test_a_card_goes_to_another_profile(hermes: Hermes, card: str) -> None:
    ran = hermes("kanban", "reassign", card, "builder")
    assert ran.code == 0 and "for builder now" in ran.out and _task(hermes, card)["assignee"] == "builder"
    assert hermes("kanban", "reassign", card, "none").code == 0 and _task(hermes, card)["assignee"] is None
    assert _kinds(card)[-2:] == ["assigned", "assigned"]
    refused = hermes("kanban", "reassign", card, "nobody-here")
    assert refused.code != 0 and "nobody-here" in refused.err
    assert hermes("kanban", "reassign", card, "coder", "--reason", "x").code == 2


def test_a_card_at_work_is_taken_from_its_worker_only_where_that_is_said(hermes: Hermes, card: str) -> None:
    with _board() as board:
        claimed = board.claim(profiles=["coder"], card=card)
        assert claimed is not None
        refused = hermes("kanban", "reassign", card, "builder")
        assert refused.code == 1 and "is held by" in refused.err and _task(hermes, card)["assignee"] == "coder"
        refused = hermes("kanban", "reassign", card, "nobody-here", "--reclaim")
        assert refused.code != 0 and _task(hermes, card)["stop_requested"] is None, "nobody is stopped for nothing"
        ran = hermes("kanban", "reassign", card, "builder", "--reclaim", "--reason", "another eye")
        assert ran.code == 0 and "its worker is asked to stop" in ran.out, ran
        task = _task(hermes, card)
        assert (task["status"], task["assignee"], task["stop_requested"]) == ("running", "builder", "ready")
        assert board.heartbeat(claimed.claim, author="coder").reason == "another eye"
    assert _kinds(card)[-2:] == ["reclaim_deferred", "assigned"]


def test_a_card_of_a_person_is_given_on_at_once(hermes: Hermes, card: str) -> None:
    assert hermes("kanban", "claim", card).code == 0
    ran = hermes("kanban", "reassign", card, "builder", "--reclaim")
    task = _task(hermes, card)
    assert ran.code == 0 and (task["status"], task["assignee"]) == ("ready", "builder")


def test_a_claim_by_hand_ends_with_its_time_unless_a_sign_of_life_comes(hermes: Hermes, card: str) -> None:
    assert hermes("kanban", "claim", card, "--ttl", "soon").code == 2
    assert hermes("kanban", "claim", card, "--ttl", "2h").code == 0
    with _board() as board:
        run = board.run(str(board.find(card).current_run_id))
        assert run.manual and run.expires is not None and 7190 < run.expires - run.started_at < 7210
    assert hermes("kanban", "heartbeat", card).code == 0
    with _board() as board:
        after = board.run(run.id)
        assert after.expires is not None and after.expires >= run.expires
    hermes("kanban", "dispatch")
    assert _task(hermes, card)["status"] == "running"


def test_a_model_is_named_for_one_card(hermes: Hermes, card: str) -> None:
    ran = hermes("kanban", "set-model", card, "m9", "--provider", "openrouter", "--reasoning", "high")
    assert ran.code == 0 and f"{card}: its workers use m9 at openrouter" in ran.out
    task = _task(hermes, card)
    assert (task["model_override"], task["provider_override"], task["reasoning_effort"]) == ("m9", "openrouter", "high")
    assert hermes("kanban", "set-model", card, "m10").code == 0
    assert _task(hermes, card)["provider_override"] is None, "a provider belongs to the model it was named for"
    ran = hermes("kanban", "set-model", card, "none")
    assert ran.code == 0 and "the model of their profile" in ran.out and _task(hermes, card)["model_override"] is None
    assert _kinds(card).count("model_override_set") == 3
    assert hermes("kanban", "set-model", card, "none", "--provider", "x").code == 2
    assert hermes("kanban", "set-model", card, "m", "--reasoning", "much").code == 2


def test_a_finished_card_is_judged_again(hermes: Hermes, card: str) -> None:
    refused = hermes("kanban", "reopen-review", card)
    assert refused.code == 1 and "reopen starts from done" in refused.err
    hermes("kanban", "complete", card)
    ran = hermes("kanban", "reopen-review", card)
    assert ran.code == 0 and _task(hermes, card)["status"] == "review" and _kinds(card)[-1] == "review_reopened"


def test_a_file_goes_and_a_comment_is_cut(hermes: Hermes, card: str, tmp_path: Path) -> None:
    file = tmp_path / "spec.txt"
    file.write_text("words", encoding="utf-8")
    hermes("kanban", "attach", card, str(file))
    ran = hermes("kanban", "attach-rm", card, "spec.txt")
    assert ran.code == 0 and "0 files are left" in ran.out
    assert hermes("kanban", "attach-rm", card, "spec.txt").code != 0
    hermes("kanban", "comment", card, "один два три", "--max-len", "5")
    comments = json.loads(hermes("kanban", "show", card, "--json").out)["comments"]
    assert [each["body"] for each in comments] == ["один…"]


def test_boards_by_their_other_names(hermes: Hermes, hermes_home: Path) -> None:
    hermes("kanban", "boards", "create", "web")
    assert "web" in hermes("kanban", "boards", "ls").out
    assert hermes("kanban", "boards", "use", "web").code == 0
    assert "web" in hermes("kanban", "boards", "current").out
    assert "  ls " not in hermes("kanban", "boards", "--help").out
