"""`hermes agents`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran

Hermes = Callable[..., Ran]


@pytest.fixture
def place(hermes_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    for folder in (hermes_home / "agents", project / ".hermes" / "agents"):
        folder.mkdir(parents=True)
    (hermes_home / "agents" / "writer.md").write_text(
        "---\ndescription: Writes\ntimeout: 60\n---\nWrite \x1b[31mwell.\n"
    )
    (project / ".hermes" / "agents" / "tester.md").write_text("---\ndescription: Tests\ntools: Bash\n---\n")
    monkeypatch.chdir(project)
    return project


def test_an_empty_home_says_where_to_begin(hermes: Hermes, hermes_home: Path) -> None:
    ran = hermes("agents", "list")
    assert (ran.code, ran.err) == (0, "")
    assert str(hermes_home / "agents" / "NAME.md") in ran.out
    assert list(hermes_home.iterdir()) == []


def test_the_list_with_what_cannot_be_used(hermes: Hermes, place: Path) -> None:
    (place / ".hermes" / "agents" / "bad.md").write_text("---\nrole: boss\n---\n")
    ran = hermes("agents", "list")
    assert ran.code == 0
    assert ran.out.splitlines() == ["tester  project  Tests", "writer  home     Writes"]
    assert f"{place}/.hermes/agents/bad.md:2: role is leaf or orchestrator" in ran.err
    found = json.loads(hermes("agents", "list", "--json").out)
    assert [agent["name"] for agent in found["agents"]] == ["tester", "writer"]
    assert len(found["notes"]) == 1


def test_one_type(hermes: Hermes, place: Path) -> None:
    ran = hermes("agents", "show", "writer")
    assert "timeout         60 s" in ran.out
    assert "Write well." in ran.out
    shown = json.loads(hermes("agents", "show", "tester", "--json").out)
    assert (shown["toolsets"], shown["tools"]) == (["terminal"], None)


def test_an_unknown_type_is_named_with_those_there_are(hermes: Hermes, place: Path) -> None:
    (place / ".hermes" / "agents" / "bad.md").write_text("nothing")
    ran = hermes("agents", "show", "bad")
    assert (ran.code, ran.out) == (2, "")
    assert "Known: tester, writer." in ran.err
    assert "bad.md:1: no front matter" in ran.err
