"""What a run's page shows: a fold over its records, and the page put in place. How it looks is `report_page`'s.

It is made from the records, so it can be made again at any time; nothing reads it back.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from hermes.batch.export.conversation import Message, messages
from hermes.batch.folder import RunFolder, RunMeta, replace_file
from hermes.batch.record import Record
from hermes.batch.spread import Spread
from hermes.batch.statistics import Tally
from hermes.batch.trajectory import tool_counts

__all__ = ["ReportFold", "write_report"]

#: Conversations that stand in the page to be read.
SHOWN = 60
#: Characters of one text in the page.
CUT = 4_000


class ReportFold:
    """Collects what the plots and the reader need, one record after the other."""

    def __init__(self) -> None:
        self.tokens = Spread()
        self.turns = Spread()
        self.seconds = Spread()
        #: Scores in tenths from 0, full marks apart from what falls short of them.
        self.tenths: Counter[int] = Counter()
        self.tools: dict[str, list[int]] = {}
        self.shown: list[dict[str, Any]] = []

    def add(self, record: Record) -> None:
        """Take one record in."""
        head, result = record.head, record.result
        if head.outcome == "finished":
            self.tokens.add(head.tokens)
            self.turns.add(result.api_calls)
            self.seconds.add(result.duration)
            if head.score is not None:
                self.tenths[int(head.score * 10 + 1e-9)] += 1
            for name, (good, bad) in tool_counts(result).items():
                counts = self.tools.setdefault(name, [0, 0])
                counts[0] += good
                counts[1] += bad
        if len(self.shown) < SHOWN:
            self.shown.append(_readable(record))


def _readable(record: Record) -> dict[str, Any]:
    head = record.head
    state = "failed" if head.outcome == "failed" else "rejected" if head.reason else "kept"
    return {
        "index": head.index,
        "rollout": head.rollout,
        "state": state,
        "reason": head.reason,
        "detail": _cut(head.detail),
        "score": head.score,
        "tokens": head.tokens,
        "checks": [
            {
                "check": each.check,
                "score": each.score,
                "said": _cut(each.error or each.detail),
                "broken": bool(each.error),
            }
            for each in record.result.scores
        ],
        "messages": [_shown(message) for message in messages(record.result.entries)],
    }


def _shown(message: Message) -> dict[str, Any]:
    calls = [
        {"name": call.name, "arguments": msgspec.json.format(msgspec.json.encode(call.arguments), indent=1).decode()}
        for call in message.calls
    ]
    return {
        "role": message.role,
        "name": message.name,
        "text": _cut(message.text),
        "reasoning": _cut(message.reasoning),
        "calls": [{**call, "arguments": _cut(call["arguments"])} for call in calls],
    }


def _cut(text: str) -> str:
    shown = "".join(ch if ch.isprintable() or ch in "\n\t" else f"\\x{ord(ch):02x}" for ch in text[:CUT])
    return shown if len(text) <= CUT else f"{shown} … ({len(text) - CUT} more characters)"


def write_report(folder: RunFolder, meta: RunMeta, tally: Tally, fold: ReportFold, pending: int) -> None:
    """Replace the run's page.

    Raises:
        StoreFull, OperatorError: it could not be written; the old one stands.
    """
    # edge: templates and plots cost 150 ms to import and are wanted once, when a run has ended
    from hermes.batch.report_page import page

    replace_file(folder.path / "report.html", [page(meta, tally, fold, pending)])
