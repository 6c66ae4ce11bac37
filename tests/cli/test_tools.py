"""`hermes tools` and the opt-in rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.config import Home, load
from tests.cli.conftest import Ran

Hermes = Callable[..., Ran]
DEFAULT = {"terminal", "file", "web", "code_execution", "todo", "clarify", "delegation", "async_delegation"}


def on(hermes: Hermes) -> set[str]:
    table = json.loads(hermes("tools", "list", "--json").out)["toolsets"]
    return {entry["name"] for entry in table if entry["enabled"]}


def written(path: Path) -> tuple[str, ...]:
    return load(Home(root=path, path=path), {}).settings.platform_toolsets["cli"]


def test_the_list_of_a_home_without_settings(hermes: Hermes, hermes_home: Path) -> None:
    ran = hermes("tools", "list")
    assert ran.out.startswith("Built-in toolsets (cli):\n")
    assert "✓ enabled   terminal " in ran.out and "✗ disabled  kanban " in ran.out
    assert hermes("tools").out == hermes("tools", "--summary").out == ran.out
    assert on(hermes) == DEFAULT
    assert list(hermes_home.iterdir()) == []


def test_enabling_the_board_writes_its_name_and_tells_what_it_means(hermes: Hermes, hermes_home: Path) -> None:
    ran = hermes("tools", "enable", "kanban")
    assert ran.code == 0 and ran.out.startswith("Enabled: kanban\n")
    assert "several agents cost more tokens" in ran.out
    assert "in force: at most " in ran.out and "$5 a card, $25 a day" in ran.out
    assert "kanban" in written(hermes_home)
    assert on(hermes) == DEFAULT | {"kanban"}


@pytest.mark.fault("B130")
@pytest.mark.parametrize("name", ["all", "*"])
def test_all_never_turns_the_board_on_and_says_so(hermes: Hermes, hermes_home: Path, name: str) -> None:
    ran = hermes("tools", "enable", name)
    assert ran.out.startswith(f"Enabled: {name}\n")
    assert "kanban stays off: it is turned on only by its own name" in ran.out
    assert "kanban" not in on(hermes) and on(hermes) > DEFAULT
    hermes("tools", "enable", "kanban")
    assert "kanban" in on(hermes)
    assert "kanban stays off" not in hermes("tools", "enable", name).out


@pytest.mark.parametrize(
    "text", ["toolsets: [all]\n", "toolsets: ['*']\n", "platform_toolsets: {cli: [hermes-cli, all]}\n"]
)
def test_no_list_of_everything_means_the_board(hermes: Hermes, hermes_home: Path, text: str) -> None:
    (hermes_home / "config.yaml").write_text(text)
    assert "kanban" not in on(hermes)


@pytest.mark.parametrize("text", ["toolsets: [kanban]\n", "platform_toolsets: {cli: [kanban]}\n"])
def test_the_boards_own_name_in_either_place_turns_it_on(hermes: Hermes, hermes_home: Path, text: str) -> None:
    (hermes_home / "config.yaml").write_text(text)
    assert "kanban" in on(hermes)
    (hermes_home / "config.yaml").write_text(text + "agent: {disabled_toolsets: [kanban]}\n")
    assert "kanban" not in on(hermes)


def test_the_top_level_list_adds_to_the_default(hermes: Hermes, hermes_home: Path) -> None:
    (hermes_home / "config.yaml").write_text("toolsets: [delegation]\n")
    assert on(hermes) == DEFAULT


def test_the_first_change_takes_nothing_away(hermes: Hermes, hermes_home: Path) -> None:
    hermes("tools", "enable", "vision")
    assert on(hermes) == DEFAULT | {"vision"}


def test_disabling(hermes: Hermes, hermes_home: Path) -> None:
    ran = hermes("tools", "disable", "todo", "file")
    assert (ran.code, ran.out) == (0, "Disabled: todo, file\n")
    assert on(hermes) == DEFAULT - {"todo", "file"}
    assert "brings async_delegation along" in hermes("tools", "disable", "async_delegation").out
    hermes("tools", "disable", "delegation", "async_delegation")
    assert on(hermes) == {"terminal", "web", "code_execution", "clarify"}
    hermes("tools", "disable", "all")
    assert on(hermes) == set()


def test_disabling_one_of_a_composite_keeps_the_others(hermes: Hermes, hermes_home: Path) -> None:
    (hermes_home / "config.yaml").write_text("platform_toolsets:\n  cli: [hermes-cli]   # mine\n")
    hermes("tools", "disable", "todo")
    assert on(hermes) == DEFAULT - {"todo"}
    assert (hermes_home / "config.yaml").read_text().endswith("]   # mine\n")


def test_unknown_names_are_named_and_the_others_applied(hermes: Hermes, hermes_home: Path) -> None:
    ran = hermes("tools", "enable", "nope", "web", "server:tool")
    assert ran.code == 0 and "Enabled: web\n" in ran.out
    assert "Unknown toolset 'nope'" in ran.err and "'server:tool'" in ran.err
    before = (hermes_home / "config.yaml").read_bytes()
    ran = hermes("tools", "disable", "nope")
    assert ran.code == 1 and "Unknown toolset 'nope'" in ran.err
    assert (hermes_home / "config.yaml").read_bytes() == before


def test_an_unknown_platform_changes_nothing(hermes: Hermes, hermes_home: Path) -> None:
    ran = hermes("tools", "enable", "web", "--platform", "fax")
    assert ran.code == 2 and "Unknown platform 'fax'" in ran.err
    assert list(hermes_home.iterdir()) == []
    (hermes_home / "config.yaml").write_text("platform_toolsets: {telegram: [web]}\n")
    assert hermes("tools", "enable", "file", "--platform", "telegram").code == 0
    assert "telegram: [web, file]" in (hermes_home / "config.yaml").read_text()


def test_what_is_always_off_stays_off_and_that_is_said(hermes: Hermes, hermes_home: Path) -> None:
    (hermes_home / "config.yaml").write_text("agent: {disabled_toolsets: [todo]}\n")
    assert "disabled_toolsets, which wins" in hermes("tools", "enable", "todo").out
    assert "todo" not in on(hermes)


def test_enabling_twice_writes_once_and_comments_survive(hermes: Hermes, hermes_home: Path) -> None:
    path = hermes_home / "config.yaml"
    path.write_text("# top\nplatform_toolsets:   # who\n  cli:\n  - terminal   # shell\n# end\n")
    hermes("tools", "enable", "kanban")
    expected = "# top\nplatform_toolsets:   # who\n  cli:\n  - terminal   # shell\n  - kanban\n# end\n"
    assert path.read_text() == expected
    stamp = path.stat().st_mtime_ns
    assert hermes("tools", "enable", "kanban").code == 0
    assert (path.read_text(), path.stat().st_mtime_ns) == (expected, stamp)


def test_json_answers(hermes: Hermes, hermes_home: Path) -> None:
    answer = json.loads(hermes("tools", "enable", "kanban", "nope", "--json").out)
    assert answer["enabled"] == ["kanban"] and answer["errors"] == ["Unknown toolset 'nope'"]
    assert "kanban" in answer["toolsets"]
