"""Ringing another process and finding the host of a home."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import anyio
import pytest

from hermes.store.hosting import HostInfo, HostLock, host_alive, host_info, request_stop, stop_requested
from hermes.store.wake import open_bell, ring


@pytest.mark.anyio
@pytest.mark.may_block  # its programs make and close bells on a thread
@pytest.mark.parametrize("depth", [0, 12])
async def test_a_bell_is_rung_and_cleared(tmp_path: Path, depth: int) -> None:
    home = tmp_path.joinpath(*["a_long_name_of_a_folder"] * depth)
    (home / "run").mkdir(parents=True)
    bell = open_bell(home, "0123456789abcdef")
    assert bell is not None
    assert stat.S_IMODE(bell.path.stat().st_mode) == 0o600
    assert ring(home, "0123456789abcdef") and ring(home, "0123456789abcdef")
    with anyio.fail_after(60):
        await anyio.wait_readable(bell.socket)
    bell.clear()
    with anyio.move_on_after(0) as nothing:
        await anyio.wait_readable(bell.socket)
    assert nothing.cancelled_caught
    bell.close()
    bell.close()
    assert not bell.path.exists() and not ring(home, "0123456789abcdef")


def test_a_bell_that_cannot_be_made_is_none(tmp_path: Path) -> None:
    assert open_bell(tmp_path / "missing", "x") is None
    assert not ring(tmp_path / "missing", "x")


def test_a_bell_rung_too_often_is_still_rung(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    bell = open_bell(tmp_path, "busy")
    assert bell is not None
    assert all(ring(tmp_path, "busy") for _ in range(2_000))
    bell.close()


def test_one_host_a_home_and_it_says_who_it_is(tmp_path: Path) -> None:
    assert not host_alive(tmp_path) and host_info(tmp_path) is None
    with HostLock(tmp_path) as lock, HostLock(tmp_path) as second:
        assert lock.take() and not second.take()
        assert host_alive(tmp_path) and host_info(tmp_path) is None
        lock.say(HostInfo(pid=os.getpid(), owner="o", started_at=1.0))
        lock.say(HostInfo(pid=7, owner="o", started_at=1.0))
        assert host_info(tmp_path) == HostInfo(pid=7, owner="o", started_at=1.0)
        request_stop(tmp_path)
        assert stop_requested(tmp_path)
    assert not host_alive(tmp_path) and host_info(tmp_path) is None
    with HostLock(tmp_path) as lock:
        assert lock.take() and not stop_requested(tmp_path)
