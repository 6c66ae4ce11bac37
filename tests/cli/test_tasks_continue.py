"""`hermes tasks continue`: a task of a run that is over goes on, in the background, and its parent hears of it."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from hermes.cli.main import main
from hermes.store.hosting import host_alive
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import Request, serve_in_thread
from tests.cli.program import Program


def model(request: Request) -> Reply:
    if request.first_user.startswith("part"):
        return reply("the south" if request.last == "now the south" else "the north")
    if request.turn == 0:
        return reply(calls=[call("delegate_task", goal="part")])
    return reply("both" if "the south" in json.dumps(request.body) else "one of two")


def test_a_task_of_a_run_that_is_over_goes_on_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Program(tmp_path)
    monkeypatch.setenv("HERMES_HOME", str(place.home))

    def asked(*args: str) -> Any:
        """A command in this process, which is quicker."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            main(["tasks", *args, "--json"])
        assert out.getvalue(), err.getvalue()
        return json.loads(out.getvalue())

    with serve_in_thread(model) as server:
        place.use(server)
        first = place.run("-m", "test-model", "chat", "-q", "root")
        assert (first.code, first.out) == (0, "one of two\n"), first.err
        tasks = {task["goal"]: task["task_id"] for task in asked("list")["tasks"]}
        assert "Task not found" in asked("continue", "sa-nothing", "x")["error"]
        # Not in this process: the host that it starts gets the environment of the command.
        ran = place.run("tasks", "continue", tasks["part"][:9], "now the south", "--receipt", "mine", "--json")
        assert ran.code == 0, ran.err
        said = json.loads(ran.out)
        assert said["ok"] and said["receipt"]["id"] == "mine" and "hermes attach" in said["message"], said
        assert asked("collect", tasks["root"], "--timeout", "60")["summary"] == "both"
        assert asked("collect", tasks["part"])["summary"] == "the south"
        (receipt,) = asked("show", tasks["part"])["receipts"]
        assert (receipt["id"], receipt["verb"], receipt["state"]) == ("mine", "continue", "delivered")
        again = asked("continue", tasks["part"], "now the south", "--receipt", "mine")
        assert again["receipt"]["state"] == "delivered", "the same request asks once"
        assert place.run("host", "--stop").code == 0
    assert not host_alive(place.home)
    assert sum(request.last == "now the south" for request in server.requests) == 1
