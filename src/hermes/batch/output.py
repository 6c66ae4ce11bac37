"""Writing what rollouts bring, as they end: the record (the truth), then the row in its batch file.

Records come together in groups: one write, one sync, at most one sync every 50 ms, in a thread. A rollout counts as
done when a sync covers its record. The row follows in `batch_<index // batch_size>.jsonl`; it is derived, so a row that
is missing there after a crash is written again from the record, and one that stands there without a record is taken
out (`restore_batches`). Deciding what a rollout is worth happens elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from itertools import groupby
from pathlib import Path

import anyio
import msgspec

from hermes.batch.folder import RunFolder, replace_file, write_error
from hermes.batch.index import Place, RecordIndex, Slots
from hermes.batch.record import Head, Record, RecordFile, cut_torn_tail, decode_record, encode_record
from hermes.batch.threads import Threads
from hermes.batch.trajectory import build_row
from hermes.core.clock import NO_HOLD, Hold
from hermes.core.codec import encode_json
from hermes.core.errors import OperatorError

__all__ = ["RecordWriter", "encode_row", "restore_batches"]

#: Seconds between two syncs.
SYNC_EVERY = 0.05
#: Records that may wait for a sync before those who bring more have to wait.
HIGH_WATER = 2_000


def encode_row(record: Record, offered: Sequence[str], batch_size: int) -> bytes:
    """Encode the row of a record as one line with its newline."""
    return encode_json(build_row(record, offered, batch_size)) + b"\n"


class _Written(msgspec.Struct, frozen=True):
    """A record in the file, in bytes, and the head that counted for its rollout before."""

    record: Record
    offset: int
    length: int
    before: Head | None


class RecordWriter:
    """Appends records in groups. Start `run` in a task group; `settled` is called in the loop for each synced head,
    with the one that counted for its rollout until then, if any.

    A failed write is final: what stood before stands, `add` raises, and `broken` holds the error.
    """

    def __init__(
        self,
        folder: RunFolder,
        index: RecordIndex,
        *,
        offered: Sequence[str],
        batch_size: int,
        settled: Callable[[Head, Head | None], None],
        redact: Callable[[bytes], bytes],
        hold: Hold = NO_HOLD,
    ) -> None:
        self._folder = folder
        self._index = index
        self._offered = tuple(offered)
        self._batch_size = batch_size
        self._settled = settled
        self._redact = redact
        self._waiting: list[Record] = []
        self._writing = False
        self._closing = False
        self._wake = anyio.Event()
        self._room = anyio.Event()
        self._threads = Threads(1, hold)
        self.broken: OperatorError | None = None

    async def add(self, record: Record) -> None:
        """Hand a record over. Returns before it is synced; waits only while far too many are waiting.

        Raises:
            OperatorError: an earlier write failed.
        """
        while len(self._waiting) >= HIGH_WATER and self.broken is None:
            await self._room.wait()
        if self.broken is not None:
            raise OperatorError(str(self.broken)) from self.broken
        self._waiting.append(record)
        self._wake.set()

    async def run(self) -> None:
        """Write until `close` has been called and nothing waits. Not to be cancelled in between: a write under way is
        waited for."""
        with anyio.CancelScope(shield=True):
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                while self._waiting and self.broken is None:
                    started = anyio.current_time()
                    await self._write_group()
                    await self._pause(SYNC_EVERY - (anyio.current_time() - started))
                if self._closing:
                    return

    def close(self) -> None:
        """Let `run` end after what is waiting has been written."""
        self._closing = True
        self._wake.set()

    async def _pause(self, seconds: float) -> None:
        if seconds > 0 and not self._closing:
            await anyio.sleep(seconds)

    async def _write_group(self) -> None:
        group, self._waiting = self._waiting, []
        try:
            written, fault = await self._threads.run(self._write, group)
            for one in written:
                self._index.add(one.record.head, one.offset, one.length, one.before)
            if fault is not None:
                raise fault
        except OperatorError as error:
            self.broken = error
        else:
            for one in written:
                self._settled(one.record.head, one.before)
        self._room.set()
        self._room = anyio.Event()

    def _write(self, group: list[Record]) -> tuple[list[_Written], OperatorError | None]:
        """Write the records, then their rows; if only these fail, that comes back beside what counts all the same."""
        written = self._write_records(group)
        try:
            self._write_rows([one.record for one in written])
        except OperatorError as fault:
            return written, fault
        return written, None

    def _write_records(self, group: list[Record]) -> list[_Written]:
        """Write the records and return them as written, that is without secrets."""
        clean, lines = [], []
        for record in group:
            line = encode_record(record)
            written = self._redact(line)
            clean.append(record if written == line else decode_record(written))
            lines.append(written)
        offset = append_whole(self._folder.records_path, b"".join(lines), self._index.size, sync=True)
        found = []
        with RecordFile(self._folder.records_path) as records:
            for record, line in zip(clean, lines, strict=True):
                known = self._index.before(record.head)
                before = None if known is None else records.head(known)
                found.append(_Written(record, offset, len(line), before))
                offset += len(line)
        return found

    def _write_rows(self, group: list[Record]) -> None:
        by_batch: dict[int, list[bytes]] = {}
        for record in group:
            if record.head.outcome == "finished":
                row = encode_row(record, self._offered, self._batch_size)
                by_batch.setdefault(record.head.index // self._batch_size, []).append(row)
        for number, rows in by_batch.items():
            append_whole(self._folder.batch_path(number), b"".join(rows), None, sync=False)


def append_whole(path: Path, data: bytes, offset: int | None, *, sync: bool) -> int:
    """Append `data` to `path` and return the offset where it begins; on failure nothing of it stays.

    `offset` is where the file has to end now, None = wherever it does.

    Raises:
        StoreFull, OperatorError: the write failed.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            start = os.lseek(file, 0, os.SEEK_END) if offset is None else offset
            try:
                view, position = memoryview(data), start
                while view:
                    written = os.pwrite(file, view, position)
                    view, position = view[written:], position + written
                if sync:
                    os.fdatasync(file)
            except OSError:
                os.ftruncate(file, start)
                raise
        finally:
            os.close(file)
    except OSError as error:
        raise write_error(path, error) from error
    return start


class _RowKey(msgspec.Struct, frozen=True):
    prompt_index: int
    rollout_index: int = 0


_row_keys = msgspec.json.Decoder(_RowKey)


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What had to be put right: bytes of a torn record cut off, unreadable records, rows written again from their
    records, rows taken out because no record covers them."""

    torn_bytes: int = 0
    damaged_records: int = 0
    rows_added: int = 0
    rows_removed: int = 0

    def __str__(self) -> str:
        parts = [
            (self.torn_bytes, "a torn record cut off"),
            (self.damaged_records, f"{self.damaged_records} unreadable records left out"),
            (self.rows_added, f"{self.rows_added} rows written again"),
            (self.rows_removed, f"{self.rows_removed} rows without a record taken out"),
        ]
        return ", ".join(text for count, text in parts if count)


def restore_batches(
    folder: RunFolder,
    index: RecordIndex,
    offered: Sequence[str],
    batch_size: int,
    anew: Slots | None = None,
) -> Restored:
    """Bring records and batch files into agreement after whatever happened to the last process. Rollouts `anew` are
    about to be run again: their rows are taken out. One batch is in memory at a time."""
    torn = cut_torn_tail(folder.records_path, index.size)
    wanted = (
        place for place in index.places(finished=True) if anew is None or not anew.has(place.index, place.rollout)
    )
    left = set(folder.batch_numbers())
    added = removed = 0

    def restore(number: int, places: dict[tuple[int, int], Place]) -> None:
        nonlocal added, removed
        kept, dropped = _good_rows(folder, number, places)
        missing = [place for key, place in places.items() if key not in kept]
        if dropped or missing:
            added, removed = added + len(missing), removed + dropped
            lines = [*kept.values(), *_rebuilt(folder, missing, offered, batch_size)]
            replace_file(folder.batch_path(number), lines)

    for number, group in groupby(wanted, key=lambda place: place.index // batch_size):
        left.discard(number)
        restore(number, {(place.index, place.rollout): place for place in group})
    for number in sorted(left):
        restore(number, {})
    return Restored(torn_bytes=torn, damaged_records=index.damaged, rows_added=added, rows_removed=removed)


def _good_rows(
    folder: RunFolder, number: int, wanted: Collection[tuple[int, int]]
) -> tuple[dict[tuple[int, int], bytes], int]:
    kept: dict[tuple[int, int], bytes] = {}
    dropped = 0
    path = folder.batch_path(number)
    if not path.exists():
        return kept, 0
    with path.open("rb") as file:
        for line in file:
            key = _key_of(line)
            if key is None or key not in wanted or key in kept:
                dropped += 1
            else:
                kept[key] = line
    return kept, dropped


def _key_of(line: bytes) -> tuple[int, int] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        row = _row_keys.decode(line)
    except msgspec.DecodeError:
        return None
    return row.prompt_index, row.rollout_index


def _rebuilt(folder: RunFolder, places: Sequence[Place], offered: Sequence[str], batch_size: int) -> list[bytes]:
    with RecordFile(folder.records_path) as records:
        return [encode_row(records.read(place), offered, batch_size) for place in places]
