"""A run folder written by hand: records as a batch leaves them, without running one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from hermes.batch.attempt import write_up
from hermes.batch.dataset import DatasetRow
from hermes.batch.distribution import Draw
from hermes.batch.export.source import RunSource, open_run
from hermes.batch.folder import SCHEMA, RowEntry, RunFolder, RunMeta, Session
from hermes.batch.identity import rollout_key, row_hash
from hermes.batch.plan import Item
from hermes.batch.record import Record, encode_record
from hermes.batch.rollout import RolloutResult
from hermes.batch.settings import BatchSettings


def record(result: RolloutResult, index: int = 0, rollout: int = 0, score: float | None = None) -> Record:
    source = {"prompt": f"p{index}"}
    row_id = f"{row_hash(source)}:0"
    row = DatasetRow(line=index + 1, prompt=f"p{index}", source=source)
    item = Item(key=rollout_key(row_id, rollout), row_id=row_id, index=index, row=row, rollout=rollout)
    found = write_up(item, Draw(toolsets=("terminal", "file")), result, 2000.0)
    return msgspec.structs.replace(found, head=msgspec.structs.replace(found.head, score=score))


def write_run(data: Path, records: Sequence[Record], *, rollouts: int = 1, name: str = "run") -> RunSource:
    folder = RunFolder(data, name)
    folder.path.mkdir(parents=True)
    settings = BatchSettings(
        dataset_file="prompts.jsonl", run_name=name, model="fake-model", rollouts_per_prompt=rollouts, temperature=1.0
    )
    session = Session(started_at=1.0, dataset="abcd", rows=len(records))
    folder.write_meta(RunMeta(schema=SCHEMA, run_name=name, created_at=1.0, settings=settings, sessions=(session,)))
    rows = {item.head.index: item.head.key.rpartition(":")[0] for item in records}
    folder.write_rows([RowEntry(row_id, index) for index, row_id in sorted(rows.items())])
    folder.records_path.write_bytes(b"".join(encode_record(item) for item in records))
    return open_run(data, name)
