"""`hermes profile describe --auto`: a model writes what a profile is good at, and nobody's own text is lost for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes.config import find_home
from hermes.config.profiles import Profile, read_profile
from hermes.testing.scripted import Reply, reply
from hermes.testing.server import ProviderServer, Request, serve_in_thread
from tests.cli.conftest import Ran

Hermes = Callable[..., Ran]
KEY = "sk-test-0123456789abcdef0123456789"


class Asked:
    """What the model was asked, newest last; `answers` are given first."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.answers: list[str] = []

    def __call__(self, request: Request) -> Reply:
        self.texts.append(str(request.messages))
        text = self.answers.pop(0) if self.answers else "Reviews\u001b[31m code\n  and says why"
        return reply(json.dumps({"description": text}))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, hermes_home: Path) -> Iterator[Asked]:
    model = Asked()
    with serve_in_thread(model) as server:
        _use(monkeypatch, server)
        yield model


def _use(monkeypatch: pytest.MonkeyPatch, server: ProviderServer) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def _stored(hermes_home: Path, name: str) -> Profile:
    return read_profile(find_home({"HERMES_HOME": str(hermes_home)}, name))


def _made(hermes: Hermes, hermes_home: Path) -> Path:
    assert hermes("-m", "m", "profile", "create", "critic").code == 0
    path = hermes_home / "profiles" / "critic"
    (path / "SOUL.md").write_text(f"Du prüfst Quelltext. {KEY}\n", encoding="utf-8")
    (path / "agents").mkdir()
    (path / "agents" / "scout.md").write_text("---\nname: scout\ndescription: finds files\n---\nLook.\n")
    return path


def test_it_is_shown_and_saved_only_where_that_is_said(hermes: Hermes, hermes_home: Path, asked: Asked) -> None:
    _made(hermes, hermes_home)
    ran = hermes("-m", "m", "profile", "describe", "critic", "--auto")
    assert ran.code == 1 and ran.out == "critic: Reviews code and says why\n" and "--yes saves it" in ran.err
    assert not _stored(hermes_home, "critic").description
    told = asked.texts[-1]
    assert "Du prüfst Quelltext" in told and "scout: finds files" in told and "terminal" in told and KEY not in told
    ran = hermes("-m", "m", "profile", "describe", "critic", "--auto", "--yes")
    assert ran.code == 0 and _stored(hermes_home, "critic").description == "Reviews code and says why"
    assert _stored(hermes_home, "critic").description_auto
    assert "Reviews code and says why" in hermes("profile", "list").out


def test_what_a_model_wrote_is_replaced_and_what_a_person_wrote_is_not(
    hermes: Hermes, hermes_home: Path, asked: Asked
) -> None:
    _made(hermes, hermes_home)
    asked.answers = ["one", "two", "three"]
    assert hermes("-m", "m", "profile", "describe", "critic", "--auto", "-y").code == 0
    ran = hermes("-m", "m", "profile", "describe", "critic", "--auto", "-y")
    assert ran.code == 0 and "in place of: one" in ran.out and _stored(hermes_home, "critic").description == "two"
    hermes("profile", "describe", "critic", "--text", "Mine")
    ran = hermes("-m", "m", "profile", "describe", "critic", "--auto", "-y")
    assert ran.code == 1 and "keeps what a person wrote: Mine; --overwrite" in ran.err and len(asked.texts) == 2
    answer = json.loads(hermes("-m", "m", "profile", "describe", "critic", "--auto", "--overwrite", "-y", "--json").out)
    assert (answer["description"], answer["before"], answer["saved"]) == ("three", "Mine", True)


def test_all_profiles_at_once(hermes: Hermes, hermes_home: Path, asked: Asked) -> None:
    _made(hermes, hermes_home)
    hermes("-m", "m", "profile", "create", "mine", "--description", "Mine")
    ran = hermes("-m", "m", "profile", "describe", "--all", "--auto", "--json")
    found = {each["name"]: each for each in json.loads(ran.out)["profiles"]}
    assert ran.code == 0 and found["mine"]["kept"] and not found["critic"]["saved"], "without --yes nothing is saved"
    ran = hermes("-m", "m", "profile", "describe", "--all", "--auto", "-y")
    assert ran.code == 0 and "mine keeps what a person wrote: Mine" in ran.err
    listed = hermes("profile", "describe", "--all").out
    assert "critic: Reviews code and says why\n" in listed and "mine: Mine\n" in listed and "default: " in listed


def test_one_damaged_profile_keeps_none_of_the_others_from_being_described(
    hermes: Hermes, hermes_home: Path, asked: Asked
) -> None:
    only = hermes("-m", "m", "profile", "describe", "--all", "--auto", "-y", "--json")
    assert only.code == 0 and [each["name"] for each in json.loads(only.out)["profiles"]] == ["default"]
    hermes("profile", "describe", "default", "--text", "Mine")
    ran = hermes("-m", "m", "profile", "describe", "--all", "--auto", "-y")
    assert ran.code == 0 and "default keeps what a person wrote" in ran.err, "all are meant, though there is one"
    _made(hermes, hermes_home)
    hermes("-m", "m", "profile", "create", "broken")
    (hermes_home / "profiles" / "broken" / "profile.yaml").write_text("description: [\n", encoding="utf-8")
    ran = hermes("-m", "m", "profile", "describe", "--all", "--auto", "-y")
    assert ran.code == 1 and "hermes: broken: " in ran.err and "profile.yaml:" in ran.err
    assert _stored(hermes_home, "critic").description == "Reviews code and says why"
    ran = hermes("profile", "describe", "--all")
    assert ran.code == 1 and "hermes: broken: " in ran.err and "critic: Reviews code and says why\n" in ran.out
    found = {
        each["name"]: each for each in json.loads(hermes("profile", "describe", "--all", "--json").out)["profiles"]
    }
    assert "profile.yaml" in found["broken"]["error"] and found["default"]["description"] == "Mine"


def test_no_answer_changes_nothing_and_says_so(
    hermes: Hermes, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_in_thread([reply("I would rather talk.")] * 4) as server:
        _use(monkeypatch, server)
        _made(hermes, hermes_home)
        ran = hermes("-m", "m", "profile", "describe", "critic", "--auto", "-y")
    assert ran.code == 1 and "critic: the model gave no description" in ran.err
    assert not _stored(hermes_home, "critic").description


@pytest.mark.parametrize("args", [
    ("critic", "--auto", "--text", "x"), ("critic", "--overwrite"), ("critic", "-y"), ("critic", "--all"),
    ("--all", "--text", "x"),
])  # fmt: skip
def test_contradictions_are_refused(hermes: Hermes, hermes_home: Path, args: tuple[str, ...]) -> None:
    assert hermes("profile", "describe", *args).code == 2
