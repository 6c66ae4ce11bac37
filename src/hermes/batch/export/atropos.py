"""Scored groups as Atropos takes them: token ids, label masks and one score for each rollout of a row.

Log-probabilities are never invented: they stay null, so such a group is good for supervised training and replay and is
marked as off-policy in the manifest. Too long sequences drop their group; nothing is cut.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from hermes.batch.export.conversation import messages, openai_tools
from hermes.batch.export.groups import Group
from hermes.batch.export.masks import ChatTokenizer, Encoded, encode, prints_tags_as_they_are
from hermes.batch.export.openai import chat_message
from hermes.batch.export.tags import AmbiguousTags, system_turn, tagged_messages
from hermes.batch.record import Record
from hermes.core.errors import UsageError

__all__ = ["AtroposEncoder", "TransformersTokenizer", "group_row", "load_tokenizer"]


class TransformersTokenizer:
    """A tokenizer of the transformers library behind the two calls that are needed."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def render(self, messages: Any, tools: Any, prompt: bool) -> str:
        """Return the text of a conversation."""
        text = self._inner.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=prompt)
        return str(text)

    def ids(self, messages: Any, tools: Any, prompt: bool) -> list[int]:
        """Return the token ids of a conversation."""
        found = self._inner.apply_chat_template(
            messages, tools=tools, tokenize=True, add_generation_prompt=prompt, return_dict=False
        )
        return [int(token) for token in found]


def load_tokenizer(path: str, template: Path | None = None) -> TransformersTokenizer:
    """Load a tokenizer from a folder (or a name that is in the local cache); `template` replaces its chat template.

    Raises:
        UsageError: the library is not installed, or there is no such tokenizer, or it has no chat template.
    """
    try:
        # edge: heavy and optional
        from transformers import AutoTokenizer
    except ImportError as error:
        raise UsageError(
            "making token ids needs the transformers library: pip install 'hermes-tasktree[atropos]'."
        ) from error
    try:
        inner = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError) as error:
        raise UsageError(f"--tokenizer={path} cannot be loaded: {str(error).splitlines()[0]}") from error
    if template is not None:
        inner.chat_template = template.read_text("utf-8")
    if not inner.chat_template:
        raise UsageError(f"--tokenizer={path} has no chat template: give one with --chat-template=FILE.")
    return TransformersTokenizer(inner)


class AtroposEncoder:
    """Encodes groups with one tokenizer; `max_tokens` is the longest sequence a group may hold."""

    def __init__(self, tokenizer: ChatTokenizer, max_tokens: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self.tagged = prints_tags_as_they_are(tokenizer)

    def row(self, group: Group, temperature: float | None, losses: Counter[str]) -> dict[str, Any] | None:
        """Return the group as one object, or None where it cannot be one; `losses` says why."""
        try:
            encoded = [self._encode(member.record) for member in group.members]
            shown = [_tagged(member.record) for member in group.members]
        except AmbiguousTags:
            losses["group dropped: prose holds a tag of the format"] += 1
            return None
        if self._max_tokens is not None and any(len(item.tokens) >= self._max_tokens for item in encoded):
            losses["group dropped: a sequence is too long"] += 1
            return None
        return group_row(group, encoded, shown, temperature)

    def _encode(self, record: Record) -> Encoded:
        if self.tagged:
            return encode(self._tokenizer, _tagged(record), None)
        chat = [chat_message(message) for message in messages(record.result.entries)]
        return encode(self._tokenizer, chat, openai_tools(record.result.tools) or None)


def _tagged(record: Record) -> list[dict[str, str]]:
    system = {"role": "system", "content": system_turn(record.result.tools)}
    return [system, *tagged_messages(messages(record.result.entries))]


def group_row(
    group: Group, encoded: list[Encoded], shown: list[list[dict[str, str]]], temperature: float | None
) -> dict[str, Any]:
    """Put a group together. Every key is always there; `messages` are for viewers and supervised training."""
    return {
        "tokens": [item.tokens for item in encoded],
        "masks": [item.masks for item in encoded],
        "scores": [member.score for member in group.members],
        "advantages": None,
        "ref_logprobs": None,
        "messages": shown,
        "generation_params": {} if temperature is None else {"temperature": temperature},
        "inference_logprobs": None,
        "overrides": [{} for _ in group.members],
        "group_overrides": {},
        "images": None,
    }
