"""Settings come from where they should, and mistakes name their place."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hermes
from hermes.config import Home, Loaded, load
from hermes.config.reference import plain, settings_page, shown
from hermes.config.schema import FIELDS, KNOWN_UNUSED
from hermes.core.errors import ConfigError, UsageError


@pytest.fixture
def at(tmp_path: Path) -> Home:
    path = tmp_path / "h"
    path.mkdir()
    return Home(root=path, path=path)


def read(at: Home, text: str | bytes, environ: dict[str, str] | None = None, **flags: Any) -> Loaded:
    at.config_file.write_bytes(text.encode() if isinstance(text, str) else text)
    return load(at, environ or {}, {key.replace("__", "."): value for key, value in flags.items()})


def levels(loaded: Loaded) -> dict[str, str]:
    return {problem.key: problem.level for problem in loaded.problems}


def test_defaults_without_any_file(at: Home) -> None:
    settings = load(at, {}).require()
    assert settings.agent.max_turns == 90
    assert settings.delegation.children_at_once == 10
    assert settings.delegation.live_children == 200
    assert settings.delegation.max_spawn_depth == 1
    assert settings.approvals.mode == "ask"
    assert list(at.path.iterdir()) == []


def test_command_line_then_file_then_environment_then_dotenv_then_default(at: Home) -> None:
    at.env_file.write_text("TERMINAL_TIMEOUT=11\nTERMINAL_CWD=/dotenv\nDELEGATION_MAX_CONCURRENT_CHILDREN=4\n")
    environ = {"TERMINAL_TIMEOUT": "12", "DELEGATION_MAX_CONCURRENT_CHILDREN": "5"}
    loaded = read(at, "delegation:\n  max_concurrent_children: 6\nagent: {max_turns: 7}\n", environ, agent__max_turns=8)
    settings = loaded.require()
    assert settings.agent.max_turns == 8
    assert settings.delegation.max_concurrent_children == 6
    assert settings.terminal.timeout == 12
    assert settings.terminal.cwd == "/dotenv"
    assert {key: loaded.sources[key] for key in ("agent.max_turns", "terminal.timeout", "terminal.cwd")} == {
        "agent.max_turns": "command line",
        "terminal.timeout": "TERMINAL_TIMEOUT (environment)",
        "terminal.cwd": "TERMINAL_CWD (.env)",
    }
    assert loaded.sources["delegation.max_concurrent_children"] == "config.yaml:2"
    assert loaded.sources["store.durability"] == "default"


def test_variables_are_substituted_and_undefined_ones_stay(at: Home) -> None:
    at.env_file.write_text("A=from-dotenv\nB=hidden\n")
    text = 'model: {default: "${A}/${B}", base_url: "${NOPE}"}\nproviders: {x: {api_key: "k-${B}"}}\n'
    settings = read(at, text, {"B": "from-env"}).require()
    assert settings.model.default == "from-dotenv/from-env"
    assert settings.model.base_url == "${NOPE}"
    assert settings.providers["x"].api_key == "k-from-env"


@pytest.mark.parametrize("word", ["none", "unlimited", "inf", "0", "-1", ".inf", "null", "~", "'none'", "None"])
def test_every_word_for_unlimited(at: Home, word: str) -> None:
    settings = read(at, f"agent:\n  max_turns: {word}\ndelegation:\n  max_iterations: {word}\n").require()
    assert settings.agent.max_turns is None
    assert settings.delegation.max_iterations is None


def test_the_model_is_a_string_or_a_map(at: Home) -> None:
    assert read(at, "model: a/b\n").require().model.default == "a/b"
    assert read(at, "model:\n  default: a/b\n  provider: x\n").require().model.provider == "x"
    assert read(at, "model:\n").require().model.default == ""


def test_both_names_for_children_at_once_and_the_larger_counts(at: Home) -> None:
    text = "delegation:\n  max_concurrent_children: 3\n  max_async_children: 70\n"
    settings = read(at, text).require()
    assert settings.delegation.children_at_once == 70
    assert settings.delegation.live_children == 280
    assert read(at, "", {"DELEGATION_MAX_ASYNC_CHILDREN": "20"}).require().delegation.children_at_once == 20


def test_lenient_spellings(at: Home) -> None:
    text = (
        "toolsets: delegation, web\nplatform_toolsets: {cli: file}\nterminal: {timeout: '20'}\n"
        "delegation: {orchestrator_enabled: off, default_toolsets: []}\napprovals: deny\n"
    )
    settings = read(at, text).require()
    assert settings.toolsets == ("delegation", "web")
    assert settings.platform_toolsets == {"cli": ("file",)}
    assert settings.terminal.timeout == 20
    assert settings.delegation.orchestrator_enabled is False
    assert settings.delegation.default_toolsets == ()
    assert settings.approvals.mode == "deny"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "agent:\n  max_turns: lots\n",
            r"config\.yaml:2: agent\.max_turns: expected a whole number or null, found 'lots'",
        ),
        ("a: 1\nagent: 5\n", r"config\.yaml:2: agent: expected a section"),
        (
            "agent:\n  reasoning_effort: hgih\n",
            r"config\.yaml:2: agent\.reasoning_effort: expected .*`high`.*found 'hgih'",
        ),
        ("toolsets: {a: 1}\n", r"config\.yaml:1: toolsets: expected a list of names"),
        ("compression: {threshold: 2}\n", r"config\.yaml:1: compression\.threshold: expected a number <= 1"),
        ("providers:\n  mine: {base_url: 5}\n", r"config\.yaml:1: providers: .*mine\.base_url"),
        ("approvals: maybe\n", r"config\.yaml:1: approvals\.mode: expected `ask`, `allow` or `deny`"),
    ],
)
def test_a_value_of_the_wrong_kind_names_file_line_and_value(at: Home, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(at, text).require()


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("delegaton: {}\n", "delegation"),
        ("# c\nagent:\n  max_turn: 5\n", "agent.max_turns"),
        ("terminal:\n  time_out: 5\n", "terminal.timeout"),
        ("toolset: [a]\n", "toolsets"),
    ],
)
def test_a_misspelled_key_is_an_error_with_the_nearest_name(at: Home, text: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=rf"config\.yaml:\d: there is no setting .*Did you mean {nearest}\?"):
        read(at, text).require()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"agent:\n\tmax_turns: 5\n", r"config\.yaml:2: a tab is used"),
        (b"agent:\n  max_turns: 5\n model: x\n", r"config\.yaml:3: the indentation does not fit"),
        (b"model: a\nstore: {}\nmodel: b\n", r"config\.yaml:3: the key model stands twice"),
        (b"- a\n- b\n", r"config\.yaml:1: a list stands where settings should"),
        (b"model: a\nagent: \xff\n", r"config\.yaml:2: byte 0xff is not UTF-8"),
        (b"model: a\nagent: \x07\n", r"config\.yaml:2: a character that YAML does not allow"),
        (b"model: [a\n", r"config\.yaml:\d: expected"),
        (b"model: a\n---\nmodel: b\n", r"config\.yaml:2: .*another document"),
        (b"model: !!python/object:os.system x\n", r"config\.yaml:1: "),
    ],
)
def test_a_broken_file_names_its_line(at: Home, data: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(at, data)


def test_byte_order_mark_and_windows_line_ends_are_fine(at: Home) -> None:
    loaded = read(at, b"\xef\xbb\xbf# c\r\nagent:\r\n  max_turns: 5\r\n")
    assert loaded.require().agent.max_turns == 5
    assert loaded.sources["agent.max_turns"] == "config.yaml:3"


@pytest.mark.fault("B132")
def test_keys_without_effect_are_reported_and_never_in_the_way(at: Home) -> None:
    loaded = read(at, "kanban: {notify_in_gateway: true}\nquirks: 1\nmax_turns: 5\nterminal: {home_mode: a}\n")
    assert levels(loaded) == {
        "kanban.notify_in_gateway": "note", "quirks": "note", "max_turns": "warning", "terminal.home_mode": "note",
    }  # fmt: skip
    assert loaded.require().agent.max_turns == 90
    assert loaded.warnings == [f"{at.config_file}:3: max_turns has no effect here. Write it as agent.max_turns."]


@pytest.mark.fault("B132")
def test_every_documented_setting_is_read_by_the_program() -> None:
    sources = Path(hermes.__file__).parent
    texts = [file.read_text(encoding="utf-8") for file in sources.rglob("*.py")]
    read_names = set(re.findall(r"\.(\w+)", "\n".join(texts)))
    assert [key for key in FIELDS if key.rpartition(".")[2] not in read_names] == []


@pytest.mark.fault("B136")
@pytest.mark.parametrize(
    ("text", "environ"),
    [
        ("terminal: {backend: modal}\n", {}),
        ("", {"TERMINAL_ENV": "singularity"}),
        ("terminal: {backend: ssh}\n", {}),
    ],
)
def test_isolation_that_cannot_be_had_is_refused_and_not_dropped(at: Home, text: str, environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="not in this release"):
        read(at, text, environ).require()


def test_values_below_the_lowest_are_raised_and_that_is_said(at: Home) -> None:
    loaded = read(at, "delegation: {max_concurrent_children: 0, child_timeout_seconds: 5, max_spawn_depth: -1}\n")
    settings = loaded.require().delegation
    assert (settings.max_concurrent_children, settings.child_timeout_seconds, settings.max_spawn_depth) == (1, 30, 1)
    assert set(levels(loaded).values()) == {"note"} and len(loaded.problems) == 3
    assert read(at, "delegation: {child_timeout_seconds: 0}\n").require().delegation.child_timeout_seconds is None


def test_modes_of_another_program_ask(at: Home) -> None:
    loaded = read(at, "approvals: {mode: off, timeout: 60}\n")
    assert loaded.require().approvals.mode == "ask"
    assert levels(loaded) == {"approvals.mode": "note"}


def test_a_wrong_flag_is_a_usage_error_and_a_right_one_cures_the_file(at: Home) -> None:
    with pytest.raises(UsageError, match="command line"):
        read(at, "", agent__reasoning_effort="much")
    assert read(at, "agent: {max_turns: lots}\n", agent__max_turns=3).require().agent.max_turns == 3


def test_a_key_of_the_wrong_kind_is_not_shown(at: Home) -> None:
    loaded = read(at, "model: {api_key: [sk-very-secret-1234]}\n")
    assert "secret" not in loaded.problems[0].message


@pytest.mark.fault("B134")
def test_the_page_of_settings_and_config_show_name_every_setting_with_its_real_default(at: Home) -> None:
    page = settings_page()
    entries = shown(load(at, {}))
    assert [entry.key for entry in entries] == list(FIELDS)
    for key, field in FIELDS.items():
        assert f"| `{key}` |" in page
        assert field.description, key
    assert "`delegation.max_concurrent_children` | a whole number | `10` |" in page
    assert "`delegation.max_iterations` | a whole number or null | `50` |" in page
    assert {entry.source for entry in entries} == {"default"}
    assert not KNOWN_UNUSED & set(FIELDS)


def test_secrets_are_masked_when_shown(at: Home) -> None:
    text = "model: {api_key: sk-0123456789abcdef}\nproviders: {p: {api_key: sk-fedcba9876543210}}\n"
    out = str(shown(read(at, text)))
    assert "0123456789" not in out and "fedcba" not in out
    assert "…cdef" in out and "…3210" in out
    assert plain({"env": {"MY_TOKEN": "0123456789abc", "PATH": "/bin"}}) == {
        "env": {"MY_TOKEN": "…9abc", "PATH": "/bin"}
    }


@pytest.mark.parametrize("present", [False, True])
def test_the_yaml_package_is_loaded_only_for_a_file(at: Home, present: bool) -> None:
    if present:
        at.config_file.write_text("model: x\n")
    code = (
        "import sys; from pathlib import Path; from hermes.config import Home, load; "
        "p = Path(sys.argv[1]); load(Home(root=p, path=p), {}); print('ruamel.yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(at.path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(present)


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("delegation.max_spawn_dept", "Near: delegation.max_spawn_depth"),
        ("models.gpt.price_input", "models is one setting. Give it whole"),
        ("delegation", "it is a section. Give its settings by their whole names: delegation.model"),
        ("qqq", "docs/settings.md list them"),
    ],
)
def test_a_given_key_that_is_no_setting_is_refused_with_what_to_write(at: Home, key: str, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        load(at, {}, {key: 1})
