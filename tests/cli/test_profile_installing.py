"""`hermes profile install|update|info`: what is brought is shown and asked about, no key comes along, and what was
changed here is never lost."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes.cli.profile_fetching import fetch
from hermes.config import find_home
from hermes.config.profile_changes import Change, look_at
from hermes.config.profile_install import OtherPlan, apply, plan_update, settle, staged
from hermes.config.profiles import read_profile
from hermes.core.errors import HermesError, UsageError
from tests.cli.conftest import Ran

Hermes = Callable[..., Ran]
MANIFEST = """\
name: writer
version: {version}
description: Writes reports
author: Ann
env_requires:
  - {{name: NEWS_KEY, description: for the news}}
"""
CONFIG = '# theirs\nmodel:\n  default: m2\nagent:\n  max_turns: 7\nnotify:\n  command: "tell-me"\n'


@pytest.fixture
def source(tmp_path: Path, hermes_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that offers a profile; the home has a key."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef0123456789")
    folder = tmp_path / "offered"
    (folder / "agents").mkdir(parents=True)
    (folder / "distribution.yaml").write_text(MANIFEST.format(version="1.0"), encoding="utf-8")
    (folder / "SOUL.md").write_text("You write.\n", encoding="utf-8")
    (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
    (folder / "agents" / "scout.md").write_text("---\nname: scout\ndescription: looks\n---\nLook.\n", encoding="utf-8")
    (folder / ".env").write_text("OPENAI_API_KEY=sk-of-the-author-0123456789\n", encoding="utf-8")
    (folder / "README.md").write_text("read me\n", encoding="utf-8")
    return folder


def _profiles(home: Path) -> list[str]:
    folder = home / "profiles"
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock") if folder.is_dir() else []


def test_it_is_shown_and_nothing_is_there_before_somebody_agrees(
    hermes: Hermes, hermes_home: Path, source: Path
) -> None:
    ran = hermes("profile", "install", str(source))
    assert ran.code == 1 and "--yes agrees to it" in ran.err and _profiles(hermes_home) == []
    shown = ("writer 1.0 by Ann: Writes reports", "runs on m2", "key: OPENAI_API_KEY (environment)", "left out")
    warned = ('command: "tell-me"', "look at notify.command", "needs NEWS_KEY (not set): for the news")
    for part in (*shown, *warned):
        assert part in ran.out, part
    ran = hermes("profile", "install", str(source), "--name", "ghost", "-y")
    assert ran.code == 0 and _profiles(hermes_home) == ["ghost"] and "hermes -p ghost config set NEWS_KEY" in ran.out
    there = hermes_home / "profiles" / "ghost"
    assert not (there / ".env").exists() and not (there / "README.md").exists()
    assert (there / "agents" / "scout.md").exists() and (there / "SOUL.md").read_text() == "You write.\n"
    found = read_profile(find_home(os.environ, "ghost"))
    assert (found.description, found.inherits) == ("Writes reports", "default")
    told = json.loads(hermes("profile", "info", "ghost", "--json").out)
    assert (told["origin"]["source"], told["origin"]["version"], told["changed_here"]) == (str(source), "1.0", [])
    assert "already" in hermes("profile", "install", str(source), "--name", "ghost", "-y").err
    assert "made here" in hermes("profile", "info", "default").out


def test_an_update_keeps_what_was_changed_here(hermes: Hermes, hermes_home: Path, source: Path) -> None:
    hermes("profile", "install", str(source), "-y")
    there = hermes_home / "profiles" / "writer"
    hermes("-p", "writer", "config", "set", "agent.max_turns", "9")
    hermes("-p", "writer", "config", "set", "display.terminal_title", "false")
    (there / "SOUL.md").write_text("You write well.\n", encoding="utf-8")
    (there / ".env").write_text("NEWS_KEY=mine-0123456789\n", encoding="utf-8")
    info = hermes("profile", "info", "writer").out
    assert "SOUL.md, config.yaml: agent.max_turns, config.yaml: display.terminal_title" in info
    (source / "distribution.yaml").write_text(MANIFEST.format(version="1.1").replace("reports", "books"))
    (source / "SOUL.md").write_text("You write much.\n", encoding="utf-8")
    (source / "config.yaml").write_text("model:\n  default: m3\nagent:\n  max_turns: 8\n  api_max_retries: 5\n")
    (source / "agents" / "scout.md").unlink()
    (source / "agents" / "editor.md").write_text("---\nname: editor\ndescription: edits\n---\nEdit.\n")
    ran = hermes("profile", "update", "writer")
    assert ran.code == 1 and "Nothing was changed" in ran.err and (there / "agents" / "scout.md").exists()
    ran = hermes("profile", "update", "writer", "-y")
    assert ran.code == 0 and "1.0 → 1.1" in ran.out, ran
    assert "SOUL.md stays as it is here" in ran.out and "agent.max_turns stays as it is here" in ran.out
    assert (there / "SOUL.md").read_text() == "You write well.\n" and (there / ".env").read_text().startswith(
        "NEWS_KEY"
    )
    text = (there / "config.yaml").read_text()
    assert text.startswith("# theirs\n") and "default: m3" in text and "max_turns: 9" in text
    assert "profile.yaml: description becomes 'Writes books'" in ran.out
    assert "api_max_retries: 5" in text and "tell-me" not in text and "terminal_title" in text
    assert sorted(path.name for path in (there / "agents").glob("*.md")) == ["editor.md"]
    assert read_profile(find_home(os.environ, "writer")).description == "Writes books"
    assert "nothing new" in hermes("profile", "update", "writer", "-y").out
    assert hermes("profile", "update", "default").code == 2


def test_a_value_that_becomes_a_section_comes_and_so_does_a_new_description_alone(
    hermes: Hermes, hermes_home: Path, source: Path
) -> None:
    (source / "config.yaml").write_text("models: {}\nagent:\n  max_turns: 7\n")
    hermes("profile", "install", str(source), "-y")
    hermes("-p", "writer", "config", "set", "display.terminal_title", "false")
    (source / "config.yaml").write_text("models:\n  m2:\n    context_window: 9000\nagent:\n  max_turns: 7\n")
    ran = hermes("profile", "update", "writer", "-y")
    assert ran.code == 0 and "stays" not in ran.out, ran
    text = (hermes_home / "profiles" / "writer" / "config.yaml").read_text()
    assert "context_window: 9000" in text and "terminal_title" in text
    (source / "config.yaml").write_text("models: {}\nagent:\n  max_turns: 7\n")
    assert hermes("profile", "update", "writer", "-y").code == 0
    assert "context_window" not in (hermes_home / "profiles" / "writer" / "config.yaml").read_text()
    (source / "distribution.yaml").write_text(MANIFEST.format(version="2").replace("reports", "books"))
    ran = hermes("profile", "update", "writer")
    assert (
        ran.code == 1
        and "1.0 → 2\n" in ran.out
        and "description becomes 'Writes books'" in ran.out
        and "Nothing was changed" in ran.err
    )
    assert read_profile(find_home(os.environ, "writer")).description == "Writes reports"


def test_an_update_that_was_cut_off_is_begun_again(hermes: Hermes, hermes_home: Path, source: Path) -> None:
    hermes("profile", "install", str(source), "-y")
    home = find_home(os.environ, "writer")
    hermes("-p", "writer", "config", "set", "agent.max_turns", "9")
    (source / "config.yaml").write_text(CONFIG.replace("m2", "m3").replace("tell-me", "tell-you"), encoding="utf-8")
    (source / "SOUL.md").write_text("You write much.\n", encoding="utf-8")
    fetched = fetch(str(source))
    changes = plan_update(home, fetched.offer)
    assert [each.what for each in changes] == ["replace", "set", "set"]

    class Killed(Exception):
        pass

    class Cut(list[Change]):
        def __iter__(self) -> Iterator[Change]:
            yield from self[:2]
            raise Killed

    with pytest.raises(Killed):
        apply(home, fetched.offer, fetched.origin, Cut(changes))
    assert len(plan_update(home, fetched.offer)) == 1
    assert hermes("profile", "update", "writer", "-y").code == 0
    text = home.config_file.read_text()
    assert "m3" in text and "tell-you" in text and "max_turns: 9" in text


def test_what_was_changed_here_while_the_update_waited_is_not_overwritten(
    hermes: Hermes, hermes_home: Path, source: Path
) -> None:
    hermes("profile", "install", str(source), "-y")
    home = find_home(os.environ, "writer")
    (source / "config.yaml").write_text(CONFIG.replace("m2", "m3"), encoding="utf-8")
    (source / "SOUL.md").write_text("You write much.\n", encoding="utf-8")
    fetched = fetch(str(source))
    changes = plan_update(home, fetched.offer)
    home.persona_file.write_text("You write by hand.\n", encoding="utf-8")
    with pytest.raises(OtherPlan, match=r"writer was changed here while the update waited: SOUL\.md\."):
        apply(home, fetched.offer, fetched.origin, changes)
    assert home.persona_file.read_text() == "You write by hand.\n" and home.config_file.read_text() == CONFIG
    changes = plan_update(home, fetched.offer)
    hermes("-p", "writer", "config", "set", "model.default", "mine")
    with pytest.raises(OtherPlan, match=r"config\.yaml: model\.default"):
        apply(home, fetched.offer, fetched.origin, changes)
    apply(home, fetched.offer, fetched.origin, plan_update(home, fetched.offer))
    assert "default: mine" in home.config_file.read_text()
    hermes("profile", "delete", "writer", "-y")
    with pytest.raises(UsageError, match="renamed or deleted meanwhile"):
        apply(home, fetched.offer, fetched.origin, changes)
    assert not home.path.exists()


def test_a_person_who_is_asked_sees_the_texts_that_come_and_the_limits_that_go(
    hermes: Hermes, hermes_home: Path, source: Path
) -> None:
    strict = "approvals:\n  mode: deny\nbudget:\n  session_usd: 2\nkanban:\n  card_usd: 1\n"
    (source / "config.yaml").write_text(CONFIG + strict, encoding="utf-8")
    ran = hermes("profile", "install", str(source), "-y")
    assert "    You write.\n" in ran.out and "look at approvals.mode, notify.command: they say whom" in ran.out
    (source / "config.yaml").write_text(CONFIG + "kanban:\n  card_usd: 0\n", encoding="utf-8")
    (source / "SOUL.md").write_text("You write.\nAnd send it.\n", encoding="utf-8")
    (source / "agents" / "scout.md").write_text("---\nname: scout\ndescription: looks\n---\nLook twice.\n")
    ran = hermes("profile", "update", "writer")
    for part in ("    +And send it.\n", "    -Look.\n    +Look twice.\n", "    -  session_usd: 2\n"):
        assert part in ran.out, (part, ran.out)
    assert "look at approvals.mode, budget.session_usd, kanban.card_usd: they say" in ran.out
    hermes("-p", "writer", "config", "set", "agent.max_turns", "9")
    ran = hermes("profile", "update", "writer")
    assert "config.yaml: approvals.mode is no longer set, was 'deny'" in ran.out
    assert "config.yaml: kanban.card_usd becomes 0, was 1" in ran.out
    assert "look at approvals.mode, budget.session_usd, kanban.card_usd: they say" in ran.out
    told = json.loads(hermes("profile", "update", "writer", "-y", "--json").out)
    assert told["look_at"] == ["approvals.mode", "budget.session_usd", "kanban.card_usd"]


@pytest.mark.parametrize(
    ("before", "now", "names"),
    [
        ({"agent.max_turns": 7}, {}, ["agent.max_turns"]),
        ({"agent.max_turns": 7}, {"agent.max_turns": 6}, []),
        ({}, {"agent.max_turns": 7}, []),
        ({}, {"agent.max_turns": "unlimited"}, ["agent.max_turns"]),
        ({}, {"terminal.container_disk": 0}, ["terminal.container_disk"]),
        ({"agent.disabled_toolsets": ["web"]}, {}, ["agent.disabled_toolsets"]),
        ({"model.default": "a"}, {"model.default": "b"}, []),
        ({}, {"model.default": "${KEY}"}, ["model.default"]),
        ({"terminal.backend": "sandbox"}, {"terminal.backend": "sandbox"}, []),
    ],
)
def test_what_allows_more_by_going_away_is_to_be_looked_at(
    before: dict[str, object], now: dict[str, object], names: list[str]
) -> None:
    assert look_at(before, now) == names


def test_a_repository_is_read_without_being_checked_out(
    hermes: Hermes, hermes_home: Path, source: Path, tmp_path: Path
) -> None:
    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=source, check=True, timeout=60,
            capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout.strip()

    git("init", "-q", "-b", "main")
    git("add", "--all", "--force")
    git("commit", "-q", "-m", "one")
    git("tag", "v1")
    first = git("rev-parse", "HEAD")
    (source / "SOUL.md").write_text("You write much.\n", encoding="utf-8")
    git("commit", "-q", "-a", "-m", "two")
    url = f"file://{source}"
    assert hermes("profile", "install", url, "--ref", "v1", "-y").code == 0
    there = hermes_home / "profiles" / "writer"
    told = json.loads(hermes("profile", "info", "writer", "--json").out)["origin"]
    assert (told["kind"], told["commit"], told["ref"]) == ("git", first, "v1")
    assert (there / "SOUL.md").read_text() == "You write.\n" and not (there / ".env").exists()
    assert hermes("profile", "update", "writer", "--ref", "main", "-y").code == 0
    assert (there / "SOUL.md").read_text() == "You write much.\n"
    (source / "SOUL.md").unlink()
    (source / "SOUL.md").symlink_to("/etc/passwd")
    git("commit", "-q", "-a", "-m", "three")
    ran = hermes("profile", "update", "writer", "-y")
    assert ran.code == 2 and "SOUL.md is a link" in ran.err
    ran = hermes("profile", "update", "writer", "--ref", "nowhere", "-y")
    assert ran.code == 1 and "cannot fetch nowhere" in ran.err


def test_an_exported_file_is_installed_and_carries_its_version(
    hermes: Hermes, hermes_home: Path, source: Path, tmp_path: Path
) -> None:
    hermes("profile", "install", str(source), "-y")
    target = tmp_path / "w.tar.gz"
    assert hermes("profile", "export", "writer", "-o", str(target)).code == 0
    ran = hermes("profile", "install", str(target), "--name", "other", "-y")
    assert ran.code == 0 and "writer 1.0 by Ann: Writes reports" in ran.out
    assert json.loads(hermes("profile", "info", "other", "--json").out)["origin"]["kind"] == "archive"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("config.yaml", "model: {default: m, api_key: 0123456789}\n", "model.api_key holds a key"),
        ("config.yaml", "providers:\n  x: {base_url: 'https://x', api_key: plain-secret}\n", "api_key holds a key"),
        (
            "config.yaml",
            "custom_providers:\n  - {base_url: 'https://x', api_key: plain-secret}\n",
            "api_key holds a key",
        ),
        ("config.yaml", "terminal: {docker_env: {GIT_TOKEN: plain-secret}}\n", "GIT_TOKEN holds a key"),
        ("SOUL.md", "Use ghp_0123456789abcdefABCDEF0123456789abcd\n", "holds a key or another secret"),
        ("config.yaml", "model: [\n", "config.yaml:"),
        ("distribution.yaml", "name: ../evil\n", "is no profile name"),
    ],
)
def test_what_holds_a_key_or_is_no_profile_is_refused_whole(
    hermes: Hermes, hermes_home: Path, source: Path, name: str, text: str, why: str
) -> None:
    (source / name).write_text(text, encoding="utf-8")
    ran = hermes("profile", "install", str(source), "-y")
    assert ran.code != 0 and why in ran.err and _profiles(hermes_home) == [], ran
    assert "plain-secret" not in ran.err and "ghp_0123" not in ran.err


@pytest.mark.parametrize(
    "place",
    ["https://me:0123456789@example.invalid/x.git", "http://example.invalid/x", "git://example.invalid/x", "-x",
     "ext::sh -c true", "nothing-here", "https://token@example.invalid/x"],
)  # fmt: skip
def test_a_place_that_cannot_be_trusted_is_refused_before_anything_is_asked(place: str, home: Path) -> None:
    with pytest.raises(UsageError) as refused:
        fetch(place)
    assert "0123456789" not in str(refused.value) and "token@" not in str(refused.value)


def test_two_installations_at_once_make_one(hermes_home: Path, source: Path) -> None:
    fetched = fetch(str(source))
    home = find_home(os.environ)
    with staged(home, "writer", fetched.offer, fetched.origin) as one:
        with staged(home, "writer", fetched.offer, fetched.origin) as other:
            settle(other)
        with pytest.raises(HermesError, match="already"):
            settle(one)
    assert _profiles(hermes_home) == ["writer"]
