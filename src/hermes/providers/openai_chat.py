"""Any endpoint that speaks Chat Completions (OpenAI, OpenRouter, vLLM, Ollama, llama.cpp, …) as a `Model`, streaming.

What is sent and what comes back in this format; asking and reading are shared by all formats (`http_model`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

from hermes.core.codec import encode_json
from hermes.core.model import ModelRequest, ToolSpec
from hermes.providers.chat_reply import ChatReply
from hermes.providers.classify import Origin
from hermes.providers.effort import openai_effort
from hermes.providers.endpoint import Endpoint
from hermes.providers.http_model import HttpModel
from hermes.providers.large import large_request
from hermes.providers.render import Conversations
from hermes.providers.sampling import sampling_of

__all__ = ["Endpoint", "OpenAIChat"]

_PATH = "/chat/completions"


class OpenAIChat(HttpModel):
    """A model behind a Chat Completions endpoint."""

    optional: ClassVar[tuple[str, ...]] = (
        "stream_options",
        "parallel_tool_calls",
        "reasoning_effort",
        "max_tokens",
        "temperature",
    )

    @cached_property
    def _conversations(self) -> Conversations:
        return Conversations()

    def reply_url(self) -> str:
        """Where replies are asked for."""
        return self.endpoint.url(_PATH)

    def models_url(self) -> str:
        """Where the catalogue of models is."""
        return f"{self.endpoint.url(_PATH).removesuffix(_PATH)}/models"

    def new_reply(self, origin: Origin) -> ChatReply:
        """Return the reader of one reply."""
        return ChatReply(origin, self.profile, self.wall_clock)

    def tool_list(self, tools: tuple[ToolSpec, ...]) -> list[dict[str, Any]]:
        """Return the list of tools."""
        return [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in tools
        ]

    def body_of(self, request: ModelRequest) -> bytes:
        """Return the request's JSON. Raises ModelError for an effort that is none."""
        messages = self._conversations.encode(
            "" if large_request(request) else request.affinity,
            request.entries,
            system=request.system,
            nonce=request.steer_nonce,
            prefill=request.prefill,
            reasoning=self.endpoint.reasoning_echo,
        )
        host = self._host
        body: dict[str, Any] = {
            "model": self._name,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            body["tools"] = self.encoded_tools(request.tools)
            if request.tool_choice != "auto":
                body["tool_choice"] = request.tool_choice
            if not self.profile.parallel_calls:
                body["parallel_tool_calls"] = False
        if request.max_tokens is not None:
            newer = host == "api.openai.com" or "max_tokens" in self._left_out
            body["max_completion_tokens" if newer else "max_tokens"] = request.max_tokens
        body.update(sampling_of(request))
        if request.reasoning_effort:
            effort = openai_effort(self.effort_of(request), host)
            if host.endswith("openrouter.ai"):
                body["reasoning"] = {"effort": effort}
            else:
                body["reasoning_effort"] = effort
        if host.endswith("openrouter.ai"):
            body["usage"] = {"include": True}
        body.update(request.extra)
        for key in self._left_out:
            body.pop(key, None)
        # The conversation is put in as it is and not copied through the encoder: it may be large.
        return b"".join((encode_json(body)[:-1], b',"messages":[', *messages, b"]}"))
