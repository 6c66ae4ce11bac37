"""The lock files agree with pyproject.toml, are complete, and say nothing of where packages come from."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-local.lock")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)((?:\s+--hash=sha256:[0-9a-f]{64})+)$")


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def entries(lock: str) -> list[str]:
    """Return one string an entry: continued lines are joined."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    return [" ".join(line.split()) for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def pins(lock: str) -> dict[str, str]:
    """Return name → version of a lock."""
    matches = [PIN.match(entry) for entry in entries(lock)]
    return {canonicalize_name(match[1]): match[2] for match in matches if match}


def wanted(lock: str) -> list[Requirement]:
    """Return what pyproject.toml asks of a lock."""
    data = pyproject()
    groups = data["dependency-groups"]
    lines = {
        "requirements.lock": [*data["project"]["dependencies"], *data["build-system"]["requires"], *groups["build"]],
        "requirements-dev.lock": groups["dev"],
        "requirements-local.lock": data["project"]["optional-dependencies"]["local"],
    }
    return [Requirement(line) for line in lines[lock]]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_entry_is_a_pin_with_hashes_and_no_address(lock: str) -> None:
    found = entries(lock)
    assert [entry for entry in found if not PIN.match(entry)] == []
    assert len(pins(lock)) == len(found), "a package is pinned twice"


@pytest.mark.parametrize("lock", LOCKS)
def test_what_pyproject_asks_for_is_pinned(lock: str) -> None:
    pinned = pins(lock)
    for requirement in wanted(lock):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None and requirement.specifier.contains(version, prereleases=True), (
            f"{lock} has {requirement.name} {version}, pyproject.toml asks for {requirement.specifier}: run make lock"
        )


def test_the_locks_agree_with_each_other() -> None:
    runtime = pins("requirements.lock")
    for lock in LOCKS[1:]:
        differing = {name: version for name, version in pins(lock).items() if runtime.get(name, version) != version}
        assert differing == {}, f"{lock} differs from requirements.lock: run make lock"


def test_the_weights_are_pinned_as_named_in_pyproject() -> None:
    (weights,) = pyproject()["tool"]["hermes"]["weights"]
    assert weights in entries("requirements-local.lock")


def needs(name: str, extras: frozenset[str]) -> list[Requirement]:
    """Return what an installed package declares for this Python and platform."""
    declared = [Requirement(line) for line in importlib.metadata.requires(name) or []]
    return [
        requirement
        for requirement in declared
        if requirement.marker is None
        or any(requirement.marker.evaluate({"extra": extra}) for extra in extras or frozenset({""}))
    ]


@pytest.mark.parametrize("lock", LOCKS)
def test_what_the_packages_need_is_pinned(lock: str) -> None:
    """The locks are installed without looking at dependencies, so that none may be missing."""
    pinned = {**pins("requirements.lock"), **pins(lock)}
    queue = [(canonicalize_name(item.name), frozenset(item.extras)) for item in wanted(lock)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while queue:
        name, extras = queue.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        assert name in pinned, f"{name} is missing in {lock}: run make lock"
        for requirement in needs(name, extras):
            assert requirement.specifier.contains(pinned.get(canonicalize_name(requirement.name), ""), True), (
                f"{name} needs {requirement}, {lock} has {pinned.get(canonicalize_name(requirement.name))}"
            )
            queue.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))


@pytest.mark.parametrize("lock", LOCKS[:2])
def test_nothing_is_pinned_that_nobody_needs(lock: str) -> None:
    queue = [(canonicalize_name(item.name), frozenset(item.extras)) for item in wanted(lock)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while queue:
        found = queue.pop()
        if found not in seen:
            seen.add(found)
            queue += [(canonicalize_name(item.name), frozenset(item.extras)) for item in needs(*found)]
    needed = {name for name, _ in seen}
    assert sorted(set(pins(lock)) - needed) == []


@pytest.mark.parametrize("lock", LOCKS)
def test_the_environment_of_the_tests_is_the_locked_one(lock: str) -> None:
    installed = {name: importlib.metadata.version(name) for name in pins(lock)}
    assert installed == pins(lock), "run make test, which brings the environment up to date"
