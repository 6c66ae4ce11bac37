"""Where this program is, for a process that shall run the same one. Starts nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["program_path"]


def program_path(environ: Mapping[str, str]) -> dict[str, str]:
    """The variable PYTHONPATH with which a process of this environment finds this very program, installed or not, from
    whatever folder it is started."""
    folders = [str(Path(__file__).resolve().parents[2]), environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(folder for folder in folders if folder)}
