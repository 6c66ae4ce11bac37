"""Reasoning in every form models write it, brought to one: a text apart from the answer.

Native thinking, `<think>` blocks and `<REASONING_SCRATCHPAD>` blocks are visible reasoning; reasoning tokens that the
provider counted but did not show are hidden reasoning. An empty block is padding and never counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from hermes.core.messages import Assistant, Entry

__all__ = ["SCRATCHPAD_REQUEST", "ReasoningStats", "gpt_value", "reasoning_stats", "split_reasoning", "survives"]

#: Added to the batch's system text for models that do not reason by themselves. Never saved.
SCRATCHPAD_REQUEST = (
    "Before every answer and before every tool call, write down your reasoning between <REASONING_SCRATCHPAD> and "
    "</REASONING_SCRATCHPAD>: what is asked, what you know, what you will do next and why. Then answer or call."
)

_SCRATCHPAD = re.compile(r"<REASONING_SCRATCHPAD>(.*?)(?:</REASONING_SCRATCHPAD>|\Z)", re.DOTALL)
_THINK = re.compile(r"^[ \t]*<(think|thinking)>(.*?)</\1>", re.DOTALL | re.MULTILINE | re.IGNORECASE)
_UNCLOSED = re.compile(r"\A\s*<(?:think|thinking)>(.*)\Z", re.DOTALL | re.IGNORECASE)


def split_reasoning(entry: Assistant) -> tuple[str, str]:
    """Return (reasoning, answer) of a reply, both stripped; reasoning is empty where there is none."""
    parts = [entry.thinking]
    text = entry.text

    def take(match: re.Match[str]) -> str:
        parts.append(match.group(match.lastindex or 0))
        return ""

    text = _SCRATCHPAD.sub(take, text)
    if not entry.thinking.strip():
        # With native thinking the provider has separated it already; a tag in the text is then part of the answer.
        text = _UNCLOSED.sub(take, _THINK.sub(take, text))
    return "\n\n".join(part.strip() for part in parts if part.strip()), text.strip()


def gpt_value(reasoning: str, answer: str) -> str:
    """Return the text of a `gpt` turn: a leading think block (empty where there was no reasoning), then the answer."""
    block = f"<think>\n{reasoning}\n</think>\n" if reasoning else "<think>\n</think>\n"
    return (block + answer).rstrip()


def survives(reasoning: str, answer: str) -> bool:
    """Whether a reader that takes the first think block finds the same two texts again."""
    value = gpt_value(reasoning, answer)
    head, _, tail = value.removeprefix("<think>\n").partition("</think>")
    return head.strip() == reasoning and tail.strip() == answer.strip()


class ReasoningStats(msgspec.Struct, frozen=True, kw_only=True):
    """Reasoning coverage of one conversation. Turns with hidden reasoning only count as turns with reasoning."""

    total_assistant_turns: int = 0
    turns_with_reasoning: int = 0
    turns_without_reasoning: int = 0
    turns_with_hidden_reasoning: int = 0
    has_any_reasoning: bool = False


def reasoning_stats(entries: Iterable[Entry]) -> ReasoningStats:
    """Count the assistant turns of `entries` by whether they have reasoning."""
    total = visible = hidden = 0
    for entry in entries:
        if isinstance(entry, Assistant):
            total += 1
            if split_reasoning(entry)[0]:
                visible += 1
            elif entry.usage.reasoning > 0:
                hidden += 1
    return ReasoningStats(
        total_assistant_turns=total,
        turns_with_reasoning=visible + hidden,
        turns_without_reasoning=total - visible - hidden,
        turns_with_hidden_reasoning=hidden,
        has_any_reasoning=visible + hidden > 0,
    )
