"""`hermes profile rename|export|import|alias`: nothing that hangs on a profile is lost, and no key leaves its home."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.config import find_home
from hermes.config.profiles import read_profile
from tests.cli.conftest import Ran

Hermes = Callable[..., Ran]
KEY = "sk-or-0123456789abcdef"


@pytest.fixture
def coder(hermes: Hermes, hermes_home: Path) -> Path:
    (hermes_home / ".env").write_text(f"OPENROUTER_API_KEY={KEY}\n", encoding="utf-8")
    hermes("profile", "create", "coder", "--description", "Пишет код")
    path = hermes_home / "profiles" / "coder"
    (path / "SOUL.md").write_text("You are careful.\n", encoding="utf-8")
    (path / "config.yaml").write_text("agent:\n  max_turns: 7\n", encoding="utf-8")
    (path / "agents").mkdir()
    (path / "agents" / "scout.md").write_text("---\nname: scout\ndescription: looks\n---\nLook.\n", encoding="utf-8")
    return path


def test_a_renamed_profile_takes_cards_heirs_and_choice_along(hermes: Hermes, coder: Path) -> None:
    hermes("-p", "coder", "profile", "create", "junior")
    hermes("profile", "use", "coder")
    card = hermes("kanban", "create", "Write it", "--assignee", "coder", "--reviewer", "coder", "-q").out.strip()
    ran = hermes("profile", "rename", "coder", "builder")
    assert ran.code == 0 and "1 open card is for builder now" in ran.out, ran
    found = json.loads(hermes("kanban", "show", card, "--json").out)["task"]
    assert (found["assignee"], found["reviewer"]) == ("builder", "builder")
    home = find_home(os.environ)
    assert home.profile == "builder" and read_profile(home.of("junior")).inherits == "builder"
    assert (home.path / "SOUL.md").read_text() == "You are careful.\n" and not coder.exists()
    for old, new, why in (("default", "x", "is the home itself"), ("builder", "junior", "already"),
                          ("builder", "root", "reserved"), ("nobody", "x", "no profile")):  # fmt: skip
        refused = hermes("profile", "rename", old, new)
        assert refused.code == 2 and why in refused.err, refused


def test_a_profile_goes_to_another_home_as_a_file_without_keys(
    hermes: Hermes, coder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "coder.tar.gz"
    (coder / ".env").write_text(f"OPENROUTER_API_KEY={KEY}2\n", encoding="utf-8")
    assert hermes("profile", "export", "coder", "-o", str(target)).code == 0
    assert hermes("profile", "export", "coder", "-o", str(target)).code == 2, "nothing is overwritten"
    with tarfile.open(target) as archive:
        assert sorted(archive.getnames()) == [
            "coder/SOUL.md", "coder/agents/scout.md", "coder/config.yaml", "coder/profile.yaml",
        ]  # fmt: skip
    assert "already" in hermes("profile", "import", str(target)).err
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "elsewhere"))
    answer = json.loads(hermes("profile", "import", str(target), "--name", "guest", "--json").out)
    assert (answer["name"], answer["description"], answer["inherits"]) == ("guest", "Пишет код", "default")
    assert answer["settings"] == ["agent"] and answer["persona"] is True
    there = tmp_path / "elsewhere" / "profiles" / "guest"
    assert (there / "agents" / "scout.md").exists() and not (there / ".env").exists()


def test_a_file_that_would_hold_a_key_is_not_made(hermes: Hermes, coder: Path, tmp_path: Path) -> None:
    (coder / "config.yaml").write_text(f"model:\n  default: m\n  api_key: {KEY}\n", encoding="utf-8")
    ran = hermes("profile", "export", "coder", "-o", str(tmp_path / "x.tar.gz"))
    assert ran.code == 1 and "holds a key" in ran.err and KEY not in ran.err
    assert not (tmp_path / "x.tar.gz").exists()


@pytest.mark.parametrize(
    "name", ["../../evil.sh", "coder/../evil", "coder/.env", "coder/run/x.lock", "/etc/x", "coder/agents/a/b.md"]
)
def test_a_file_with_anything_else_in_it_is_refused_whole(hermes: Hermes, hermes_home: Path, name: str) -> None:
    path = hermes_home / "bad.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for each in ("coder/SOUL.md", name):
            member = tarfile.TarInfo(each)
            member.size = 2
            archive.addfile(member, io.BytesIO(b"hi"))
    ran = hermes("profile", "import", str(path))
    assert ran.code == 2 and "no part of a profile" in ran.err, ran
    assert not (hermes_home / "profiles" / "coder").exists()
    path.write_text("no archive")
    assert hermes("profile", "import", str(path)).code == 2


def test_a_profile_as_a_command(hermes: Hermes, coder: Path, home: Path) -> None:
    ran = hermes("profile", "alias", "coder", "--name", "my-coder")
    script = Path(os.path.expanduser("~")) / ".local" / "bin" / "my-coder"
    assert ran.code == 0 and "my-coder does what hermes -p coder does" in ran.out and script.is_file(), ran
    assert "is not in PATH" in ran.err and str(script) in hermes("profile", "show", "coder").out
    told = subprocess.run([script, "profile", "show", "--json"], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(told.stdout)["name"] == "coder"
    hermes("profile", "rename", "coder", "builder")
    assert "-p builder" in script.read_text()
    refused = hermes("profile", "alias", "builder", "--name", "ls")
    assert refused.code == 2 and "there is a command ls already" in refused.err
    assert hermes("profile", "alias", "builder", "--remove").code == 0 and not script.exists()
    assert hermes("profile", "alias", "builder", "--remove").code == 2
    assert hermes("profile", "alias", "builder", "--name", "my-coder").code == 0 and script.is_file()
    assert hermes("profile", "delete", "builder", "-y").code == 0 and not script.exists()
