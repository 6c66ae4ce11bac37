"""From a name and an endpoint to a model: the profile, the wire format, the wrappers in their order, made once each.

Every model is `Retrying` around its adapter; an endpoint without tools of its own gets them through a JSON schema. The
local model is made for the names that ask for it and never as a stand-in for another.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from hermes.core.model import Model, ModelProfile
from hermes.providers.embedded import EmbeddedModel, EmbeddedServer
from hermes.providers.http import HttpSession, SessionSource
from hermes.providers.openai_chat import Endpoint, OpenAIChat
from hermes.providers.profiles import profile_of
from hermes.providers.retrying import Retrying
from hermes.providers.schema_tools import SchemaTools
from hermes.providers.weights import find_weights, is_embedded

__all__ = ["Catalog"]


class Catalog:
    """The models of one process, over one client session.

    Args:
        overrides: what the user knows better, by model name: fields of a profile, `context_length` for `window`.
        attempts: how often a call is made at most.
        cache: a file that remembers that the local model's file is whole.
    """

    def __init__(self, overrides: Mapping[str, Any], *, attempts: int = 3, cache: Path | None = None) -> None:
        self._overrides = overrides
        self._attempts = attempts
        self._cache = cache
        self._session = HttpSession()
        self._models: dict[tuple[str, str, str], Model] = {}
        self._servers: dict[str, EmbeddedServer] = {}

    def model(self, name: str, endpoint: Endpoint) -> Model:
        """The model `name` at `endpoint`, the same object each time.

        Raises:
            EmbeddedUnavailable: the local model cannot run here.
            ConfigError: an override that is none.
        """
        key = (name, endpoint.base_url, endpoint.api_key)
        model = self._models.get(key)
        if model is None:
            inner = self._embedded(name) if is_embedded(name) else self._remote(name, endpoint)
            self._models[key] = model = Retrying(inner, attempts=self._attempts)
        return model

    @property
    def session(self) -> SessionSource:
        """Gives the process's one client session."""
        return self._session

    async def offered(self, endpoint: Endpoint) -> tuple[str, ...]:
        """Names of the models that an endpoint lists; empty where it lists none or cannot be asked."""
        return await OpenAIChat("", endpoint, ModelProfile(), self._session).catalogue()

    def profile(self, name: str) -> ModelProfile:
        """What is known of a model, with the user's overrides."""
        given = self._overrides.get(name)
        if given is None:
            return profile_of(name)
        fields = {key: value for key, value in msgspec.to_builtins(given).items() if value not in (None, "")}
        if "context_length" in fields:
            fields["window"] = fields.pop("context_length")
        return profile_of(name, fields)

    def _remote(self, name: str, endpoint: Endpoint) -> Model:
        profile = self.profile(name)
        chat = OpenAIChat(name, endpoint, profile, self._session)
        return SchemaTools(chat) if profile.tool_calling == "schema" else chat

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
