"""Looking at everything that can be wrong with a start before anything is touched: the settings, the dataset, what the
folder holds; and laying out what there is to do. Nothing is run or written here; the lock is the caller's to keep."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from hermes.batch.accounts import NO_FAILURE, Allowed, redo_reasons, rejected
from hermes.batch.checkpoint import is_damaged
from hermes.batch.dataset import Dataset, read_dataset
from hermes.batch.folder import RunFolder, RunMeta, no_such_run
from hermes.batch.index import RecordIndex, open_index
from hermes.batch.plan import Plan, plan_new, plan_resume
from hermes.batch.prefill import read_prefill
from hermes.batch.settings import BatchSettings, new_settings, resumed_settings
from hermes.batch.summary import describe_existing
from hermes.core.errors import UsageError

__all__ = ["JobOptions", "Prepared", "prepare"]


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a start was asked for. `given` holds the settings by name (fields of `BatchSettings`; None = not given);
    the others are wishes for this start alone. `retry` are kinds of failures to run again though they would last,
    `redo` what of the ended rollouts (`rejected:REASON`); `allowed` failures leave the exit code at 0.
    `tables` are distributions beside the built-in ones."""

    given: Mapping[str, Any]
    resume: bool = False
    overwrite: bool = False
    accept_changes: bool = False
    yes: bool = False
    retry: tuple[str, ...] = ()
    tables: Mapping[str, Mapping[str, float]] = {}
    redo: tuple[str, ...] = ()
    allowed: Allowed = NO_FAILURE


class Prepared(msgspec.Struct, kw_only=True):
    """A start that has been looked at: what it is to do, and notes for whoever watches."""

    settings: BatchSettings
    folder: RunFolder
    meta: RunMeta | None
    index: RecordIndex
    plan: Plan
    dataset: Dataset
    prefill: tuple[Mapping[str, str], ...]
    notes: list[str]


def prepare(options: JobOptions, data_dir: Path, held: ExitStack | None) -> Prepared:
    """Look at everything that can be wrong with the input, and plan. `held` takes the lock; None: nothing is held."""
    given = options.given
    if options.resume and options.overwrite:
        raise UsageError("--resume and --overwrite exclude each other: go on with the old run, or move it aside.")
    name = given.get("run_name")
    folder = RunFolder(data_dir, name or "")
    meta = None
    if options.resume:
        if not name:
            raise UsageError("no run name: --resume goes on with the run that --run_name names.")
        meta = folder.read_meta()
        if meta is None:
            raise UsageError(f"{no_such_run(data_dir, name)} Leave out --resume to start it.")
        settings = resumed_settings(given, meta.settings)
    else:
        settings = new_settings(given)
        if folder.has_run() and not options.overwrite:
            raise UsageError(describe_existing(folder, folder.read_meta(), given))
    dataset = read_dataset(Path(settings.dataset_file), settings.max_samples, settings.verifier_modules)
    prefill = read_prefill(settings.prefill_messages_file)
    if held is not None:
        held.callback(dataset.rows.close)
        held.enter_context(folder.locked())
    rollouts = settings.rollouts_per_prompt
    if meta is None:
        plan = plan_new(dataset, rollouts)
        index = RecordIndex(plan.rows, rollouts)
    else:
        known = folder.read_rows()
        index = open_index(folder.records_path, known, rollouts)
        plan = plan_resume(
            dataset,
            known,
            index,
            rollouts=rollouts,
            accept_changes=options.accept_changes,
            retry=options.retry,
            redo=rejected(folder, index, redo_reasons(options.redo)),
        )
    notes = []
    if dataset.replaced_surrogates:
        count = dataset.replaced_surrogates
        texts = "1 text of the dataset holds" if count == 1 else f"{count} texts of the dataset hold"
        notes.append(f"{texts} half characters (lone surrogates); they were replaced.")
    if plan.lasting:
        notes.append(f"{plan.lasting} failed rows would fail again and are left alone; --retry=KIND runs them anyhow.")
    if meta is not None and is_damaged(folder.path):
        notes.append("checkpoint.json is damaged; it is made anew from the records.")
    return Prepared(
        settings=settings,
        folder=folder,
        meta=meta,
        index=index,
        plan=plan,
        dataset=dataset,
        prefill=prefill,
        notes=notes,
    )
