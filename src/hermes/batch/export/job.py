"""One export of one run: read its records, make rows of one format, put the file in place as a whole, count what was
lost on the way. Needs only the run's folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from hermes.batch.export.atropos import AtroposEncoder, load_tokenizer
from hermes.batch.export.dpo import dpo_row
from hermes.batch.export.groups import Group, GroupOptions, scored_groups
from hermes.batch.export.llamafactory import dataset_info, llamafactory_row
from hermes.batch.export.openai import openai_row
from hermes.batch.export.parquet import write_parquet
from hermes.batch.export.sharegpt import typed_row
from hermes.batch.export.source import RunSource
from hermes.batch.export.tags import AmbiguousTags, tagged_row
from hermes.batch.export.trees import tree_rows
from hermes.batch.folder import replace_file, write_errors
from hermes.batch.record import Record
from hermes.batch.trajectory import build_row
from hermes.core.codec import encode_json
from hermes.core.errors import UsageError

__all__ = ["FORMATS", "ExportOptions", "ExportReport", "export_run"]

#: Every format, with who reads it.
FORMATS = {
    "sharegpt": "the rows of trajectories.jsonl: datasets, axolotl",
    "hermes": "calls and results as tags in the text: ChatML templates, LLaMA-Factory",
    "openai": "messages and tools: TRL, axolotl, anything with a chat template",
    "llamafactory": "function_call and observation turns, with dataset_info.json",
    "parquet": "typed columns in one file",
    "dpo": "pairs of the best and the worst rollout of a group",
    "atropos": "scored groups of token ids and masks (wants --tokenizer)",
    "trees": "delegations: parent and children as linked rows",
}


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an export was asked for. `arguments`: how calls stand in `sharegpt`. `think` keeps reasoning in front of
    calls in `llamafactory`. `min_gap` is the least difference of scores in `dpo`. `tokenizer` is a folder,
    `max_token_len` the longest sequence of `atropos`, in tokens."""

    arguments: Literal["object", "json"] = "object"
    think: bool = False
    groups: GroupOptions = GroupOptions()
    min_gap: float = 0.0
    tokenizer: str | None = None
    chat_template: Path | None = None
    max_token_len: int | None = None


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an export wrote: its file, the number of rows, the files beside it, and what was lost, by name."""

    format: str
    path: Path
    rows: int
    beside: tuple[Path, ...] = ()
    losses: dict[str, int] = {}


def export_run(source: RunSource, format_name: str, path: Path, options: ExportOptions) -> ExportReport:
    """Write the rows of a run to `path`.

    Raises:
        UsageError: the format does not exist, or lacks what it needs; nothing was written.
        StoreFull, OperatorError: the file could not be written; what stood there before stands.
    """
    if format_name not in FORMATS:
        raise UsageError(f"unknown format {format_name!r}. There are: {', '.join(FORMATS)}.")
    if format_name == "dpo" and source.meta.settings.rollouts_per_prompt < 2:
        raise UsageError("a pair needs two rollouts of a row: run the batch with --rollouts_per_prompt=2 or more.")
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    losses: Counter[str] = Counter()
    if format_name == "parquet":
        rows = _Counted(_parquet_rows(source))
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            with write_errors(path):
                write_parquet(temporary, rows)
                temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        return ExportReport(format=format_name, path=path, rows=rows.count)
    beside: dict[str, bytes] = {}
    rows = _Counted(_rows(source, format_name, options, losses, beside))
    replace_file(path, (encode_json(row) + b"\n" for row in rows))
    if format_name == "llamafactory":
        beside["dataset_info.json"] = _pretty(dataset_info(source.meta.run_name, path.name))
    written = []
    for name, content in beside.items():
        written.append(path.with_name(name if name == "dataset_info.json" else f"{path.stem}.{name}"))
        replace_file(written[-1], [content])
    return ExportReport(
        format=format_name, path=path, rows=rows.count, beside=tuple(written), losses=dict(sorted(losses.items()))
    )


class _Counted:
    def __init__(self, rows: Iterator[dict[str, Any]]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self._rows:
            self.count += 1
            yield row


def _pretty(value: Any) -> bytes:
    return msgspec.json.format(encode_json(value), indent=2) + b"\n"


def _parquet_rows(source: RunSource) -> Iterator[dict[str, Any]]:
    for record in source.kept():
        yield typed_row(record, source.tools, source.meta.settings.batch_size)


def _rows(
    source: RunSource,
    format_name: str,
    options: ExportOptions,
    losses: Counter[str],
    beside: dict[str, bytes],
) -> Iterator[dict[str, Any]]:
    if format_name == "dpo":
        for group in _groups(source, options, losses):
            if (pair := dpo_row(group, options.min_gap, losses)) is not None:
                yield pair
    elif format_name == "atropos":
        yield from _atropos_rows(source, options, losses, beside)
    elif format_name == "trees":
        for record in source.kept():
            yield from tree_rows(record)
    else:
        make = _single(source, format_name, options, losses)
        for record in source.kept():
            if (row := make(record)) is not None:
                yield row


def _single(
    source: RunSource, format_name: str, options: ExportOptions, losses: Counter[str]
) -> Callable[[Record], dict[str, Any] | None]:
    tools, size = source.tools, source.meta.settings.batch_size

    def tagged(record: Record) -> dict[str, Any] | None:
        try:
            return tagged_row(record, tools, size)
        except AmbiguousTags:
            losses["row skipped: prose holds a tag of the format"] += 1
            return None

    if format_name == "hermes":
        return tagged
    if format_name == "openai":
        return openai_row
    if format_name == "llamafactory":
        return lambda record: llamafactory_row(record, losses, think=options.think)
    row = typed_row if options.arguments == "json" else build_row
    return lambda record: row(record, tools, size)


def _groups(source: RunSource, options: ExportOptions, losses: Counter[str]) -> Iterator[Group]:
    size = source.meta.settings.rollouts_per_prompt
    return scored_groups(source.groups(), size, options.groups, losses)


def _atropos_rows(
    source: RunSource, options: ExportOptions, losses: Counter[str], beside: dict[str, bytes]
) -> Iterator[dict[str, Any]]:
    if options.tokenizer is None:
        raise UsageError("atropos groups hold token ids: give --tokenizer=FOLDER, that of the model to be trained.")
    encoder = AtroposEncoder(load_tokenizer(options.tokenizer, options.chat_template), options.max_token_len)
    settings = source.meta.settings
    kept: list[dict[str, Any]] = []
    for group in _groups(source, options, losses):
        row = encoder.row(group, settings.temperature, losses)
        if row is None:
            continue
        kept.append(
            {
                "prompt_index": group.index,
                "group_id": group.group_id,
                "no_signal": group.no_signal,
                "filtered": [member.filtered for member in group.members],
            }
        )
        yield row
    beside["manifest.json"] = _pretty(
        {
            "run_name": source.meta.run_name,
            "group_size": settings.rollouts_per_prompt,
            "tokenizer": Path(options.tokenizer).name,
            "tagged": encoder.tagged,
            "on_policy": False,
            "filtered": options.groups.filtered,
            "filtered_score": options.groups.filtered_score,
            "score_default": options.groups.score_default,
            "losses": dict(sorted(losses.items())),
            "groups": kept,
        }
    )
