"""Profiles inherit by reference, only what says whom to ask, and nothing once they have their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.config import Home, Loaded, find_home, load
from hermes.config.inherit import KEY_PREFIXES, SEARCH_KEYS
from hermes.config.profiles import (
    choose_profile,
    create_profile,
    delete_profile,
    heirs,
    read_persona,
    read_profile,
)
from hermes.core.errors import ConfigError, UsageError
from hermes.credentials import EndpointFlags, find_endpoint, find_keys, read_auth_file
from hermes.credentials.keys import PROVIDERS
from hermes.tools.web_search import SEARCHERS

CONFIG = """\
model: {default: a/b, provider: acme, api_key: "${ACME_KEY}", aliases: {fast: a/c}}
providers:
  acme: {base_url: "https://acme.example/v1", key_env: ACME_KEY}
agent: {max_turns: 7}
kanban: {day_usd: 3}
"""


@pytest.fixture
def root(tmp_path: Path) -> Home:
    (tmp_path / "h").mkdir()
    home = find_home({"HERMES_HOME": str(tmp_path / "h")})
    home.config_file.write_text(CONFIG, encoding="utf-8")
    home.env_file.write_text("ACME_KEY=acme-0123456789\nSECRET_A=s3cret-of-default\nOPENAI_API_KEY=sk-default-1\n")
    return home


def made(root: Home, name: str = "coder") -> Home:
    return create_profile(root, name, description="кодит")


def asked(loaded: Loaded) -> tuple[str, str, str, str]:
    keys = find_keys({}, loaded.dotenv, read_auth_file(loaded.auth_file), loaded.inherited)
    found = find_endpoint(loaded.require(), EndpointFlags(), keys, loaded.dotenv)
    return found.provider, found.model, found.api_key, found.key_source


def test_a_new_profile_runs_on_what_it_was_made_from_runs_on(root: Home) -> None:
    coder = made(root)
    loaded = load(coder, {})
    assert asked(loaded)[:3] == asked(load(root, {}))[:3] == ("acme", "a/b", "acme-0123456789")
    assert loaded.sources["model.default"] == "config.yaml:1 of default"
    assert loaded.settings.model.aliases == {"fast": "a/c"}
    assert loaded.inherited == {"ACME_KEY": "default", "OPENAI_API_KEY": "default"}
    assert [path.name for path in coder.path.iterdir()] == ["profile.yaml"]
    assert read_profile(coder).description == "кодит"


def test_what_changes_there_changes_here(root: Home) -> None:
    coder = made(root)
    root.config_file.write_text(CONFIG.replace("a/b", "a/new"), encoding="utf-8")
    root.env_file.write_text("ACME_KEY=acme-rotated-1\n")
    assert asked(load(coder, {}))[:3] == ("acme", "a/new", "acme-rotated-1")


@pytest.mark.fault("B135")
def test_only_model_providers_keys_and_the_board_are_taken_over(root: Home) -> None:
    settings = load(made(root), {}).require()
    assert settings.agent.max_turns == 90
    assert settings.kanban.day_usd == 3
    bare = root.of("bare")
    bare.path.mkdir(parents=True)
    loaded = load(bare, {})
    assert loaded.settings.model.default == "" and loaded.settings.kanban.day_usd == 3 and loaded.dotenv == {}


@pytest.mark.fault("B141")
def test_no_other_variable_of_the_origin_is_known_here(root: Home) -> None:
    coder = made(root)
    assert "SECRET_A" not in load(coder, {}).dotenv
    coder.config_file.write_text("model: {default: 'x-${SECRET_A}'}\n")
    assert load(coder, {}).settings.model.default == "x-${SECRET_A}"


@pytest.mark.fault("B141")
def test_the_first_own_key_ends_the_inheritance_of_keys(root: Home) -> None:
    root.config_file.write_text("")
    coder = made(root)
    assert asked(load(coder, {}))[2:] == ("sk-default-1", "OPENAI_API_KEY (.env of default)")
    coder.env_file.write_text("OPENROUTER_API_KEY=sk-own-123\n")
    loaded = load(coder, {})
    assert asked(loaded)[2:] == ("sk-own-123", "OPENROUTER_API_KEY (.env)")
    assert loaded.inherited == {} and loaded.auth_file == coder.auth_file


def test_who_names_a_server_names_its_model_and_key_too(root: Home) -> None:
    coder = made(root)
    coder.config_file.write_text("model: {default: mine, provider: openai}\n")
    loaded = load(coder, {})
    assert (loaded.settings.model.default, loaded.settings.model.api_key) == ("mine", "")
    assert asked(loaded)[:3] == ("openai", "mine", "sk-default-1")
    coder.config_file.write_text("model: {base_url: 'http://127.0.0.1:9/v1'}\n")
    assert load(coder, {}).settings.model.default == "", "a model of another server is not asked for here"
    coder.config_file.write_text("model: {default: a/d}\n")
    assert asked(load(coder, {}))[:3] == ("acme", "a/d", "acme-0123456789")


def test_own_entries_join_inherited_ones(root: Home) -> None:
    coder = made(root)
    coder.config_file.write_text("providers: {other: {base_url: 'https://other.example/v1'}}\n")
    assert set(load(coder, {}).settings.providers) == {"acme", "other"}


@pytest.mark.fault("B067")
def test_logins_are_one_file_and_never_copied(root: Home) -> None:
    root.auth_file.write_text("{}")
    coder = create_profile(root, "coder", clone=True)
    reviewer = create_profile(coder, "reviewer", clone=True)
    assert load(reviewer, {}).auth_file == load(coder, {}).auth_file == root.auth_file
    assert sorted(path.name for path in reviewer.path.iterdir()) == ["config.yaml", "profile.yaml"]


def test_a_chain_of_profiles(root: Home) -> None:
    coder = made(root)
    coder.config_file.write_text("model: {default: a/e}\n")
    junior = create_profile(coder, "junior")
    loaded = load(junior, {})
    assert asked(loaded)[:3] == ("acme", "a/e", "acme-0123456789")
    assert loaded.sources["model.default"] == "config.yaml:1 of coder"
    assert loaded.sources["model.provider"] == "config.yaml:1 of default"
    assert (heirs(root), heirs(coder)) == (["coder"], ["junior"])
    with pytest.raises(UsageError, match="junior inherit"):
        delete_profile(coder)
    coder.profile_file.write_text("inherits: junior\n")
    with pytest.raises(ConfigError, match="inherits from 'coder', which inherits from it in turn"):
        load(coder, {})
    coder.profile_file.write_text("inherits: gone\n")
    with pytest.raises(ConfigError, match="inherits from 'gone', and .* is missing"):
        load(junior, {})


def test_an_error_in_an_inherited_setting_names_the_file_it_stands_in(root: Home) -> None:
    coder = made(root)
    root.config_file.write_text("kanban: {day_usd: much}\nagent: {max_turns: some}\n")
    assert [problem.key for problem in load(coder, {}).problems] == ["kanban.day_usd"]
    assert str(root.config_file) in load(coder, {}).problems[0].message


@pytest.mark.parametrize("name", ["hermes", "test", "tmp", "root", "sudo", "default", "A", "../x", "-x"])
def test_names_that_cannot_be(root: Home, name: str) -> None:
    with pytest.raises(UsageError):
        create_profile(root, name)
    assert not (root.path / "profiles" / name).exists() or name == "default"


def test_a_profile_is_made_once(root: Home) -> None:
    made(root)
    with pytest.raises(UsageError, match="there is a profile 'coder' already"):
        made(root)


def test_the_chosen_profile_is_used_until_another_is_named(root: Home) -> None:
    environ = {"HERMES_HOME": str(root.path)}
    coder = made(root)
    choose_profile(coder)
    assert find_home(environ) == coder and find_home(environ, "default") == root
    assert find_home({"HERMES_HOME": str(coder.path)}) == coder
    delete_profile(coder)
    assert find_home(environ) == root
    root.chosen_file.write_text("gone\n")
    with pytest.raises(UsageError, match="no profile 'gone'.*hermes profile use default"):
        find_home(environ)


@pytest.mark.fault("B135")
def test_files_of_other_profiles_are_closed_to_tools(root: Home) -> None:
    coder, other = made(root), made(root, "other")
    private = load(coder, {}).private
    assert str(other.path) in private and str(root.env_file) in private and str(root.path / "memories") in private
    assert not any(str(coder.path / "SOUL.md").startswith(path) for path in private)
    assert str(coder.path) in load(root, {}).private


def test_the_persona_has_a_limit_and_says_so(root: Home) -> None:
    assert read_persona(root) == ""
    root.persona_file.write_text("Ты — исследователь.\n", encoding="utf-8")
    assert load(root, {}).persona == "Ты — исследователь."
    root.persona_file.write_text("x" * 30_000)
    assert len(read_persona(root)) < 20_300 and "left out: it has 30,000 characters" in read_persona(root)


def test_the_variables_of_every_provider_are_known() -> None:
    assert set(KEY_PREFIXES) == {prefix for _, prefix, _ in PROVIDERS}


def test_a_profile_searches_where_the_one_it_was_made_from_searches(root: Home) -> None:
    assert {service.key for service in SEARCHERS if service.key} == SEARCH_KEYS
    with root.env_file.open("a", encoding="utf-8") as file:
        file.write("SEARXNG_URL=http://127.0.0.1:9/\n")
    assert load(made(root), {}).dotenv["SEARXNG_URL"] == "http://127.0.0.1:9/"
