"""Delegations as linked rows: a rollout's own conversation and one row for each child at any depth.

`tree_id` is the same for all rows of a rollout, `parent_id` names the row above (null at the root), so that a reader
can put the tree together again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hermes.batch.export.conversation import messages, openai_tools
from hermes.batch.export.openai import chat_message, origin
from hermes.batch.record import Record
from hermes.batch.rollout import ChildRecord
from hermes.core.codec import encode_json

__all__ = ["tree_rows"]


def tree_rows(record: Record) -> Iterator[dict[str, Any]]:
    """Yield the root's row, then its children's, parents before their children; all have the same keys."""
    result, head = record.result, record.head
    children = result.children
    known = {child.task_id for child in children}
    # The root of a rollout is named by nobody but its direct children: whoever is a parent and no child is the root.
    roots = [child.parent_id for child in children if child.parent_id not in known]
    root_id = roots[0] if roots else head.key
    depths = {root_id: 0}
    yield _row(
        record,
        task_id=root_id,
        parent_id=None,
        depth=0,
        goal="",
        state=result.state,
        conversation=[chat_message(message) for message in messages(result.entries)],
    )
    for child in _parents_first(children, root_id):
        depths[child.task_id] = depths.get(child.parent_id, 0) + 1
        yield _row(
            record,
            task_id=child.task_id,
            parent_id=child.parent_id,
            depth=depths[child.task_id],
            goal=child.goal,
            state=child.state,
            conversation=[chat_message(message) for message in messages(child.entries)],
        )


def _parents_first(children: tuple[ChildRecord, ...], root_id: str) -> Iterator[ChildRecord]:
    below: dict[str, list[ChildRecord]] = {}
    for child in children:
        below.setdefault(child.parent_id, []).append(child)
    waiting = [root_id]
    while waiting:
        for child in below.pop(waiting.pop(0), []):
            yield child
            waiting.append(child.task_id)
    for orphans in below.values():
        yield from orphans


def _row(
    record: Record,
    *,
    task_id: str,
    parent_id: str | None,
    depth: int,
    goal: str,
    state: str,
    conversation: list[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "tree_id": record.head.key,
        "task_id": task_id,
        "parent_id": parent_id,
        "depth": depth,
        "goal": goal,
        "completed": state == "completed",
        "messages": conversation,
        "tools": encode_json(openai_tools(record.result.tools)).decode() if parent_id is None else "[]",
        **origin(record),
    }
