"""`python batch_runner.py` starts where nothing is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout without an environment."""
    shutil.copy(ROOT / "batch_runner.py", tmp_path)
    return tmp_path


def start(checkout: Path, *arguments: str, sources: str = "") -> subprocess.CompletedProcess[str]:
    """Start with a Python that sees the standard library and `sources` only."""
    command = [sys.executable, "-S", str(checkout / "batch_runner.py"), *arguments]
    variables = {"PYTHONPATH": sources} if sources else {}
    return subprocess.run(command, cwd=checkout.parent, env=variables, capture_output=True, text=True)


@pytest.mark.parametrize("sources", ["", str(ROOT / "src")], ids=["nothing", "sources"])
def test_without_an_environment_it_prints_the_one_command(checkout: Path, sources: str) -> None:
    done = start(checkout, "--run_name=x", sources=sources)
    assert done.returncode == 1
    assert f"make -C {checkout} install" in done.stderr
    assert "Traceback" not in done.stderr


def test_with_an_environment_it_starts_again_there_with_the_same_arguments(checkout: Path) -> None:
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s|" "$@"\nexit 7\n', encoding="utf-8")
    python.chmod(0o755)
    done = start(checkout, "--run_name=a b", "--resume")
    assert done.stdout == f"{checkout / 'batch_runner.py'}|--run_name=a b|--resume|"
    assert done.returncode == 7
