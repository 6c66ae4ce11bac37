"""From a task's choice of a model to the model: host and key as one triple, never the parts of two."""

from __future__ import annotations

import msgspec

from hermes.compose.parts import Parts
from hermes.core.errors import HermesError
from hermes.core.model import Model
from hermes.credentials import Endpoint, EndpointFlags, find_endpoint, is_embedded
from hermes.providers.catalog import Catalog
from hermes.providers.openai_chat import Endpoint as ModelEndpoint
from hermes.runtime.spec import ModelChoice

__all__ = ["Models"]


class Models:
    """From a task's choice to a model: the endpoint (host and key as one triple) first, then the catalogue."""

    def __init__(self, parts: Parts, catalog: Catalog) -> None:
        self._parts = parts
        self._catalog = catalog

    async def __call__(self, choice: ModelChoice) -> Model:
        if self._parts.model is not None:
            return self._parts.model
        endpoint = self._endpoint(choice)
        return self._catalog.model(endpoint.model, ModelEndpoint(base_url=endpoint.base_url, api_key=endpoint.api_key))

    def unpriced(self, choice: ModelChoice) -> str | None:
        """The name of a choice's model if its price is unknown, None if it is known."""
        if self._parts.model is not None:
            name, profile = self._parts.model.name, self._parts.model.profile
        else:
            try:
                name = self._endpoint(choice).model
            except HermesError:
                return None  # the builder reports an endpoint that cannot be found
            if is_embedded(name):
                return None  # it runs on this machine
            profile = self._catalog.profile(name)
        return name if profile.price_input is None or profile.price_output is None else None

    def _endpoint(self, choice: ModelChoice) -> Endpoint:
        parts, main = self._parts, self._parts.endpoint
        if is_embedded(choice.name) and main.provider != "embedded":
            return find_endpoint(parts.loaded.settings, EndpointFlags(model=choice.name), parts.keys, parts.variables)
        same = choice.base_url in ("", main.base_url) and choice.provider in ("", main.provider)
        if same and (choice.name in ("", main.model) or main.provider != "embedded"):
            return msgspec.structs.replace(main, model=choice.name or main.model)
        children = parts.loaded.settings.delegation
        flags = EndpointFlags(
            model=choice.name,
            provider="" if choice.base_url else choice.provider,
            base_url=choice.base_url,
            api_key=children.api_key if choice.base_url and choice.base_url == children.base_url else "",
        )
        return find_endpoint(parts.loaded.settings, flags, parts.keys, parts.variables)
