"""Which environments can be had on this machine, tried out and not guessed. Starts nothing that stays."""

from __future__ import annotations

from collections.abc import Mapping

from hermes.core.environment import EnvironmentKind
from hermes.environments.docker import Docker, DockerSettings
from hermes.environments.sandbox import why_no_sandbox

__all__ = ["available"]


def _nobody(_owner: str) -> bool:
    return False


def available(source: Mapping[str, str]) -> dict[EnvironmentKind, str]:
    """What can hold commands here, each with the reason why not; an empty reason: it can.

    `source` is the environment in which programs are looked for. Blocks for some milliseconds, and up to ten seconds
    where an engine for containers does not answer.
    """
    docker = Docker(DockerSettings(home="", owner=""), source, _nobody)
    return {"local": "", "sandbox": why_no_sandbox(source.get("PATH", "")), "docker": docker.why_not()}
