"""Preference pairs: the best and the worst rollout of a group, as chat messages after the prompt they share."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hermes.batch.export.conversation import messages, openai_tools
from hermes.batch.export.groups import Group
from hermes.batch.export.openai import chat_message
from hermes.core.codec import encode_json

__all__ = ["dpo_row"]


def dpo_row(group: Group, min_gap: float, losses: Counter[str]) -> dict[str, Any] | None:
    """Return the pair of a group, or None where its best and worst score differ by less than `min_gap`, or not at
    all."""
    best = max(group.members, key=lambda member: member.score)
    worst = min(group.members, key=lambda member: member.score)
    if best.score - worst.score < max(min_gap, 1e-9):
        losses["group skipped: no gap between its scores"] += 1
        return None
    chosen = [chat_message(message) for message in messages(best.record.result.entries)]
    rejected = [chat_message(message) for message in messages(worst.record.result.entries)]
    shared = 0
    for left, right in zip(chosen, rejected, strict=False):
        if left["role"] != "user" or left != right:
            break
        shared += 1
    if not shared or shared in (len(chosen), len(rejected)):
        losses["group skipped: a rollout has no reply"] += 1
        return None
    return {
        "prompt": chosen[:shared],
        "chosen": chosen[shared:],
        "rejected": rejected[shared:],
        "score_chosen": best.score,
        "score_rejected": worst.score,
        "tools": encode_json(openai_tools(best.record.result.tools)).decode(),
        "prompt_index": group.index,
        "group_id": group.group_id,
    }
