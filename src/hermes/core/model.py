"""What the runtime asks of a language model: the protocol, its request and its deltas.

The contract, held by one conformance suite over every provider and the fake:
a model raises only `ModelError`; it can be cancelled at any await and then closes its connection; it never retries by
itself; it ends with exactly one `Stop`; it never mutates the request. Retry, credentials, recording are wrappers of
this same protocol.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol

import msgspec

from hermes.core.events import CredentialCooled, FallbackUsed, QuotaWaiting
from hermes.core.messages import Entry, StopReason, Usage

__all__ = [
    "Announced",
    "CallArguments",
    "CallStarted",
    "Delta",
    "Model",
    "ModelProfile",
    "ModelRequest",
    "ProviderData",
    "Restarted",
    "Stop",
    "TextDelta",
    "ThinkingDelta",
    "ToolChoice",
    "ToolSpec",
    "UsageReport",
]


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What the model is told about a tool. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]


class ModelProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a model before it is asked.

    `window` and `max_output` are tokens. Prices are US dollars for a million tokens, None where unknown;
    without one of their own, tokens read from a cache or written into it cost what others do.
    `tool_calling`: `native`, or `schema` for endpoints without tools (see `providers/schema_tools.py`).
    `tiny` marks a local model that is good for trying the pipeline only. `images`: whether it looks at pictures, None
    where that is not known; one that does not is told where there was one.
    """

    window: int = 128_000
    max_output: int = 4_096
    price_input: float | None = None
    price_output: float | None = None
    price_cached: float | None = None
    price_cache_write: float | None = None
    thinking: bool = False
    parallel_calls: bool = True
    tool_calling: Literal["native", "schema"] = "native"
    tiny: bool = False
    images: bool | None = None


ToolChoice = Literal["auto", "required", "none"]


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `entries` are history entries; the adapter renders them.

    `steer_nonce` is the marker that gives a Steer its authority, also named in `system`. `watched` says that somebody
    reads the deltas as they come, so that an adapter need not save work; such a request goes before others that wait
    for a provider's limit. `affinity` keeps one task on one credential, `tree` names the root of its tree: trees that
    wait for the same limit take turns.
    `temperature`, `top_p` and `seed` are wishes about sampling: an adapter sends them as they are or raises, and never
    leaves one out in silence.
    `prefill` are few-shot messages (`{"role", "content"}`) put before the entries and never saved.
    `extra` are provider-specific fields merged into the request body.
    """

    system: str
    entries: tuple[Entry, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    steer_nonce: str = ""
    watched: bool = True
    affinity: str = ""
    tree: str = ""
    prefill: tuple[Mapping[str, str], ...] = ()
    extra: Mapping[str, Any] = {}


class TextDelta(msgspec.Struct, frozen=True, gc=False, tag="text"):
    """More of the visible answer."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, gc=False, tag="thinking"):
    """More of the reasoning."""

    text: str


class CallStarted(msgspec.Struct, frozen=True, gc=False, tag="call_started"):
    """Call number `index` of this reply begins."""

    index: int
    id: str
    name: str


class CallArguments(msgspec.Struct, frozen=True, gc=False, tag="call_arguments"):
    """More of the argument text of call number `index`."""

    index: int
    text: str


class ProviderData(msgspec.Struct, frozen=True, tag="provider_data"):
    """Opaque data to keep on the message (signatures, encrypted reasoning)."""

    data: Any


class UsageReport(msgspec.Struct, frozen=True, gc=False, tag="usage"):
    """What the provider counted; the last one of a reply is the one that holds."""

    usage: Usage


class Stop(msgspec.Struct, frozen=True, gc=False, tag="stop"):
    """The reply is complete. `finish` is the provider's own word, `model` the model that really answered."""

    reason: StopReason
    finish: str = ""
    model: str = ""


class Restarted(msgspec.Struct, frozen=True, gc=False, tag="restarted"):
    """What came so far belongs to a lost attempt: drop it. `usage` estimates what the lost attempt cost; `message` is
    for people, where `reason` does not say it all."""

    attempt: int
    reason: str
    wait: float = 0.0
    usage: Usage = Usage()
    message: str = ""


class Announced(msgspec.Struct, frozen=True, tag="announced"):
    """Something that views are told while a reply is awaited; it is no part of the reply.

    A `QuotaWaiting` of 0 seconds says that the wait is over.
    """

    event: QuotaWaiting | CredentialCooled | FallbackUsed


Delta = (
    TextDelta | ThinkingDelta | CallStarted | CallArguments | ProviderData | UsageReport | Stop | Restarted | Announced
)


class Model(Protocol):
    """Anything that can answer a `ModelRequest`. Streams are classes, never generators left open (trap 18)."""

    @property
    def name(self) -> str:
        """The model's name as sent to the endpoint."""

    @property
    def profile(self) -> ModelProfile:
        """What is known of it beforehand."""

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Open one reply. Leaving the context closes the connection, whatever happened.

        The iterator may have a method `ready()` that returns, without waiting, the deltas that have come already and
        follow the one just given; they are then given no more. A `Stop` is the last delta.
        """
