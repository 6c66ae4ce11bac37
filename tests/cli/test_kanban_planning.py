"""`hermes kanban decompose`, `specify`, `why`, `doctor` and `pause` on a scripted model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.cli.kanban_parts import open_board_of
from hermes.cli.options import GlobalOptions, open_sources
from hermes.kanban.budgets import share_of
from hermes.kanban.planning import PLANNED_BY
from hermes.testing.scripted import reply
from hermes.testing.server import serve_in_thread
from tests.cli.conftest import Ran


def test_decompose_and_specify_ask_the_model_and_say_what_they_made(
    hermes: Callable[..., Ran],
    hermes_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (hermes_home / "profiles" / "coder").mkdir(parents=True)
    answers = [
        reply("I would rather talk."),
        reply(json.dumps({"fanout": True, "tasks": [
            {"title": "a", "body": "x", "assignee": "coder", "acceptance": "y"}]})),
        reply(json.dumps({"title": "B", "body": "all of it", "acceptance": "seen"})),
        *[reply("no")] * 4,
    ]  # fmt: skip
    with serve_in_thread(answers) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef0123456789")
        ids = [hermes("kanban", "create", title, "--triage", "--json") for title in ("one", "two", "three")]
        cards = [json.loads(ran.out)["card"]["id"] for ran in ids]
        ran = hermes("-m", "test-model", "kanban", "decompose", cards[0], "--json")
        answer = json.loads(ran.out)
        assert (answer["ok"], answer["fanout"], len(answer["child_ids"])) == (True, True, 1)
        (paid,) = json.loads(hermes("kanban", "stats", "--json").out)["spent"]["card"]
        assert paid["name"] == cards[0] and paid["tokens"] > 0 and paid["reserved_tokens"] == 0
        ran = hermes("-m", "test-model", "kanban", "specify", cards[1])
        assert ran.code == 0 and "is ready: B" in ran.out
        ran = hermes("-m", "test-model", "kanban", "decompose", cards[2])
        assert ran.code == 1 and "gave no plan" in ran.err
        ran = hermes("-m", "test-model", "kanban", "run", "four")
        waits = hermes("kanban", "list", "--status", "triage", "--json").out
        (goal,) = [card["id"] for card in json.loads(waits)["tasks"] if card["title"] == "four"]
        assert ran.code == 1 and f"hermes kanban run --card {goal} plans it again" in ran.err
        assert hermes("kanban", "decompose").code == 2
    assert hermes("kanban", "show", cards[2], "--json").out.count('"triage"') >= 1
    said = hermes("kanban", "why", cards[2])
    assert "cure: hermes kanban specify" in said.out
    assert hermes("kanban", "doctor").code == 1
    assert hermes("kanban", "pause", "--reason", "lunch").code == 0
    assert "lunch" in hermes("kanban", "dispatch", "--dry-run").out
    assert (
        hermes("kanban", "pause", "--off").code == 0 and hermes("kanban", "questions").out == "nobody asks anything\n"
    )


def test_an_idea_without_money_is_put_off_and_counts_as_no_failed_plan(
    hermes: Callable[..., Ran], hermes_home: Path
) -> None:
    (hermes_home / "config.yaml").write_text("kanban: {card_usd: 0.5}\n", encoding="utf-8")
    card = hermes("kanban", "create", "one", "--triage", "-q").out.strip()
    opened = open_board_of(open_sources(GlobalOptions()))
    with opened.board as board:
        paid = board.reserve_plan(card, share_of(opened.sources.loaded.settings.kanban), profile="default")
        board.spend(paid, usd=0.5, tokens=0, final=True)
    ran = hermes("-m", "test-model", "kanban", "decompose", card)
    assert ran.code == 75 and card in ran.err
    other = hermes("kanban", "create", "two", "--triage", "-q").out.strip()
    with open_board_of(open_sources(GlobalOptions())).board as board:
        assert board.lead(f"{PLANNED_BY}{other}", "process 1", token=None, ttl=60.0)[0]
    ran = hermes("-m", "test-model", "kanban", "decompose", other)
    assert ran.code == 1 and "is being planned by process 1" in ran.err
    for idea, reason in ((card, "budget"), (other, "planning")):
        told = hermes("kanban", "events", idea, "--json").out
        assert "decompose_put_off" in told and f'"{reason}"' in told and "decompose_failed" not in told


def test_a_goal_with_nothing_configured_stays_and_says_what_to_do(hermes: Callable[..., Ran]) -> None:
    ran = hermes("kanban", "run", "Reach the moon")
    card = ran.err.split()[0]
    assert ran.code == 2 and "hermes setup" in ran.err
    assert ran.err.rstrip().endswith(f"hermes kanban run --card {card} plans it again.")
