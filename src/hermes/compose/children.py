"""What the settings say about children: depth, models, routes. Checked once, when a runtime is opened."""

from __future__ import annotations

from collections.abc import Mapping

from hermes.config import Settings
from hermes.config.schema import RouteSettings
from hermes.core.errors import ConfigError, UsageError
from hermes.delegation.policy import DelegationPolicy
from hermes.delegation.routing import Route, Routing
from hermes.environments.process import DEPTH
from hermes.runtime.spec import ModelChoice

__all__ = ["delegation_policy", "levels_above"]


def levels_above(settings: Settings, environ: Mapping[str, str]) -> int:
    """Levels of tasks that stand above this process: 0 outside of them, one more than the depth of the task in whose
    terminal it was started.

    Raises:
        UsageError: that task may not start agents.
    """
    given = environ.get(DEPTH, "")
    if not given.isdecimal():
        return 0
    depth = int(given)
    deepest = settings.delegation.max_spawn_depth
    if depth >= deepest:
        raise UsageError(
            f"an agent at depth {depth} may not start another one (delegation.max_spawn_depth is {deepest}; {DEPTH} "
            "says where this command runs): do the work in this task."
        )
    return depth + 1


def delegation_policy(settings: Settings, above: int = 0) -> DelegationPolicy:
    """The policy for children of a process that has `above` levels of tasks over it.

    Raises:
        ConfigError: a route with a key that belongs to no server.
    """
    children = settings.delegation
    return DelegationPolicy(
        max_spawn_depth=children.max_spawn_depth - above,
        orchestrator_enabled=children.orchestrator_enabled,
        max_iterations=children.max_iterations,
        child_timeout=children.child_timeout_seconds or None,
        inactivity=children.inactivity_seconds,
        routing=_routing(settings),
        default_toolsets=children.default_toolsets,
        workspace="worktree" if children.worktree_isolation else "shared",
    )


def _routing(settings: Settings) -> Routing:
    children = settings.delegation
    routes = {name: _route(name, route) for name, route in children.routes.items()}
    named = (route.model for route in children.routes.values())
    return Routing(
        model=ModelChoice(name=children.model, provider=children.provider, base_url=children.base_url),
        effort=children.reasoning_effort,
        extra=children.request_overrides,
        routes=routes,
        aliases=settings.model.aliases,
        models=tuple(name for name in (settings.model.default, *named, *settings.models) if name),
    )


def _route(name: str, route: RouteSettings) -> Route:
    if route.api_key and not (route.base_url or route.provider):
        raise ConfigError(
            f"delegation.routes.{name} has an api_key and no server that it belongs to. Write its base_url or provider."
        )
    return Route(
        choice=ModelChoice(name=route.model, provider=route.provider, base_url=route.base_url, route=name),
        effort=route.reasoning_effort,
        extra=route.request_overrides,
        description=route.description,
    )
