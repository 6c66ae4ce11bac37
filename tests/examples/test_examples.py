"""The example prompts can be carried out as they stand, and the script that runs them ends as it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from hermes.batch.dataset import DatasetRow, read_dataset
from hermes.runtime.danger import allowed_read_only

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = ROOT / "examples" / "prompts.jsonl"
ROWS = read_dataset(PROMPTS).rows

#: Stands for the program: appends its arguments to `calls`, then does what `batch run` is told to do.
PROGRAM = """#!/usr/bin/env bash
echo "$*" >> calls
if [[ $* == *"batch run"* ]]; then {run}; fi
"""


def commands(row: DatasetRow) -> list[str]:
    return re.findall(r"Use the command `([^`]+)`", row.prompt)


def test_there_are_enough_prompts_and_one_has_two_children() -> None:
    assert len(ROWS) >= 8
    assert len({row.prompt for row in ROWS}) == len(ROWS)
    (parent,) = (row for row in ROWS if row.toolsets == ("delegation",))
    assert "spawn_parallel" in parent.prompt
    assert len(commands(parent)) == 2
    for row in ROWS:
        if row != parent:
            assert row.toolsets == ("terminal",)
            assert len(commands(row)) == 1


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.prompt[:30])
def test_each_command_is_allowed_and_works_on_the_files(row: DatasetRow) -> None:
    assert row.cwd is not None
    for command in commands(row):
        assert allowed_read_only(command).allowed
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=ROOT / row.cwd, capture_output=True, stdin=subprocess.DEVNULL, check=False
        )
        assert done.returncode == 0
        assert 0 < len(done.stdout) < 1500


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the script alone, and rows of an earlier run."""
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "run", tmp_path / "examples" / "run")
    rows = tmp_path / "data" / "first_run" / "trajectories.jsonl"
    rows.parent.mkdir(parents=True)
    rows.write_text("{}\n")
    os.utime(rows, (1_000_000_000, 1_000_000_000))
    return tmp_path


def run_examples(checkout: Path, run: str) -> tuple[int, str, list[str]]:
    program = checkout / ".venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(PROGRAM.format(run=run))
    program.chmod(0o755)
    done = subprocess.run([checkout / "examples" / "run"], capture_output=True, text=True, check=False, cwd="/")
    return done.returncode, done.stdout + done.stderr, (checkout / "calls").read_text().splitlines()


ROWS_FILE = "data/first_run/trajectories.jsonl"


def test_kept_rows_are_shown_even_where_some_failed(checkout: Path) -> None:
    code, said, calls = run_examples(checkout, f"printf '{{{{}}}}\\n{{{{}}}}\\n' > {ROWS_FILE}; exit 1")
    assert code == 0
    assert f"of the 2 rows in {ROWS_FILE}" in said
    assert "tiny local model: for trying the pipeline" in said
    assert str(checkout / ROWS_FILE) in said
    assert [call.split(" batch ")[1].split()[0] for call in calls] == ["run", "show"]
    assert "--model=embedded:smollm2-135m" in calls[0]


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (f": > {ROWS_FILE}", 1),  # it ran, and kept nothing
        ("exit 1", 1),  # it could not start: the rows that lie there are old
        ("exit 130", 130),
        (f"echo x > {ROWS_FILE}; exit 2", 2),
    ],
)
def test_without_a_kept_row_it_fails_and_shows_none(checkout: Path, run: str, code: int) -> None:
    found, _, calls = run_examples(checkout, run)
    assert found == code
    assert len(calls) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_whole_job_on_the_real_model() -> None:
    """Runs in the checkout itself, under a name of its own."""
    data = ROOT / "data" / "example_test"
    shutil.rmtree(data, ignore_errors=True)
    command = [sys.executable, "-m", "hermes.cli.main", "batch", "run"]
    options = [f"--dataset_file={PROMPTS}", "--run_name=example_test", "--model=embedded", "--batch_size=10", "--yes"]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        assert done.returncode == 0, done.stderr
        lines = (data / "trajectories.jsonl").read_bytes().splitlines()
        rows = [msgspec.json.decode(line) for line in lines]
        assert len(rows) >= 6
        used = [name for row in rows for name, stats in row["tool_stats"].items() if stats["success"]]
        assert "terminal" in used
        assert "spawn_parallel" in used
        for row in rows:
            assert row["model"] == "embedded:smollm2-135m"
            assert any("<think>" in turn["value"] for turn in row["conversations"])
    finally:
        shutil.rmtree(data, ignore_errors=True)
