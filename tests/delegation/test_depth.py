"""How deep agents may start agents: through tools, through a terminal, through another program's binary."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes.core.errors import UsageError
from hermes.core.events import ApprovalAnswered
from hermes.core.messages import ToolResult, plain_text
from hermes.core.model import ModelRequest
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import open_lab
from hermes.testing.scripted import Reply, ScriptedModel, call, reply

SOURCE = Path(__file__).resolve().parents[2] / "src"
CHAT = f"PYTHONPATH={shlex.quote(str(SOURCE))} {shlex.quote(sys.executable)} -m hermes.cli.main chat -q hello"
TOOLS = ["terminal", "delegation"]


def outputs(model: ScriptedModel, goal: str) -> list[dict[str, Any]]:
    """What the tools of the task with this goal brought, in its last request."""
    requests = [request for request in model.requests if first(request) == goal]
    return [
        msgspec.json.decode(plain_text(entry.content))
        for entry in requests[-1].entries
        if isinstance(entry, ToolResult)
    ]


def first(request: ModelRequest) -> str:
    return plain_text(request.entries[0].content)  # type: ignore[union-attr]


def runs(command: str) -> Reply:
    return reply(calls=[call("terminal", command=command)])


def places(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(tmp_path), "HERMES_HOME": str(tmp_path / ".hermes"), "PATH": os.environ["PATH"], **more}


@pytest.mark.anyio
@pytest.mark.fault("B138")
async def test_our_own_command_refuses_in_a_childs_terminal(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel(
        steps=[reply(calls=[call("spawn_agent", prompt="CHILD")]), reply("done")],
        scripts={"CHILD": [runs(CHAT), reply("refused")]},
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, environ=places(tmp_path), yolo=True) as lab:
        await lab.ask("go", toolsets=TOOLS)
    (answer,) = outputs(model, "CHILD")
    assert answer["exit_code"] == 2
    assert answer["output"].strip() == (
        "hermes: an agent at depth 1 may not start another one (delegation.max_spawn_depth is 1; HERMES_DEPTH says "
        "where this command runs): do the work in this task."
    )


@pytest.mark.anyio
@pytest.mark.fault("B138")
@pytest.mark.parametrize("command", ["hermes chat -q x", "codex exec 'do it'", "cd /tmp && nohup claude -p x &"])
async def test_starting_an_agent_is_refused_where_nobody_can_be_asked(
    command: str, tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    model = ScriptedModel(
        steps=[reply(calls=[call("spawn_agent", prompt="CHILD")]), reply("done")],
        scripts={"CHILD": [runs(command), reply("refused")]},
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, environ=places(tmp_path)) as lab:
        await lab.ask("go", toolsets=TOOLS)
        decisions = lab.of(ApprovalAnswered)
    (answer,) = outputs(model, "CHILD")
    assert "it starts another agent" in answer["error"]
    assert [(decision.allowed, decision.by) for decision in decisions] == [(False, "policy")]


@pytest.mark.anyio
async def test_a_runtime_counts_the_levels_above_it(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    def delegate(_: ModelRequest) -> Reply:
        return reply(calls=[call("spawn_agent", prompt="CHILD", role="orchestrator")])

    model = ScriptedModel(
        steps=[runs("echo $HERMES_DEPTH"), delegate, reply("done")],
        scripts={
            "GRANDCHILD": [runs("echo $HERMES_DEPTH"), reply("deep")],
            "CHILD": [runs("echo $HERMES_DEPTH"), reply(calls=[call("spawn_agent", prompt="GRANDCHILD")]), reply("up")],
        },
    )
    async with open_lab(
        model,
        workspace=tmp_path,
        clock=virtual_clock,
        environ=places(tmp_path, HERMES_DEPTH="0"),
        settings={"delegation.max_spawn_depth": 3},
    ) as lab:
        await lab.ask("go", toolsets=TOOLS)
    assert [outputs(model, goal)[0]["output"].strip() for goal in ("go", "CHILD", "GRANDCHILD")] == ["1", "2", "3"]
    model.assert_complete()


@pytest.mark.anyio
async def test_a_runtime_at_the_limit_has_no_children(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel(steps=[reply(calls=[call("spawn_agent", prompt="CHILD")]), reply("done")])
    async with open_lab(
        model, workspace=tmp_path, clock=virtual_clock, environ=places(tmp_path, HERMES_DEPTH="0")
    ) as lab:
        await lab.ask("go", toolsets=TOOLS)
    assert "the depth limit is reached" in outputs(model, "go")[0]["error"]


@pytest.mark.anyio
async def test_a_runtime_past_the_limit_does_not_open(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="an agent at depth 4 may not start another one"):
        async with open_lab(ScriptedModel(), workspace=tmp_path, environ=places(tmp_path, HERMES_DEPTH="4")):
            pass


@pytest.mark.anyio
async def test_a_leaf_has_no_delegating_tools_and_an_orchestrator_has_them_all(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    tasks = [{"prompt": "LEAF"}, {"prompt": "BOSS", "role": "orchestrator"}, {"prompt": "ODD", "role": "king"}]
    model = ScriptedModel(
        steps=[reply(calls=[call("spawn_parallel", tasks=tasks)]), reply("done")],
        scripts={name: [reply("ok")] for name in ("LEAF", "BOSS", "ODD")},
    )
    async with open_lab(
        model, workspace=tmp_path, clock=virtual_clock, settings={"delegation.max_spawn_depth": 2}
    ) as lab:
        await lab.ask("go", toolsets=[*TOOLS, "async_delegation"])
    offered = {first(request): {tool.name for tool in request.tools} for request in model.requests}
    assert offered["LEAF"] == offered["ODD"] == {"terminal", "process"}
    assert {"delegate_task", "spawn_parallel", "wait_tasks", "steer_task"} <= offered["BOSS"]
    assert "unknown role 'king' was read as 'leaf'" in outputs(model, "go")[0]["notes"]
