"""From a name and an endpoint to a model: the profile, the wire format, the wrappers in their order, made once each.

Every remote model is `Retrying(Pooled(adapter))`; an endpoint without tools of its own gets them through a JSON schema.
The local model is made for the names that ask for it and never as a stand-in for another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hermes.core.model import Model, ModelProfile
from hermes.providers.anthropic import AnthropicMessages
from hermes.providers.embedded import EmbeddedModel, EmbeddedServer
from hermes.providers.endpoint import ApiMode, Endpoint, api_mode_of
from hermes.providers.http import HttpSession, SessionSource
from hermes.providers.http_model import HttpModel
from hermes.providers.openai_chat import OpenAIChat
from hermes.providers.openai_responses import OpenAIResponses
from hermes.providers.pooled import Keys, Pooled
from hermes.providers.profiles import profile_of
from hermes.providers.retrying import Retrying
from hermes.providers.schema_tools import SchemaTools
from hermes.providers.weights import find_weights, is_embedded

__all__ = ["Catalog", "adapter_of"]

_ADAPTERS: Mapping[ApiMode, type[HttpModel]] = {
    "chat_completions": OpenAIChat,
    "anthropic_messages": AnthropicMessages,
    "codex_responses": OpenAIResponses,
}


def adapter_of(name: str, endpoint: Endpoint, profile: ModelProfile, session: SessionSource) -> HttpModel:
    """The model `name` at `endpoint` in the wire format that is spoken there, without any wrapper."""
    return _ADAPTERS[api_mode_of(endpoint)](name, endpoint, profile, session)


class Catalog:
    """The models of one process, over one client session.

    Args:
        overrides: what the user knows better, by model name: fields of a profile, `context_length` for `window`.
        attempts: how often a call is made at most.
        fewer: the same by the reason of the failure, where that is less.
        cache: a file that remembers that the local model's file is whole.
        woke: whether the machine woke from a sleep a moment ago.
    """

    def __init__(
        self,
        overrides: Mapping[str, Any],
        *,
        attempts: int = 3,
        fewer: Mapping[str, int] = {},  # noqa: B006 - never changed
        cache: Path | None = None,
        woke: Callable[[], bool] = lambda: False,
    ) -> None:
        self._overrides = overrides
        self._attempts = attempts
        self._fewer = fewer
        self._cache = cache
        self._woke = woke
        self._session = HttpSession()
        self._models: dict[tuple[str, str, str, str], Model] = {}
        self._servers: dict[str, EmbeddedServer] = {}

    def model(self, name: str, endpoint: Endpoint, keys: Keys | None = None) -> Model:
        """The model `name` at `endpoint`, the same object each time. With `keys` it asks with one of those.

        Raises:
            EmbeddedUnavailable: the local model cannot run here.
            ConfigError: an override that is none.
        """
        endpoint = self._spoken(name, endpoint)
        key = (name, endpoint.base_url, endpoint.api_key, api_mode_of(endpoint))
        model = self._models.get(key)
        if model is None:
            inner = self._embedded(name) if is_embedded(name) else self._remote(name, endpoint, keys)
            self._models[key] = model = Retrying(inner, attempts=self._attempts, fewer=self._fewer, woke=self._woke)
        return model

    @property
    def session(self) -> HttpSession:
        """Gives the process's one client session."""
        return self._session

    async def offered(self, endpoint: Endpoint) -> tuple[str, ...]:
        """Names of the models that an endpoint lists; empty where it lists none or cannot be asked."""
        return await adapter_of("", endpoint, ModelProfile(), self._session).catalogue()

    def profile(self, name: str) -> ModelProfile:
        """What is known of a model, with the user's overrides."""
        given = self._overrides.get(name)
        if given is None:
            return profile_of(name)
        fields = {key: value for key, value in msgspec.to_builtins(given).items() if value not in (None, "")}
        fields.pop("api_mode", None)
        if "context_length" in fields:
            fields["window"] = fields.pop("context_length")
        return profile_of(name, fields)

    def _spoken(self, name: str, endpoint: Endpoint) -> Endpoint:
        """The endpoint in the format that the user gave for this model: some servers speak several."""
        mode = getattr(self._overrides.get(name), "api_mode", "")
        return msgspec.structs.replace(endpoint, api_mode=mode) if mode else endpoint

    def _remote(self, name: str, endpoint: Endpoint, keys: Keys | None) -> Model:
        profile = self.profile(name)
        if keys is None:
            return self._adapter(name, endpoint, profile)

        def make(secret: str, observe: Callable[[Mapping[str, str]], None]) -> Model:
            return self._adapter(name, msgspec.structs.replace(endpoint, api_key=secret), profile, observe)

        return Pooled(name, profile, keys, make)

    def _adapter(
        self,
        name: str,
        endpoint: Endpoint,
        profile: ModelProfile,
        observe: Callable[[Mapping[str, str]], None] | None = None,
    ) -> Model:
        model = adapter_of(name, endpoint, profile, self._session)
        model.on_headers = observe
        return SchemaTools(model) if profile.tool_calling == "schema" else model

    def _embedded(self, name: str) -> Model:
        weights = find_weights(name, cache=self._cache)
        server = self._servers.get(weights.path)
        if server is None:
            self._servers[weights.path] = server = EmbeddedServer(weights)
        return EmbeddedModel(server, self._session)

    async def close(self) -> None:
        """End local servers and the client session. Safe to call twice."""
        for server in self._servers.values():
            await server.close()
        self._servers.clear()
        await self._session.close()
