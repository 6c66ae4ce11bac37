"""An endpoint on loopback and a model that asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from hermes.core.model import ModelProfile
from hermes.providers.anthropic import AnthropicMessages
from hermes.providers.endpoint import Endpoint
from hermes.providers.http import HttpSession, StreamLimits
from hermes.providers.http_model import HttpModel
from hermes.providers.openai_chat import OpenAIChat
from hermes.providers.openai_responses import OpenAIResponses
from hermes.testing.server import ProviderServer, Script

KEY = "sk-secret-0123456789"

#: Every wire format.
ADAPTERS: tuple[type[HttpModel], ...] = (OpenAIChat, AnthropicMessages, OpenAIResponses)


@asynccontextmanager
async def served(
    script: Script | Sequence[Any],
    *,
    name: str = "test-model",
    profile: ModelProfile | None = None,
    limits: StreamLimits | None = None,
    endpoint: dict[str, Any] | None = None,
    adapter: type[HttpModel] = OpenAIChat,
    **options: Any,
) -> AsyncIterator[tuple[HttpModel, ProviderServer]]:
    """Yield a model and the server behind it; `options` go to the server, `endpoint` to the Endpoint."""
    session = HttpSession()
    async with ProviderServer(script, **options) as server:
        try:
            yield (
                adapter(
                    name,
                    Endpoint(**{"base_url": server.base_url, "api_key": KEY, **(endpoint or {})}),
                    profile or ModelProfile(),
                    session,
                    limits=limits or StreamLimits(),
                    wall_clock=lambda: 1_700_000_000.0,
                ),
                server,
            )
        finally:
            await session.close()


@asynccontextmanager
async def endpoint_with(steps: Sequence[Any], **options: Any) -> AsyncIterator[HttpModel]:
    """Yield a model whose endpoint answers with `steps`."""
    async with served(steps, **options) as (model, _server):
        yield model
