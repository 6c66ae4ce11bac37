"""A process that is told where the program is runs the same one, from whatever folder it is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import hermes
from hermes.core.program import program_path


def test_it_stands_before_what_is_there_already(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    environ = {"PYTHONPATH": str(tmp_path / "other")}
    found = program_path(environ)
    first, second = found["PYTHONPATH"].split(os.pathsep)
    assert Path(first) == Path(hermes.__file__).resolve().parents[1] and second == environ["PYTHONPATH"]
    assert program_path({}) == {"PYTHONPATH": first}
    (tmp_path / "other" / "hermes").mkdir()
    (tmp_path / "other" / "hermes" / "__init__.py").write_text("raise SystemExit('another program')\n")
    command = [sys.executable, "-c", "import hermes; print(hermes.__file__)"]
    done = subprocess.run(command, cwd="/", env=found, capture_output=True, text=True, timeout=120, check=True)
    assert Path(done.stdout.strip()) == Path(hermes.__file__).resolve()
