"""Containers, as far as they can be tried without an engine: what a stand-in for the command is asked for."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from hermes.core.clock import NO_HOLD, Hold
from hermes.core.errors import OperatorError, ToolError
from hermes.core.scope import CallKey, TaskScope
from hermes.environments.docker import Docker, DockerSettings
from hermes.environments.local import LocalEnvironment, LocalSettings
from hermes.environments.process import processes_of_call
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import open_lab
from hermes.testing.scripted import call, reply
from tests.delegation.family import answers, family
from tests.environments.conftest import LEFT
from tests.environments.docker_stand_in import StandIn
from tests.runtime.repository import new_repository

pytestmark = [pytest.mark.anyio, pytest.mark.may_block]
#: Looked for in the environments of all processes: another run of these tests has others.
ONE = f"sa-{os.getpid()}"
TWO = f"{ONE}0"
KEY = CallKey(ONE, 1, 0)
GONE = "owner-gone"


@pytest.fixture
def engine(tmp_path: Path) -> StandIn:
    (tmp_path / "bin").mkdir()
    return StandIn(tmp_path / "bin")


@pytest.fixture
def source(engine: StandIn) -> dict[str, str]:
    return {**os.environ, "PATH": f"{engine.folder}:{os.environ['PATH']}"}


@pytest.fixture
async def make(
    tmp_path: Path, source: dict[str, str], anyio_backend: str
) -> AsyncIterator[Callable[..., LocalEnvironment]]:
    made: list[LocalEnvironment] = []
    (tmp_path / "work").mkdir()

    def build(
        task_id: str = ONE, *, borrows: Sequence[str] = (), hold: Hold = NO_HOLD, **settings: Any
    ) -> LocalEnvironment:
        docker = Docker(
            DockerSettings(home="abcdef012345", owner="me", image="some/image:1", **settings),
            source,
            lambda owner: owner == GONE,
        )
        folder, state = str(tmp_path / "work"), tmp_path / "state" / task_id
        environment = LocalEnvironment(
            TaskScope(task_id=task_id, session_id="s", root_id="r", workspace=folder),
            state,
            source=source,
            commands=anyio.CapacityLimiter(4),
            settings=LocalSettings(grace=0.3),
            enclosure=docker.container(task_id, folder, state, borrows=borrows),
            hold=hold,
        )
        made.append(environment)
        return environment

    yield build
    for environment in made:
        await environment.close()


async def test_a_task_has_one_container_with_its_limits_and_it_is_removed(
    make: Any, engine: StandIn, tmp_path: Path
) -> None:
    env = make(cpus=1.5, memory=2048, processes=99, network=False, volumes=("/data:/data:ro",), extra=("--init",))
    assert engine.calls == [], "nothing is started before it is needed"
    assert (await env.run("export A=1; pwd", key=KEY)).output == f"{tmp_path}/work\n"
    assert (await env.run("echo $A", key=KEY)).output == "1\n", "the session lasts"
    (run,) = engine.of("run")
    text = " ".join(run)
    for words in (
        f"--name hermes-abcdef01-{ONE}", "--label hermes.owner=me", "--label hermes.home=abcdef012345",
        f"--label hermes.task={ONE}", "--network none", "--cpus 1.5", "--memory 2048m", "--memory-swap 2048m",
        "--pids-limit 99", "--cap-drop ALL", "--security-opt no-new-privileges", f"--user {os.getuid()}:{os.getgid()}",
        f"--volume {tmp_path}/work:{tmp_path}/work", "--volume /data:/data:ro", "--rm", "--init some/image:1 sleep",
    ):  # fmt: skip
        assert words in text, words
    assert engine.containers == [f"hermes-abcdef01-{ONE}"]
    await env.close()
    assert engine.containers == [] and len(engine.of("rm")) == 1


async def test_what_a_workspace_borrows_is_mounted_read_only(make: Any, engine: StandIn) -> None:
    env = make(borrows=("/data/objects",))
    await env.run("true", key=KEY)
    assert "--volume /data/objects:/data/objects:ro" in " ".join(engine.of("run")[0])


async def test_the_image_is_looked_for_and_pulled_once(make: Any, engine: StandIn) -> None:
    await make().run("true", key=KEY)
    assert engine.of("pull") == [["pull", "some/image:1"]]
    await make(TWO).run("true", key=KEY)
    assert len(engine.of("pull")) == 1, "it is there now"


async def test_what_cannot_be_had_is_said(
    tmp_path: Path, engine: StandIn, source: dict[str, str], virtual_clock: VirtualClock
) -> None:
    docker = Docker(DockerSettings(home="h", owner="me"), source, lambda _: False)
    with pytest.raises(OperatorError, match="Docker image not available: missing/image .*not found"):
        docker.ready("missing/image")
    (engine.root / "down").touch()
    assert "Cannot connect to the Docker daemon" in docker.why_not()
    nowhere = Docker(DockerSettings(home="h", owner="me"), {"PATH": str(tmp_path)}, lambda _: False)
    assert "not on PATH" in nowhere.why_not()
    model = family([reply(calls=[call("terminal", command="touch here")]), reply("ok")])
    settings = {"terminal.backend": "docker"}
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings, environ=source) as lab:
        result = await lab.ask("parent", toolsets=["terminal"])
    assert result.state == "failed" and "environment_unavailable" in result.error and not (tmp_path / "here").exists()


async def test_values_of_variables_stand_in_no_list_of_processes(make: Any, engine: StandIn) -> None:
    env = make(variables={"TOKEN": "SECRET", "HOME_TOKEN": "SECRET-2"})
    assert (await env.run("echo $TOKEN $HOME_TOKEN", key=KEY)).output == "SECRET SECRET-2\n"
    assert "SECRET" not in str(engine.calls)
    seen = (await env.run("env", key=KEY)).output
    assert f"HERMES_CALL_KEY={ONE}:1:0" in seen and "HERMES_HOME" not in seen, "and nothing of the host's is passed"


async def test_a_killed_command_is_ended_inside_too(
    make: Any, engine: StandIn, run_out_of_time: Any, virtual_clock: VirtualClock
) -> None:
    env = make(hold=virtual_clock)
    result = await run_out_of_time(env, f"setsid sleep 300 & {LEFT}; echo up; sleep 300", key=KEY)
    assert result.stopped == "timeout"
    assert any(f"HERMES_CALL_KEY={ONE}:1:0" in part for call_ in engine.of("exec") for part in call_[-1:])
    assert processes_of_call(f"{ONE}:") == []


async def test_what_a_killed_process_left_is_removed_by_the_next(make: Any, engine: StandIn) -> None:
    engine.add("left", owner=GONE, home="abcdef012345", task="t")
    engine.add("living", owner="another", home="abcdef012345", task="t")
    engine.add("foreign", owner=GONE, home="another", task="t")
    engine.add(f"hermes-abcdef01-{ONE}", owner="another", home="abcdef012345", task=ONE)
    env = make()
    await env.run("true", key=KEY)
    assert engine.containers == ["foreign", f"hermes-abcdef01-{ONE}", "living"]
    assert len(engine.of("run")) == 2, "its own name was taken by the process that had the task before"


async def test_file_tools_reach_the_workspace_and_nothing_beside_it(make: Any, tmp_path: Path) -> None:
    env = make()
    await env.run("echo x > f", key=KEY)
    assert env.files.stat(f"{tmp_path}/work/f").st_size == 2
    (tmp_path / "work" / "link").symlink_to(tmp_path / "bin" / "docker")
    for path in (f"{tmp_path}/work/link", "/etc/passwd", f"{tmp_path}/bin/docker"):
        with pytest.raises((ToolError, OSError)):
            env.files.open(path)


async def test_children_in_worktrees_of_containers(
    tmp_path: Path, engine: StandIn, source: dict[str, str], virtual_clock: VirtualClock
) -> None:
    repository = new_repository(tmp_path / "repo")
    asked = call("spawn_agent", prompt="child", workspace="worktree")
    command = call("terminal", command="pwd; exit 3")
    model = family([reply(calls=[asked]), reply("ok")], child=[reply(calls=[command]), reply("done")])
    settings = {"terminal.backend": "docker"}
    async with open_lab(
        model, workspace=repository.path, clock=virtual_clock, settings=settings, environ=source
    ) as lab:
        await lab.ask("parent", toolsets=["terminal", "delegation"])
    (run,) = engine.of("run")
    volumes = [value for flag, value in zip(run, run[1:], strict=False) if flag == "--volume"]
    assert f"{repository.path}/.git:{repository.path}/.git:ro" in volumes
    (result,) = answers(model.requests[-1])[0]["results"]
    assert result["worktree"]["removed"] and engine.containers == []
