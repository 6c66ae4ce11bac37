"""A living owner is never taken for dead, a dead one is proven so at once."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.core.errors import OperatorError
from hermes.store.owner import is_gone, take_ownership

_OWN = """
import sys
from pathlib import Path
from hermes.store.owner import take_ownership
owner = take_ownership(Path(sys.argv[1]))
print(owner.owner_id, flush=True)
sys.stdin.readline()
"""


def test_an_owner_lives_until_it_is_released(tmp_path: Path) -> None:
    with take_ownership(tmp_path) as owner:
        assert not is_gone(tmp_path, owner.owner_id)
        assert stat.S_IMODE(owner.path.stat().st_mode) == 0o600
        row = owner.row(12.5)
        assert (row.owner_id, row.pid, row.started_at) == (owner.owner_id, os.getpid(), 12.5)
    assert is_gone(tmp_path, owner.owner_id)
    owner.release()
    assert list((tmp_path / "run").iterdir()) == []


def test_ids_differ_and_are_never_reused(tmp_path: Path) -> None:
    first, second = take_ownership(tmp_path), take_ownership(tmp_path)
    assert first.owner_id != second.owner_id
    first.release()
    assert not is_gone(tmp_path, second.owner_id)
    with pytest.raises(OperatorError, match=second.owner_id):
        take_ownership(tmp_path, ids=lambda digits: second.owner_id)
    second.release()


@pytest.mark.fault("B077")
def test_a_stopped_process_is_alive_and_a_killed_one_is_gone(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    process = subprocess.Popen(
        [sys.executable, "-c", _OWN, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )
    with process:
        assert process.stdout is not None
        owner_id = process.stdout.readline().strip()
        assert not is_gone(tmp_path, owner_id)
        process.send_signal(signal.SIGSTOP)
        assert not is_gone(tmp_path, owner_id), "a closed laptop is no death"
        process.kill()
        process.wait()
        assert is_gone(tmp_path, owner_id)


def test_a_home_that_cannot_hold_locks_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(OperatorError, match="HERMES_HOME"):
        take_ownership(tmp_path)
    with pytest.raises(OperatorError, match="cannot look at"):
        is_gone(tmp_path, "o1")
