"""What the commands of `hermes kanban boards` and of the dispatcher answer where no worker is needed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

from hermes.cli.kanban_parts import dispatcher_of, open_board_of
from hermes.cli.options import GlobalOptions, open_sources
from tests.cli.conftest import Ran

Hermes = Callable[..., Ran]


def test_a_board_is_called_otherwise_and_stays_the_same(hermes: Hermes, hermes_home: Path, tmp_path: Path) -> None:
    hermes("kanban", "boards", "create", "web", "--description", "The web shop")
    card = hermes("kanban", "--board", "web", "create", "Fix the cart", "-q").out.strip()
    ran = hermes("kanban", "boards", "rename", "web", "Лавка")
    assert ran.out == "the board web is called Лавка\n"
    assert (
        "web" in hermes("kanban", "boards", "list").out
        and "Лавка: The web shop" in hermes("kanban", "boards", "list").out
    )
    assert card in hermes("kanban", "--board", "web", "list").out
    assert json.loads(hermes("kanban", "boards", "show", "web", "--json").out)["name"] == "Лавка"
    missing = hermes("kanban", "boards", "rename", "shop", "x")
    assert missing.code == 2 and "there is no board 'shop'" in missing.err


def test_what_changes_a_board_answers_in_json(hermes: Hermes, hermes_home: Path, tmp_path: Path) -> None:
    def answer(*args: str) -> dict[str, object]:
        ran = hermes("kanban", *args, "--json")
        assert ran.code == 0, ran.err
        found: dict[str, object] = json.loads(ran.out)
        return found

    answer("boards", "create", "web")
    assert answer("boards", "rename", "web", "Shop")["name"] == "Shop"
    assert answer("boards", "switch", "web") == {"board": "web", "current": "web"}
    assert answer("boards", "set-default-workdir", "web", str(tmp_path))["default_workdir"] == str(tmp_path)
    assert answer("pause", "--reason", "lunch") == {"board": "web", "paused": True}
    assert answer("pause", "--off") == {"board": "web", "paused": False}
    card = hermes("kanban", "create", "Look", "-q").out.strip()
    assert "Look" in str(answer("context", card)["text"])
    assert answer("log", card)["lines"] == []
    assert answer("boards", "rm", "web")["deleted"] is False
    assert hermes("profile", "use", "default", "--json").out.split() == ["{", '"profile":', '"default"', "}"]


def test_a_board_is_served_with_what_was_said_before_the_command(hermes: Hermes, hermes_home: Path) -> None:
    said = ["-m", "m/1", "--provider", "openai", "--reasoning", "low", "-t", "file", "--max-turns", "7", "--yolo"]
    hermes("profile", "create", "lead")
    unit = hermes(*said, "-p", "lead", "--allow-host-commands", "kanban", "daemon", "--print-systemd").out
    (line,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    given = shlex.split(line.removeprefix("ExecStart="))[3:]
    assert given == ["-p", "lead", *said, "--allow-host-commands", "kanban", "--board", "default", "daemon"]
    assert f"Environment=HERMES_HOME={hermes_home}\n" in unit
    opened = open_board_of(open_sources(GlobalOptions(model="m/1", yolo=True)))
    with opened.board:
        dispatcher = dispatcher_of(opened, lambda line: None)
        assert dispatcher.lock.take()
        holder = dispatcher.lock.holder()
        dispatcher.lock.release()
    assert holder is not None and holder.arguments == ("-p", "default", "-m", "m/1", "--yolo")


def test_who_serves_a_board_is_told_in_json(hermes: Hermes, hermes_home: Path) -> None:
    for flag in ("--status", "--stop"):
        found = json.loads(hermes("kanban", "daemon", flag, "--json").out)
        assert (found["board"], found["pid"], found["since"]) == ("default", None, None)
    refused = hermes("kanban", "daemon", "--json")
    assert refused.code == 2 and "--json goes with" in refused.err
