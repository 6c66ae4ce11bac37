"""Answers by a schema and work by a check: one correction each, and what the result says then."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from hermes.api import open_async
from hermes.core.errors import ToolError, UsageError
from hermes.core.messages import Notice, ToolResult, plain_text
from hermes.core.model import ModelRequest
from hermes.delegation.structured import check_schema, find_value, validate
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import open_lab
from hermes.testing.scripted import Reply, ScriptedModel, Step, call, hang, reply

SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer", "minimum": 0}},
    "required": ["count"],
    "additionalProperties": False,
}


def answers(request: ModelRequest, name: str) -> list[dict[str, Any]]:
    return [
        msgspec.json.decode(plain_text(entry.content))
        for entry in request.entries
        if isinstance(entry, ToolResult) and entry.name == name
    ]


async def delegated(
    tmp_path: Path, clock: VirtualClock | None, child: list[Step], *, tool: str = "spawn_agent", **given: Any
) -> tuple[dict[str, Any], ScriptedModel]:
    """One child with this script; returns its entry in the parent's answer, and the model."""
    model = ScriptedModel(
        steps=[reply(calls=[call(tool, prompt="THE CHILD", **given)]), reply("done")], scripts={"THE CHILD": child}
    )
    async with open_lab(model, workspace=tmp_path, clock=clock) as lab:
        await lab.ask("go", toolsets=["terminal", "file", "delegation"])
    model.assert_complete()
    answer = answers(model.requests[-1], tool)[0]
    return answer["results"][0] if "results" in answer else answer, model


@pytest.mark.anyio
async def test_a_valid_answer_is_parsed_and_its_text_kept(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    text = 'Here it is:\n```json\n{"count": 3}\n```'
    entry, model = await delegated(tmp_path, virtual_clock, [reply(text)], output_schema=SCHEMA)
    assert (entry["output"], entry["schema_valid"], entry["schema_errors"]) == ({"count": 3}, True, [])
    assert entry["summary"] == text
    child = next(request for request in model.requests if "THE CHILD" in request.system)
    assert '"minimum":0' in child.system
    assert "JSON schema" in child.system


@pytest.mark.anyio
async def test_one_correction_with_what_is_wrong(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    script: list[Step] = [reply('{"count": -1, "more": 1}'), reply('{"count": 1}')]
    entry, model = await delegated(tmp_path, virtual_clock, script, output_schema=SCHEMA)
    assert entry["output"] == {"count": 1}
    assert entry["api_calls"] == 2
    told = [item.text for item in model.requests[-2].entries if isinstance(item, Notice)]
    assert len(told) == 1
    assert "$.count: -1 is less than the minimum of 0" in told[0]
    assert "'more' was unexpected" in told[0]


@pytest.mark.anyio
async def test_a_second_misfit_is_kept_with_its_errors(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    script: list[Step] = [reply("three"), reply("I said three")]
    entry, _ = await delegated(tmp_path, virtual_clock, script, output_schema=SCHEMA)
    assert (entry["status"], entry["schema_valid"], entry["output"]) == ("completed", False, None)
    assert entry["schema_errors"][0].startswith("the answer is not JSON")
    assert entry["summary"] == "I said three"


@pytest.mark.anyio
async def test_an_answer_that_was_cut_short_is_not_called_valid(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    script: list[Step] = [reply('{"count": 3}', delay=60)]
    entry, _ = await delegated(tmp_path, virtual_clock, script, output_schema=SCHEMA, timeout=5)
    assert (entry["status"], entry["schema_valid"]) == ("timeout", False)
    assert entry["schema_errors"] == ["the task ended before its answer was checked"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "objekt"}, "no JSON schema"),
        ({"$ref": "http://127.0.0.1:1/schema.json"}, "its own parts only"),
        ("{", "not valid JSON"),
        ([], "must be a JSON schema"),
    ],
)
async def test_a_schema_that_is_none_starts_no_child(
    schema: Any, said: str, tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    entry, model = await delegated(tmp_path, virtual_clock, [], output_schema=schema)
    assert said in entry["error"]
    assert len(model.requests) == 2


def test_a_schema_as_text_and_with_parts_of_its_own() -> None:
    schema = check_schema('{"$defs": {"n": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/n"}}')
    assert validate([1, 2], schema) == ()
    assert validate([1, "x"], schema) == ("$[1]: 'x' is not of type 'integer'",)
    with pytest.raises(ToolError, match="at most"):
        check_schema({"enum": ["x" * 30_000]})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("17", 17),
        ('first\n```\n{"a": 1}\n```\nthen\n```json\n{"a": 2}\n```\n', {"a": 2}),
        ('It is {"a": {"b": [1]}} as asked.', {"a": {"b": [1]}}),
        ("The list: [1, 2].", [1, 2]),
    ],
)
def test_the_value_is_found_in_the_text(text: str, value: Any) -> None:
    assert find_value(text) == (value, "")


@pytest.mark.parametrize("text", ["", "  ", "none", "{", "[" * 100_000])
def test_no_value_is_said(text: str) -> None:
    value, problem = find_value(text)
    assert value is None
    assert problem


def runs(command: str) -> Reply:
    return reply(calls=[call("terminal", command=command)])


@pytest.mark.anyio
async def test_a_check_that_succeeds_is_done(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    script: list[Step] = [runs("touch made && cd /usr"), reply("made it")]
    entry, model = await delegated(tmp_path, virtual_clock, script, check="test -f made && echo there")
    assert entry["status"] == "completed"
    assert entry["check"] == {
        "command": "test -f made && echo there",
        "passed": True,
        "exit_code": 0,
        "output": "there",
    }
    assert "test -f made" in model.requests[1].system


@pytest.mark.anyio
async def test_a_failed_check_is_one_more_turn(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    script: list[Step] = [reply("made it"), runs("touch made"), reply("now really")]
    entry, model = await delegated(tmp_path, virtual_clock, script, check="ls made")
    assert (entry["status"], entry["summary"], entry["check"]["passed"]) == ("completed", "now really", True)
    told = [item.text for item in model.requests[-2].entries if isinstance(item, Notice)]
    assert len(told) == 1
    assert "exit code 2" in told[0]
    assert "cannot access 'made'" in told[0]


@pytest.mark.anyio
async def test_a_check_that_fails_twice_ends_the_child_as_failed(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    script: list[Step] = [reply("made it"), reply("it is there, believe me")]
    check = "seq 1 100; echo missing; exit 3"
    entry, _ = await delegated(tmp_path, virtual_clock, script, check=check)
    assert (entry["status"], entry["summary"]) == ("failed", "it is there, believe me")
    assert entry["error"] == f"the check `{check}` failed twice (exit code 3): missing"
    assert (entry["check"]["passed"], entry["check"]["exit_code"]) == (False, 3)
    assert entry["check"]["output"].splitlines()[0] == "62"  # the last forty lines


@pytest.mark.anyio
async def test_a_check_passes_the_same_gate_as_commands(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    entry, _ = await delegated(tmp_path, virtual_clock, [reply("done")], check="sudo reboot")
    assert entry["status"] == "failed"
    assert "could not be run: Denied" in entry["error"]
    assert entry["check"]["exit_code"] is None


@pytest.mark.anyio
async def test_a_check_needs_a_terminal_of_the_parent(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel(steps=[reply(calls=[call("spawn_agent", prompt="x", check="ls")]), reply("done")])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("go", toolsets=["delegation"])
    assert "you have no terminal to give" in answers(model.requests[-1], "spawn_agent")[0]["error"]


@pytest.mark.anyio
async def test_schema_first_then_check(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    script: list[Step] = [reply("no json"), reply('{"count": 1}'), runs("touch made"), reply('{"count": 2}')]
    entry, _ = await delegated(tmp_path, virtual_clock, script, output_schema=SCHEMA, check="test -f made")
    assert (entry["status"], entry["output"], entry["check"]["passed"]) == ("completed", {"count": 2}, True)


@pytest.mark.anyio
async def test_a_background_child_brings_the_value_to_whoever_collects(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    def collect(request: ModelRequest) -> Reply:
        return reply(calls=[call("collect_task", task_id=answers(request, "delegate_task_async")[0]["task_id"])])

    model = ScriptedModel(
        steps=[reply(calls=[call("delegate_task_async", goal="CHILD", output_schema=SCHEMA)]), collect, reply("done")],
        scripts={"CHILD": [reply('{"count": 5}', delay=3)]},
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("go", toolsets=["delegation", "async_delegation"])
    answer = answers(model.requests[-1], "collect_task")[0]
    assert (answer["output"], answer["schema_valid"], answer["summary"]) == ({"count": 5}, True, '{"count": 5}')


@pytest.mark.anyio
async def test_python_asks_for_a_shape_and_a_proof_too(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel(steps=[reply("x"), reply('{"count": 1}'), runs("touch made"), reply('{"count": 2}')])
    async with open_async(
        model=model,
        workspace=str(tmp_path),
        environ={"HERMES_HOME": str(tmp_path / "own"), "PATH": os.environ["PATH"]},
        memory=True,
        clock=virtual_clock,
        hold=virtual_clock,
    ) as hermes:
        answer = await hermes.delegate("make it", output_schema=SCHEMA, check="test -f made")
        with pytest.raises(UsageError, match="no JSON schema"):
            await hermes.delegate("make it", output_schema={"type": "objekt"})
    assert (answer["output"], answer["schema_valid"], answer["check"]["passed"]) == ({"count": 2}, True, True)
    assert "test -f made" in model.requests[0].system


@pytest.mark.anyio
async def test_a_value_too_large_for_the_reader_is_left_in_its_file(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    text = msgspec.json.encode({"items": ["x" * 100] * 400}).decode()
    entry, _ = await delegated(tmp_path, virtual_clock, [reply(text)], output_schema={"type": "object"})
    assert (entry["schema_valid"], entry["output"]) == (True, None)
    assert entry["report_path"] in entry["output_note"]
    assert Path(entry["report_path"]).read_text() == text


@pytest.mark.anyio
async def test_many_children_with_a_shape_bring_their_values(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    tasks = [{"prompt": f"CHILD {number}", "output_schema": SCHEMA} for number in range(40)]
    model = ScriptedModel(
        steps=[reply(calls=[call("spawn_parallel", tasks=tasks)]), reply("done")],
        scripts={f"CHILD {number}": [reply(f'{{"count": {number}}}')] for number in range(40)},
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("go", toolsets=["delegation"])
    rows = answers(model.requests[-1], "spawn_parallel")[0]["results"]
    assert [row["output"] for row in rows] == [{"count": number} for number in range(40)]
    assert all(row["schema_valid"] and "summary" not in row for row in rows)


@pytest.mark.anyio
async def test_a_task_taken_up_again_is_not_sent_back_twice(tmp_path: Path) -> None:
    order = call("spawn_agent", prompt="CHILD", output_schema=SCHEMA)
    first = ScriptedModel("m", scripts={"root": [reply(calls=[order])], "CHILD": [reply("no json"), hang()]})
    async with open_lab(first, workspace=tmp_path, memory=False) as lab:
        root = await lab.start("root", toolsets=["terminal", "delegation"])
        with anyio.fail_after(60):
            while first.in_flight < 1 or len(first.requests) < 3:
                await anyio.sleep(0.01)
        # Sent back once, and the next answer has not come.
        session = root.scope.session_id
    again = ScriptedModel("m", scripts={"root": [reply("over")], "CHILD": [reply("still none")]}, check=False)
    async with open_lab(again, workspace=tmp_path, memory=False) as lab:
        root = await lab.assembly.recovery.adopt(session)
        await lab.runtime.result(root)
    entry = answers(again.requests[-1], "spawn_agent")[0]["results"][0]
    again.assert_complete()
    assert (entry["schema_valid"], entry["status"]) == (False, "completed")
