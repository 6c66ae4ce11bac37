"""Rows for LLaMA-Factory's sharegpt loader, with the entry of `dataset_info.json` that tells it the columns.

The loader wants strict alternation, (human | observation) then (gpt | function_call), ending on the latter, and takes a
call as JSON alone. What that costs is counted by name, never silent: text beside a call and its reasoning are dropped
(unless they are kept for templates with thought markers), results of one reply become one observation, neighbours of
one side are merged, an end without a reply is cut, and a row that still does not alternate is skipped.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hermes.batch.export.conversation import Message, messages, openai_tools
from hermes.batch.export.openai import origin
from hermes.batch.reasoning import gpt_value
from hermes.batch.record import Record
from hermes.core.codec import encode_json

__all__ = ["dataset_info", "llamafactory_row"]


def llamafactory_row(record: Record, losses: Counter[str], *, think: bool = False) -> dict[str, Any] | None:
    """Return the row of a record, or None if it cannot be one; what it loses is added to `losses`. `think` keeps
    reasoning in front of calls."""
    turns: list[dict[str, str]] = []
    for message in messages(record.result.entries):
        _add(turns, _turn(message, losses, think), losses)
    while turns and turns[-1]["from"] in ("human", "observation"):
        turns.pop()
        losses["last turn without a reply cut"] += 1
    if not turns or turns[0]["from"] != "human":
        losses["row skipped: it does not begin with a person and end with a reply"] += 1
        return None
    if any(_asks(turn) == _asks(after) for turn, after in zip(turns, turns[1:], strict=False)):
        losses["row skipped: two replies in a row"] += 1
        return None
    tools = openai_tools(record.result.tools)
    return {
        "conversations": turns,
        "system": "",
        "tools": encode_json([tool["function"] for tool in tools]).decode() if tools else "",
        **origin(record),
    }


def _asks(turn: dict[str, str]) -> bool:
    return turn["from"] in ("human", "observation")


def _turn(message: Message, losses: Counter[str], think: bool) -> dict[str, str]:
    if message.role == "user":
        return {"from": "human", "value": message.text}
    if message.role == "tool":
        return {"from": "observation", "value": message.text}
    if not message.calls:
        return {"from": "gpt", "value": gpt_value(message.reasoning, message.text)}
    calls = [{"name": call.name, "arguments": call.arguments} for call in message.calls]
    value = encode_json(calls if len(calls) > 1 else calls[0]).decode()
    if message.text:
        losses["text beside a call dropped"] += 1
    if message.reasoning and not think:
        losses["reasoning before a call dropped"] += 1
    block = f"<think>\n{message.reasoning}\n</think>\n\n" if message.reasoning and think else ""
    return {"from": "function_call", "value": block + value}


def _add(turns: list[dict[str, str]], turn: dict[str, str], losses: Counter[str]) -> None:
    last = turns[-1] if turns else None
    if last is None or not (_asks(last) and _asks(turn)):
        turns.append(turn)
        return
    # Neighbours that both ask become one turn; a person's word after results stays in the observation.
    losses["results merged" if turn["from"] == "observation" else "messages merged"] += 1
    last["value"] += f"\n{turn['value']}"


def dataset_info(name: str, file_name: str) -> dict[str, Any]:
    """Return the content of `dataset_info.json` for a file of such rows."""
    return {
        name: {
            "file_name": file_name,
            "formatting": "sharegpt",
            "columns": {"messages": "conversations", "system": "system", "tools": "tools"},
            "tags": {
                "role_tag": "from",
                "content_tag": "value",
                "user_tag": "human",
                "assistant_tag": "gpt",
                "observation_tag": "observation",
                "function_tag": "function_call",
            },
        }
    }
