"""From a task's choice of a model to the model: host and key as one triple, never the parts of two."""

from __future__ import annotations

import re
from functools import partial

import msgspec

from hermes.compose.keys import KeyPools
from hermes.compose.parts import Parts
from hermes.config.schema import FallbackSettings
from hermes.core.errors import HermesError
from hermes.core.model import Model
from hermes.credentials import Endpoint, EndpointFlags, MissingKey, find_endpoint, is_embedded
from hermes.credentials.keys import checked_url, origin
from hermes.credentials.sources import ApiMode, named_provider
from hermes.providers.catalog import Catalog
from hermes.providers.endpoint import Endpoint as ModelEndpoint
from hermes.providers.fallback import Fallback
from hermes.runtime.spec import ModelChoice

__all__ = ["Models", "address_of"]

_REFERENCE = re.compile(r"\$\{\w+\}")


def address_of(endpoint: Endpoint) -> ModelEndpoint:
    """An endpoint as the catalogue takes it."""
    return ModelEndpoint(base_url=endpoint.base_url, api_key=endpoint.api_key, api_mode=endpoint.api_mode)


class Models:
    """From a task's choice to a model: the endpoint (host and key as one triple) first, then the catalogue."""

    def __init__(self, parts: Parts, catalog: Catalog, keys: KeyPools) -> None:
        self._parts = parts
        self._catalog = catalog
        self._keys = keys

    async def __call__(self, choice: ModelChoice) -> Model:
        if self._parts.model is not None:
            return self._parts.model
        endpoint = self._endpoint(choice)
        first = self._model(endpoint)
        others = [] if is_embedded(endpoint.model) else self._parts.loaded.settings.fallbacks
        return Fallback(first, [partial(self._stand_in, entry) for entry in others]) if others else first

    def _model(self, endpoint: Endpoint) -> Model:
        keys = None if is_embedded(endpoint.model) else self._keys.of(endpoint)
        return self._catalog.model(endpoint.model, address_of(endpoint), keys)

    def _stand_in(self, entry: FallbackSettings) -> Model:
        """The model of a fallback, with host and key of its own. Raises UsageError, ConfigError."""
        variables = self._parts.variables
        flags = EndpointFlags(
            model=entry.model,
            provider="" if entry.base_url else entry.provider,
            base_url=entry.base_url,
            api_key=variables.get(entry.key_env, ""),
        )
        if entry.key_env and not flags.api_key:
            raise MissingKey(f"fallback {entry.model}: {entry.key_env} is not set. Export it or put it into .env.")
        return self._model(find_endpoint(self._parts.loaded.settings, flags, self._parts.keys, variables))

    def check(self, choice: ModelChoice) -> None:
        """Raise what making this model would raise for want of a server or a key: UsageError, ConfigError."""
        if self._parts.model is None:
            self._endpoint(choice)

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
        if choice.name != main.model and not choice.route:
            place = (choice.provider, choice.base_url) if choice.base_url else (main.provider, main.base_url)
            named, bare = named_provider(parts.loaded.settings, choice.name, *place)
            if named:
                choice = ModelChoice(name=bare, provider=named)
        if is_embedded(choice.name) and main.provider != "embedded":
            return find_endpoint(parts.loaded.settings, EndpointFlags(model=choice.name), parts.keys, parts.variables)
        own_key, mode = self._key(choice) if choice.route else "", self._mode(choice)
        same = not own_key and choice.base_url in ("", main.base_url) and choice.provider in ("", main.provider)
        if same and (choice.name in ("", main.model) or main.provider != "embedded"):
            return msgspec.structs.replace(main, model=choice.name or main.model, api_mode=mode or main.api_mode)
        flags = EndpointFlags(
            model=choice.name,
            provider="" if choice.base_url else choice.provider,
            base_url=choice.base_url,
            api_key=self._key(choice),
            api_mode=mode,
        )
        return find_endpoint(parts.loaded.settings, flags, parts.keys, parts.variables)

    def _mode(self, choice: ModelChoice) -> ApiMode:
        """The wire format that the settings give for exactly this server of children; empty where they give none."""
        children, main = self._parts.loaded.settings.delegation, self._parts.endpoint
        route = children.routes.get(choice.route)
        if route is not None and route.api_mode and (route.base_url or route.provider):
            if route.base_url == choice.base_url and (route.base_url or route.provider == choice.provider):
                return route.api_mode
        if not children.base_url or choice.base_url != children.base_url:
            return ""
        # On the server of the conversation the format is that of the children's model alone.
        own = main.base_url != children.base_url or (choice.name == children.model and choice.name != main.model)
        return children.api_mode if own else ""

    def _key(self, choice: ModelChoice) -> str:
        """The key that the settings give for exactly this address; empty where they name none. A key whose route has
        been pointed to another server since does not go along."""
        children, main = self._parts.loaded.settings.delegation, self._parts.endpoint
        route = children.routes.get(choice.route)
        if route is not None and route.api_key and (route.base_url or route.provider):
            if route.base_url == choice.base_url and (route.base_url or route.provider == choice.provider):
                return self._written(route.api_key, f"delegation.routes.{choice.route}.api_key")
        if not choice.base_url:
            return ""
        if choice.base_url == children.base_url and children.api_key:
            return self._written(children.api_key, "delegation.api_key")
        return (
            main.api_key
            if main.base_url and origin(checked_url(choice.base_url, "base_url")) == origin(main.base_url)
            else ""
        )

    def _written(self, secret: str, where: str) -> str:
        if _REFERENCE.fullmatch(secret):
            raise MissingKey(f"{where} is {secret}, but no such variable is set. Export it or put it into .env.")
        return secret
