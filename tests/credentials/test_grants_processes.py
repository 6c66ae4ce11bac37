"""Three real processes of one home with one key, against one bucket, on a time that a busy machine keeps up with."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.credentials.asker import SECRET

RATE, BURST = 60.0, 60.0
TASKS, TURNS, RAMP = 60, 8, 4.0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_processes_of_one_home_use_up_one_bucket_together(tmp_path: Path) -> None:
    serve = [sys.executable, "-m", "tests.credentials.bucket_server", str(RATE), str(BURST)]
    with subprocess.Popen(serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        url = json.loads(server.stdout.readline())["base_url"]
        command = [sys.executable, "-m", "tests.credentials.asker", url, str(tmp_path / "home"), str(TASKS), str(TURNS)]
        asking = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        said: list[dict[str, Any]] = [json.loads(each.communicate(timeout=500)[0].splitlines()[-1]) for each in asking]
        server.stdin.close()
        server.wait(timeout=60)
    assert sum(each["failed"] for each in said) == 0
    # The ramp, in which three that know nothing yet meet the limit, is told apart.
    begin, end = max(each["began"] for each in said) + RAMP, min(each["ended"] for each in said) - 0.5
    accepted = sum(begin <= at < end for each in said for at in each["accepted"])
    refused = sum(begin <= at < end for each in said for at in each["refused"])
    assert end - begin > 4.0 and accepted / (RATE * (end - begin)) >= 0.9
    assert refused <= 0.05 * (accepted + refused)
    each_one = [sum(begin <= at < end for at in each["accepted"]) for each in said]
    assert min(each_one) > 0.5 * max(each_one)
    file = tmp_path / "home" / "run" / "limits.db"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and SECRET.encode() not in file.read_bytes()
