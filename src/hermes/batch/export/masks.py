"""Token ids and label masks of a conversation under a chat template.

A mask holds the token's id where it is trained and -100 where it is not: every assistant turn is trained, nothing else.
A template that renders earlier turns otherwise once later ones follow would give masks that do not fit; that is
refused. Loads no tokenizer itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from hermes.core.errors import UsageError

__all__ = ["IGNORED", "ChatTokenizer", "Encoded", "UnstableTemplate", "encode", "prints_tags_as_they_are"]

#: The label of a token that is not trained.
IGNORED = -100


class ChatTokenizer(Protocol):
    """What is needed of a tokenizer: its chat template, as text or as token ids."""

    def render(self, messages: Sequence[dict[str, Any]], tools: Sequence[Any] | None, prompt: bool) -> str:
        """Return the text of a conversation; `prompt` adds the opening of the next assistant turn."""

    def ids(self, messages: Sequence[dict[str, Any]], tools: Sequence[Any] | None, prompt: bool) -> list[int]:
        """Return the token ids of the same."""


class UnstableTemplate(UsageError):
    """The template renders earlier turns differently once later ones follow."""


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """Token ids and, of the same length, labels."""

    tokens: tuple[int, ...]
    masks: tuple[int, ...]


def prints_tags_as_they_are(tokenizer: ChatTokenizer) -> bool:
    """Whether the template prints a tool turn's content without wrapping it in tags of its own."""
    turns = [
        {"role": "user", "content": "question"},
        {"role": "assistant", "content": "<tool_call>\n{}\n</tool_call>"},
        {"role": "tool", "content": "<tool_response>\n{}\n</tool_response>"},
    ]
    return tokenizer.render(turns, None, False).count("<tool_response>") == 1


def encode(tokenizer: ChatTokenizer, messages: Sequence[dict[str, Any]], tools: Sequence[Any] | None) -> Encoded:
    """Return the ids and labels of a conversation.

    Raises:
        UnstableTemplate: the rendering of the beginning is no beginning of the whole rendering.
        UsageError: nothing in it is trained.
    """
    whole = tokenizer.ids(messages, tools, False)
    labels = [IGNORED] * len(whole)
    for place, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = tokenizer.ids(messages[:place], tools, True)
        after = tokenizer.ids(messages[: place + 1], tools, False)
        if whole[: len(after)] != after or after[: len(before)] != before:
            raise UnstableTemplate(
                "the chat template of this tokenizer renders earlier turns differently once later ones follow, so "
                "masks would not fit the tokens. Give a template made for training with --chat-template=FILE."
            )
        labels[len(before) : len(after)] = after[len(before) :]
    if all(label == IGNORED for label in labels):
        raise UsageError("a rollout has no assistant turn that could be trained.")
    return Encoded(tokens=tuple(whole), masks=tuple(labels))
