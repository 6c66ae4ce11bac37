"""The columns of the files for the `datasets` library, which otherwise guesses them from the first chunk it reads.

    from datasets import load_dataset
    from hermes.batch.export.features import features
    rows = load_dataset("json", data_files="data/my_run/trajectories.jsonl", features=features("sharegpt"))

`sharegpt`, `hermes` and `openai` hold untyped JSON columns, which `datasets` knows from 4.7 on; `typed` (the rows of
`--arguments json`) needs no such column and loads in older ones too; its columns depend on the tools of the run, which
`manifest.json` names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes.core.errors import UsageError

__all__ = ["COLUMNS", "features"]

_ROW = {
    "prompt_index": "int64",
    "conversations": "json_list",
    "completed": "bool",
    "toolsets_used": "strings",
    "tool_stats": "json",
    "tool_error_counts": "json",
    "reasoning_stats": "reasoning",
    "hidden_reasoning": "bool",
    "rollout_index": "int64",
    "group_id": "string",
    "score": "float64",
    "verified": "bool",
    "partial": "bool",
    "api_calls": "int64",
    "model": "string",
    "tools": "string",
    "finish_reason": "string",
    "error": "string",
    "started_at": "float64",
    "metadata": "metadata",
    "extra": "string",
}
_ORIGIN = {
    "prompt_index": "int64",
    "rollout_index": "int64",
    "group_id": "string",
    "score": "float64",
    "model": "string",
}

#: Column -> kind of each format, in the order in which they stand. `json` is a list of, or an untyped JSON value.
COLUMNS: dict[str, dict[str, str]] = {
    "sharegpt": _ROW,
    "hermes": {**_ROW, "conversations": "turns"},
    "typed": {**_ROW, "conversations": "typed_turns", "tool_stats": "stats", "tool_error_counts": "errors"},
    "openai": {"messages": "json_list", "tools": "string", **_ORIGIN},
    "llamafactory": {"conversations": "turns", "system": "string", "tools": "string", **_ORIGIN},
    "trees": {
        "tree_id": "string",
        "task_id": "string",
        "parent_id": "string",
        "depth": "int64",
        "goal": "string",
        "completed": "bool",
        "messages": "json_list",
        "tools": "string",
        **_ORIGIN,
    },
    "dpo": {
        "prompt": "json_list",
        "chosen": "json_list",
        "rejected": "json_list",
        "score_chosen": "float64",
        "score_rejected": "float64",
        "tools": "string",
        "prompt_index": "int64",
        "group_id": "string",
    },
}


def features(format_name: str, tools: Sequence[str] = ()) -> Any:
    """Return the `datasets.Features` of a format; `typed` wants the names of the run's tools.

    Raises:
        UsageError: there is no such format, or the `datasets` library is not installed or too old for it.
    """
    columns = COLUMNS.get(format_name)
    if columns is None:
        raise UsageError(f"no columns are known for {format_name!r}. There are: {', '.join(COLUMNS)}.")
    try:
        # edge: heavy and optional
        import datasets
    except ImportError as error:
        raise UsageError("loading needs the datasets library: pip install datasets.") from error
    kinds = _kinds(datasets, tools)
    missing = sorted({kind for kind in columns.values() if kind not in kinds})
    if missing:
        raise UsageError(
            f"datasets {datasets.__version__} has no untyped JSON column, which {format_name!r} needs: take 4.7 or "
            "newer, or export with --arguments json and load `typed`."
        )
    return datasets.Features({name: kinds[kind] for name, kind in columns.items()})


def _kinds(datasets: Any, tools: Sequence[str]) -> dict[str, Any]:
    value = datasets.Value
    turn = {"from": value("string"), "value": value("string")}
    call = {"id": value("string"), "name": value("string"), "arguments": value("string")}
    # A list of structs is written as a list here: the older releases read that as such and not as columns of lists.
    kinds = {
        **{name: value(name) for name in ("int64", "float64", "bool", "string")},
        "strings": [value("string")],
        "turns": [turn],
        "typed_turns": [{**turn, "tool_calls": [call]}],
        "stats": {tool: {name: value("int64") for name in ("count", "success", "failure")} for tool in tools},
        "errors": {tool: value("int64") for tool in tools},
        "reasoning": {
            "total_assistant_turns": value("int64"),
            "turns_with_reasoning": value("int64"),
            "turns_without_reasoning": value("int64"),
            "turns_with_hidden_reasoning": value("int64"),
            "has_any_reasoning": value("bool"),
        },
        "metadata": {"batch_num": value("int64"), "timestamp": value("float64"), "model": value("string")},
    }
    if hasattr(datasets, "Json"):
        kinds["json"] = datasets.Json()
        kinds["json_list"] = [datasets.Json()]
    return kinds
