"""The board's tools as models call them: roles, limits, repetition, files, and the gate that turns them on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hermes.compose.boards import BoardToolset
from hermes.core.errors import ToolError, UsageError
from hermes.core.scope import CallKey, TaskKind, TaskScope
from hermes.core.tools import CallContext, Tool, ToolEnv, ToolOutput
from hermes.kanban.access import Access
from hermes.kanban.boards import Boards
from hermes.kanban.card import Card, Check, NewCard, Proof
from hermes.kanban.seat import Seat, seat_from
from hermes.kanban.toolset import KanbanToolset
from hermes.testing.lab import open_lab
from hermes.testing.scripted import ScriptedModel, call, reply
from tests.kanban.conftest import HERE, StandingClock

pytestmark = pytest.mark.anyio


class Desk:
    """The tools of one task over the default board of a folder, and the board itself."""

    def __init__(self, root: Path, author: str, seat: Seat | None, kind: TaskKind = "main") -> None:
        self.access = Access(
            lambda: Boards(root, HERE, environ={}, clock=StandingClock(), profiles=["coder", "tester", "lead"]),
            author=author,
            seat=seat,
        )
        self.scope = TaskScope(task_id=f"main_{author}", session_id="s1", root_id="main_1", kind=kind)
        self.tools: dict[str, Tool] = {
            tool.name: tool
            for tool in KanbanToolset(self.access).build(ToolEnv(scope=self.scope, state_dir=str(root / "state")))
        }
        self.position = 0

    async def call(self, verb: str, at: int | None = None, **arguments: Any) -> dict[str, Any]:
        self.position += 1
        tool = self.tools[f"kanban_{verb}"]
        key = CallKey(self.scope.task_id, at or self.position, 0)
        context = CallContext(key=key, scope=self.scope, progress=lambda _: None, room=lambda: 1000)
        output = await tool.run(tool.parse(arguments), context)
        assert isinstance(output, ToolOutput)
        answer = json.loads(output.content[0].text)  # type: ignore[union-attr]
        assert isinstance(answer, dict)
        return answer


@pytest.fixture
async def lead(tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path / "root", "lead", None)
    yield desk
    await desk.access.close()


class Bench:
    """A worker at a card, in a folder, whose check answers what the test says."""

    def __init__(self, desk: Desk, card: Card, folder: Path) -> None:
        self.desk = desk
        self.card = card
        self.folder = folder


async def seated(lead: Desk, tmp_path: Path, *, checks: list[Check] | None = None, **order: Any) -> Bench:
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    board = await lead.access.board()
    made = await board.run(
        lambda board: board.create(NewCard(title="the card", assignee="coder", **order), author="lead").card
    )
    taken = await board.run(lambda board: board.claim(profiles=["coder"], card=made.id))
    assert taken is not None
    await board.run(lambda board: board.note_process(taken.claim, author="coder", pid=1))

    async def check(card: Card) -> Check:
        assert checks is not None
        return checks.pop(0)

    seat = Seat(
        claim=taken.claim, workspace=str(folder), check=check if checks is not None else None, refused=lambda: ""
    )
    return Bench(Desk(tmp_path / "root", "coder", seat), made, folder)


async def test_roles_have_their_own_tools(lead: Desk, tmp_path: Path) -> None:
    worker = (await seated(lead, tmp_path)).desk
    assert set(lead.tools) == set(KanbanToolset.tool_names)
    assert set(lead.tools) - set(worker.tools) == {"kanban_list", "kanban_unblock"}
    for kind in ("child", "async", "row"):
        assert Desk(tmp_path / "root", "lead", None, kind=kind).tools == {}  # type: ignore[arg-type]
    await worker.access.close()


async def test_a_worker_that_lost_its_card_writes_nothing_more(lead: Desk, tmp_path: Path) -> None:
    bench = await seated(lead, tmp_path)
    other = await lead.call("create", title="other", assignee="coder")
    board = await lead.access.board()
    claim = (bench.desk.access.seat or pytest.fail()).claim
    ended = Proof(kind="ended", host_id=board.board.here.host_id)
    await board.run(lambda board: board.release(claim.run_id, "stale", ended))
    before = await board.run(lambda board: board.last_event())
    (bench.folder / "loose.txt").write_text("x")
    for verb, arguments in (
        ("comment", {"task_id": other["task_id"], "body": "I was here"}),
        ("link", {"parent_id": other["task_id"], "child_id": bench.card.id}),
        ("create", {"title": "more", "assignee": "coder"}),
        ("complete", {"summary": "done"}),
    ):
        with pytest.raises(ToolError):
            await bench.desk.call(verb, **arguments)
    assert await board.run(lambda board: board.last_event()) == before


async def test_skills_are_refused_with_what_to_do_instead(lead: Desk) -> None:
    with pytest.raises(ToolError, match="write what the worker has to know into body"):
        await lead.call("create", title="x", assignee="coder", skills=["writing"])


async def test_a_run_without_a_person_is_not_told_that_it_hears_of_its_cards(lead: Desk) -> None:
    env = ToolEnv(scope=lead.scope, state_dir="", unattended=True)
    lead.tools = {tool.name: tool for tool in KanbanToolset(lead.access).build(env)}
    assert (await lead.call("create", title="find it", assignee="coder"))["subscribed"] is False


async def test_an_orchestrator_plans_and_a_worker_delivers(lead: Desk, tmp_path: Path) -> None:
    first = await lead.call("create", title="find it", assignee="Coder", body="where is it?", acceptance="a place")
    second = await lead.call("create", title="use it", assignee="tester", parents=[first["task_id"]])
    assert first == {"ok": True, "task_id": first["task_id"], "status": "ready", "subscribed": True}
    assert second["status"] == "todo"
    claim = await _claim(lead, first["task_id"])
    worker = Desk(tmp_path / "root", "coder", Seat(claim=claim, workspace=str(tmp_path)))
    shown = await worker.call("show")
    assert shown["task"]["id"] == first["task_id"] and "## Done when\n\na place" in shown["worker_context"]
    done = await worker.call("complete", summary="it is in the cellar", metadata={"floor": -1})
    assert done == {"ok": True, "task_id": first["task_id"], "run_id": claim.run_id, "status": "done"}
    listed = await lead.call("list", status="ready")
    assert [card["id"] for card in listed["tasks"]] == [second["task_id"]] and listed["count"] == 1
    shown = await lead.call("show", task_id=second["task_id"])
    assert "> it is in the cellar" in shown["worker_context"]
    await worker.access.close()


async def _claim(lead: Desk, card_id: str) -> Any:
    board = await lead.access.board()
    taken = await board.run(lambda board: board.claim(profiles=["coder", "tester"], card=card_id))
    assert taken is not None
    return taken.claim


async def test_a_worker_moves_its_own_card_alone_and_comments_on_any(lead: Desk, tmp_path: Path) -> None:
    bench = await seated(lead, tmp_path)
    worker = bench.desk
    other = (await lead.call("create", title="other", assignee="tester"))["task_id"]
    for verb, more in (("complete", {"summary": "x"}), ("block", {"reason": "x"}), ("heartbeat", {})):
        with pytest.raises(ToolError, match=f"only its own card {bench.card.id}"):
            await worker.call(verb, task_id=other, **more)
    said = await worker.call("comment", task_id=other, body="look at mine")
    assert said["comment_id"] >= 1
    shown = await lead.call("show", task_id=other)
    assert [(comment["author"], comment["body"]) for comment in shown["comments"]] == [("coder", "look at mine")]
    with pytest.raises(ToolError, match="Expected fields: board, task_id, body"):
        await worker.call("comment", task_id=other)
    await worker.access.close()


async def test_a_call_that_is_repeated_is_not_done_again(lead: Desk, tmp_path: Path) -> None:
    made = await lead.call("create", at=1, title="x", assignee="coder")
    assert await lead.call("create", at=1, title="x", assignee="coder") == made
    bench = await seated(lead, tmp_path)
    worker = bench.desk
    said = await worker.call("comment", at=7, task_id=made["task_id"], body="hello")
    assert await worker.call("comment", at=7, task_id=made["task_id"], body="hello") == said
    done = await worker.call("complete", at=9, summary="x")
    assert await worker.call("complete", at=9, summary="x") == done
    with pytest.raises(ToolError, match="is lost: the card is done"):
        await worker.call("complete", at=11, summary="x")
    assert (await lead.call("list", include_archived=True))["count"] == 2
    await worker.access.close()


async def test_a_part_of_the_own_card_is_waited_for(lead: Desk, tmp_path: Path) -> None:
    bench = await seated(lead, tmp_path, workspace_kind="dir", workspace_path="/data")
    worker = bench.desk
    part = await worker.call("create", title="a part", assignee="tester", subtask=True)
    shown = await worker.call("show", task_id=part["task_id"])
    assert part["status"] == "ready" and shown["task"]["workspace_path"] == "/data"
    blocked = await worker.call("block", reason="waits for its part", kind="dependency")
    assert blocked["status"] == "todo"
    await worker.access.close()


@pytest.mark.fault("B090")
async def test_the_check_is_run_before_the_end_and_its_second_failure_is_for_a_reviewer(
    lead: Desk, tmp_path: Path
) -> None:
    failed = Check(passed=False, output="out.txt is missing", exit_code=1)
    bench = await seated(lead, tmp_path, checks=[failed, failed], check_command="test -f out.txt")
    with pytest.raises(ToolError, match="out.txt is missing\n.* is still yours: mend it"):
        await bench.desk.call("complete", summary="made")
    answer = await bench.desk.call("complete", summary="made")
    assert (answer["ok"], answer["status"]) == (False, "review")
    await bench.desk.access.close()


async def test_a_reviewers_word_counts_where_the_check_succeeds(lead: Desk, tmp_path: Path) -> None:
    checks = [Check(passed=True), Check(passed=False, output="not there"), Check(passed=True)]
    bench = await seated(lead, tmp_path, checks=checks, check_command="test -f out.txt", reviewer="tester")
    assert (await bench.desk.call("complete", summary="done"))["status"] == "review"
    board = await lead.access.board()
    run = (await board.run(lambda board: board.runs(bench.card.id)))[0]
    proof = Proof(kind="ended", host_id=HERE.host_id)
    await board.run(lambda board: board.release(run.id, "review_requested", proof))
    taken = await board.run(lambda board: board.claim(profiles=["tester"], step="review", card=bench.card.id))
    assert taken is not None

    async def check(card: Card) -> Check:
        return checks.pop(0)

    reviewer = Desk(tmp_path / "root", "tester", Seat(claim=taken.claim, workspace=str(bench.folder), check=check))
    with pytest.raises(ToolError, match="not there\nA card whose check fails is not good: request changes"):
        await reviewer.call("complete", summary="good")
    assert (await board.run(lambda board: board.find(bench.card.id))).status == "running"
    assert (await reviewer.call("complete", summary="good"))["status"] == "done"
    ended = await board.run(lambda board: board.find(bench.card.id))
    assert (ended.result, ended.summary) == ("done", "done"), "cards that need it get the work, not the verdict"
    await reviewer.access.close()
    await bench.desk.access.close()


async def test_a_check_that_succeeds_ends_the_card(lead: Desk, tmp_path: Path) -> None:
    bench = await seated(lead, tmp_path, checks=[Check(passed=True)], check_command="true")
    assert (await bench.desk.call("complete", summary="made"))["status"] == "done"
    await bench.desk.access.close()


@pytest.mark.fault("B089")
async def test_named_files_are_kept_before_the_folder_may_go_and_the_others_are_told(
    lead: Desk, tmp_path: Path
) -> None:
    bench = await seated(lead, tmp_path)
    worker = bench.desk
    (bench.folder / "report.md").write_text("# fine\n")
    (bench.folder / "extra.csv").write_text("1,2\n")
    with pytest.raises(ToolError, match="outside of the workspace"):
        await worker.call("complete", summary="x", artifacts=["../secret"])
    with pytest.raises(ToolError, match="gone.md cannot be read"):
        await worker.call("complete", summary="x", artifacts=["gone.md"])
    await worker.call("complete", summary="x", artifacts=["report.md"])
    (bench.folder / "report.md").unlink()
    kept = await lead.call("attachments", task_id=bench.card.id)
    assert [(each["name"], each["media_type"]) for each in kept["attachments"]] == [("report.md", "text/markdown")]
    shown = await lead.call("show", task_id=bench.card.id)
    told = [event["payload"] for event in shown["events"] if event["kind"] == "tip_scratch_workspace"]
    assert told == [{"not_kept": ["extra.csv"]}]
    await worker.access.close()


async def test_files_of_other_cards_come_into_the_own_folder(lead: Desk, tmp_path: Path) -> None:
    bench = await seated(lead, tmp_path)
    (bench.folder / "a.txt").write_text("a")
    assert (await bench.desk.call("attach", path="a.txt"))["name"] == "a.txt"
    with pytest.raises(ToolError, match="exists already"):
        await bench.desk.call("attachments", save="a.txt")
    (bench.folder / "a.txt").unlink()
    saved = await bench.desk.call("attachments", save="a.txt")
    assert Path(saved["saved"]).read_text() == "a"
    await bench.desk.access.close()


async def test_a_wish_to_stop_is_told_with_the_next_sign_of_life(lead: Desk, tmp_path: Path) -> None:
    bench = await seated(lead, tmp_path)
    board = await lead.access.board()
    await board.run(lambda board: board.request_stop(bench.card.id, "archived", author="lead", reason="not needed"))
    answer = await bench.desk.call("heartbeat", note="half way")
    assert answer["stop"] == "This card is wanted archived: not needed. End your work now."
    with pytest.raises(ToolError, match="only the worker"):
        await lead.call("heartbeat", task_id=bench.card.id)
    with pytest.raises(ToolError, match="has to end first"):
        await lead.call("complete", task_id=bench.card.id, summary="x")
    await bench.desk.access.close()


async def test_mistakes_are_told_with_what_would_be_right(lead: Desk) -> None:
    for verb, arguments, message in (
        ("create", {"title": "x", "assignee": "codr"}, "no profile 'codr'. Did you mean coder"),
        ("create", {"title": "x", "assignee": "coder", "parents": ["t_x"]}, "no card 't_x'"),
        ("create", {"title": "x", "assignee": "coder", "subtask": True}, "own card"),
        ("create", {"title": "x", "assignee": "coder", "board": "nowhere"}, "no board 'nowhere'"),
        ("show", {}, "task_id is missing"),
        ("complete", {"task_id": "t_x"}, "needs a summary or a result"),
    ):
        with pytest.raises(ToolError, match=message):
            await lead.call(verb, **arguments)


async def test_a_seat_comes_from_the_variables_of_a_worker() -> None:
    assert seat_from({}) is None
    whole = {"HERMES_KANBAN_TASK": "t_1", "HERMES_KANBAN_RUN_ID": "r_1", "HERMES_KANBAN_CLAIM_LOCK": "x"}
    found = seat_from({**whole, "HERMES_KANBAN_WORKSPACE": "/w"})
    assert found is not None and (found.claim.card_id, found.claim.token, found.workspace) == ("t_1", "x", "/w")
    with pytest.raises(UsageError, match="HERMES_KANBAN_RUN_ID or HERMES_KANBAN_CLAIM_LOCK is missing"):
        seat_from({"HERMES_KANBAN_TASK": "t_1"})


async def test_a_conversation_has_the_board_by_its_own_name_alone(tmp_path: Path) -> None:
    steps = [
        reply(calls=[call("kanban_create", title="find it", assignee="default")]),
        reply(calls=[call("kanban_list")]),
        reply("planned"),
    ]
    model = ScriptedModel("test", steps)
    async with open_lab(model, workspace=tmp_path, settings={"toolsets": ("kanban",)}) as lab:
        assert (await lab.ask("plan it")).summary == "planned"
        names = {tool.name for tool in model.requests[0].tools}
        assert set(KanbanToolset.tool_names) <= names
    assert (tmp_path / ".hermes-home" / "kanban-board.db").is_file()
    everything = ScriptedModel("test", [reply("no board")])
    async with open_lab(everything, workspace=tmp_path, settings={"toolsets": ("all",)}) as lab:
        await lab.ask("plan it")
        assert not [tool.name for tool in everything.requests[0].tools if tool.name.startswith("kanban")]


def test_the_names_of_the_tools_are_the_same_everywhere() -> None:
    assert BoardToolset.tool_names == KanbanToolset.tool_names


def test_who_uses_no_board_does_not_load_its_database() -> None:
    code = "import sys, hermes.compose, hermes.cli.main; sys.exit('sqlalchemy' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": ":".join(sys.path)}).returncode
        == 0
    )
