"""Groups, sampling and verifiers of a batch through the program, against a loopback provider."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes.testing.faults import Fault, Status
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import Request, serve_in_thread
from tests.cli.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_an_endpoint_that_takes_no_temperature_stops_the_run_by_name(program: Program) -> None:
    def picky(request: Request) -> Reply | Fault:
        if "temperature" in request.body:
            return Status(status=400, message="Unsupported value: 'temperature' does not support 0.7 with this model.")
        return reply("fine", thinking="why")

    data = program.dataset(5)
    with serve_in_thread(picky) as server:
        ran = program.use(server).batch(f"--dataset_file={data}", "--run_name=r", "--temperature=0.7")
        assert server.count == 1, "no other row is tried"
    assert ran.code == 1 and "pending 5 of 5" in ran.out
    assert "takes no temperature" in ran.out and "Leave temperature out" in ran.out


@pytest.mark.fault("B124")
@pytest.mark.parametrize("place", ["local", "sandbox"])
def test_groups_are_scored_where_their_commands_ran(program: Program, place: str, needs_tool: Any) -> None:
    if place == "sandbox":
        needs_tool("bwrap")
    program.environ["TERMINAL_ENV"] = place
    source = program.folder / "source"
    source.mkdir()
    (source / "total.txt").write_text("0\n", encoding="utf-8")
    row = {
        "prompt": "Write 7 to total.txt.",
        "cwd": "source",
        "toolsets": ["terminal"],
        "verifier": [{"type": "command", "run": "grep -qx 7 total.txt"}, {"type": "exact", "value": "done"}],
    }
    (program.folder / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")

    def worker(request: Request) -> Reply:
        if request.turn == 0:
            return reply(thinking="so", calls=[call("terminal", command=f"echo {request.body['seed']} > total.txt")])
        return reply("done", thinking="it is written")

    with serve_in_thread(worker) as server:
        ran = program.use(server).batch(
            "--dataset_file=rows.jsonl", "--run_name=r", "--rollouts_per_prompt=3", "--temperature=1", "--seed=6"
        )
    assert ran.code == 0, ran
    rows = program.rows("r")
    assert [(row["rollout_index"], row["score"], row["verified"], row["completed"]) for row in rows] == [
        (0, 0.5, False, True),
        (1, 1.0, True, True),
        (2, 0.5, False, True),
    ]
    assert (source / "total.txt").read_text("utf-8") == "0\n", "each works on a copy of its own"
    assert not (program.folder / "data" / "r" / "workspaces").exists()
