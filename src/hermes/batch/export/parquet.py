"""Typed rows as a parquet file with one explicit schema of plain types, so that readers of any age open it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from hermes.core.codec import encode_json
from hermes.core.errors import UsageError

__all__ = ["write_parquet"]

#: Rows of one row group.
GROUP = 500
#: Columns whose content is a mapping that differs between runs: JSON text here.
_AS_TEXT = ("tool_stats", "tool_error_counts", "reasoning_stats", "metadata")


def write_parquet(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write typed rows to `path`.

    Raises:
        UsageError: pyarrow is not installed.
    """
    try:
        # edge: heavy and optional
        import pyarrow as arrow
        import pyarrow.parquet as files
    except ImportError as error:
        raise UsageError("parquet needs pyarrow: pip install 'hermes-tasktree[parquet]'.") from error
    schema = _schema(arrow)
    source = iter(rows)
    with files.ParquetWriter(path, schema, compression="zstd") as writer:
        while batch := [_plain(row) for row in islice(source, GROUP)]:
            writer.write_table(arrow.Table.from_pylist(batch, schema=schema))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {key: encode_json(value).decode() if key in _AS_TEXT else value for key, value in row.items()}


def _schema(arrow: Any) -> Any:
    text, whole, real, flag = arrow.string(), arrow.int64(), arrow.float64(), arrow.bool_()
    call = arrow.struct([("id", text), ("name", text), ("arguments", text)])
    turn = arrow.struct([("from", text), ("value", text), ("tool_calls", arrow.list_(call))])
    columns: Sequence[tuple[str, Any]] = [
        ("prompt_index", whole),
        ("conversations", arrow.list_(turn)),
        ("completed", flag),
        ("toolsets_used", arrow.list_(text)),
        ("tool_stats", text),
        ("tool_error_counts", text),
        ("reasoning_stats", text),
        ("hidden_reasoning", flag),
        ("rollout_index", whole),
        ("group_id", text),
        ("score", real),
        ("verified", flag),
        ("partial", flag),
        ("api_calls", whole),
        ("model", text),
        ("tools", text),
        ("finish_reason", text),
        ("error", text),
        ("started_at", real),
        ("metadata", text),
        ("extra", text),
    ]
    return arrow.schema(columns)
