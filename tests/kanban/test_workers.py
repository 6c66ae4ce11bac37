"""Workers as real processes of real profiles, on a scripted model behind a loopback server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes.config.kanban import KanbanSettings
from hermes.kanban.board import Board
from hermes.kanban.boards import Boards
from hermes.kanban.card import Card, NewCard
from hermes.kanban.context import worker_context
from hermes.kanban.dispatcher import Dispatcher, Passed
from hermes.kanban.launching import TOLD, ProcessLauncher, Started
from hermes.kanban.place import this_worker
from hermes.testing.faults import Fault, rate_limited, server_error
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import ProviderServer, Request, serve_in_thread
from tests.cli.program import PASSED_ON

KEY = "sk-test-0123456789abcdef0123456789"


class Lab:
    """A home with profiles, its board, and a dispatcher for it; `environ` is what workers get."""

    def __init__(self, base: Path, profiles: tuple[str, ...] = ("coder",), **settings: object) -> None:
        self.home = base / "user" / ".hermes"
        for name in profiles:
            (self.home / "profiles" / name).mkdir(parents=True)
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(self.home.parent), **PASSED_ON}
        self.settings = KanbanSettings(**settings)  # type: ignore[arg-type]
        boards = Boards(self.home, this_worker(self.home, {}), environ={})
        self.board: Board = boards.open()
        self.folder = boards.folder("default")
        self.profiles = profiles
        self.said: list[str] = []

    def use(self, server: ProviderServer) -> Lab:
        self.environ |= {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": KEY}
        return self

    def launcher(self, **more: bool) -> ProcessLauncher:
        return ProcessLauncher(
            self.board.location,
            folder=self.folder,
            root=self.home,
            environ=self.environ,
            options=("-m", "test-model"),
            log_bytes=self.settings.worker_log_rotate_bytes,
            **more,
        )

    def dispatcher(self, **more: object) -> Dispatcher:
        return Dispatcher(
            self.board,
            self.launcher(),
            folder=self.folder,
            settings=self.settings,
            profiles=lambda: self.profiles,
            memory=lambda: None,
            say=self.said.append,
            **more,  # type: ignore[arg-type]
        )

    def create(self, title: str, **more: object) -> Card:
        order = NewCard(title=title, **{"assignee": "coder", **more})  # type: ignore[arg-type]
        return self.board.create(order, author="me").card

    def log(self, card: Card) -> str:
        return (self.folder / "logs" / f"{card.id}.log").read_text(encoding="utf-8")


def pass_and_wait(dispatcher: Dispatcher) -> Passed:
    """One pass, then the ends of all workers it started."""
    passed = dispatcher.pass_once(sign=False)
    for process in dispatcher.started.values():
        process.wait(timeout=100)
    return passed


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.board.close()


def step(*replies: Reply | Fault) -> Callable[[Request], Reply | Fault]:
    """A model that gives these replies in the order of its turns."""
    return lambda request: replies[min(request.turn, len(replies) - 1)]


def test_a_worktree_card_that_names_no_repository_works_in_the_boards(lab: Lab, tmp_path: Path) -> None:
    app = tmp_path / "app"
    subprocess.run(["git", "init", "-q", "-b", "main", str(app)], check=True)
    who = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    subprocess.run(["git", "-C", str(app), *who, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    Boards(lab.home, this_worker(lab.home, {}), environ={}).change("default", default_workdir=str(app))
    card = lab.create("write", workspace_kind="worktree")
    with serve_in_thread(step(reply(calls=[call("kanban_complete", summary="seen")]), reply("bye"))) as server:
        pass_and_wait(lab.use(server).dispatcher())
    (run,) = lab.board.runs(card.id)
    assert run.outcome == "completed", lab.log(card)
    assert run.workspace == str(app / ".worktrees" / card.id)


def test_a_card_is_worked_on_by_a_process_of_its_profile_and_is_done(lab: Lab) -> None:
    card = lab.create("write a report")
    script = step(
        reply(calls=[call("terminal", command="echo 42 > report.md")]),
        reply(calls=[call("kanban_complete", summary="the answer is 42", artifacts=["report.md"])]),
        reply("bye"),
    )
    with serve_in_thread(script) as server:
        dispatcher = lab.use(server).dispatcher()
        passed = pass_and_wait(dispatcher)
        assert [(each.card, each.profile) for each in passed.spawned] == [(card.id, "coder")]
        dispatcher.pass_once(sign=False)
    found = lab.board.find(card.id)
    assert (found.status, found.summary) == ("done", "the answer is 42"), lab.log(card)
    assert lab.board.attachment(card.id, "report.md") == b"42\n"
    (run,) = lab.board.runs(card.id)
    assert run.exited_at is not None and lab.board.live_runs() == []
    assert lab.board.spending("profile")[0].name == "coder" and lab.board.spending("profile")[0].tokens > 0
    assert (lab.home / "profiles" / "coder" / "runtime.db").exists()
    assert f"# Card {card.id}: write a report" in server.requests[0].first_user


def repository(base: Path) -> Path:
    folder = base / "app"
    folder.mkdir()
    for line in (
        "init -q -b main",
        "config user.name t",
        "config user.email t@localhost",
        "commit -q --allow-empty -m 0",
    ):
        subprocess.run(["git", *line.split()], cwd=folder, check=True)
    return folder


def test_a_worker_commits_on_the_branch_of_its_card_and_its_check_is_run(lab: Lab, tmp_path: Path) -> None:
    app = repository(tmp_path)
    card = lab.create(
        "write", workspace_kind="worktree", workspace_path=str(app), check_command="echo looking; grep -q good a.txt"
    )
    script = step(
        reply(
            calls=[call("terminal", command="echo bad > a.txt; git add . && git commit -q -m bad; git log --oneline")]
        ),
        reply(calls=[call("kanban_complete", summary="written")]),
        reply(calls=[call("terminal", command="echo good > a.txt; git add . && git commit -q -m good")]),
        reply(calls=[call("kanban_complete", summary="written well")]),
        reply("bye"),
    )
    with serve_in_thread(script) as server:
        dispatcher = lab.use(server).dispatcher()
        pass_and_wait(dispatcher)
        dispatcher.pass_once(sign=False)
    found = lab.board.find(card.id)
    assert (found.status, found.summary, found.branch_name) == ("done", "written well", f"wt/{card.id}"), lab.log(card)
    assert "The check failed" in server.requests[2].last and "looking" in server.requests[2].last
    shown = subprocess.run(
        ["git", "show", f"wt/{card.id}:a.txt"], cwd=app, capture_output=True, text=True, check=True
    ).stdout
    assert shown == "good\n"
    assert lab.board.runs(card.id)[0].branch_name == f"wt/{card.id}"


@pytest.mark.fault("B074")
def test_a_worker_that_only_answers_is_reminded_twice(lab: Lab) -> None:
    card = lab.create("talk")
    with serve_in_thread(lambda request: reply("I think that I am done.")) as server:
        dispatcher = lab.use(server).dispatcher()
        pass_and_wait(dispatcher)
        dispatcher.pass_once(most=0, sign=False)
    assert len(server.requests) == 3 and "neither completed nor blocked" in server.requests[-1].last, lab.log(card)
    found = lab.board.find(card.id)
    assert (found.status, found.consecutive_failures) == ("ready", 1)
    assert [event.kind for event in lab.board.events(card=card.id)].count("protocol_violation") == 1


def test_a_goal_is_pursued_as_often_as_it_says(lab: Lab) -> None:
    card = lab.create("a hard one", goal_mode=True, goal_max_turns=4)

    def script(request: Request) -> Reply:
        if request.turn < 4:
            return reply("I did a step.")
        return reply(calls=[call("kanban_complete", summary="there")]) if request.turn == 4 else reply("bye")

    with serve_in_thread(script) as server:
        dispatcher = lab.use(server).dispatcher()
        pass_and_wait(dispatcher)
        dispatcher.pass_once(most=0, sign=False)
    assert lab.board.find(card.id).summary == "there", lab.log(card)
    assert "up to 4 times" in str(server.requests[0].messages[0])
    assert "is not reached" in server.requests[1].last and "You are sent on 3 times more" in server.requests[1].last


def test_a_provider_that_refuses_for_the_rate_costs_no_attempt(lab: Lab) -> None:
    card = lab.create("wait")
    (lab.home / "profiles" / "coder" / "config.yaml").write_text("agent:\n  api_max_retries: 1\n", encoding="utf-8")
    with serve_in_thread(lambda request: rate_limited()) as server:
        dispatcher = lab.use(server).dispatcher()
        pass_and_wait(dispatcher)
        dispatcher.pass_once(sign=False)
    assert [run.outcome for run in lab.board.runs(card.id)] == ["rate_limited"], lab.log(card)
    assert lab.board.find(card.id).consecutive_failures == 0


def test_a_profile_without_a_model_says_so_and_stops_after_two_tries(lab: Lab) -> None:
    card = lab.create("no key")
    dispatcher = lab.dispatcher()
    for _ in range(4):
        pass_and_wait(dispatcher)
    found = lab.board.find(card.id)
    assert found.status == "blocked" and "key" in (found.last_failure_error or "").lower(), found.last_failure_error


def test_a_question_is_told_to_whoever_looks_elsewhere_and_work_goes_on_with_the_answer(lab: Lab) -> None:
    told = lab.home / "told.jsonl"
    config = f"notify:\n  command: cat >> {told}\n"
    (lab.home / "profiles" / "coder" / "config.yaml").write_text(config, encoding="utf-8")
    card = lab.create("choose")

    def script(request: Request) -> Reply:
        if "Answer to:" in str(request.messages) and request.turn < 3:
            return reply(calls=[call("kanban_complete", summary="red it is")])
        if request.turn == 0:
            return reply(calls=[call("kanban_block", reason="red or blue?", kind="needs_input")])
        return reply("That is it.")

    with serve_in_thread(script) as server:
        dispatcher = lab.use(server).dispatcher()
        pass_and_wait(dispatcher)
        dispatcher.pass_once(sign=False)
        message = json.loads(told.read_text(encoding="utf-8").splitlines()[0])
        assert (message["event"], message["text"]) == ("needs_answer", "red or blue?"), lab.log(card)
        lab.board.answer(card.id, "red", author="me")
        pass_and_wait(dispatcher)
    assert lab.board.find(card.id).summary == "red it is", lab.log(card)
    first, second = lab.board.runs(card.id)
    assert first.session_id == second.session_id and server.requests[-1].turn == 3


def test_a_worker_leaves_its_questions_to_whoever_serves_the_board_and_tells(lab: Lab) -> None:
    lab.create("choose")
    claimed = lab.board.claim(profiles=["coder"])
    assert claimed is not None
    assert lab.launcher(tells=True).variables(claimed, "coder")[TOLD] == "1"
    lab.environ[TOLD] = "1"
    assert TOLD not in lab.launcher().variables(claimed, "coder"), "what another one said does not hold here"


def test_what_was_mended_in_the_settings_counts_when_work_goes_on(lab: Lab) -> None:
    card = lab.create("write")
    config = lab.home / "profiles" / "coder" / "config.yaml"
    config.write_text("agent:\n  api_max_retries: 1\n", encoding="utf-8")
    script = step(reply(calls=[call("kanban_complete", summary="written")]), reply("bye"))
    with serve_in_thread(lambda request: server_error()) as broken:
        pass_and_wait(lab.use(broken).dispatcher())
    with serve_in_thread(script) as server:
        dispatcher = lab.use(server).dispatcher()
        pass_and_wait(dispatcher)
        dispatcher.pass_once(most=0, sign=False)
    assert broken.requests and lab.board.find(card.id).summary == "written", lab.log(card)
    first, second = lab.board.runs(card.id)
    assert first.session_id == second.session_id


def test_an_idea_is_planned_by_a_process_of_its_own_and_paid_by_the_board(lab: Lab) -> None:
    card = lab.create("Ship it", assignee=None, triage=True)
    processes: list[Started] = []

    def begin(card: Card) -> Started:
        processes.append(lab.launcher().plan(card))
        return processes[-1]

    tasks = [{"title": "write", "body": "x", "assignee": "coder", "acceptance": "y"}]
    with serve_in_thread(lambda request: reply(json.dumps({"fanout": True, "tasks": tasks}))) as server:
        dispatcher = lab.use(server).dispatcher(plan=begin)
        assert dispatcher.pass_once(sign=False).planned == [card.id]
        assert processes[0].wait(timeout=100) == 0, lab.log(card)
    (made,) = [each for each in lab.board.cards() if each.id != card.id]
    assert (made.title, made.assignee, lab.board.find(card.id).status) == ("write", "coder", "todo")
    (paid,) = lab.board.spending("card")
    assert paid.name == card.id and paid.tokens > 0 and paid.reserved_tokens == 0


def test_what_a_run_left_uncommitted_is_found_by_the_next_and_ends_on_the_branch(lab: Lab, tmp_path: Path) -> None:
    app = repository(tmp_path)
    card = lab.create("write", workspace_kind="worktree", workspace_path=str(app))
    (lab.home / "profiles" / "coder" / "config.yaml").write_text("agent:\n  api_max_retries: 1\n", encoding="utf-8")
    with serve_in_thread(
        step(reply(calls=[call("terminal", command="echo half > half.txt; echo x > .env")]), server_error())
    ) as broken:
        dispatcher = lab.use(broken).dispatcher()
        pass_and_wait(dispatcher)
        dispatcher.pass_once(most=0, sign=False)
    (first,) = lab.board.runs(card.id)
    assert first.outcome == "crashed" and first.metadata == {"uncommitted": [".env", "half.txt"]}, lab.log(card)
    assert "left uncommitted in the folder: .env, half.txt" in worker_context(lab.board.show(card.id))
    done, found = reply(calls=[call("kanban_complete", summary="written")]), list[str]()

    def script(request: Request) -> Reply:
        found.append(request.last)
        if len(found) == 1:
            return done
        if len(found) == 2:  # it keeps one of them out, and leaves the other all the same
            return reply(calls=[call("terminal", command="echo .env > .gitignore; git add .gitignore; git status -s")])
        return done if len(found) == 3 else reply("bye")

    with serve_in_thread(script) as server:
        lab.use(server)
        pass_and_wait(dispatcher)
        dispatcher.pass_once(most=0, sign=False)
    assert ".env, half.txt are not committed on its branch" in found[1] and lab.board.find(card.id).status == "done"
    kept = subprocess.run(
        ["git", "ls-tree", "--name-only", f"wt/{card.id}"], cwd=app, capture_output=True, text=True, check=True
    ).stdout
    assert kept.split() == [".gitignore", "half.txt"]
    last = lab.board.runs(card.id)[-1]
    assert last.metadata is None and last.git_commit
