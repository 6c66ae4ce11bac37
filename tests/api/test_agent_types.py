"""Agent types and routes by name from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import hermes
from hermes.core.errors import UsageError
from hermes.testing.scripted import ScriptedModel, reply

REVIEWER = """---
name: reviewer
description: reads
tools: read_file
max_iterations: 7
timeout: 60
---

You review code.
"""


def test_a_task_is_made_from_an_agent_type(tmp_path: Path) -> None:
    folder = tmp_path / ".hermes" / "agents"
    folder.mkdir(parents=True)
    (folder / "reviewer.md").write_text(REVIEWER)
    model = ScriptedModel(steps=[reply("fine"), reply("fine")])
    with hermes.open(model=model, memory=True, workspace=str(tmp_path)) as runtime:
        tasks = runtime.portal.value.assembly.runtime.supervisor.tasks
        task = runtime.delegate_async("look", agent="reviewer")
        assert runtime.collect(task)["agent"] == "reviewer"
        assert (tasks[task].spec.limits.turns, tasks[task].spec.limits.clock) == (7, 60)
        other = runtime.delegate_async("look", agent="reviewer", timeout=5, max_iterations=2)
        assert (tasks[other].spec.limits.turns, tasks[other].spec.limits.clock) == (2, 5)
        with pytest.raises(UsageError, match="there is no agent type 'painter'. Agent types: reviewer"):
            runtime.delegate_async("look", agent="painter")
        runtime.collect(other)
    assert [tool.name for tool in model.requests[0].tools] == ["read_file"]
    assert model.requests[0].system.count("You review code.") == 1


def test_a_route_is_chosen_by_name(tmp_path: Path) -> None:
    settings = {"delegation.routes": {"cheap": {"model": "small", "reasoning_effort": "low"}}}
    model = ScriptedModel(steps=[reply("fine")])
    with hermes.open(model=model, memory=True, workspace=str(tmp_path), settings=settings) as runtime:
        tasks = runtime.portal.value.assembly.runtime.supervisor.tasks
        with pytest.raises(UsageError, match="there is no route 'dear'. Routes: cheap"):
            runtime.delegate_async("look", route="dear")
        task = runtime.delegate_async("look", route="cheap")
        runtime.collect(task)
        assert (tasks[task].spec.model.name, tasks[task].spec.reasoning_effort) == ("small", "low")
