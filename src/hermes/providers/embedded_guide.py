"""How a tiny model is led through a request: which tools it sees, and solved examples of how to use them.

Pure functions from a request to a request. What stands here was found by trying with the shipped model: left alone it
calls nothing, calls forever, or copies its system text. It is for tiny models only and nothing here is a feature of
larger ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from hermes.core.messages import ToolResult, User, plain_text
from hermes.core.model import ModelRequest, ToolSpec
from hermes.providers.schema_tools import Bounds

__all__ = ["TINY_BOUNDS", "led"]

#: What a tiny model is told where there are no tools and no other text: with the one it was trained on it rambles.
_SYSTEM = "You are a helpful assistant."

#: Limits for the replies of a tiny model (characters): it rambles until it is stopped.
TINY_BOUNDS = Bounds(thought=120, string=120, answer=160)

#: For the answering turn alone: in a call the model has to repeat the words of its task.
_ANSWER_SAMPLING = {"repeat_penalty": 1.05, "repeat_last_n": 32}


def led(request: ModelRequest) -> ModelRequest:
    """Return `request` as a tiny model can follow it.

    With tools, it is offered only those that its task names by their exact names, else `terminal`, else all. The system
    text is left out: the model gets lost in it, and a beginning that all tasks share is read only once. Solved examples
    come first, and once a tool has answered without an error the model has to answer too. Without tools only a missing
    system text is replaced.
    """
    if not request.tools:
        return msgspec.structs.replace(
            request, system=request.system or _SYSTEM, extra={**_ANSWER_SAMPLING, **request.extra}
        )
    tools = _focus(request)
    answering = request.tool_choice == "none" or _has_result(request)
    examples = [message for tool in tools for message in _EXAMPLES.get(tool.name, ())]
    return msgspec.structs.replace(
        request,
        system="",
        tools=tools,
        tool_choice="none" if answering else request.tool_choice,
        prefill=(*examples, *request.prefill),
        extra={**(_ANSWER_SAMPLING if answering else {}), **request.extra},
    )


def _focus(request: ModelRequest) -> tuple[ToolSpec, ...]:
    task = next((plain_text(entry.content) for entry in request.entries if isinstance(entry, User)), "")
    words = set(re.findall(r"[a-z]+(?:_[a-z]+)+", task))  # names of one word are ordinary English
    named = tuple(tool for tool in request.tools if tool.name in words)
    return named or tuple(tool for tool in request.tools if tool.name == "terminal") or request.tools


def _has_result(request: ModelRequest) -> bool:
    for entry in reversed(request.entries):
        if isinstance(entry, User):
            return False
        if isinstance(entry, ToolResult) and not entry.is_error:
            return True
    return False


_Messages = tuple[Mapping[str, str], ...]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _solved(task: str, tool: str, call: tuple[str, Any], output: Any, reply: tuple[str, str]) -> _Messages:
    """One solved task: the call and the reply each begin with their thought."""
    return (
        {"role": "user", "content": task},
        {"role": "assistant", "content": _json({"thought": call[0], "name": tool, "arguments": call[1]})},
        {"role": "user", "content": f"Output of {tool}:\n{_json(output)}"},
        {"role": "assistant", "content": _json({"thought": reply[0], "answer": reply[1]})},
    )


def _command(task: str, command: str, thought: str, output: str, reply: tuple[str, str]) -> _Messages:
    result = {"output": output, "exit_code": 0}
    return _solved(f"{task} Use the command `{command}`.", "terminal", (thought, {"command": command}), result, reply)


def _two(first: str, second: str, reports: tuple[str, str]) -> _Messages:
    call = ("I give task 1 to one child and task 2 to the other.", {"tasks": [{"prompt": first}, {"prompt": second}]})
    output = {"results": [{"status": "completed", "summary": report} for report in reports]}
    task = f"Give two tasks to two children with spawn_parallel.\nTask 1: {first}\nTask 2: {second}"
    return _solved(task, "spawn_parallel", call, output, ("Both children are done.", " ".join(reports)))


#: Solved tasks by tool. Chosen by trying: the model copies their form, so they look like the tasks it is given.
_EXAMPLES: Mapping[str, _Messages] = {
    "terminal": (
        *_command(
            "Count the lines of story.txt.",
            "wc -l story.txt",
            "I run wc -l story.txt to count the lines.",
            "31 story.txt",
            ("The output of wc is 31.", "story.txt has 31 lines."),
        ),
        *_command(
            "Show the date.",
            "date",
            "I run date to see the date.",
            "Mon Jan 5 10:00:00 UTC 2026",
            ("The output of date is Mon Jan 5.", "The date is Mon Jan 5 2026."),
        ),
        *_command(
            "Which line of menu.txt is about tea?",
            "grep tea menu.txt",
            "I run grep tea menu.txt to find tea.",
            "green tea,3.50",
            ("The output of grep is green tea,3.50.", "The line about tea is green tea,3.50."),
        ),
    ),
    "spawn_parallel": (
        *_two(
            "Show the date. Use the command `date`.",
            "Count the lines of story.txt. Use the command `wc -l story.txt`.",
            ("The date is Mon Jan 5 2026.", "story.txt has 31 lines."),
        ),
        *_two(
            "Find tea in menu.txt. Use the command `grep tea menu.txt`.",
            "Where are we? Use the command `pwd`.",
            ("The line about tea is green tea,3.50.", "We are in /home/ada."),
        ),
    ),
}
