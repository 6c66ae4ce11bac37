"""What of a reply has to go back to its provider as it came: signed or encrypted reasoning, in its place.

A reply is kept as a plan: pieces of reasoning as the provider sent them, lengths of text between them, and calls by
number. The text and the calls themselves stand in the entry. What another host sent is never sent on: nobody else can
read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hermes.core.messages import Assistant

__all__ = ["Kept", "Piece", "pieces"]

#: A piece of reasoning as it came, a piece of text, or the number of a call.
Piece = dict[str, Any] | str | int


class Kept:
    """Notes the order of a reply's parts while it arrives. `wire` names the format, `host` whose it is."""

    def __init__(self, wire: str, host: str) -> None:
        self._wire = wire
        self._host = host
        self._plan: list[dict[str, Any]] = []
        self._any = False

    def reasoning(self, item: dict[str, Any]) -> None:
        """A piece of reasoning that can be sent back."""
        self._any = True
        self._plan.append({"reasoning": item})

    def text(self, text: str) -> None:
        """More of the visible text."""
        if self._plan and "text" in self._plan[-1]:
            self._plan[-1]["text"] += len(text)
        else:
            self._plan.append({"text": len(text)})

    def call(self, index: int) -> None:
        """Call number `index` begins."""
        self._plan.append({"call": index})

    @property
    def data(self) -> dict[str, Any] | None:
        """What to keep on the message, None without reasoning."""
        return {self._wire: {"host": self._host, "plan": self._plan}} if self._any else None


def pieces(entry: Assistant, wire: str, host: str) -> Iterator[Piece]:
    """Yield the parts of a reply in their order; without reasoning of this host, the text and then the calls."""
    data = entry.provider_data.get(wire) if isinstance(entry.provider_data, dict) else None
    plan = data.get("plan") if isinstance(data, dict) and data.get("host") == host else None
    steps = plan if isinstance(plan, list) else []
    sizes = sum(step.get("text", 0) for step in steps)
    # An edited or cut reply keeps its reasoning in front and loses the places in between.
    whole = sizes == len(entry.text) and [s["call"] for s in steps if "call" in s] == list(range(len(entry.calls)))
    at = 0
    for step in steps:
        if "reasoning" in step:
            yield step["reasoning"]
        elif whole and "text" in step:
            yield entry.text[at : at + step["text"]]
            at += step["text"]
        elif whole:
            yield step["call"]
    if not (steps and whole):
        if entry.text:
            yield entry.text
        yield from range(len(entry.calls))
