"""Running the command line inside the test's process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hermes.cli.main import main


class Ran(NamedTuple):
    """Exit code, stdout and stderr of one run."""

    code: int
    out: str
    err: str


@pytest.fixture
def hermes(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run `hermes` with these arguments."""

    def run(*args: str) -> Ran:
        capsys.readouterr()
        code = main(list(args))
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def hermes_home(home: Path) -> Path:
    """The folder that HERMES_HOME names; it exists."""
    path = Path(os.environ["HERMES_HOME"])
    path.mkdir(parents=True, exist_ok=True)
    return path
