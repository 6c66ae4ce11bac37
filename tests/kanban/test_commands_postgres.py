"""The commands of a person on a board in PostgreSQL, and that every profile finds the same board there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.cli.main import main


@pytest.fixture
def hermes(capsys: pytest.CaptureFixture[str], home: Path) -> Callable[..., tuple[int, str, str]]:
    Path(os.environ["HERMES_HOME"]).mkdir(parents=True, exist_ok=True)

    def run(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(list(args))
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.mark.fault("B091")
def test_the_board_of_the_root_is_every_profiles_board(
    hermes: Callable[..., tuple[int, str, str]], new_database: str
) -> None:
    assert hermes("profile", "create", "coder")[0] == 0
    root = Path(os.environ["HERMES_HOME"])
    (root / ".env").write_text(f"BOARD_URL={new_database}\n", encoding="utf-8")
    assert hermes("config", "set", "kanban.database_url", "${BOARD_URL}")[0] == 0
    code, out, err = hermes("kanban", "create", "Die Aufgabe", "--assignee", "coder", "-q")
    assert code == 0, err
    card = out.strip()
    for args in ((), ("-p", "coder")):
        code, out, err = hermes(*args, "kanban", "list", "--json")
        assert code == 0 and [each["id"] for each in json.loads(out)["tasks"]] == [card], err
    assert not (root / "kanban-board.db").exists()
    assert hermes("kanban", "boards", "create", "web")[0] == 0
    code, out, err = hermes("-p", "coder", "kanban", "boards", "list", "--json")
    assert [each["slug"] for each in json.loads(out)["boards"]] == ["default", "web"]
    for verb in (("stats",), ("watch", "--once"), ("complete", card), ("events", card), ("show", card)):
        code, out, err = hermes("kanban", *verb)
        assert code == 0, err
    code, out, err = hermes("profile", "delete", "coder", "-y")
    assert code == 0, err
