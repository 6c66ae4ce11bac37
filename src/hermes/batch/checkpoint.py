"""`checkpoint.json`: which prompts are done, for people and for tools that know this file. Derived from the records at
any time; nothing here ever reads it back, so a broken one costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import groupby, islice
from pathlib import Path

import msgspec

from hermes.batch.filters import NO_REASONING
from hermes.batch.folder import replace_file
from hermes.batch.index import Place, RecordIndex
from hermes.core.codec import encode_json

__all__ = ["checkpoint", "is_damaged", "write_checkpoint"]

#: Items of a list that are written at once.
AT_ONCE = 4_096


def checkpoint(run_name: str, index: RecordIndex, batch_size: int, earlier: int, now: float) -> Iterator[bytes]:
    """Yield the content of the file in pieces, of the records that `index` knows when the first is asked for.

    Those before the byte `earlier` of the records were there when this session began: a batch counts them as skipped.
    Rows that failed are not done, and a row is done when all its rollouts are. `now` is seconds since the epoch."""
    size = index.size  # what is written meanwhile has a place behind it
    yield b'{"run_name":' + encode_json(run_name) + b',"completed_prompts":['
    yield from _joined(_completed(index, size))
    yield b'],"batch_stats":{'
    yield from _joined(_batches(index, size, batch_size, earlier))
    last_updated = datetime.fromtimestamp(now).isoformat(timespec="seconds")
    yield b'},"last_updated":' + encode_json(last_updated) + b"}\n"


def _finished(index: RecordIndex, size: int) -> Iterator[Place]:
    return (place for place in index.places(finished=True) if place.offset < size)


def _completed(index: RecordIndex, size: int) -> Iterator[bytes]:
    for row, group in groupby(_finished(index, size), key=lambda place: place.index):
        if sum(1 for _ in group) >= index.rollouts:
            yield b"%d" % row


def _batches(index: RecordIndex, size: int, batch_size: int, earlier: int) -> Iterator[bytes]:
    for number, group in groupby(_finished(index, size), key=lambda place: place.index // batch_size):
        processed = skipped = thoughtless = 0
        for place in group:
            skipped += place.offset < earlier
            processed += place.offset >= earlier
            thoughtless += place.ended.reason == NO_REASONING
        stats = {"processed": processed, "skipped": skipped, "discarded_no_reasoning": thoughtless}
        yield b'"%d":' % number + encode_json(stats)


def _joined(items: Iterator[bytes]) -> Iterator[bytes]:
    """`items` with commas between them, many in a piece."""
    before = b""
    while piece := list(islice(items, AT_ONCE)):
        yield before + b",".join(piece)
        before = b","


def write_checkpoint(folder: Path, content: Iterator[bytes]) -> None:
    """Replace `checkpoint.json` in `folder`."""
    replace_file(folder / "checkpoint.json", content)


def is_damaged(folder: Path) -> bool:
    """Whether there is a checkpoint that is no JSON any more."""
    try:
        msgspec.json.decode((folder / "checkpoint.json").read_bytes())
    except FileNotFoundError:
        return False
    except msgspec.DecodeError:
        return True
    return False
