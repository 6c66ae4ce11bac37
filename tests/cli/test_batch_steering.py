"""`hermes batch` from a second terminal, as programs: a run in the background is looked at and steered."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from hermes.batch.folder import RunFolder
from hermes.batch.steering import is_held
from hermes.testing.scripted import Reply, reply
from hermes.testing.server import Request, serve_in_thread
from tests.cli.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.configure("models:\n  test-model: {price_input: 10.0, price_output: 40.0}\n")
    return made


def thinking(request: Request) -> Reply:
    return reply("done", thinking="I have seen it.")


def status(program: Program, *more: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(program.run("batch", "status", "--json", *more).out)
    return found


def test_a_run_in_the_background_is_steered_from_another_terminal(program: Program) -> None:
    program.dataset(300)
    with serve_in_thread(thinking, latency=0.6) as server:
        program.use(server)
        begun = program.batch("--dataset_file=prompts.jsonl", "--run_name=far", "--num_workers=2", "--detach")
        assert begun.code == 0 and "works in the background" in begun.out and "hermes batch status far" in begun.out
        pid = status(program)["pid"]
        try:
            second = program.batch("--dataset_file=prompts.jsonl", "--run_name=far", "--resume")
            assert second.code == 75 and f"process {pid}" in second.err
            paused = program.run("batch", "pause")
            assert paused.code == 0 and paused.out.startswith("far: paused"), paused
            wider = json.loads(program.run("batch", "workers", "far", "5", "--json").out)
            assert (wider["workers"], wider["state"]) == (5, "paused")
            assert program.run("batch", "workers", "many").code == 2
            assert "goes on with 5 workers" in program.run("batch", "unpause", "far").out
            listed = program.run("batch", "list").out
            assert "far" in listed and "running" in listed
            stopped = program.run("batch", "stop")
            assert stopped.code == 0 and "--resume" in stopped.out, stopped
        finally:
            if not let_go(RunFolder(program.folder / "data", "far")):
                os.kill(pid, signal.SIGKILL)
        state = status(program, "far")
        assert state["state"] == "stopped" and state["pending"] > 0
        assert state["kept"] + state["pending"] == state["total"] == 300
        steered = program.run("batch", "pause", "far")
        assert steered.code == 1 and "nobody works on run 'far' (stopped)" in steered.err
        assert "stopped by `hermes batch stop`" in (program.folder / "data" / "far" / "run.log").read_text()
        assert program.batch("--run_name=far", "--resume", "--num_workers=100", model="").code == 0
        assert status(program)["state"] == "finished"
        assert len(server.requests) <= 300 + 5, "rows under way at the stop are asked once more at most"


def let_go(folder: RunFolder) -> bool:
    """Whether nobody works on a run any more, or soon."""
    until = time.monotonic() + 60
    while is_held(folder) and time.monotonic() < until:
        time.sleep(0.05)
    return not is_held(folder)


def test_what_cannot_be_started_is_said_before_it_goes_to_the_background(program: Program) -> None:
    program.dataset(b'{"prompt": ""}\n')
    with serve_in_thread(thinking) as server:
        refused = program.use(server).batch("--dataset_file=prompts.jsonl", "--run_name=bad", "--detach")
    assert refused.code == 2 and "prompts.jsonl:1" in refused.err and "empty" in refused.err
    assert not (program.folder / "data" / "bad").exists()


def test_a_dry_run_says_what_it_would_cost_and_touches_nothing(program: Program) -> None:
    program.dataset(100)
    with serve_in_thread(thinking) as server:
        said = program.use(server).batch("--dataset_file=prompts.jsonl", "--run_name=dry", "--dry_run")
        unknown = program.batch(
            "--dataset_file=prompts.jsonl", "--run_name=dry", "--dry_run", model="--model=some-other-model"
        )
        refused = program.batch("--dataset_file=prompts.jsonl", "--run_name=dry", "--max_cost=1", model="--model=other")
        assert server.requests == []
    assert said.code == 0 and "100 rollouts to run with test-model" in said.out and "cost: about $" in said.out
    assert "cost: unknown" in unknown.out and "price_input" in unknown.out
    assert refused.code == 2 and "the price of other is unknown" in refused.err
    assert not (program.folder / "data" / "dry" / "run.json").exists()


def test_a_limit_of_money_ends_a_run_with_75_and_the_command_to_go_on(program: Program) -> None:
    program.dataset(40)
    with serve_in_thread(thinking) as server:
        ran = program.use(server).batch("--dataset_file=prompts.jsonl", "--run_name=poor", "--max_cost=0.01")
        assert ran.code == 75, ran
        assert "stopped at --max_cost=0.01" in ran.out and "--resume --max_cost=0.02" in ran.out
        assert program.batch("--run_name=poor", "--resume", "--max_cost=100", model="").code == 0
    assert len(program.rows("poor")) == 40
    assert prices(program, "poor") == (10.0, 40.0)


def test_the_price_that_counted_stands_in_the_manifest_of_several_processes_too(program: Program) -> None:
    program.dataset(3)
    with serve_in_thread(thinking) as server:
        ran = program.use(server).batch("--dataset_file=prompts.jsonl", "--run_name=two", "--processes=2")
    assert ran.code == 0, ran
    assert prices(program, "two") == (10.0, 40.0)


def prices(program: Program, run: str) -> tuple[float, float]:
    manifest = json.loads((program.folder / "data" / run / "manifest.json").read_text("utf-8"))
    return manifest["prices"]["usd_per_million_input"], manifest["prices"]["usd_per_million_output"]
