"""From the entries of a rollout to one training row: `from`/`value` turns, and the columns beside them.

Every row has the same keys in the same order with the same types, whatever happened in it: columnar loaders fix their
schema on the first rows they see. `value` is always a string. System text and prefill are no entries, so they never
appear. Children's reports and the runtime's own notices become `tool` turns: no person said them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from hermes.batch.reasoning import gpt_value, reasoning_stats, split_reasoning
from hermes.batch.record import Record
from hermes.batch.rollout import RolloutResult
from hermes.core.codec import encode_json
from hermes.core.messages import Assistant, Entry, Interrupted, Notice, Steer, ToolResult, User, plain_text

__all__ = ["ROW_KEYS", "build_row", "call_succeeded", "child_rows", "conversations", "loadable", "tool_counts"]

#: The keys of every row, in order.
ROW_KEYS = (
    "prompt_index",
    "conversations",
    "completed",
    "toolsets_used",
    "tool_stats",
    "tool_error_counts",
    "reasoning_stats",
    "hidden_reasoning",
    "rollout_index",
    "group_id",
    "score",
    "verified",
    "partial",
    "api_calls",
    "model",
    "tools",
    "finish_reason",
    "error",
    "started_at",
    "metadata",
    "extra",
)


def conversations(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return the turns of `entries`. `tool_calls` stands only on turns that have calls, with object arguments."""
    turns: list[dict[str, Any]] = []
    for entry in entries:
        if isinstance(entry, Assistant):
            turn: dict[str, Any] = {"from": "gpt", "value": gpt_value(*split_reasoning(entry))}
            if entry.calls:
                turn["tool_calls"] = [
                    {"name": call.name, "arguments": loadable(call.arguments)} for call in entry.calls
                ]
            turns.append(turn)
        elif isinstance(entry, ToolResult):
            turns.append({"from": "tool", "value": plain_text(entry.content)})
        elif isinstance(entry, Notice):
            turns.append({"from": "tool", "value": entry.text})
        elif isinstance(entry, User | Steer):
            turns.append({"from": "human", "value": plain_text(entry.content)})
        elif isinstance(entry, Interrupted) and entry.partial:
            turns.append({"from": "gpt", "value": gpt_value("", entry.partial)})
    return turns


def loadable(value: Any) -> Any:
    """Return JSON values with integers beyond 64 bits as text: readers of columns refuse the whole file for one."""
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, dict):
        return {key: loadable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [loadable(item) for item in value]
    return value


def call_succeeded(result: ToolResult) -> bool:
    """Judge a call by its result: an error, JSON with `error` or `success: false`, or text that is empty or starts with
    `error:` is a failure; an exit code other than zero alone is none."""
    if result.is_error or result.invalid_call:
        return False
    text = plain_text(result.content).strip()
    try:
        value = msgspec.json.decode(text) if text[:1] in "{[" and text else None
    except msgspec.DecodeError:
        value = None
    if isinstance(value, dict):
        inner = value.get("content")
        nested = inner if isinstance(inner, dict) else {}
        return value.get("error") is None and nested.get("error") is None and value.get("success") is not False
    return bool(text) and not text.lower().startswith("error:")


def tool_counts(result: RolloutResult) -> dict[str, tuple[int, int]]:
    """Return tool -> (successes, failures) over the calls of tools that were offered; invented names have no place."""
    offered = {tool.name for tool in result.tools}
    counts: dict[str, tuple[int, int]] = {}
    for entry in result.entries:
        if isinstance(entry, ToolResult) and entry.name in offered:
            good = result.call_success.get(f"{entry.position}:{entry.index}")
            if good is None:
                good = call_succeeded(entry)
            successes, failures = counts.get(entry.name, (0, 0))
            counts[entry.name] = (successes + good, failures + (not good))
    return counts


def build_row(record: Record, offered: Sequence[str], batch_size: int) -> dict[str, Any]:
    """Return the row of a record.

    `offered` are the names of all tools offered anywhere in the run, in the order they shall stand; the statistics are
    filled with zeros over them and over the tools of this row.
    """
    result, head = record.result, record.head
    counts = tool_counts(result)
    names = list(dict.fromkeys([*offered, *(tool.name for tool in result.tools)]))
    filled = [(name, *counts.get(name, (0, 0))) for name in names]
    stats = reasoning_stats(result.entries)
    row_id, _, _ = head.key.rpartition(":")
    return {
        "prompt_index": head.index,
        "conversations": conversations(result.entries),
        "completed": result.state == "completed" and not result.partial,
        "toolsets_used": list(record.toolsets),
        "tool_stats": {name: {"count": good + bad, "success": good, "failure": bad} for name, good, bad in filled},
        "tool_error_counts": {name: bad for name, _, bad in filled},
        "reasoning_stats": msgspec.structs.asdict(stats),
        "hidden_reasoning": stats.turns_with_hidden_reasoning > 0,
        "rollout_index": head.rollout,
        "group_id": row_id,
        "score": head.score,
        "verified": None if head.score is None else head.score >= 1.0,
        "partial": result.partial,
        "api_calls": result.api_calls,
        "model": result.model,
        "tools": encode_json([tool for tool in result.tools]).decode(),
        "finish_reason": result.exit_reason or result.state,
        "error": "" if result.error is None else f"{result.error.kind}: {result.error.message}",
        "started_at": float(result.started_at),
        "metadata": {"batch_num": head.index // batch_size, "timestamp": float(head.at), "model": result.model},
        "extra": encode_json(extra_of(record.source)).decode(),
    }


def extra_of(source: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataset row that have no meaning here and are carried through."""
    known = {"prompt", "cwd", "toolsets", "docker_image", "image", "verifier"}
    return {key: value for key, value in source.items() if key not in known}


def child_rows(record: Record) -> list[dict[str, Any]]:
    """Return one row for each child of the rollout, linked by ids."""
    return [
        {
            "prompt_index": record.head.index,
            "rollout_index": record.head.rollout,
            "task_id": child.task_id,
            "parent_id": child.parent_id,
            "goal": child.goal,
            "conversations": conversations(child.entries),
            "completed": child.state == "completed",
            "tokens": {"input": child.usage.input, "output": child.usage.output},
        }
        for child in record.result.children
    ]
