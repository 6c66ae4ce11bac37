"""From a goal to its end with the installed command: planned, worked on by processes of two profiles, a question
answered by a person, a review, and all of it again with every worker killed on its way."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.testing.faults import Fault
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import Request, serve_in_thread
from tests.cli.conftest import Ran
from tests.cli.program import HERMES
from tests.kanban.test_workers import Lab

GOAL = "Ship the price list"
TASKS = [
    {"title": "find the prices", "assignee": "researcher", "parents": []},
    {"title": "find the taxes", "assignee": "researcher", "parents": []},
    {"title": "choose a format", "assignee": "researcher", "parents": []},
    {"title": "write the list", "assignee": "coder", "parents": [0, 1, 2], "review": True},
    {"title": "write the page", "assignee": "coder", "parents": [3]},
    {"title": "check the page", "assignee": "researcher", "parents": [4]},
]


def title_of(request: Request) -> str:
    found = re.search(r"^# Card t_\w+: (.*)$", request.first_user, re.MULTILINE)
    return found.group(1) if found else ""


def said(request: Request, text: str) -> bool:
    return any(text in str(message) for message in request.messages[1:])


def team(request: Request) -> Reply | Fault:
    """The whole team: the planner, the workers, the reviewer."""
    if "Plan this goal as cards" in request.first_user:
        cards = [{**task, "body": f"Do: {task['title']}", "acceptance": "it is there"} for task in TASKS]
        return reply(json.dumps({"fanout": True, "rationale": "six steps", "tasks": cards}))
    title, last = title_of(request), request.messages[-1]
    if last.get("role") == "tool" and '"status":' in request.last:
        return reply("That is it.")
    if "You review this card" in request.first_user:
        return reply(calls=[call("kanban_complete", summary="looks right")])
    if title == "choose a format" and not said(request, "Answer to:"):
        return reply(calls=[call("kanban_block", reason="CSV or JSON?", kind="needs_input", choices=["CSV", "JSON"])])
    if not said(request, "effects.txt"):
        return reply(calls=[call("terminal", command=f"echo '{title}' >> effects.txt")])
    return reply(calls=[call("kanban_complete", summary=f"result of {title}")])


def hermes(lab: Lab, *args: str, code: int = 0) -> Ran:
    done = subprocess.run(
        [HERMES, "-m", "test-model", *args],
        cwd=lab.home.parent,
        env=lab.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == code, (args, done)
    return Ran(done.returncode, done.stdout, done.stderr)


def reach_the_goal(lab: Lab, script: Callable[[Request], Reply | Fault]) -> list[Request]:
    lab.home.joinpath("config.yaml").write_text("kanban:\n  reviewer_profile: coder\n", encoding="utf-8")
    with serve_in_thread(script) as server:
        lab.use(server)
        first = hermes(lab, "kanban", "run", GOAL, code=75)
        (question,) = lab.board.questions()
        assert (question.question, question.choices) == ("CSV or JSON?", ["CSV", "JSON"])
        assert f"hermes kanban answer {question.card_id}" in first.err
        root = next(card for card in lab.board.cards() if card.title == GOAL)
        hermes(lab, "kanban", "answer", question.card_id, "CSV")
        second = hermes(lab, "kanban", "run", "--card", root.id)
        assert second.out.rstrip().endswith(f"result of {GOAL}")
        return server.requests


def check_the_end(lab: Lab, requests: list[Request]) -> None:
    cards = {card.title: card for card in lab.board.cards()}
    assert {card.status for card in cards.values()} == {"done"} and len(cards) == 7
    assert {title: card.assignee for title, card in cards.items()} == {
        **{str(task["title"]): task["assignee"] for task in TASKS}, GOAL: "default",
    }  # fmt: skip
    written = next(request for request in requests if title_of(request) == "write the list")
    assert "> result of find the prices" in written.first_user and "> result of choose a format" in written.first_user
    kinds = [event.kind for event in lab.board.events(card=cards["write the list"].id)]
    assert "review_requested" in kinds and kinds.index("review_requested") < kinds.index("completed")
    # The one who asked went on where it stood.
    asked = [request for request in requests if title_of(request) == "choose a format"]
    assert asked[-1].turn > 1 and said(asked[-1], "CSV or JSON?") and said(asked[-1], "Answer to:")
    assert lab.board.live_runs() == []


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, ("researcher", "coder"))


@pytest.mark.timeout(480)
def test_from_a_goal_to_its_end(lab: Lab) -> None:
    requests = reach_the_goal(lab, team)
    check_the_end(lab, requests)
    runs = [run for card in lab.board.cards() for run in lab.board.runs(card.id)]
    assert max(run.attempt for run in runs) == 2 and {run.counted for run in runs} == {False}
    began = sorted((run.started_at, run.exited_at or 0.0) for run in runs)
    assert any(later[0] < earlier[1] for earlier, later in zip(began, began[1:], strict=False)), "never side by side"


@pytest.mark.timeout(600)
@pytest.mark.slow
@pytest.mark.fault("B070")
def test_the_same_with_every_worker_killed_once(lab: Lab) -> None:
    killed: set[str] = set()

    def deadly(request: Request) -> Reply | Fault:
        title = title_of(request)
        step = f"{title} {'review' if 'You review this card' in request.first_user else ''}"
        if title and step not in killed and (request.turn == 1 or "review" in step):
            killed.add(step)
            for run in lab.board.live_runs():
                if lab.board.find(run.card_id).title == title and run.pid is not None:
                    os.kill(run.pid, signal.SIGKILL)
        return team(request)

    requests = reach_the_goal(lab, deadly)
    check_the_end(lab, requests)
    assert len(killed) == 8
    crashed = [run for card in lab.board.cards() for run in lab.board.runs(card.id) if run.outcome == "crashed"]
    # Whoever had asked its question, or completed, before it was killed has lost nothing by it.
    assert len(crashed) >= 6 and all(run.exited_at is not None for run in crashed)
    for card in lab.board.cards():
        path = lab.folder / "workspaces" / card.id / "effects.txt"
        assert path.read_text(encoding="utf-8") == f"{card.title}\n", "a command ran twice, or not at all"
