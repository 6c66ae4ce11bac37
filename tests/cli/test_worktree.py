"""`--worktree`: a question or a conversation on a branch of its own, and the checkout that it began from untouched."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import Request, serve_in_thread
from tests.cli.conftest import Ran
from tests.cli.program import HERMES, Program
from tests.runtime.repository import Checkout, new_repository


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def repository(program: Program) -> Checkout:
    return new_repository(program.folder / "repo")


def committer(request: Request) -> Reply:
    if request.turn == 0:
        command = "pwd && echo x > new.txt && git add new.txt && git commit -qm new"
        return reply(calls=[call("terminal", command=command)])
    return reply("done")


@pytest.mark.parametrize("before", [True, False])
def test_a_question_is_answered_on_a_branch_of_its_own(program: Program, repository: Checkout, before: bool) -> None:
    state = repository.state()
    question = ("-m", "test-model", "chat", "-q", "hello")
    flags = ("-w", *question) if before else (*question, "-w")
    with serve_in_thread(committer) as server:
        ran = program.use(server).run(*flags, folder=repository.path)
    assert (ran.code, ran.out) == (0, "done\n"), ran.err
    assert repository.state() == state
    (branch,) = [name for name in repository.branches() if name.startswith("hermes/")]
    assert repository.git("log", "--format=%s", f"main..{branch}") == "new"
    assert f"(worktree, branch {branch}, 1 commits)" in ran.err


def test_nothing_is_left_of_a_question_that_changed_nothing(program: Program, repository: Checkout) -> None:
    with serve_in_thread(lambda _: reply("done")) as server:
        ran = program.use(server).ask("--worktree", folder=repository.path)
    assert ran.code == 0 and "nothing was left in its worktree" in ran.err
    assert repository.branches() == ["main"] and repository.worktrees() == [str(repository.path)]


def test_outside_of_a_repository_it_is_refused(program: Program) -> None:
    with serve_in_thread(lambda _: reply("done")) as server:
        ran = program.use(server).ask("--worktree")
        assert len(server.requests) == 0
    assert ran.code == 1 and "environment_unavailable" in ran.err and "is in none" in ran.err and ran.out == ""


def test_where_it_means_nothing_it_is_refused(hermes: Callable[..., Ran]) -> None:
    ran = hermes("-w", "config", "show")
    assert ran.code == 2 and "--worktree is for chat" in ran.err


def test_a_conversation_says_where_it_works(program: Program, repository: Checkout) -> None:
    with serve_in_thread(committer) as server:
        program.use(server)
        command = [*("-m", "test-model"), "chat", "--cli", "-w"]
        done = subprocess.run(
            [HERMES, *command], cwd=repository.path, env=program.environ, input="go\n/quit\n", capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "this conversation works in" in done.stdout + done.stderr
    assert repository.state()[0] == "main" and not (repository.path / "new.txt").exists()


def test_a_run_in_the_background_works_where_its_conversation_does(program: Program, repository: Checkout) -> None:
    state = repository.state()
    with serve_in_thread(committer) as server:
        program.use(server)
        command = [*("-m", "test-model"), "chat", "--cli", "-w"]
        done = subprocess.run(
            [HERMES, *command], cwd=repository.path, env=program.environ, input="/background go\n", capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 0 and "Hermes (background #1)" in done.stdout, done.stdout + done.stderr
    assert repository.state() == state
    assert not (repository.path / "new.txt").exists()
    (branch,) = [name for name in repository.branches() if name.startswith("hermes/")]
    assert repository.git("log", "--format=%s", f"main..{branch}") == "new"
