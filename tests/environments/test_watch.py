"""Limits that hermes looks after itself: what a task writes in total, and root's processes without control groups."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from hermes.core.scope import CallKey
from hermes.environments.cgroup import ControlGroups
from hermes.environments.local import LocalEnvironment
from hermes.environments.watch import DiskRoom, Watch, crowded
from tests.environments.threads import no_thread_to_be_had

ONE = f"sa-{os.getpid():x}"
KEY = CallKey(ONE, 1, 0)
MIB = 1024 * 1024
Make = Callable[..., LocalEnvironment]


class Disk:
    """A file system whose use is what a test says."""

    def __init__(self) -> None:
        self.used = 1000 * MIB
        self.asked = 0

    def __call__(self, _folder: str) -> int:
        self.asked += 1
        return self.used


def written(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def nobody() -> list[int]:
    raise AssertionError("files are not counted before the disk has filled")


def test_files_are_counted_once_the_disk_has_filled(tmp_path: Path) -> None:
    disk = Disk()
    room = DiskRoom([str(tmp_path)], 4 * MIB, used=disk)
    written(tmp_path / "a" / "b", 5 * MIB)
    assert room.look(nobody) == ""
    disk.used += 4 * MIB
    assert room.look(nobody) == "", "as much as the task may have"
    disk.used += MIB
    said = room.look()
    assert "takes 5 MB of the disk, of 4 MB (terminal.container_disk). Remove what is not needed." in said


def test_what_others_write_and_what_was_there_counts_for_nobody(tmp_path: Path) -> None:
    old = written(tmp_path / "old", 6 * MIB)
    disk = Disk()
    room = DiskRoom([str(tmp_path)], 4 * MIB, used=disk, since=old.stat().st_ctime + 0.000_001, clock=lambda: 0.0)
    disk.used += 5 * MIB
    assert room.look() == ""
    new = written(tmp_path / "new", 3 * MIB)
    while new.stat().st_ctime <= old.stat().st_ctime + 0.000_001:  # the clock of a file system goes in ticks
        new.touch()
    os.link(new, tmp_path / "same")
    disk.used += 5 * MIB
    assert room.look() == "", "a second name takes no room"
    written(tmp_path / "more", 2 * MIB)
    disk.used += 5 * MIB
    assert "takes 5 MB" in room.look()


def test_who_must_not_be_held_up_can_ask_whether_files_will_be_counted(tmp_path: Path) -> None:
    disk = Disk()
    room = DiskRoom([str(tmp_path)], 4 * MIB, used=disk)
    assert not room.near
    disk.used += 3 * MIB
    assert room.look(nobody) == "" and room.near

    def meanwhile() -> list[int]:
        assert room.near
        return []

    disk.used += 2 * MIB
    assert room.look(meanwhile) == "" and not room.near


def test_a_task_at_its_limit_is_told_again_when_it_goes_on(tmp_path: Path) -> None:
    disk = Disk()
    room = DiskRoom([str(tmp_path)], 4 * MIB, used=disk, clock=lambda: 0.0)
    written(tmp_path / "a", 5 * MIB)
    disk.used += 5 * MIB
    assert room.look()
    assert room.look(nobody) == "", "one that removes things is not in the way"
    disk.used -= 1 * MIB
    assert room.look(nobody) == ""
    disk.used += 3 * MIB
    assert room.look()


def test_a_count_rests_for_longer_than_it_took(tmp_path: Path) -> None:
    disk = Disk()
    now = 0.0

    def slow() -> list[int]:
        nonlocal now
        now += 2.0
        return []

    room = DiskRoom([str(tmp_path)], 4 * MIB, used=disk, clock=lambda: now)
    written(tmp_path / "a", 3 * MIB)
    disk.used += 5 * MIB
    assert room.look(slow) == "" and now == 2.0
    written(tmp_path / "b", 3 * MIB)
    disk.used += 5 * MIB
    now = 41.0
    assert room.look(nobody) == ""
    now = 42.0
    assert "takes 6 MB" in room.look()


def test_files_without_a_name_count_while_they_are_open(tmp_path: Path) -> None:
    disk = Disk()
    room = DiskRoom([str(tmp_path)], 4 * MIB, used=disk)
    with open(written(tmp_path / "gone", 5 * MIB), "rb"):
        (tmp_path / "gone").unlink()
        disk.used += 5 * MIB
        assert "takes 5 MB" in room.look(lambda: [os.getpid()])


def test_a_directory_that_cannot_be_looked_into_is_no_way_around(tmp_path: Path) -> None:
    disk = Disk()
    room = DiskRoom([str(tmp_path)], 4 * MIB, used=disk)
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(tmp_path)
        for _ in range(20):  # 5,000 characters
            os.mkdir(b"\xff" * 250)
            os.chdir(b"\xff" * 250)
        disk.used += 5 * MIB
        said = room.look()
    finally:
        os.chdir(before)
        os.close(before)
        subprocess.run(["rm", "-rf", str(tmp_path)], check=True)
    assert "more than 4 MB" in said and "cannot be counted" in said and "File name too long" in said
    assert said.encode("utf-8"), "whatever its name, it can be told"


def test_a_workspace_that_is_gone_is_nothing_to_count(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    room = DiskRoom([str(folder)], MIB)
    assert room.look() == ""
    folder.mkdir()
    room = DiskRoom([str(folder)], MIB)
    folder.rmdir()
    assert room.look() == ""


def test_one_thread_looks_while_there_is_something_to_look_at() -> None:
    watch = Watch(every=0.001)
    looked, told = threading.Event(), threading.Event()
    said: list[str] = []

    def look() -> str:
        looked.set()
        return "full" if len(said) == 0 and told.is_set() else ""

    def tell(text: str) -> None:
        said.append(text)
        done.set()

    done = threading.Event()
    end = watch.begin(look, tell)
    assert looked.wait(300)
    told.set()
    assert done.wait(300) and said == ["full"]
    end()
    end()
    other = watch.begin(lambda: "", said.append)
    other()
    watch.close()
    watch.close()
    assert said == ["full"]


def test_a_thread_that_cannot_be_had_once_is_asked_for_again() -> None:
    watch, told = Watch(every=0.001), threading.Event()
    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        told.set()

    with no_thread_to_be_had(), pytest.raises(RuntimeError, match="thread"):
        watch.begin(lambda: "of one that never began", said.append)
    watch.begin(lambda: "full", tell)
    assert told.wait(300)
    watch.close()
    assert said == ["full"]


@pytest.fixture
def make(sandboxed: Make) -> Make:
    return sandboxed


#: It goes on and on, since what a neighbour removes in a moment hides what is written in it.
FILL = "for n in $(seq 900); do head -c 1000000 /dev/urandom > {place}/fill$n; sleep 0.05; done; sleep 600"


@pytest.mark.anyio
@pytest.mark.may_block
@pytest.mark.parametrize("place", [".", "/tmp", "$HOME"])  # noqa: S108  the task's own
async def test_a_command_that_fills_the_disk_is_ended_and_told_why(make: Make, tmp_path: Path, place: str) -> None:
    env = make(disk=20 * MIB)
    result = await env.run(FILL.format(place=place), key=KEY, timeout=500)
    assert (result.stopped, result.exit_code) == ("limit", None)
    assert "of 20 MB (terminal.container_disk)" in result.passed
    after = await env.run(f"rm {place}/fill*; echo made room", key=KEY)
    assert (after.output, after.exit_code, after.stopped) == ("made room\n", 0, "")


@pytest.mark.anyio
@pytest.mark.may_block
async def test_an_unnamed_file_and_a_process_in_the_background_are_no_way_around(make: Make, tmp_path: Path) -> None:
    env = make(disk=20 * MIB)
    (tmp_path / "project" / "fill.py").write_text(
        "import os, time\nf = open('f', 'wb')\nos.unlink('f')\n"
        "for _ in range(900):\n    f.write(os.urandom(1_000_000))\n    f.flush()\n    time.sleep(0.05)\n"
        "time.sleep(600)\n"
    )
    started = await env.start("exec python3 fill.py", key=KEY)
    with anyio.fail_after(500):
        ended = await env.wait(started.process_id, 500)
    assert ended.info.state == "killed"
    assert ended.info.reason.startswith("policy: What was written in the sandbox")


@pytest.mark.anyio
@pytest.mark.may_block
async def test_many_short_commands_are_told_too(make: Make) -> None:
    env = make(disk=10 * MIB)
    notes: tuple[str, ...] = ()
    for number in range(400):
        result = await env.run(f"head -c 2000000 /dev/urandom > f{number}", key=KEY)
        notes += result.notes
        if notes or result.stopped:
            break
    assert result.stopped == "limit" or "of 10 MB (terminal.container_disk)" in str(notes)


@pytest.mark.anyio
@pytest.mark.may_block
async def test_processes_of_root_without_control_groups_are_limited(make: Make) -> None:
    if os.getuid() != 0:
        pytest.skip("the kernel limits the processes of everybody but root")
    env = make(groups=ControlGroups(reason="none"), processes=40)
    result = await env.run("for n in $(seq 200); do sleep 600 & done; wait", key=KEY, timeout=500)
    assert result.stopped == "limit"
    assert "of 40 (terminal.sandbox_processes)" in result.passed
    few = await env.run("for n in $(seq 5); do sleep 0.01 & done; wait; echo fine", key=KEY)
    assert few.output == "fine\n"


def test_processes_of_another_namespace_are_found(needs_tool: Any) -> None:
    needs_tool("bwrap")
    argv = ["bwrap", "--unshare-user", "--unshare-pid", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc"]
    inside = "import subprocess, sys; p = subprocess.Popen(['sleep', '600']); print('up', flush=True); p.wait()"
    with subprocess.Popen([*argv, "--", sys.executable, "-c", inside], stdout=subprocess.PIPE) as leader:
        assert leader.stdout is not None and leader.stdout.readline() == b"up\n"
        found = Watch().inside(leader.pid)
        said = crowded(found, 2)
        leader.kill()
    assert len(found) == 3, "the first of them, the command, and what that started"
    assert said == "There were 3 processes and threads, of 2 (terminal.sandbox_processes)."
    assert crowded(found, 3) == "" and Watch().inside(os.getpid()) == []
