"""Two processes with one pid and one host name, each in a pid namespace of its own, on one home."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

_HOLD = """
import os, sys, anyio
from pathlib import Path
from hermes.testing.lab import open_lab
from hermes.testing.scripted import ScriptedModel, hang

async def main():
    model = ScriptedModel("m", [hang()])
    async with open_lab(model, workspace=Path(sys.argv[1]), memory=False) as lab:
        task = await lab.start("go")
        while not model.in_flight:
            await anyio.sleep(0.01)
        await lab.runtime.store.flush()
        print(os.getpid(), task.scope.session_id, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""
_TAKE = """
import os, sys, anyio
from pathlib import Path
from hermes.core.errors import OperatorError
from hermes.testing.lab import open_lab
from hermes.testing.scripted import ScriptedModel, reply

async def main():
    model = ScriptedModel("m", [reply("done")], check=False)
    async with open_lab(model, workspace=Path(sys.argv[1]), memory=False) as lab:
        try:
            root = await lab.assembly.recovery.adopt(sys.argv[2])
        except OperatorError as error:
            print(os.getpid(), "refused", error)
            return
        result = await lab.runtime.result(root)
        print(os.getpid(), result.state, result.summary)

anyio.run(main)
"""


def in_namespace(code: str, *arguments: str) -> list[str]:
    # The child of `unshare --fork` is number 1 of its namespace, in both processes alike.
    return ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", code, *arguments]


@pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace can be made by root only")
@pytest.mark.timeout(600)
def test_one_pid_twice_never_makes_one_owner(tmp_path: Path, needs_tool: Callable[[str], Path]) -> None:
    needs_tool("unshare")
    probe = subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True)
    if probe.returncode != 0:
        pytest.skip("this machine allows no pid namespaces")
    holder = subprocess.Popen(in_namespace(_HOLD, str(tmp_path)), stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        pid, session = holder.stdout.readline().split()
        look = subprocess.run(in_namespace(_TAKE, str(tmp_path), session), capture_output=True, text=True, timeout=100)
        assert look.stdout.split()[:2] == [pid, "refused"], look.stderr
    finally:
        holder.kill()
        holder.wait(timeout=100)
        if holder.stdout is not None:
            holder.stdout.close()
    taken = subprocess.run(in_namespace(_TAKE, str(tmp_path), session), capture_output=True, text=True, timeout=100)
    assert taken.stdout.split() == [pid, "completed", "done"], taken.stderr
