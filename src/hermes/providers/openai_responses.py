"""The OpenAI Responses format as a `Model`, streaming; nothing is stored at the provider.

What is sent in this format; asking is shared by all formats (`http_model`), reading is in `responses_reply`.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from hermes.core.codec import encode_json
from hermes.core.model import ModelRequest, ToolSpec
from hermes.providers.classify import Origin
from hermes.providers.effort import openai_effort
from hermes.providers.http_model import HttpModel
from hermes.providers.render_responses import render
from hermes.providers.responses_reply import ResponsesReply
from hermes.providers.sampling import refuse_sampling, sampling_of

__all__ = ["OpenAIResponses"]

_PATH = "/responses"
#: Stand for a part of `reasoning` and for `include` among what is left out.
_SUMMARY, _ENCRYPTED = "summary", "include"


class OpenAIResponses(HttpModel):
    """A model behind an OpenAI Responses endpoint."""

    optional: ClassVar[tuple[str, ...]] = (
        "prompt_cache_key",
        "parallel_tool_calls",
        "max_output_tokens",
        "temperature",
        "include",
        "store",
    )
    unreadable: ClassVar[re.Pattern[str] | None] = re.compile(
        r"invalid_encrypted_content|encrypted content .{0,80}(could not|cannot)|item .{0,80}of type .?reasoning"
    )

    def reply_url(self) -> str:
        """Where replies are asked for."""
        return self.endpoint.url(_PATH)

    def models_url(self) -> str:
        """Where the catalogue of models is."""
        return f"{self.endpoint.url(_PATH).removesuffix(_PATH)}/models"

    def new_reply(self, origin: Origin) -> ResponsesReply:
        """Return the reader of one reply."""
        return ResponsesReply(origin, self.profile, self.wall_clock)

    def tool_list(self, tools: tuple[ToolSpec, ...]) -> list[dict[str, Any]]:
        """Return the list of tools. Arguments that may be missing are allowed, which the strict mode refuses."""
        return [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in tools
        ]

    def correct(self, message: str) -> bool:
        """Leave out what only some accounts and models have: summaries of reasoning, and its encrypted form."""
        for word, part in (("encrypted content", _ENCRYPTED), ("summar", _SUMMARY)):
            if word in message and part not in self._left_out:
                self._left_out = self._left_out | {part}
                return True
        return False

    def body_of(self, request: ModelRequest) -> bytes:
        """Return the request's JSON. Raises ModelError for an effort that is none."""
        body: dict[str, Any] = {
            "model": self._name,
            "input": render(request.entries, nonce=request.steer_nonce, prefill=request.prefill, host=self._host),
            "stream": True,
            "store": False,
        }
        if request.system:
            body["instructions"] = request.system
        if request.tools:
            body["tools"] = self.encoded_tools(request.tools)
            if request.tool_choice != "auto":
                body["tool_choice"] = request.tool_choice
            if not self.profile.parallel_calls:
                body["parallel_tool_calls"] = False
        if request.max_tokens is not None:
            body["max_output_tokens"] = request.max_tokens
        if request.seed is not None:
            raise refuse_sampling(self.origin(), "seed", "the Responses format has none")
        body.update(sampling_of(request))
        if request.affinity and self._host == "api.openai.com":
            body["prompt_cache_key"] = request.affinity
        body.update(self._reasoning(request))
        body.update(_extra(request))
        return encode_json({key: value for key, value in body.items() if key not in self._left_out})

    def _reasoning(self, request: ModelRequest) -> dict[str, Any]:
        """How much to think, and what of it to send: models that do not think refuse to be asked."""
        effort = openai_effort(self.effort_of(request))
        if not effort and not self.profile.thinking:
            return {}
        reasoning: dict[str, Any] = {"effort": effort} if effort else {}
        if effort != "none" and _SUMMARY not in self._left_out:
            reasoning["summary"] = "auto"
        found: dict[str, Any] = {"include": ["reasoning.encrypted_content"]}
        return {**found, "reasoning": reasoning} if reasoning else found


def _extra(request: ModelRequest) -> dict[str, Any]:
    """Further fields; a reply's schema is asked for in the words of this format."""
    extra = dict(request.extra)
    wanted = extra.pop("response_format", None)
    schema = wanted.get("json_schema") if isinstance(wanted, dict) else None
    if isinstance(schema, dict):
        form = {"type": "json_schema", "strict": False, **schema}
        extra["text"] = {"format": form, **extra.get("text", {})}
    return extra
