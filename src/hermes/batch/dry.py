"""A start that is only looked at: everything that can be wrong with the input is found, and the cost estimated. Touches
no file and asks no model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hermes.batch.estimate import estimate, estimate_lines
from hermes.batch.prepare import JobOptions, prepare
from hermes.batch.record import RecordFile
from hermes.batch.settings import BatchSettings
from hermes.core.model import ModelProfile

__all__ = ["PriceOf", "dry_run"]

#: The model of a run by name, and what is known of it (None: nothing).
PriceOf = Callable[[BatchSettings], tuple[str, ModelProfile | None]]


def dry_run(options: JobOptions, price_of: PriceOf, data_dir: Path) -> list[str]:
    """Return what to say of a run before it is started.

    Raises:
        UsageError: input that cannot be used, as a real start would refuse it.
    """
    prepared = prepare(options, data_dir, None)
    model, profile = price_of(prepared.settings)
    items = prepared.plan.items
    try:
        size = sum(len(item.row.prompt.encode("utf-8", "replace")) for item in items)
    finally:
        prepared.dataset.rows.close()
    with RecordFile(prepared.folder.records_path) as records:
        ended = (records.head(place) for place in prepared.index.places())
        found = estimate(size, len(items), prepared.settings.max_turns, profile, ended)
    return [*prepared.notes, *estimate_lines(found, model)]
