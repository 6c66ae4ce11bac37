"""A whole run speaks the format of its server; a child speaks that of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.testing.faults import Fault
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import Request, serve_in_thread
from tests.cli.program import Program, worker


@pytest.mark.parametrize(
    ("mode", "path"),
    [("anthropic_messages", "/v1/messages"), ("codex_responses", "/v1/responses")],
)
def test_a_run_with_tools_and_thinking(tmp_path: Path, mode: str, path: str) -> None:
    program = Program(tmp_path)
    program.configure(f"model:\n  default: gpt-5\n  api_mode: {mode}\nagent:\n  reasoning_effort: low\n")
    with serve_in_thread(worker) as server:
        ran = program.use(server).run("chat", "-q", "look around")
        requests = list(server.requests)
    assert (ran.code, ran.out) == (0, "done\n"), ran.err
    assert [request.path for request in requests] == [path, path]
    assert "I look first." in str(requests[1].body), "thinking goes back with its calls"
    assert "out" in requests[1].last


@pytest.mark.fault("B059")
@pytest.mark.parametrize(
    "children",
    [
        "  base_url: {url}\n  model: b\n  api_mode: anthropic_messages\n",
        "  model: far\n  routes:\n    far: {{base_url: '{url}', model: b, api_mode: anthropic_messages}}\n",
    ],
)
def test_a_child_speaks_the_format_of_its_own_server(tmp_path: Path, children: str) -> None:
    def script(request: Request) -> Reply | Fault:
        if request.model == "b":
            return reply("from the child")
        if request.turn == 0:
            return reply(calls=[call("delegate_task", goal="count the files")])
        return reply("done")

    program = Program(tmp_path)
    with serve_in_thread(script) as server:
        program.configure(f"model:\n  default: a\ndelegation:\n{children.format(url=server.base_url)}")
        ran = program.use(server).run("chat", "-q", "go")
        paths = [(request.model, request.path) for request in server.requests]
    assert (ran.code, ran.out) == (0, "done\n"), ran.err
    assert ("b", "/v1/messages") in paths and {path for name, path in paths if name == "a"} == {"/v1/chat/completions"}
    assert {name for name, _ in paths} == {"a", "b"}
