"""Which server is asked with which key; no key goes to a host it was not given for."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.config.schema import DelegationSettings, ModelSettings, ProviderSettings, Settings
from hermes.core.errors import UsageError
from hermes.credentials import (
    Endpoint,
    EndpointFlags,
    MissingKey,
    NotConfigured,
    find_child_endpoint,
    find_endpoint,
    find_keys,
    is_local,
    known_secrets,
    mask,
    settings_secrets,
)

OPENROUTER = {"OPENROUTER_API_KEY": "sk-or-0000000001"}
OPENAI = {"OPENAI_API_KEY": "sk-oa-0000000002"}
ANTHROPIC = {"ANTHROPIC_API_KEY": "sk-an-0000000003"}
SERVER = {"OPENAI_API_KEY": "sk-my-0000000004", "OPENAI_BASE_URL": "https://llm.example.com/v1/"}


def find(
    environ: dict[str, str], settings: Settings | None = None, dotenv: dict[str, str] | None = None, **flags: str
) -> Endpoint:
    keys = find_keys(environ, dotenv or {})
    variables = {**(dotenv or {}), **environ}
    return find_endpoint(settings or Settings(), EndpointFlags(**flags), keys, variables)


def test_keys_are_looked_for_in_one_order() -> None:
    assert find({**ANTHROPIC, **OPENAI, **OPENROUTER}).base_url == "https://openrouter.ai/api/v1"
    assert find({**ANTHROPIC, **OPENAI}).base_url == "https://api.openai.com/v1"
    found = find(ANTHROPIC)
    assert (found.base_url, found.api_key) == ("https://api.anthropic.com", "sk-an-0000000003")
    assert found.key_source == "ANTHROPIC_API_KEY (environment)"


def test_the_environment_wins_over_the_file_of_variables() -> None:
    found = find(ANTHROPIC, dotenv=OPENROUTER)
    assert found.provider == "anthropic"
    found = find({}, dotenv=OPENROUTER)
    assert (found.provider, found.key_source) == ("openrouter", "OPENROUTER_API_KEY (.env)")


def test_a_key_and_its_address_are_any_compatible_server() -> None:
    found = find(SERVER, model="anthropic/claude-sonnet-4-6")
    assert (found.base_url, found.api_key) == ("https://llm.example.com/v1", "sk-my-0000000004")
    assert found.model == "anthropic/claude-sonnet-4-6"


@pytest.mark.parametrize("model", ["anthropic/claude", "openai/gpt", "openrouter/x", "claude-sonnet-4.6", "llama"])
def test_a_vendor_prefix_never_chooses_the_server(model: str) -> None:
    assert find({**OPENAI, **ANTHROPIC}, model=model).base_url == "https://api.openai.com/v1"


@pytest.mark.parametrize(
    ("model", "provider", "base_url", "name"),
    [
        ("ollama/qwen3:8b", "ollama", "http://127.0.0.1:11434/v1", "qwen3:8b"),
        ("vllm/Qwen/Qwen3-8B", "vllm", "http://127.0.0.1:8000/v1", "Qwen/Qwen3-8B"),
        ("lmstudio/phi", "lmstudio", "http://127.0.0.1:1234/v1", "phi"),
        ("llamacpp/any", "llamacpp", "http://127.0.0.1:8080/v1", "any"),
        ("mine/big/model", "mine", "https://mine.example/v1", "big/model"),
        ("openrouter/anthropic/claude", "openrouter", "https://openrouter.ai/api/v1", "anthropic/claude"),
        ("nous/hermes-4", "nous", "https://inference-api.nousresearch.com/v1", "hermes-4"),
        ("google/gemini-3-pro", "openai", "https://api.openai.com/v1", "google/gemini-3-pro"),
    ],
)
def test_a_name_may_give_its_provider(model: str, provider: str, base_url: str, name: str) -> None:
    settings = Settings(providers={"mine": ProviderSettings(base_url="https://mine.example/v1", api_key="mine-key-1")})
    keys = {**OPENAI, **OPENROUTER, "NOUS_API_KEY": "nous-key-1"} if provider != "openai" else OPENAI
    found = find(keys, settings, model=model)
    assert (found.provider, found.base_url, found.model) == (provider, base_url, name)


def test_a_provider_in_a_name_gives_way_to_what_is_said_of_the_server() -> None:
    on_mine = Settings(model=ModelSettings(base_url="https://conf.example/v1", api_key="conf-key-1"))
    assert find({}, on_mine, model="ollama/qwen3").model == "ollama/qwen3"
    assert find(SERVER, model="ollama/qwen3").base_url == "https://llm.example.com/v1"
    assert find(OPENROUTER, model="ollama/qwen3", base_url="http://127.0.0.1:9/v1").model == "ollama/qwen3"
    assert find(OPENAI, model="ollama/qwen3", provider="openai").base_url == "https://api.openai.com/v1"
    assert find({}, model="ollama/qwen3", provider="ollama").model == "qwen3"
    kept = Settings(model=ModelSettings(default="ollama/qwen3"))
    assert (find(OPENAI, kept).provider, find(OPENAI, kept).model) == ("ollama", "qwen3")
    with pytest.raises(MissingKey, match="set NOUS_API_KEY"):
        find(OPENAI, model="nous/hermes-4")


def test_the_variables_of_every_provider_count() -> None:
    assert find({"GEMINI_API_KEY": "AI-0000000001"}, model="gemini-3-pro").provider == "google"
    assert find({"GOOGLE_API_KEY": "AI-0000000001"}, provider="google", model="g").api_key == "AI-0000000001"
    far = find({"OLLAMA_BASE_URL": "http://192.168.1.5:11434/v1"}, model="ollama/qwen3")
    assert (far.base_url, far.api_key) == ("http://192.168.1.5:11434/v1", "")
    assert find({"OLLAMA_BASE_URL": "http://127.0.0.1:9/v1"}, model="qwen3").provider == "ollama"


def test_command_line_then_settings_then_key() -> None:
    settings = Settings(model=ModelSettings(default="m", base_url="https://conf.example/v1", api_key="conf-key-1"))
    assert find(OPENROUTER, settings).base_url == "https://conf.example/v1"
    assert find(OPENROUTER, settings).api_key == "conf-key-1"
    found = find(OPENROUTER, settings, base_url="https://flag.example/v1", api_key="flag-key-1")
    assert (found.base_url, found.api_key, found.model) == ("https://flag.example/v1", "flag-key-1", "m")
    assert find({**OPENROUTER, **OPENAI}, settings, provider="openai").api_key == OPENAI["OPENAI_API_KEY"]


@pytest.mark.fault("B139")
@pytest.mark.parametrize(
    "url",
    [
        "https://other.example/v1",
        "https://openrouter.ai.evil.example/api/v1",
        "https://openrouter.ai@evil.example/api/v1",
        "http://openrouter.ai/api/v1",
        "https://openrouter.ai:8443/api/v1",
    ],
)
def test_a_key_is_never_sent_to_another_host(url: str) -> None:
    with pytest.raises(MissingKey) as error:
        find(OPENROUTER, base_url=url)
    assert "OPENROUTER_API_KEY (environment) belongs to openrouter.ai" in str(error.value)
    assert "0000000001" not in str(error.value)


def test_the_key_of_the_same_host_is_used_whatever_its_path() -> None:
    found = find({**OPENROUTER, **SERVER}, base_url="https://LLM.example.com/other")
    assert found.api_key == SERVER["OPENAI_API_KEY"]


@pytest.mark.parametrize("url", ["http://localhost:8000/v1", "http://127.0.0.1:1/v1", "http://[::1]:5/v1"])
def test_a_server_on_this_machine_needs_no_key_and_gets_none(url: str) -> None:
    assert is_local(url)
    assert find(OPENROUTER, base_url=url).api_key == ""
    assert find({"OPENAI_BASE_URL": url}).base_url == url
    assert not is_local("http://127.0.0.1.evil.example/v1")


@pytest.mark.fault("B057")
def test_a_placeholder_never_leaves_the_process() -> None:
    settings = Settings(model=ModelSettings(base_url="https://h.example/v1", api_key="${UNSET_KEY}"))
    with pytest.raises(MissingKey, match=r"model\.api_key is \$\{UNSET_KEY\}"):
        find({}, settings)


def test_endpoints_of_the_users_own() -> None:
    settings = Settings(
        providers={"mine": ProviderSettings(base_url="https://mine.example/v1", key_env="MINE", model="m1")},
        custom_providers=(ProviderSettings(name="lab", base_url="http://127.0.0.1:9/v1"),),
    )
    found = find({"MINE": "mine-key-1", **OPENROUTER}, settings, provider="mine")
    assert (found.base_url, found.api_key, found.model) == ("https://mine.example/v1", "mine-key-1", "m1")
    assert find(OPENROUTER, settings, provider="custom:lab").base_url == "http://127.0.0.1:9/v1"
    with pytest.raises(UsageError, match="there is no provider 'mien'.*Did you mean mine"):
        find({}, settings, provider="mien")


def test_nothing_configured_names_three_ways() -> None:
    with pytest.raises(NotConfigured) as error:
        find({})
    text = str(error.value)
    assert "OPENROUTER_API_KEY" in text and "OPENAI_BASE_URL" in text and "-m embedded" in text
    assert error.value.exit_code == 2, "nothing was started"


@pytest.mark.parametrize(
    ("name", "full"), [("embedded", "embedded:smollm2-135m"), ("embedded:/a/b.gguf", "embedded:/a/b.gguf")]
)
def test_the_embedded_model_needs_no_key_and_gets_none(name: str, full: str) -> None:
    found = find(OPENROUTER, model=name)
    assert (found.provider, found.base_url, found.api_key, found.model) == ("embedded", "", "", full)
    with pytest.raises(UsageError, match="exclude each other"):
        find({}, model=name, base_url="http://127.0.0.1:1/v1")


def test_the_embedded_model_is_never_a_silent_fallback() -> None:
    settings = Settings(model=ModelSettings(default="embedded"))
    assert find({}, settings).provider == "embedded"
    with pytest.raises(NotConfigured):
        find({}, settings, model="other")


@pytest.mark.parametrize("url", ["openrouter.ai", "ftp://x/v1", "https://", "https://h:port/v1", "file:///etc"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="no address of a server"):
        find({}, base_url=url)


def test_default_models_only_where_one_is_known() -> None:
    assert find(OPENROUTER).model == "anthropic/claude-sonnet-4.6"
    assert find(SERVER).model == ""
    settings = Settings(model=ModelSettings(aliases={"fast": "x/y"}))
    assert find(OPENROUTER, settings, model="fast").model == "x/y"


def child(parent: Endpoint, environ: dict[str, str], model: str = "", **delegation: Any) -> Endpoint:
    settings = Settings(delegation=DelegationSettings(**delegation))
    return find_child_endpoint(parent, settings, find_keys(environ, {}), model, environ)


@pytest.mark.fault("B056")
def test_a_child_inherits_address_and_key_together() -> None:
    parent = find(OPENROUTER, base_url="http://127.0.0.1:4000/v1", api_key="proxy-key-1", model="m")
    assert child(parent, OPENROUTER) == parent
    assert child(parent, OPENROUTER, base_url="http://127.0.0.1:4000/v1/").api_key == "proxy-key-1"


@pytest.mark.fault("B058")
def test_a_child_never_mixes_one_servers_address_with_anothers_key() -> None:
    after_fallback = Endpoint(provider="b", base_url="https://b.example/v1", api_key="b-key", key_source="x", model="m")
    found = child(after_fallback, {**OPENROUTER, **OPENAI})
    assert (found.base_url, found.api_key) == ("https://b.example/v1", "b-key")


@pytest.mark.fault("B059")
def test_one_gateway_with_two_formats_and_a_key_for_each() -> None:
    gateway = ProviderSettings(base_url="https://gw.example", api_mode="anthropic_messages", key_env="ANT_KEY")
    settings = Settings(
        model=ModelSettings(default="m", base_url="https://gw.example/v1", api_key="sk-own-1"),
        providers={"claude": gateway},
        delegation=DelegationSettings(provider="claude", model="claude-x"),
    )
    variables = {"ANT_KEY": "sk-ant-2"}
    parent = find(variables, settings)
    assert (parent.provider, parent.api_mode, parent.api_key) == ("custom", "", "sk-own-1")
    own = find_child_endpoint(parent, settings, (), "", variables)
    assert (own.provider, own.base_url) == ("claude", "https://gw.example")
    assert (own.api_mode, own.api_key) == ("anthropic_messages", "sk-ant-2")
    # without a key of its own it has the one that belongs to the server
    assert find_child_endpoint(parent, settings, (), "", {}).api_key == "sk-own-1"


@pytest.mark.parametrize("name", ["first", "claude"])
def test_each_entry_of_one_gateway_is_asked_with_its_own_key_however_it_was_chosen(name: str) -> None:
    entries = {
        "first": ProviderSettings(base_url="https://gw.example/v1", api_key="sk-first"),
        "claude": ProviderSettings(base_url="https://gw.example", api_mode="anthropic_messages", api_key="sk-claude"),
    }
    wanted = (name, entries[name].base_url, entries[name].api_mode, entries[name].api_key)
    chosen = Settings(model=ModelSettings(default="m", provider=name), providers=entries)
    plain = Settings(model=ModelSettings(default="m"), providers=entries)
    for found in (
        find({}, chosen),
        find({}, plain, provider=name),
        find({}, plain, model=f"{name}/m"),
        find({}, plain, base_url=entries[name].base_url),
    ):
        assert (found.provider, found.base_url, found.api_mode, found.api_key) == wanted


@pytest.mark.fault("B139")
def test_a_childs_other_server_never_gets_the_parents_key() -> None:
    parent = find(OPENROUTER, model="m")
    for settings in ({"provider": "openai"}, {"base_url": "https://api.openai.com/v1"}):
        with pytest.raises(MissingKey):
            child(parent, OPENROUTER, **settings)
        assert child(parent, {**OPENROUTER, **OPENAI}, **settings).api_key == OPENAI["OPENAI_API_KEY"]
    assert child(parent, OPENROUTER, base_url="https://x.example/v1", api_key="own-key").api_key == "own-key"


@pytest.mark.fault("B131")
def test_the_model_of_the_call_wins_over_settings_over_the_parents() -> None:
    parent = find(OPENROUTER, model="parent")
    assert child(parent, OPENROUTER).model == "parent"
    assert child(parent, OPENROUTER, model="", max_iterations=3).model == "parent"
    settings = Settings(delegation=DelegationSettings(model="cheap"))
    keys = find_keys(OPENROUTER, {})
    assert find_child_endpoint(parent, settings, keys).model == "cheap"
    assert find_child_endpoint(parent, settings, keys, "tiny").model == "tiny"
    assert find_child_endpoint(parent, settings, keys, "embedded").provider == "embedded"


@pytest.mark.fault("B141")
def test_keys_come_only_from_what_was_passed_in() -> None:
    other = {"OPENROUTER_API_KEY": "sk-of-profile-a"}
    assert find_keys(other, {})[0].secret == "sk-of-profile-a"
    with pytest.raises(NotConfigured):
        find({})


def test_every_secret_is_known_and_none_is_shown() -> None:
    settings = Settings(
        model=ModelSettings(api_key="conf-key-0001"),
        delegation=DelegationSettings(api_key="child-key-0001"),
        providers={"p": ProviderSettings(api_key="prov-key-0001", key_env="ODD_NAME")},
    )
    environ = {**OPENROUTER, "GITHUB_TOKEN": "gh-0123456789", "ODD_NAME": "odd-0123456789", "PATH": "/usr/bin/long"}
    environ |= {"DB_PASSWORD": "hunter2hunter2", "AWS_SECRET": "short", "MONKEY": "not-a-secret"}
    found = known_secrets(environ, SERVER, more=settings_secrets(settings, environ))
    assert set(found) == {
        "sk-or-0000000001", "gh-0123456789", "hunter2hunter2", "sk-my-0000000004", "conf-key-0001", "child-key-0001",
        "prov-key-0001", "odd-0123456789",
    }  # fmt: skip
    assert list(found) == sorted(found, key=lambda value: (-len(value), value))
    assert "0000000001" not in repr(find(OPENROUTER)) + repr(find_keys(OPENROUTER, {})) + repr(
        EndpointFlags(api_key="0000000001")
    )
    assert mask("sk-or-0000000001") == "…0001" and mask("short") == "…"


@pytest.mark.parametrize(
    ("settings", "flags", "mode"),
    [
        (Settings(), {"provider": "anthropic"}, "anthropic_messages"),
        (Settings(), {"provider": "openai"}, ""),
        (Settings(model=ModelSettings(api_mode="codex_responses")), {}, "codex_responses"),
        (Settings(model=ModelSettings(api_mode="codex_responses")), {"provider": "openai"}, ""),
        (
            Settings(model=ModelSettings(base_url="http://127.0.0.1:1/v1", api_mode="anthropic_messages")),
            {"base_url": "http://127.0.0.1:1/v1/"},
            "anthropic_messages",
        ),
        (
            Settings(
                providers={"mine": ProviderSettings(base_url="http://127.0.0.1:1", api_mode="anthropic_messages")}
            ),
            {"provider": "mine"},
            "anthropic_messages",
        ),
        (Settings(), {"provider": "openai", "api_mode": "codex_responses"}, "codex_responses"),
    ],
)
def test_the_wire_format_goes_with_its_server(settings: Settings, flags: dict[str, str], mode: str) -> None:
    assert find({**OPENAI, **ANTHROPIC}, settings, **flags).api_mode == mode
