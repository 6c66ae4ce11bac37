"""Functions that rows of the tests name as verifiers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


def half_for_a_file(rollout: dict[str, Any]) -> float:
    """The function sees the workspace, the row and the answer, and no secret of the program."""
    assert Path.cwd() == Path(rollout["workspace"]) and "HERMES_TEST_KEY" not in os.environ
    made = Path("made.txt").read_text("utf-8").strip()
    return 0.5 if made == rollout["row"]["expected"] and rollout["answer"] == "the answer is 42" else 0.0


def raising(rollout: dict[str, Any]) -> float:
    raise LookupError(f"no such thing as {rollout['answer'][:3]}")


def leaving(_rollout: dict[str, Any]) -> float:
    os._exit(3)


def endless(_rollout: dict[str, Any]) -> float:
    while True:
        time.sleep(1)


def too_much(_rollout: dict[str, Any]) -> float:
    return 17
