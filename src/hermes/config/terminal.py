"""The settings of commands and of what holds them; `hermes.config.schema` holds them among all others."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

__all__ = ["TerminalSettings"]


def _env(*names: str) -> dict[str, Any]:
    return {"env": names}


class TerminalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Commands."""

    backend: Annotated[
        Literal["auto", "local", "sandbox", "docker"],
        Meta(
            description="Where commands run: `local` on this machine as they are, `sandbox` behind bubblewrap, "
            "`docker` in a container for each task: what cannot be had is refused, never replaced by less. `auto`: "
            "local where a person can be asked, else the sandbox where there is one (docs/approvals.md).",
            extra=_env("TERMINAL_ENV"),
        ),
    ] = "auto"
    cwd: Annotated[
        str,
        Meta(description="Working directory of a new task; `.` is where hermes starts.", extra=_env("TERMINAL_CWD")),
    ] = "."
    timeout: Annotated[
        float, Meta(description="Seconds a foreground command may take.", gt=0, extra=_env("TERMINAL_TIMEOUT"))
    ] = 180
    env_passthrough: Annotated[
        tuple[str, ...], Meta(description="Further variables that commands may see, by name.")
    ] = ()
    max_parallel: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Commands at once in each process of this program; null: four for each CPU."),
    ] = None
    sandbox_network: Annotated[bool, Meta(description="Whether sandboxed commands have a network.")] = False
    sandbox_read: Annotated[
        tuple[str, ...],
        Meta(description="Further paths that sandboxed commands may read (a compiler in your home, say)."),
    ] = ()
    sandbox_processes: Annotated[
        int, Meta(description="Processes and threads at once in the sandbox or container of a task.", ge=8)
    ] = 512
    sandbox_file_mb: Annotated[int, Meta(description="Largest file that a sandboxed command may write, MB.", ge=1)] = (
        10_240
    )
    container_disk: Annotated[
        int, Meta(description="What a task may write in its sandbox in total, MB; 0: as much as fits.", ge=0)
    ] = 51_200
    container_memory: Annotated[int, Meta(description="Memory of the sandbox or container of a task, MB.", ge=16)] = (
        5120
    )
    container_cpu: Annotated[float, Meta(description="Processors of the container of a task.", gt=0)] = 1
    docker_image: Annotated[
        str, Meta(description="Image of containers; pulled where it is missing.", extra=_env("TERMINAL_DOCKER_IMAGE"))
    ] = "nikolaik/python-nodejs:python3.14-nodejs22"
    docker_network: Annotated[bool, Meta(description="Whether containers have a network.")] = True
    docker_volumes: Annotated[
        tuple[str, ...], Meta(description="Further volumes of containers, `HOST:CONTAINER` or `HOST:CONTAINER:ro`.")
    ] = ()
    docker_forward_env: Annotated[
        tuple[str, ...], Meta(description="Variables of this environment that containers see, by name.")
    ] = ()
    docker_env: Annotated[dict[str, str], Meta(description="Variables of containers.")] = {}
    docker_extra_args: Annotated[tuple[str, ...], Meta(description="Further arguments of `docker run`.")] = ()
    docker_shm_size: Annotated[str, Meta(description="Size of /dev/shm in containers.")] = "1g"
