"""Agent types in files: what is read, what is narrowed, what a bad file says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from hermes.core.errors import ConfigError
from hermes.core.messages import ToolResult, plain_text
from hermes.core.model import ModelRequest
from hermes.delegation.agent_types import agent_folders, load_agents, read_agent
from hermes.delegation.policy import ChildOrder, DelegationPolicy, workspace_mode
from hermes.delegation.tool_names import read_tools
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import open_lab
from hermes.testing.scripted import ScriptedModel, Step, call, reply

REVIEWER = """---
name: reviewer
description: Reads code and says what is wrong with it.
tools: read_file, search_files
model: big
max_iterations: 7
timeout: 90
---

You review code. Be short.
"""
#: As another program writes them: a description that is no YAML value, its own names of tools and models.
FOREIGN = """---
name: code-reviewer
description: Use this agent when: code was written. Example: user: "done" assistant: "I review"
tools: Read, Grep, Glob, Bash, Bash(git diff:*), mcp__x__y
model: sonnet
color: red
---
You are a senior reviewer.
"""


def write(folder: Path, name: str, text: str | bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file_of_ours(tmp_path: Path) -> None:
    agent, notes = read_agent(write(tmp_path, "reviewer.md", REVIEWER))
    assert notes == ()
    assert (agent.name, agent.model, agent.max_iterations, agent.timeout) == ("reviewer", "big", 7, 90.0)
    assert (agent.toolsets, agent.tools) == (("file",), ("read_file", "search_files"))
    assert agent.prompt == "You review code. Be short."


@pytest.mark.parametrize(("field", "mode"), [("workspace", "copy"), ("isolation", "worktree")])
def test_a_type_may_have_a_workspace_of_its_own(tmp_path: Path, field: str, mode: str) -> None:
    agent, notes = read_agent(write(tmp_path, "a.md", f"---\nname: a\n{field}: {mode}\n---\nWork.\n"))
    assert (agent.workspace, notes) == (mode, ())
    order, policy = ChildOrder(goal="x"), DelegationPolicy(workspace="scratch")
    assert workspace_mode(order, agent, policy) == mode
    assert workspace_mode(msgspec.structs.replace(order, workspace="shared"), agent, policy) == "shared"
    assert workspace_mode(order, None, policy) == "scratch"


def test_a_file_of_another_program(tmp_path: Path) -> None:
    agent, notes = read_agent(write(tmp_path, "code-reviewer.md", FOREIGN))
    assert agent.description.startswith("Use this agent when: code was written.")
    assert agent.toolsets == ("terminal", "file")
    assert agent.tools == ("process", "read_file", "search_files", "terminal")
    assert len(notes) == 2
    assert "Bash(git diff:*) was left out" in notes[0]
    assert "mcp__x__y is no tool" in notes[1]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("no front matter", 1, "no front matter"),
        ("---\nname: x\n", 1, "no front matter"),
        ("---\nname: x\nrole: boss\n---\n", 3, "role is leaf or orchestrator"),
        ("---\nname: x\nisolation: vm\n---\n", 3, "isolation is one of shared, scratch, copy, worktree"),
        ("---\nname: x\n\ntimeout: soon\n---\n", 4, "positive number"),
        ("---\nname: x\nmax_iterations: 1.5\n---\n", 3, "whole number"),
        ("---\nname: a b\n---\n", 2, "is no name"),
        ("---\nname: x\ntools: {a: b}\n---\n", 3, "list of names"),
        ("---\nname: x\nname: y\n---\n", 3, "stands twice"),
        ("---\nname: [x\n---\n", 3, ""),
        (b"---\nname: x\n---\n\xff", 4, "not UTF-8"),
        ("---\n" + "x" * 300_000, 1, "too many"),
    ],
)
def test_a_bad_file_is_one_note_with_its_line(text: str | bytes, line: int, said: str, tmp_path: Path) -> None:
    path = write(tmp_path, "bad.md", text)
    with pytest.raises(ConfigError) as raised:
        read_agent(path)
    assert str(raised.value).startswith(f"{path}:{line}: ")
    assert said in str(raised.value)
    good = write(tmp_path, "good.md", REVIEWER)
    catalog = load_agents([("home", tmp_path)])
    assert [agent.path for agent in catalog.types.values()] == [str(good)]
    assert len(catalog.notes) == 1


def test_unknown_fields_are_noted_and_harmless(tmp_path: Path) -> None:
    agent, notes = read_agent(write(tmp_path, "x.md", "---\r\nmodle: y\r\nmodel: inherit\r\n---\r\nDo it.\r\n"))
    assert (agent.name, agent.model, agent.description, agent.tools) == ("x", "", "Do it.", None)
    assert notes == (f"{agent.path}:2: modle is no field of an agent type; it has no effect",)


def test_the_project_wins_over_the_home(tmp_path: Path) -> None:
    project = tmp_path / "project"
    inner = project / "src" / "deep"
    inner.mkdir(parents=True)
    (project / ".git").mkdir()
    text = "---\ndescription: {}\n---\n"
    write(tmp_path / "home" / "agents", "a.md", text.format("home"))
    write(tmp_path / "home" / "agents", "h.md", text.format("home"))
    write(project / ".claude" / "agents", "a.md", text.format("other"))
    write(project / ".claude" / "agents", "c.md", text.format("other"))
    write(project / ".hermes" / "agents", "a.md", text.format("project"))
    write(tmp_path / ".hermes" / "agents", "outside.md", text.format("outside"))
    catalog = load_agents(agent_folders(tmp_path / "home", inner))
    assert {name: agent.description for name, agent in catalog.types.items()} == {
        "a": "project",
        "c": "other",
        "h": "home",
    }


def test_the_listing_is_bounded(tmp_path: Path) -> None:
    for number in range(60):
        write(tmp_path, f"agent{number:02}.md", f"---\ndescription: {'long ' * 40}\n---\n")
    listing = load_agents([("home", tmp_path)]).listing()
    assert len(listing) < 1_300
    assert listing.endswith("more")


@pytest.mark.parametrize(
    ("tools", "without", "toolsets", "kept"),
    [
        (None, None, None, None),
        (["*"], None, None, None),
        (["terminal"], None, ("terminal",), None),
        (["process"], None, ("terminal",), ("process",)),
        (["file", "Bash"], None, ("terminal", "file"), None),
        (["file"], ["patch"], ("file",), ("read_file", "search_files", "write_file")),
        (["Read"], ["Read"], (), None),
        (["Read", "Bash"], ["Bash(rm:*)"], ("file",), ("read_file",)),
        (["*"], ["*"], (), ()),
    ],
)
def test_names_of_tools(tools: Any, without: Any, toolsets: Any, kept: Any) -> None:
    choice = read_tools(tools, None, without)
    assert (choice.toolsets, choice.tools, choice.notes) == (toolsets, kept, ())


def test_what_is_forbidden_alone_is_kept_out_of_everything() -> None:
    choice = read_tools(None, None, ["Write", "Edit"])
    assert choice.toolsets is None
    assert choice.tools is not None
    assert "read_file" in choice.tools
    assert not {"write_file", "patch"} & set(choice.tools)


def answer(request: ModelRequest) -> dict[str, Any]:
    last = [entry for entry in request.entries if isinstance(entry, ToolResult)][-1]
    found: dict[str, Any] = msgspec.json.decode(plain_text(last.content))
    return found


async def spawned(
    tmp_path: Path, clock: VirtualClock, child: list[Step], *, toolsets: list[str] | None = None, **given: Any
) -> ScriptedModel:
    model = ScriptedModel(
        steps=[reply(calls=[call("delegate_task", goal="CHILD", **given)]), reply("done")], scripts={"CHILD": child}
    )
    async with open_lab(model, workspace=tmp_path, clock=clock) as lab:
        await lab.ask("go", toolsets=toolsets or ["terminal", "file", "delegation"])
    return model


@pytest.mark.anyio
async def test_a_child_of_a_type(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    write(tmp_path / ".hermes" / "agents", "reviewer.md", REVIEWER)
    model = await spawned(tmp_path, virtual_clock, [reply("all is well")], agent="reviewer")
    parent, child = model.requests[0], model.requests[1]
    tool = next(tool for tool in parent.tools if tool.name == "delegate_task")
    assert "reviewer: Reads code and says what is wrong" in tool.parameters["properties"]["agent"]["description"]
    assert [tool.name for tool in child.tools] == ["read_file", "search_files"]
    assert "You review code. Be short." in child.system
    entry = answer(model.requests[-1])["results"][0]
    assert (entry["agent"], entry["timeout_seconds"]) == ("reviewer", 90.0)


@pytest.mark.anyio
async def test_a_type_never_widens_what_the_parent_gives(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    write(tmp_path / ".claude" / "agents", "all.md", "---\ntools: Read, Bash, Task\n---\n")
    model = await spawned(tmp_path, virtual_clock, [reply("ok")], agent="all", toolsets=["file", "delegation"])
    assert [tool.name for tool in model.requests[1].tools] == ["read_file"]
    notes = answer(model.requests[-1])["notes"]
    assert "toolset 'terminal' was not given: a child has at most what its parent may give" in notes


@pytest.mark.anyio
async def test_the_call_narrows_a_type_further(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    write(tmp_path / ".hermes" / "agents", "worker.md", "---\ntools: Read, Bash\ntimeout: 90\n---\n")
    model = await spawned(
        tmp_path, virtual_clock, [reply("ok")], agent="worker", toolsets=["terminal", "file", "delegation"], timeout=5
    )
    assert {tool.name for tool in model.requests[1].tools} == {"terminal", "process", "read_file"}
    assert answer(model.requests[-1])["results"][0]["timeout_seconds"] == 5


@pytest.mark.anyio
async def test_an_unknown_type_is_refused_with_the_list(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    write(tmp_path / ".hermes" / "agents", "reviewer.md", REVIEWER)
    write(tmp_path / ".hermes" / "agents", "broken.md", "nothing")
    model = await spawned(tmp_path, virtual_clock, [], agent="broken")
    error = answer(model.requests[-1])["error"]
    assert "there is no agent type 'broken'. Agent types: reviewer." in error
    assert "broken.md:1: no front matter" in error


@pytest.mark.anyio
async def test_every_schema_that_a_model_sees_is_one(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    write(tmp_path / ".hermes" / "agents", "reviewer.md", REVIEWER)
    model = ScriptedModel(steps=[reply("hello")])
    routes = {"cheap": {"model": "small"}}
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings={"delegation.routes": routes}) as lab:
        await lab.ask("hi", toolsets=["all"])
    tools = {tool.name: tool for tool in model.requests[0].tools}
    assert {"delegate_task", "spawn_agent", "spawn_parallel", "delegate_task_async", "wait_tasks"} <= set(tools)
    for tool in tools.values():
        jsonschema.Draft202012Validator.check_schema(tool.parameters)
        assert tool.parameters["type"] == "object"
        assert len(tool.description) < 420
    for name in ("delegate_task", "spawn_agent", "delegate_task_async"):
        assert {"agent", "model", "output_schema", "check"} <= set(tools[name].parameters["properties"])
    delegation = sum(len(msgspec.json.encode(tool.parameters)) for name, tool in tools.items() if "spawn" in name)
    assert delegation < 4_000
