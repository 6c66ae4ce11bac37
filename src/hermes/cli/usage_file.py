"""`--usage-file`: what a run used, as JSON, whatever became of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hermes.core.codec import encode_json
from hermes.core.errors import OperatorError, UsageError
from hermes.core.messages import Usage

__all__ = ["check_usage_file", "write_usage"]


def check_usage_file(path: str | None) -> Path | None:
    """The path of `--usage-file`, made sure of before anything costs money.

    Raises:
        UsageError: nothing can be written there.
    """
    if path is None:
        return None
    target = Path(path).absolute()
    if target.is_dir() or not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise UsageError(f"--usage-file {path} cannot be written. Name a file in a folder that exists.")
    return target


def write_usage(
    path: Path, usage: Usage, calls: int, *, model: str, provider: str, session_id: str | None, code: int
) -> None:
    """Write what a run used, whatever became of it.

    Raises:
        OperatorError: the file cannot be written.
    """
    found: dict[str, Any] = {
        "estimated_cost_usd": usage.cost_usd,
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_tokens": usage.cached,
        "cache_write_tokens": usage.cache_write,
        "reasoning_tokens": usage.reasoning,
        "total_tokens": usage.total,
        "api_calls": calls,
        "model": model,
        "provider": provider,
        "session_id": session_id,
        "service_tier": None,
        "completed": code == 0,
        "failed": code != 0,
    }
    try:
        path.write_bytes(encode_json(found) + b"\n")
    except OSError as error:
        raise OperatorError(f"--usage-file {path}: {error.strerror}. The run itself is recorded.") from error
