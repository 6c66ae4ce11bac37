"""`statistics.json`: what a run brought, over all its sessions. A fold over records; each rollout counts once, by its
last record."""

from __future__ import annotations

import math
from collections import Counter
from datetime import datetime
from typing import Any

import msgspec

from hermes.batch.folder import RunMeta
from hermes.batch.reasoning import reasoning_stats
from hermes.batch.record import Record
from hermes.batch.trajectory import tool_counts
from hermes.core.messages import Usage

__all__ = ["Tally"]


class Scores:
    """What is told of the scores of a run: how many there are, how many of them full, their sum and ends."""

    __slots__ = ("count", "full", "high", "low", "sum")

    def __init__(self) -> None:
        self.count = self.full = 0
        self.sum = 0.0
        self.low, self.high = math.inf, -math.inf

    def add(self, score: float) -> None:
        """Take a score in, 0 to 1."""
        self.count += 1
        self.full += score >= 1
        self.sum += score
        self.low, self.high = min(self.low, score), max(self.high, score)


class Tally:
    """Adds records up. `usage` counts every rollout's own tokens and those of its children."""

    def __init__(self) -> None:
        self.kept = 0
        self.rejected: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.usage = Usage()
        self.api_calls = 0
        self.calls = 0
        self.denied: Counter[str] = Counter()
        self.scores = Scores()
        self.verifier_errors: Counter[str] = Counter()
        self._tools: dict[str, list[int]] = {}
        self._reasoning: Counter[str] = Counter()

    def add(self, record: Record) -> None:
        """Take one record in."""
        result, head = record.result, record.head
        self.usage = self.usage + result.usage
        for child in result.children:
            self.usage = self.usage + child.usage
        self.api_calls += result.api_calls
        self.calls += result.calls
        self.denied.update(result.denied)
        if head.outcome == "failed":
            self.failed[head.reason] += 1
            return
        if head.reason:
            self.rejected[head.reason] += 1
        else:
            self.kept += 1
        if head.score is not None:
            self.scores.add(head.score)
            self.verifier_errors.update(each.check for each in result.scores if each.error)
        for name, (good, bad) in tool_counts(result).items():
            counts = self._tools.setdefault(name, [0, 0])
            counts[0] += good
            counts[1] += bad
        stats = reasoning_stats(result.entries)
        self._reasoning["total_assistant_turns"] += stats.total_assistant_turns
        self._reasoning["turns_with_reasoning"] += stats.turns_with_reasoning
        self._reasoning["turns_without_reasoning"] += stats.turns_without_reasoning
        self._reasoning["turns_with_hidden_reasoning"] += stats.turns_with_hidden_reasoning
        self._reasoning["samples_with_reasoning"] += stats.has_any_reasoning

    def report(self, meta: RunMeta, total: int, tools: list[str], now: float) -> dict[str, Any]:
        """Return the content of `statistics.json` for a run of `total` rollouts whose tools are `tools`."""
        settings = meta.settings
        ended = self.kept + self.rejected.total() + self.failed.total()
        prompts = -(-total // settings.rollouts_per_prompt)
        return {
            "run_name": meta.run_name,
            "distribution": settings.distribution,
            "total_prompts": prompts,
            "total_batches": -(-prompts // settings.batch_size),
            "rollouts_per_prompt": settings.rollouts_per_prompt,
            "total_rollouts": total,
            "batch_size": settings.batch_size,
            "model": settings.model,
            "completed_at": datetime.fromtimestamp(now).isoformat(timespec="seconds"),
            "duration_seconds": round(sum((s.ended_at or s.started_at) - s.started_at for s in meta.sessions), 2),
            "kept": self.kept,
            "rejected": self.rejected.total(),
            "failed": self.failed.total(),
            "pending": total - ended,
            "rejected_by_reason": dict(sorted(self.rejected.items())),
            "failed_by_kind": dict(sorted(self.failed.items())),
            "discarded_no_reasoning": self.rejected["no_reasoning"],
            "api_calls": self.api_calls,
            "usage": msgspec.structs.asdict(self.usage),
            "approvals": {
                "calls": self.calls,
                "denied": self.denied.total(),
                "denied_rate": _percent(self.denied.total(), self.calls),
                "denied_by_reason": dict(sorted(self.denied.items())),
            },
            "scores": self._scores_report(),
            "tool_statistics": {name: _tool(*self._tools.get(name, (0, 0))) for name in tools},
            "reasoning_statistics": self._reasoning_report(),
            "sessions": [msgspec.structs.asdict(session) for session in meta.sessions],
        }

    def _scores_report(self) -> dict[str, Any] | None:
        """What the verifiers gave the finished rollouts; None where nothing was verified."""
        scores = self.scores
        if not scores.count:
            return None
        return {
            "scored": scores.count,
            "mean": round(scores.sum / scores.count, 4),
            "lowest": scores.low,
            "highest": scores.high,
            "verified": scores.full,
            "verifier_errors": dict(sorted(self.verifier_errors.items())),
        }

    def _reasoning_report(self) -> dict[str, Any]:
        total = self._reasoning["total_assistant_turns"]
        return {
            **{
                name: self._reasoning[name]
                for name in (
                    "total_assistant_turns",
                    "turns_with_reasoning",
                    "turns_without_reasoning",
                    "turns_with_hidden_reasoning",
                    "samples_with_reasoning",
                )
            },
            "reasoning_coverage": _percent(self._reasoning["turns_with_reasoning"], total),
        }


def _tool(good: int, bad: int) -> dict[str, Any]:
    count = good + bad
    return {
        "count": count,
        "success": good,
        "failure": bad,
        "success_rate": _percent(good, count),
        "failure_rate": _percent(bad, count),
    }


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0
