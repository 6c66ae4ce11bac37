"""`terminal` and `process`: what the model is told."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from hermes.core.environment import CommandResult
from hermes.core.errors import ToolError
from hermes.core.messages import Text
from hermes.core.tools import ToolOutput
from hermes.tools.toolsets import TerminalToolset
from tests.tools.place import Place, call, tools_of

pytestmark = pytest.mark.anyio


async def run(place: Place, **arguments: Any) -> ToolOutput:
    tools = tools_of(TerminalToolset(lambda _: place, timeout=60, max_timeout=600), "t", place)
    return await call(tools["terminal"], **arguments)


async def test_a_non_zero_exit_code_is_no_failure(place: Place) -> None:
    place.answers = [CommandResult(output="x\n", exit_code=2, duration=0.1, cwd="/")]
    output = await run(place, command="false")
    assert output.details == {"output": "x\n", "exit_code": 2}
    assert (output.is_error, output.success) == (False, True)
    assert output.preview == "exit 2, 0.1 s, 0 bytes"


async def test_a_time_limit_is_an_answer_that_counts_as_failure(place: Place) -> None:
    place.answers = [CommandResult(output="part", exit_code=None, duration=5, cwd="/", stopped="timeout")]
    output = await run(place, command="sleep 9", timeout=5)
    assert output.details["output"] == "part"
    assert "within 5 s" in output.details["error"]
    assert (output.is_error, output.success) == (False, False)


async def test_a_name_that_is_no_utf8_costs_no_result(place: Place) -> None:
    said = "The directory /w/\udcff no longer exists; the command ran in /w."
    place.answers = [CommandResult(output="hi\n", exit_code=0, duration=1, cwd="/w", notes=(said,))]
    output = await run(place, command=":")
    assert isinstance(output.content[0], Text)
    answer = json.loads(output.content[0].text)
    assert (answer["output"], answer["note"]) == ("hi\n", said.replace("\udcff", "\ufffd"))


async def test_a_limit_of_the_sandbox_is_told_in_its_words(place: Place) -> None:
    said = "There were 600 processes and threads, of 512 (terminal.sandbox_processes)."
    place.answers = [CommandResult(output="", exit_code=None, duration=5, cwd="/", stopped="limit", passed=said)]
    output = await run(place, command=":")
    assert output.details["error"] == f"The command was killed with everything it had started. {said}"
    assert output.success is False


async def test_notes_and_the_file_with_everything(place: Place) -> None:
    place.answers = [
        CommandResult(
            output="x", exit_code=0, duration=0, cwd="/", truncated=True, output_path="/o", notes=("A.", "B.")
        )
    ]
    output = await run(place, command="seq 9")
    assert output.details == {"output": "x", "exit_code": 0, "full_output": "/o", "note": "A. B."}


@pytest.mark.parametrize(("given", "used"), [(None, 60), (5, 5), (9999, 600), ("30", 30), (0, 60), (-1, 0)])
async def test_the_limit(place: Place, given: Any, used: float) -> None:
    place.answers = [CommandResult(output="", exit_code=0, duration=0, cwd="/")]
    await run(place, command="true", timeout=given)
    assert place.calls[0][1]["timeout"] == used


async def test_an_empty_command_is_refused(place: Place) -> None:
    with pytest.raises(ToolError, match="empty"):
        await run(place, command="  ")


@pytest.mark.fault("B051")
async def test_the_answer_to_a_start_names_the_limit(place: Place) -> None:
    output = await run(place, command="serve", background=True)
    assert output.details["session_id"] == "proc_00000001"
    assert "killed when this task ends" in output.details["note"]
    place.info = msgspec.structs.replace(place.info, limit=30.0)
    output = await run(place, command="serve", background=True, workdir="/x")
    assert "killed after 30 s or when this task ends" in output.details["note"]
    assert place.calls[-1][1]["cwd"] == "/x"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"action": "poll"}, {"output": "polled", "status": "running"}),
        ({"action": "log", "offset": 3, "limit": 9}, {"output": "log 3 9", "first_line": 3, "total_lines": 4}),
        ({"action": "wait", "timeout": 5}, {"output": "waited 5", "timed_out": True}),
        ({"action": "wait", "timeout": 500}, {"output": "waited 60"}),
        ({"action": "kill"}, {"status": "killed", "reason": "request", "exit_code": 143}),
    ],
)
async def test_actions(place: Place, arguments: dict[str, Any], expected: dict[str, Any]) -> None:
    tools = tools_of(TerminalToolset(lambda _: place, timeout=60), "t", place)
    output = await call(tools["process"], session_id="proc_00000001", **arguments)
    assert {name: output.details[name] for name in expected} == expected


async def test_list_and_missing_ids(place: Place) -> None:
    process = tools_of(TerminalToolset(lambda _: place), "t", place)["process"]
    assert [row["command"] for row in (await call(process, action="list")).details["processes"]] == ["serve"]
    with pytest.raises(ToolError, match="proc_00000001"):
        await call(process, action="poll")
    with pytest.raises(ToolError):
        await call(process, action="dance")


def test_the_toolset_says_what_it_builds(place: Place) -> None:
    toolset = TerminalToolset(lambda _: place)
    tools = tools_of(toolset, "t", place)
    assert tuple(tools) == toolset.tool_names
    assert not tools["terminal"].safe_to_repeat
    assert tools["terminal"].preview({"command": "ls\n -l"}) == "ls -l"
    assert tools["terminal"].spec.parameters["required"] == ["command"]
