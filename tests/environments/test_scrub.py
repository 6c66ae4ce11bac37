"""The allow-list of variables."""

from __future__ import annotations

import pytest

from hermes.environments.scrub import command_environment, looks_secret


def test_only_named_variables_pass() -> None:
    source = {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "LC_TOKEN": "no", "EDITOR": "vi", "A_KEY": "no", "TERM": "x"}
    assert command_environment(source) == {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "TERM": "x"}


def test_a_pattern_never_passes_a_secret_but_a_name_does() -> None:
    source = {"PATH": "/bin", "TERM": "x", "MY_NAME": "a", "MY_API_KEY": "b", "MY_PASSWORD_FILE": "c"}
    assert set(command_environment(source, ["MY_*"])) == {"PATH", "TERM", "MY_NAME"}
    assert set(command_environment(source, ["MY_API_KEY"])) == {"PATH", "TERM", "MY_API_KEY"}


def test_a_path_and_a_terminal_are_always_there() -> None:
    kept = command_environment({})
    assert "/usr/bin" in kept["PATH"]
    assert kept["TERM"] == "dumb"


@pytest.mark.parametrize("name", ["X_KEY", "x_token", "A_SECRET", "DB_PASSWORD_2", "GOOGLE_APPLICATION_CREDENTIALS"])
def test_names_of_secrets(name: str) -> None:
    assert looks_secret(name)
