"""The Anthropic Messages format as a `Model`, streaming: api.anthropic.com and whatever else speaks it.

What is sent in this format; asking is shared by all formats (`http_model`), reading is in `anthropic_reply`.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from hermes.core.codec import encode_json
from hermes.core.model import ModelRequest, ToolSpec
from hermes.providers.anthropic_reply import AnthropicReply
from hermes.providers.classify import Origin
from hermes.providers.effort import adaptive_effort, thinking_tokens
from hermes.providers.http_model import HttpModel
from hermes.providers.render_anthropic import Message, render
from hermes.providers.sampling import refuse_sampling, sampling_of

__all__ = ["AnthropicMessages"]

_VERSION = "2023-06-01"
_MARK = {"type": "ephemeral"}
#: Models that decide themselves how long they think; earlier ones are given a number of tokens.
_ADAPTIVE = re.compile(
    r"claude-(?:opus|sonnet|haiku)-(?:4[.-](?:[6-9]|\d\d)(?!\d)|[5-9](?!\d))|claude-(?:fable|mythos)"
)
#: What stays of a reply's length where nothing is known of the model.
_LEAST_OUTPUT = 1_024


class AnthropicMessages(HttpModel):
    """A model behind an Anthropic Messages endpoint."""

    optional: ClassVar[tuple[str, ...]] = ("temperature", "cache_control", "disable_parallel_tool_use")
    unreadable: ClassVar[re.Pattern[str] | None] = re.compile(r"\bsignature\b|thinking.{0,40}blocks? .{0,60}modified")

    _adaptive: bool | None = None  # set by a refusal; None: by the model's name

    def _base(self) -> str:
        base = self.endpoint.base_url.rstrip("/").removesuffix("/messages")
        return base if re.search(r"/v\d+$", base) else f"{base}/v1"

    def reply_url(self) -> str:
        """Where replies are asked for."""
        return f"{self._base()}/messages"

    def models_url(self) -> str:
        """Where the catalogue of models is; it comes in pages of twenty unless more are asked for."""
        return f"{self._base()}/models?limit=1000"

    def request_headers(self) -> dict[str, str]:
        """The headers of every request: the key has one of its own."""
        headers = self.endpoint.request_headers()
        key = headers.pop("Authorization", "").removeprefix("Bearer ")
        own = {"anthropic-version": _VERSION, **({"x-api-key": key} if key else {})}
        return {**own, **headers}

    def new_reply(self, origin: Origin) -> AnthropicReply:
        """Return the reader of one reply."""
        return AnthropicReply(origin, self.profile, self.wall_clock)

    def tool_list(self, tools: tuple[ToolSpec, ...]) -> list[dict[str, Any]]:
        """Return the list of tools, marked at its end: it is the beginning of what the provider keeps."""
        listed: list[dict[str, Any]] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in tools
        ]
        if listed and "cache_control" not in self._left_out:
            listed[-1]["cache_control"] = _MARK
        return listed

    def correct(self, message: str) -> bool:
        """Change the way in which thinking is asked for, once, where the endpoint names the other one."""
        wanted = bool(re.search(r"\badaptive\b", message)) and "not support" in message
        if wanted and self._adaptive is None:
            self._adaptive = not self._thinks_adaptively()
            return True
        return False

    def body_of(self, request: ModelRequest) -> bytes:
        """Return the request's JSON. Raises ModelError for an effort that is none."""
        messages = render(request.entries, nonce=request.steer_nonce, prefill=request.prefill, host=self._host)
        marked = "cache_control" not in self._left_out
        if marked:
            _mark(messages)
        max_tokens = request.max_tokens or max(self.profile.max_output, _LEAST_OUTPUT)
        body: dict[str, Any] = {
            "model": self._name,
            "max_tokens": max_tokens,
            "messages": messages,
            "stream": True,
        }
        if request.system:
            system = {"type": "text", "text": request.system}
            body["system"] = [{**system, "cache_control": _MARK} if marked else system]
        thinking = self._thinking(request, messages, max_tokens)
        body.update(thinking)
        if request.tools:
            body["tools"] = self.encoded_tools(request.tools)
            choice = self._tool_choice(request)
            if choice:
                body["tool_choice"] = choice
        if request.seed is not None:
            raise refuse_sampling(self.origin(), "seed", "the Messages format has none")
        if request.temperature not in (None, 1) and _thinks(thinking):
            raise refuse_sampling(self.origin(), "temperature", "while it thinks only 1 is allowed")
        body.update(sampling_of(request))
        body.update(_extra(request, body))
        return encode_json({key: value for key, value in body.items() if key not in self._left_out})

    def _tool_choice(self, request: ModelRequest) -> dict[str, Any]:
        choice: dict[str, Any] = {}
        if request.tool_choice != "auto":
            choice = {"type": "any" if request.tool_choice == "required" else request.tool_choice}
        one = not self.profile.parallel_calls and "disable_parallel_tool_use" not in self._left_out
        if one and request.tool_choice != "none":
            choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
        return choice

    def _thinks_adaptively(self) -> bool:
        return bool(_ADAPTIVE.search(self._name)) if self._adaptive is None else self._adaptive

    def _thinking(self, request: ModelRequest, messages: list[Message], max_tokens: int) -> dict[str, Any]:
        """The parameters that turn thinking on or off; nothing where the model's own way holds."""
        effort = self.effort_of(request)
        if not effort:
            return {}
        if effort == "none":
            return {"thinking": {"type": "disabled"}}
        if request.tool_choice == "required" or not _may_think(messages):
            return {}
        if self._thinks_adaptively():
            # Later models keep their thinking to themselves unless it is asked for.
            return {
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": adaptive_effort(effort, self._name)},
            }
        tokens = thinking_tokens(effort, max_tokens)
        return {"thinking": {"type": "enabled", "budget_tokens": tokens}} if tokens else {}


def _thinks(thinking: dict[str, Any]) -> bool:
    return thinking.get("thinking", {}).get("type") in ("enabled", "adaptive")


def _may_think(messages: list[Message]) -> bool:
    """Whether thinking may be on: within a round of calls only if the reply that made them begins with thinking.

    Its calls may come from another model, or from a time when thinking was off.
    """
    if len(messages) < 2 or messages[-1]["content"][0]["type"] != "tool_result":
        return True
    return messages[-2]["content"][0]["type"] in ("thinking", "redacted_thinking")


def _mark(messages: list[Message]) -> None:
    """Mark the ends of the last two user turns: what the request before sent is found again, and this one is kept."""
    turns = [message for message in messages if message["role"] == "user"]
    for message in turns[-2:]:
        message["content"][-1] = {**message["content"][-1], "cache_control": _MARK}


def _extra(request: ModelRequest, body: dict[str, Any]) -> dict[str, Any]:
    """Further fields; a reply's schema is asked for in the words of this format."""
    extra = dict(request.extra)
    wanted = extra.pop("response_format", None)
    schema = wanted.get("json_schema", {}).get("schema") if isinstance(wanted, dict) else None
    if schema is not None:
        form = {"type": "json_schema", "schema": schema}
        extra["output_config"] = {**body.get("output_config", {}), "format": form, **extra.get("output_config", {})}
    return extra
