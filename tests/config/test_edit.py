"""Edits change one setting and not a byte beside it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hermes.config.document import parse
from hermes.config.edit import render, set_value, split_key, unset_value
from hermes.config.files import locked
from hermes.core.errors import ConfigError, TryLater

TEXT = """\
# my settings
model: "x/y"   # the good one
toolsets: [delegation]   # flow

list:
- a   # first
# about b
- b
odd:   {a: 1,   b: 2}   # odd spacing
text: |
    hello

    world
agent:
    max_turns: none
    # a comment of agent
    x:    spaced


# trailing words
empty:
number: 1e3
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def put(path: Path, key: str, value: object) -> str:
    set_value(path, split_key(key), value, lock=path.parent / "lock")
    return path.read_bytes().decode("utf-8")


def drop(path: Path, key: str) -> str:
    assert unset_value(path, split_key(key), lock=path.parent / "lock")
    return path.read_bytes().decode("utf-8")


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("model", "z", 'model: "x/y"   #', "model: z   #"),
        ("toolsets", ["delegation", "web"], "[delegation]", "[delegation, web]"),
        ("list", ["a", "b", "c"], "- b\n", "- b\n- c\n"),
        ("list", ["b"], "- a   # first\n", ""),
        ("odd.b", 3, "b: 2}", "b: 3}"),
        ("odd.c", "x y", "b: 2}", "b: 2, c: x y}"),
        ("agent.max_turns", 5, "max_turns: none", "max_turns: 5"),
        ("agent.new", True, "    x:    spaced\n", "    x:    spaced\n    new: true\n"),
        ("empty", "v", "empty:\n", "empty: v\n"),
        ("empty.deep.er", "v", "empty:\n", "empty:\n  deep:\n    er: v\n"),
        ("text", "short", "|\n    hello\n\n    world\n", "short\n"),
        ("fresh.key", 1, "number: 1e3\n", "number: 1e3\nfresh:\n  key: 1\n"),
        ("platform_toolsets.cli", ["a"], "number: 1e3\n", "number: 1e3\nplatform_toolsets:\n  cli: [a]\n"),
    ],
)
def test_set_changes_only_its_own_place(config: Path, key: str, value: object, old: str, new: str) -> None:
    assert TEXT.count(old) == 1
    assert put(config, key, value) == TEXT.replace(old, new)


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        ("model", 'model: "x/y"   # the good one\n', ""),
        ("list", "list:\n- a   # first\n# about b\n- b\n", ""),
        ("odd.a", "a: 1,   ", ""),
        ("odd.b", ",   b: 2", ""),
        ("agent.x", "    x:    spaced\n", ""),
        ("text", "text: |\n    hello\n\n    world\n", ""),
        ("empty", "empty:\n", ""),
    ],
)
def test_unset_removes_only_its_own_lines(config: Path, key: str, old: str, new: str) -> None:
    assert drop(config, key) == TEXT.replace(old, new)


def test_unset_of_the_last_key_of_a_section_leaves_the_file_readable(config: Path) -> None:
    drop(config, "agent.max_turns")
    drop(config, "agent.x")
    assert parse(config, config.read_text()).data["agent"] is None
    assert put(config, "agent.max_turns", 3).count("max_turns: 3") == 1


def test_unset_of_what_is_not_there_writes_nothing(config: Path) -> None:
    assert not unset_value(config, ("agent", "nothing"), lock=config.parent / "lock")
    assert not unset_value(config, ("model", "nothing"), lock=config.parent / "lock")
    assert config.read_text() == TEXT and not config.with_name("config.yaml.bak").exists()


def test_line_ends_and_byte_order_mark_survive(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    data = b"\xef\xbb\xbf# c\r\nagent:\r\n  max_turns: 3 # t\r\n"
    path.write_bytes(data)
    put(path, "agent.max_turns", 4)
    put(path, "agent.api_max_retries", 2)
    assert path.read_bytes() == data.replace(b"3 #", b"4 #") + b"  api_max_retries: 2\r\n"


def test_first_write_keeps_the_old_file_beside_it_and_later_ones_leave_it(config: Path) -> None:
    put(config, "number", 1)
    put(config, "number", 2)
    assert config.with_name("config.yaml.bak").read_text() == TEXT


def test_a_new_file_is_private_and_an_old_one_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    assert put(path, "agent.max_turns", 7) == "agent:\n  max_turns: 7\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.is_file()) == ["config.yaml", "lock"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.yaml"
    real.write_text("a: 1\n")
    link = tmp_path / "config.yaml"
    link.symlink_to(real)
    put(link, "a", 2)
    assert link.is_symlink() and real.read_text() == "a: 2\n"


def test_a_key_through_a_single_value_is_refused(config: Path) -> None:
    with pytest.raises(ConfigError, match="model is a single value"):
        put(config, "model.provider", "x")
    assert config.read_text() == TEXT


def test_what_cannot_be_cut_out_is_refused_and_nothing_written(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    text = "base: &b {a: 1}\nagent: *b\n"
    path.write_text(text)
    with pytest.raises(ConfigError, match="in an editor"):
        put(path, "agent.a", 2)
    assert path.read_text() == text


def test_dots_can_be_escaped(config: Path) -> None:
    assert split_key(r"models.gpt-4\.1.thinking") == ("models", "gpt-4.1", "thinking")
    assert "gpt-4.1:\n    thinking: true\n" in put(config, r"models.gpt-4\.1.thinking", True)
    with pytest.raises(ConfigError, match="part of it is empty"):
        split_key("a..b")


@pytest.mark.parametrize(
    "value",
    ["", "a", "yes", "no", "null", "~", "1", "1e3", "0x1F", "2026-01-01", "a: b", "a #b", "- a", "[x", "{x", "*a", "&a",
     "!t", "%d", "@x", "`x", "'q'", '"q"', "é 中 😀", "tab\tx", "new\nline", " lead", "trail ", "a,b", "${VAR}",
     "x${V}", "http://h:1/v1", "key:", "?", "-", ":", "C:\\x", True, None, 3, 1.5, -2, [], ["a,b", "${V}", "x: y", "1"],
     {"a": {"b": [1, "2"]}, "c d": None}],
)  # fmt: skip
def test_rendered_values_read_back_as_themselves(tmp_path: Path, value: object) -> None:
    path = tmp_path / "config.yaml"
    for text in ("", "k: old # c\n", "k: {x: 1}\n", "k:\n  x: 1\nl: 2\n", "s: {k: 1}\n"):
        path.write_text(text)
        key = ("s", "k") if text.startswith("s") else ("k",)
        set_value(path, key, value, lock=tmp_path / "lock")
        data = parse(path, path.read_text()).data
        assert (data["s"]["k"] if key[0] == "s" else data["k"]) == value, render(value)


def test_a_file_that_another_process_changes_is_not_waited_for_without_end(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with locked(lock):
        with pytest.raises(TryLater, match=f"another process has held {lock} for 0.05 s.*nothing was changed"):
            with locked(lock, 0.05):
                raise AssertionError("two hold it at once")
        assert TryLater.exit_code == 75
    with locked(lock, 0.0):
        pass
