"""Which model a child gets: by its call, its agent type, the configuration, its parent, in this order.

Choices are names and addresses; no key is known here. A route carries its name along, so that whoever makes the model
finds the key that belongs to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hermes.core.errors import ToolError
from hermes.runtime.spec import ModelChoice

__all__ = ["Chosen", "Route", "Routing"]

#: Short names that files for another program use; without an alias of the user's they name no model here.
_FOREIGN_MODELS = frozenset({"sonnet", "opus", "haiku"})


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A model that may be chosen by name. `extra` are fields of each request; an empty effort is inherited."""

    choice: ModelChoice
    effort: str = ""
    extra: Mapping[str, Any] = {}
    description: str = ""


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """What a child's model will be. `elsewhere`: another server than the parent's, so its request fields do not go."""

    choice: ModelChoice
    effort: str = ""
    extra: Mapping[str, Any] = {}
    elsewhere: bool = False
    notes: tuple[str, ...] = ()


class Routing(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration says about models of children.

    `model` is the configured default (its name may be that of a route), `effort` and `extra` go to every child.
    `aliases` are short names, `models` the names that are known beside them.
    """

    model: ModelChoice = ModelChoice()
    effort: str = ""
    extra: Mapping[str, Any] = {}
    routes: Mapping[str, Route] = {}
    aliases: Mapping[str, str] = {}
    models: Sequence[str] = ()

    def listing(self, limit: int = 600) -> str:
        """The routes with their one line, in at most `limit` characters."""
        lines = []
        for name, route in self.routes.items():
            line = route.description or route.choice.name
            lines.append(f"{name} ({line[:80]})" if line else name)
        text = ", ".join(lines)
        return text if len(text) <= limit else ", ".join(self.routes)[:limit]

    def choose(
        self, inherited: ModelChoice, *, model: str = "", route: str = "", provider: str = "", agent_model: str = ""
    ) -> Chosen:
        """Choose for a child whose parent has `inherited`; `model`, `route`, `provider` are its call's.

        Raises:
            ToolError: a name that is neither a route nor a known model; lists those there are.
        """
        notes: list[str] = []
        if route and route not in self.routes:
            known = ", ".join(self.routes) or "none is configured (delegation.routes)"
            raise ToolError(f"there is no route {route!r}. Routes: {known}.")
        name = route or model
        if not name and agent_model:
            name = self._of_agent(agent_model, notes)
        elif model and not route and not provider:
            self._known(model, inherited)
        chosen = name or self.model.name
        if chosen in self.routes:
            if provider:
                notes.append(f"provider {provider!r} has no effect beside the route {chosen!r}, which has its own")
            return self._routed(self.routes[chosen], inherited, notes)
        choice = self._place(self.aliases.get(chosen, chosen), provider, inherited)
        return Chosen(
            choice=choice,
            effort=self.effort,
            extra=self.extra,
            elsewhere=_elsewhere(choice, inherited),
            notes=tuple(notes),
        )

    def _of_agent(self, model: str, notes: list[str]) -> str:
        if model in _FOREIGN_MODELS and model not in self.routes and model not in self.aliases:
            notes.append(f"model {model!r} of the agent type is no alias or route here; the usual model is used")
            return ""
        return model

    def _known(self, model: str, inherited: ModelChoice) -> None:
        """With routes configured a model chooses among names; without, the server decides what a name is."""
        names = {*self.routes, *self.aliases, *self.aliases.values(), *self.models, self.model.name, inherited.name}
        if self.routes and model not in names:
            others = ", ".join(sorted(name for name in names - {*self.routes, ""}))
            raise ToolError(f"there is no model {model!r}. Routes: {', '.join(self.routes)}. Models: {others}.")

    def _routed(self, route: Route, inherited: ModelChoice, notes: list[str]) -> Chosen:
        choice = route.choice
        if not choice.base_url and not choice.provider:  # only another model: where the others go
            configured = self.model if self.model.base_url or self.model.provider else inherited
            place = msgspec.structs.replace(configured, name=choice.name or inherited.name)
            choice = place if configured.route else msgspec.structs.replace(place, route=choice.route)
        elif not choice.name:
            choice = msgspec.structs.replace(choice, name=self.model.name or inherited.name)
        return Chosen(
            choice=choice,
            effort=route.effort or self.effort,
            extra={**self.extra, **route.extra},
            elsewhere=_elsewhere(choice, inherited),
            notes=tuple(notes),
        )

    def _place(self, name: str, provider: str, inherited: ModelChoice) -> ModelChoice:
        """An address never travels with another provider's name."""
        if provider:
            return ModelChoice(name=name or inherited.name, provider=provider)
        configured = self.model
        if configured.base_url or configured.provider:
            name = name or inherited.name
            return ModelChoice(name=name, provider=configured.provider, base_url=configured.base_url)
        return msgspec.structs.replace(inherited, name=name or inherited.name)


def _elsewhere(choice: ModelChoice, inherited: ModelChoice) -> bool:
    return (choice.provider, choice.base_url) != (inherited.provider, inherited.base_url)
