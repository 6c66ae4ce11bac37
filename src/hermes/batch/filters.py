"""What makes a finished rollout unfit for training. Looks at the source entries, never at the written row: there every
turn has a think block. Deletes nothing: raw rows stay in the batch files, merge sorts them."""

from __future__ import annotations

import msgspec

from hermes.batch.reasoning import reasoning_stats, split_reasoning, survives
from hermes.batch.rollout import RolloutResult
from hermes.core.messages import Assistant

__all__ = ["AMBIGUOUS_TAGS", "HALLUCINATED_TOOL", "NO_REASONING", "Rejection", "judge"]

NO_REASONING = "no_reasoning"
HALLUCINATED_TOOL = "hallucinated_tool"
AMBIGUOUS_TAGS = "ambiguous_tags"


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """Why a row is not kept. `reason` is one of the constants of this module, `detail` a sentence."""

    reason: str
    detail: str


def judge(result: RolloutResult) -> Rejection | None:
    """Return why a finished rollout is rejected, or None if it is kept. Of several reasons the first one is named, and
    the detail holds them all."""
    found = [item for item in (_no_reasoning(result), _hallucinated(result), _ambiguous(result)) if item is not None]
    if not found:
        return None
    return Rejection(reason=found[0].reason, detail=" ".join(item.detail for item in found))


def _no_reasoning(result: RolloutResult) -> Rejection | None:
    stats = reasoning_stats(result.entries)
    if stats.has_any_reasoning:
        return None
    return Rejection(reason=NO_REASONING, detail=f"None of {stats.total_assistant_turns} replies has reasoning.")


def _hallucinated(result: RolloutResult) -> Rejection | None:
    offered = {tool.name for tool in result.tools}
    called = [call.name for entry in result.entries if isinstance(entry, Assistant) for call in entry.calls]
    unknown = list(dict.fromkeys(name for name in called if name not in offered))
    if not unknown:
        return None
    names = ", ".join(repr(name[:80]) for name in unknown[:5])
    return Rejection(reason=HALLUCINATED_TOOL, detail=f"Calls tools that were not offered: {names}.")


def _ambiguous(result: RolloutResult) -> Rejection | None:
    for entry in result.entries:
        if isinstance(entry, Assistant) and not survives(*split_reasoning(entry)):
            return Rejection(
                reason=AMBIGUOUS_TAGS,
                detail="The reasoning holds a closing think tag, so the row could not be read back.",
            )
    return None
