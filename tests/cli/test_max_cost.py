"""Limits of money on the command line, against a loopback provider."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes.core.messages import Usage
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import Request, serve_in_thread
from tests.cli.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def dear(request: Request) -> Reply:
    """Each call costs $0.40 by the price of gpt-5: 320,000 tokens in."""
    return reply("half of it", calls=[call("todo", todos=[])], usage=Usage(input=320_000, output=1))


def test_a_limit_on_a_model_of_unknown_price_is_refused_before_anything_runs(program: Program) -> None:
    with serve_in_thread(dear) as server:
        ran = program.use(server).run("-m", "own/model", "chat", "-q", "go", "--max-cost", "2")
        assert server.requests == []
    assert ran.code == 2
    assert "the price of own/model is unknown, so the limit of $2 cannot be held" in ran.err
    assert "own/model: {price_input: 1.0, price_output: 4.0}" in ran.err


def test_the_usual_limit_says_once_that_it_counts_nothing(program: Program) -> None:
    with serve_in_thread(lambda request: reply("fine")) as server:
        ran = program.use(server).run("-m", "own/model", "chat", "-q", "go")
        silent = program.run("-m", "own/model", "--max-cost", "0", "chat", "-q", "go")
    assert (ran.code, ran.out) == (0, "fine\n")
    assert ran.err.count("the price of own/model is unknown") == 1
    assert "unknown" not in silent.err


def test_a_run_ends_at_its_limit_with_what_it_has(program: Program) -> None:
    with serve_in_thread(dear) as server:
        ran = program.use(server).run("-m", "gpt-5", "chat", "-q", "go", "--max-cost", "0.7", "--json", "-t", "todo")
    result = json.loads(ran.out.splitlines()[-1])
    assert ran.code == 75
    assert (result["exit_reason"], result["truncated"], result["summary"]) == ("budget", True, "half of it")
    assert result["cost_usd"] == pytest.approx(0.4, abs=0.001)
    assert "cost limit of $0.7 reached (session)" in result["error"]
    spent = json.loads(program.run("usage", "--json").out)["total"]
    assert spent["cost_usd"] == pytest.approx(result["cost_usd"])


def test_a_limit_is_not_taken_by_a_command_that_has_none(program: Program) -> None:
    ran = program.run("--max-cost", "2", "batch", "run", "--dataset_file=x", "--run_name=y")
    assert ran.code == 2
    assert "--max-cost is a limit of chat and does nothing in batch" in ran.err


def test_what_the_flags_of_a_resumed_session_name_holds_for_good(program: Program) -> None:
    with serve_in_thread(lambda request: reply("fine", usage=Usage(input=1_000, output=1))) as server:
        program.use(server)
        assert program.run("-m", "gpt-5", "chat", "-q", "one").code == 0
        other = program.run("-m", "gpt-5-mini", "chat", "--resume", "-q", "two", "--max-cost", "3")
        assert other.code == 0 and "from here on gpt-5-mini answers (so far gpt-5)" in other.err
        again = program.run("chat", "--resume", "-q", "three")
        assert again.code == 0, again.err
        assert [request.body["model"] for request in server.requests] == ["gpt-5", "gpt-5-mini", "gpt-5-mini"]
        assert [len(request.body["messages"]) for request in server.requests] == [2, 4, 6]
