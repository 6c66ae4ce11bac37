"""`hermes kanban gc`, `repair`, `heartbeat`, `notify-*`, and how the board's news reach a person."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hermes.cli.kanban_telling import teller_of
from hermes.cli.options import GlobalOptions, open_sources
from hermes.kanban.telling import Tiding
from tests.cli.conftest import Ran

Hermes = Callable[..., Ran]


def made(hermes: Hermes, title: str, *more: str) -> str:
    return hermes("kanban", "create", title, "-q", *more).out.strip()


def test_a_board_is_kept_in_order_by_hand(hermes: Hermes, hermes_home: Path) -> None:
    card = made(hermes, "Look around")
    hermes("kanban", "complete", card)
    assert hermes("kanban", "gc").out.startswith("removed 0 events and answers, 0 logs (0 bytes)")
    assert json.loads(hermes("kanban", "gc", "--event-retention-days", "1", "--json").out)["rows"] == 0
    assert hermes("kanban", "gc", "--log-retention-days", "0").code == 2
    ran = hermes("kanban", "repair", "--dry-run")
    assert (ran.code, ran.out) == (0, "nothing contradicts itself\n")
    answer = json.loads(hermes("kanban", "repair", "--json").out)
    assert answer == {"found": [], "damaged": False, "dry_run": False, "copies": []}


def test_a_sign_of_life_by_hand(hermes: Hermes, hermes_home: Path) -> None:
    card = made(hermes, "By hand")
    refused = hermes("kanban", "heartbeat", card)
    assert refused.code == 1 and "nobody works on it" in refused.err
    hermes("kanban", "claim", card)
    assert hermes("kanban", "heartbeat", card, "--note", "half").out == f"{card} is running: noted\n"
    assert json.loads(hermes("kanban", "heartbeat", card, "--json").out)["id"] == card
    assert "half" in hermes("kanban", "events", card).out


def test_who_wants_to_be_told_of_what(hermes: Hermes, hermes_home: Path) -> None:
    card = made(hermes, "Ship it")
    assert "none is asked for" in hermes("kanban", "notify-list").out
    ran = hermes("kanban", "notify-subscribe", card, "--on", "done")
    assert ran.out == f"{card} (Ship it) is told: done\n" and "no way of telling is configured" in ran.err
    hermes("config", "set", "notify.bell", "true")
    answer = json.loads(hermes("kanban", "notify-subscribe", card, "--json").out)
    assert answer["occasions"] == ["budget", "done", "failed", "needs_answer"] and answer["ways"] == "the bell"
    listed = hermes("kanban", "notify-list")
    assert card in listed.out and "Ship it" in listed.out and "told by the bell" in listed.err
    assert hermes("kanban", "notify-unsubscribe", card).out == f"{card} is told as every card\n"
    assert json.loads(hermes("kanban", "notify-list", "--json").out)["notifications"] == []
    assert hermes("kanban", "notify-subscribe", card, "--on", "weather").code == 2


def test_news_are_sent_by_the_configured_ways(hermes_home: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    (hermes_home / "config.yaml").write_text(f"notify:\n  command: cat >> {told}\n  on: [failed]\n", encoding="utf-8")
    tell = teller_of(open_sources(GlobalOptions()), "web")
    assert tell is not None
    tell(
        [
            Tiding(occasion="done", title="not wanted", at=1.0, card="t_1"),
            Tiding(occasion="done", title="done: Ship it", at=2.0, card="t_2", text="all", wished=True),
            Tiding(occasion="failed", title="gave up: x", at=3.0, card="t_3", cure="hermes kanban unblock t_3"),
        ]
    )
    for thread in threading.enumerate():
        if thread.name == "telling":
            thread.join(60)
    messages: dict[str, Any] = {each["task_id"]: each for each in map(json.loads, told.read_text().splitlines())}
    assert messages.keys() == {"t_2", "t_3"}
    assert messages["t_3"]["title"] == "Hermes gave up: x (board web)" and messages["t_3"]["event"] == "failed"
    assert messages["t_3"]["details"]["do"] == "hermes kanban --board web unblock t_3"
    assert messages["t_2"]["show"] == "hermes kanban --board web show t_2"


def test_one_goal_for_several_workers(hermes: Hermes, hermes_home: Path) -> None:
    for name in ("coder", "judge"):
        (hermes_home / "profiles" / name).mkdir(parents=True)
    ran = hermes("kanban", "swarm", "Name it", "--workers", "coder, coder", "--verifier", "judge")
    assert ran.code == 0 and "todo     default: Name it" in ran.out and len(ran.out.splitlines()) == 4
    answer = json.loads(hermes("kanban", "swarm", "Name it", "--workers", "coder", "--json").out)
    assert (len(answer["workers"]), answer["check"], answer["goal"]["assignee"]) == (1, None, "default")
    refused = hermes("kanban", "swarm", "Name it", "--workers", "coder,nobody")
    assert refused.code == 2 and "there is no profile 'nobody'" in refused.err
    assert "Name it" not in hermes("kanban", "list", "--status", "triage").out


def test_nothing_is_prepared_where_nobody_can_be_told(hermes_home: Path) -> None:
    assert teller_of(open_sources(GlobalOptions()), "default") is None
