"""What a task is asked to be: plain data, stored with the task so that another process can build it again.

No key and no object stands in a specification; the builder finds both again by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hermes.core.limits import Limits
from hermes.core.messages import Content, Entry
from hermes.core.scope import Role, TaskKind
from hermes.runtime.isolation import Isolation

__all__ = ["ModelChoice", "SpawnRequest", "TaskSpec"]


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which model, by name, and where. Empty fields are inherited from the parent, then from the configuration.

    `route` names the configured route whose key belongs to this address.
    """

    name: str = ""
    provider: str = ""
    base_url: str = ""
    route: str = ""


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task.

    `system` is the whole system text but for what the builder adds for its tools; `goal` the first input, `toolsets`
    what it is offered, `ceiling` what its children may be offered. `interactive`: it rests between inputs instead of
    ending. `unattended`: nobody can answer a question. `detached`: its parent neither waits for it nor hears its end as
    a child's (a `/background` run). `workspace` is absolute. `prefill` and `extra` go to the model with each request.
    `agent` is the agent type it was made from; `tools` keeps only these tools of its toolsets, None all.
    `environment` is what holds its commands (local, sandbox, docker), "" as configured, `image` the container's.
    `isolation` says how its workspace is its own, None for one that it shares; `borrows` are directories that its
    workspace cannot do without, and that may be read only (objects of a repository).
    `output_schema` is the JSON schema of its answer, `check` a command that has to succeed before it counts as done.
    `examined`: its environment is looked at when it has ended.
    `session` limits all tasks of the session together, for a task without a parent; None: they share no budget.
    `history` is a conversation that began elsewhere and stands before the goal.
    """

    kind: TaskKind
    goal: Content = ()
    label: str = ""
    system: str = ""
    role: Role = "leaf"
    toolsets: tuple[str, ...] = ()
    ceiling: tuple[str, ...] = ()
    model: ModelChoice = ModelChoice()
    limits: Limits = Limits()
    session: Limits | None = None
    workspace: str = "."
    environment: str = ""
    image: str = ""
    isolation: Isolation | None = None
    borrows: tuple[str, ...] = ()
    interactive: bool = False
    unattended: bool = True
    detached: bool = False
    reasoning_effort: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    prefill: tuple[Mapping[str, str], ...] = ()
    extra: Mapping[str, Any] = {}
    source: str = "user"
    history: tuple[Entry, ...] = ()
    agent: str = ""
    tools: tuple[str, ...] | None = None
    output_schema: Mapping[str, Any] | None = None
    check: str = ""
    examined: bool = False


class SpawnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A task to be spawned; `group` names what is spawned by one call, `index` of `count` its place there. `task_id` is
    one that was asked for before (`Supervisor.new_id`), "" for a new one."""

    spec: TaskSpec
    group: str = ""
    index: int = 0
    count: int = 1
    task_id: str = ""
