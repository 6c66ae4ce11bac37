"""`hermes profile`: what the seeds of a team are, what each runs on, and that none is lost while it works."""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.config import find_home, load
from hermes.kanban.card import NewCard
from hermes.kanban.home import open_boards
from hermes.store.owner import take_ownership
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import Request, serve_in_thread
from tests.cli.conftest import Ran
from tests.cli.program import HERMES, Program

Hermes = Callable[..., Ran]
RESEARCHER = "Умеет читать исходный код и внешнюю документацию, создавать исследовательские отчёты"


@pytest.fixture
def team(hermes: Hermes, hermes_home: Path) -> Path:
    (hermes_home / ".env").write_text("OPENROUTER_API_KEY=sk-or-0123456789\n")
    assert hermes("profile", "create", "researcher", "--description", RESEARCHER).code == 0
    assert hermes("profile", "create", "coder", "--description", "Пишет код").code == 0
    return hermes_home


def test_creating_says_what_it_runs_on(hermes: Hermes, team: Path) -> None:
    ran = hermes("profile", "create", "third")
    assert ran.code == 0 and "runs on anthropic/claude-sonnet-4.6 at openrouter" in ran.out
    assert "OPENROUTER_API_KEY (.env of default)" in ran.out and "sk-or" not in ran.out
    assert "hermes profile describe third" in ran.out
    found = json.loads(hermes("profile", "list", "--json").out)["profiles"]
    assert [(each["name"], each["active"]) for each in found] == [
        ("default", True), ("coder", False), ("researcher", False), ("third", False),
    ]  # fmt: skip
    assert found[2]["description"] == RESEARCHER and found[2]["inherits"] == "default"


def test_nothing_to_run_on_is_said_at_once(hermes: Hermes, hermes_home: Path) -> None:
    ran = hermes("profile", "create", "researcher", "--description", RESEARCHER)
    assert ran.code == 0 and "runs on nothing yet: neither a key nor a server is configured" in ran.out
    assert "researcher has nothing to run on; `hermes setup`" in ran.err


def test_the_list_marks_the_one_in_use(hermes: Hermes, team: Path) -> None:
    assert hermes("profile", "use", "coder").code == 0
    lines = hermes("profile", "list").out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("*")] == ["*"]
    assert next(line for line in lines if line.startswith("*")).split()[1] == "coder"
    assert "profile   coder (in use)" in hermes("profile", "show").out
    assert json.loads(hermes("-p", "default", "profile", "show", "--json").out)["name"] == "default"
    assert hermes("profile", "use", "default").code == 0
    assert json.loads(hermes("profile", "show", "--json").out)["name"] == "default"


def test_describing(hermes: Hermes, team: Path) -> None:
    assert hermes("profile", "describe", "coder").out == "Пишет код\n"
    assert hermes("profile", "describe", "coder", "--text", "Чинит\nошибки").out == "Чинит ошибки\n"
    assert hermes("profile", "describe").out == "(no description set for 'default')\n"


def test_an_unknown_name_gets_the_nearest(hermes: Hermes, team: Path) -> None:
    for args in (("profile", "show", "codr"), ("-p", "codr", "config", "path"), ("profile", "use", "codr")):
        ran = hermes(*args)
        assert ran.code == 2 and "Did you mean coder?" in ran.err


def test_a_profile_at_work_is_not_deleted(hermes: Hermes, team: Path) -> None:
    home = find_home(os.environ)
    with open_boards(home, load(home).settings).open() as board:
        running = board.create(NewCard(title="a", assignee="coder"), author="t").card.id
        taken = board.claim(profiles=["coder"], card=running)
        assert taken is not None
        ran = hermes("profile", "delete", "coder", "-y")
        assert ran.code == 1 and f"coder works on {running}" in ran.err and (team / "profiles" / "coder").is_dir()
    for more in ((), ("--json",)):
        ran = hermes("profile", "delete", "researcher", *more)
        assert ran.code == 1 and "--yes agrees to it" in ran.err and (team / "profiles" / "researcher").is_dir()
    assert hermes("profile", "delete", "researcher", "-y").code == 0


def test_open_cards_of_a_deleted_profile_are_named(hermes: Hermes, team: Path) -> None:
    home = find_home(os.environ)
    with open_boards(home, load(home).settings).open() as board:
        card = board.create(NewCard(title="a", assignee="coder"), author="t").card.id
    with take_ownership(home.of("coder").path):
        ran = hermes("profile", "delete", "coder", "-y")
        assert ran.code == 1 and "open in another terminal" in ran.err
    ran = hermes("profile", "delete", "coder", "-y")
    assert ran.code == 0 and f"1 open card stays with coder ({card})" in ran.err
    assert hermes("profile", "delete", "default", "-y").code == 2


def test_persona_model_and_session_are_the_profiles_own(tmp_path: Path) -> None:
    program = Program(tmp_path)
    heard: list[str] = []

    def answer(request: Request) -> Reply:
        heard.append(f"{request.model} {request.messages[0]['content']}")
        return reply("привет")

    with serve_in_thread(answer) as server:
        program.configure(f"model: {{default: m1, base_url: '{server.base_url}'}}\n")
        assert program.run("profile", "create", "coder").code == 0
        coder = program.home / "profiles" / "coder"
        (coder / "SOUL.md").write_text("Ты говоришь коротко.", encoding="utf-8")
        assert program.run("-p", "coder", "-z", "hello").out == "привет\n"
        assert program.run("-z", "hello").out == "привет\n"
    assert heard[0].startswith("m1 ") and "Ты говоришь коротко." in heard[0] and "коротко" not in heard[1]
    assert (coder / "runtime.db").exists() and len(program.run("-p", "coder", "sessions", "list").out.splitlines()) >= 1


TEAM = f"""
hermes tools enable kanban
hermes profile create researcher \\
--description "{RESEARCHER}"
hermes profile create coder \\
--description "Умеет реализовывать функции, исправлять ошибки и писать тесты"
hermes kanban create "Напиши отчёт" --assignee researcher
hermes kanban create "Исправь ошибку" --assignee coder
hermes kanban dispatch
for card in $(hermes kanban list --json | grep -o '"id": "[^"]*"' | cut -d '"' -f 4); do hermes kanban tail $card; done
"""


def test_a_team_is_made_and_its_cards_end_without_a_file_edited_by_hand(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        if request.turn == 0:
            return reply(calls=[call("kanban_complete", summary="готово")])
        return reply("That is all.")

    program = Program(tmp_path)
    program.configure("model: test-model\n")
    with serve_in_thread(answer) as server:
        environ = program.use(server).environ
        path = f"{Path(HERMES).parent}{os.pathsep}{environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", TEAM], cwd=program.folder, env={**environ, "PATH": path},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    listed = json.loads(program.run("kanban", "list", "--json").out)["tasks"]
    assert [(each["assignee"], each["status"], each["summary"]) for each in listed] == [
        ("researcher", "done", "готово"),
        ("coder", "done", "готово"),
    ]
    assert program.run("profile", "describe", "researcher").out == f"{RESEARCHER}\n"
    assert (program.home / "config.yaml").read_text(encoding="utf-8").startswith("model: test-model\n")


@pytest.mark.fault("B067")
def test_inherited_keys_are_changed_where_they_are(
    hermes: Hermes, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(secret: str, *args: str) -> Ran:
        monkeypatch.setattr("sys.stdin", io.StringIO(secret + "\n"))
        return hermes(*args, "auth", "add", "openrouter")

    assert add("sk-one-0123456789").code == 0
    assert hermes("profile", "create", "coder").code == 0
    for args in (("remove", "openrouter", "1"), ("priority", "openrouter", "1", "0")):
        ran = hermes("-p", "coder", "auth", *args)
        assert ran.code == 2 and "coder uses the keys of default; `hermes -p default auth" in ran.err
    assert hermes("-p", "coder", "auth", "reset", "openrouter").out == "nothing rests\n"
    assert not (hermes_home / "profiles" / "coder" / "auth.json").exists()
    (hermes_home / "profiles" / "coder" / "auth.json").write_text('{"credential_pool": {"openrouter": []}}')
    assert "…6789" in hermes("-p", "coder", "config", "show").out, "a file without keys ends nothing"
    assert "coder uses its own keys alone from now on" in add("sk-own-abcdefghij", "-p", "coder").out
    assert "…ghij" in hermes("-p", "coder", "config", "show").out
    assert "…6789" not in hermes("-p", "coder", "config", "show").out
