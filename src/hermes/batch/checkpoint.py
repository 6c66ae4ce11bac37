"""`checkpoint.json`: which prompts are done, for people and for tools that know this file. Derived from the records at
any time; nothing here ever reads it back, so a broken one costs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from hermes.batch.filters import NO_REASONING
from hermes.batch.folder import replace_file
from hermes.batch.record import Head
from hermes.core.codec import encode_json

__all__ = ["checkpoint", "is_damaged", "write_checkpoint"]


def checkpoint(
    run_name: str,
    heads: Iterable[Head],
    batch_size: int,
    earlier: frozenset[str],
    now: float,
    rollouts: int = 1,
) -> dict[str, Any]:
    """Return the content of the file. `earlier` are the keys that were done before this session began: a batch counts
    them as skipped. Rows that failed are not done, and a row of several `rollouts` is done when all of them are. `now`
    is seconds since the epoch."""
    done: Counter[int] = Counter()
    stats: dict[int, Counter[str]] = {}
    for head in heads:
        if head.outcome != "finished":
            continue
        done[head.index] += 1
        batch = stats.setdefault(head.index // batch_size, Counter())
        batch["skipped" if head.key in earlier else "processed"] += 1
        batch["discarded_no_reasoning"] += head.reason == NO_REASONING
    names = ("processed", "skipped", "discarded_no_reasoning")
    return {
        "run_name": run_name,
        "completed_prompts": sorted(index for index, count in done.items() if count >= rollouts),
        "batch_stats": {str(number): {name: stats[number][name] for name in names} for number in sorted(stats)},
        "last_updated": datetime.fromtimestamp(now).isoformat(timespec="seconds"),
    }


def write_checkpoint(folder: Path, content: dict[str, Any]) -> None:
    """Replace `checkpoint.json` in `folder`."""
    replace_file(folder / "checkpoint.json", [encode_json(content) + b"\n"])


def is_damaged(folder: Path) -> bool:
    """Whether there is a checkpoint that is no JSON any more."""
    try:
        msgspec.json.decode((folder / "checkpoint.json").read_bytes())
    except FileNotFoundError:
        return False
    except msgspec.DecodeError:
        return True
    return False
