"""Which environments can be had on this machine, tried out and not guessed. Starts nothing that stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hermes.core.environment import EnvironmentKind
from hermes.environments.cgroup import ControlGroups
from hermes.environments.docker import Docker, DockerSettings
from hermes.environments.sandbox import why_no_sandbox

__all__ = ["Availability", "available"]


class Availability(NamedTuple):
    """Why an environment cannot be had, empty if it can, and what it lacks here all the same."""

    reason: str = ""
    lacks: str = ""


def _nobody(_owner: str) -> bool:
    return False


def available(source: Mapping[str, str], groups: ControlGroups | None = None) -> dict[EnvironmentKind, Availability]:
    """What can hold commands here.

    `source` is the environment in which programs are looked for, `groups` are the control groups of this machine.
    Blocks for some milliseconds, and up to ten seconds where an engine for containers does not answer.
    """
    docker = Docker(DockerSettings(home="", owner=""), source, _nobody)
    reason, unfiltered = why_no_sandbox(source.get("PATH", ""))
    lacks = [f"system calls are not filtered: {unfiltered}"] if unfiltered else []
    groups = groups or ControlGroups.find()
    if not groups.version:
        lacks.append(f"memory is limited for each process and not for a task: {groups.reason}")
    sandbox = Availability(reason, "; ".join(lacks))
    return {"local": Availability(), "sandbox": sandbox, "docker": Availability(docker.why_not())}
