"""`hermes kanban merge`: the checks of cards run what workers wrote, so they are held as workers' commands are."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran
from tests.kanban.test_placing import Desk


@pytest.fixture
def desk(tmp_path: Path, hermes_home: Path) -> Desk:
    return Desk(tmp_path, root=hermes_home)


def test_a_check_of_a_merge_reaches_nothing_outside_of_its_checkout(
    desk: Desk, hermes: Callable[..., Ran], tmp_path: Path, needs_tool: Callable[[str], Path]
) -> None:
    needs_tool("bwrap")
    prey = tmp_path / "prey.txt"
    card = desk.card("one", check_command="sh check.sh")
    desk.work(card, "check.sh", f"echo caught > {prey}; git log --oneline | wc -l; touch made\n")
    ran = hermes("kanban", "merge", card.id)
    assert (ran.code, prey.exists()) == (0, False), ran
    assert "joined as" in ran.out
    told = subprocess.run(
        ["git", "log", "--oneline", f"merge/{card.id}"], cwd=desk.repository, capture_output=True, text=True, check=True
    )
    assert len(told.stdout.splitlines()) == 3


def test_a_check_that_the_rules_refuse_stops_the_merge(
    desk: Desk, hermes: Callable[..., Ran], hermes_home: Path
) -> None:
    (hermes_home / "config.yaml").write_text(
        "approvals:\n  rules:\n    - {command: make, decision: deny}\n", encoding="utf-8"
    )
    card = desk.card("one", check_command="make all")
    desk.work(card, "b.txt", "x\n")
    ran = hermes("kanban", "merge", card.id, "--json")
    answer = json.loads(ran.out)
    assert (ran.code, answer["outcome"]) == (1, "check")
    assert "could not be run" in answer["detail"]


def test_a_failed_check_shows_its_last_lines(desk: Desk, hermes: Callable[..., Ran]) -> None:
    card = desk.card("one", check_command="echo it broke here; exit 3")
    desk.work(card, "b.txt", "x\n")
    ran = hermes("kanban", "merge", card.id)
    assert ran.code == 1 and "exit code 3" in ran.out and "it broke here" in ran.out
    assert "is as it was before" in ran.out
