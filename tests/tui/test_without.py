"""An installation without the full screen: everything else is there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hermes
from hermes.cli.faces import chosen_face, screen_lacks


def test_the_full_screen_can_be_left_out(tmp_path: Path) -> None:
    package = Path(hermes.__file__).parent
    shutil.copytree(package, tmp_path / "hermes", ignore=shutil.ignore_patterns("tui", "__pycache__"))
    code = (
        "import hermes.cli.converse, hermes.cli.attach_cmd; from hermes.cli.faces import screen_lacks; import os;"
        "print(hermes.__file__); print(screen_lacks(os.environ, terminal=True, encoding='utf-8'))"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "TERM": "xterm"}
    ran = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=110)
    where, lacks = ran.stdout.splitlines()
    assert where.startswith(str(tmp_path)) and lacks == "this installation has no full screen", ran.stderr


@pytest.mark.parametrize(
    ("terminal", "term", "encoding", "lacks"),
    [
        (True, "xterm-256color", "utf-8", ""),
        (True, "tmux", "UTF8", ""),
        (False, "xterm", "utf-8", "not all a terminal"),
        (True, "dumb", "utf-8", "TERM=dumb"),
        (True, "", "utf-8", "TERM=not set"),
        (True, "xterm", "ascii", "encoding is ascii"),
    ],
)
def test_what_a_terminal_lacks(terminal: bool, term: str, encoding: str, lacks: str) -> None:
    said = screen_lacks({"TERM": term}, terminal=terminal, encoding=encoding)
    assert lacks in said and bool(said) == bool(lacks)


def test_without_a_terminal_there_are_lines() -> None:
    assert chosen_face(None, {"TERM": "xterm"}).face == "lines"
    assert chosen_face("cli", {"TERM": "xterm"}).face == "lines"
