"""Control groups are used again when they are empty; what the sandbox finds out once stays true to what is there."""

from __future__ import annotations

import os
from pathlib import Path

from hermes.environments.cgroup import ControlGroups, GroupPool
from hermes.environments.project import Toolchains


def _pool(place: Path) -> GroupPool:
    root = place / "groups"
    root.mkdir(exist_ok=True)
    return GroupPool(ControlGroups(version=2, memory=root, pids=root), memory=1, processes=1)


def test_an_empty_group_serves_the_next_task_and_one_with_processes_does_not(tmp_path: Path) -> None:
    pool = _pool(tmp_path)
    first, second = pool.take(), pool.take()
    assert first is not None and second is not None and first.folders != second.folders
    for group, inside in ((first, ""), (second, "4711\n")):
        (group.folders[0] / "cgroup.procs").write_text(inside)
        (group.folders[0] / "memory.events").write_text("oom_kill 1\n")
    pool.give(first)
    pool.give(second)
    again = pool.take()
    assert again is first
    assert not again.newly_killed(), "what happened to an earlier task is told to the next one"
    (again.folders[0] / "memory.events").write_text("oom_kill 2\n")
    assert again.newly_killed() and not again.newly_killed()
    third = pool.take()
    assert third is not None and third not in (first, second)


def test_a_group_in_which_something_still_dies_serves_a_later_task(tmp_path: Path) -> None:
    pool = _pool(tmp_path)
    group = pool.take()
    assert group is not None
    door = group.folders[0] / "cgroup.procs"
    door.write_text("4711\n")
    pool.give(group)
    other = pool.take()
    assert other is not None and other is not group
    door.write_text("")
    assert pool.take() is group


def test_a_closed_pool_leaves_no_group(tmp_path: Path) -> None:
    pool = _pool(tmp_path)
    group = pool.take()
    assert group is not None and list((tmp_path / "groups").iterdir()) == list(group.folders)
    door = group.folders[0] / "cgroup.procs"
    door.touch()
    pool.give(group)
    door.unlink()  # in a real one it goes with its directory
    pool.close()
    assert list((tmp_path / "groups").iterdir()) == []


def test_two_runtimes_of_a_process_share_no_group(tmp_path: Path) -> None:
    one, other = _pool(tmp_path).take(), _pool(tmp_path).take()
    assert one is not None and other is not None and one.folders != other.folders


def test_a_directory_of_path_that_comes_or_goes_is_noticed(tmp_path: Path) -> None:
    tools, work = tmp_path / "tools", tmp_path / "work"
    chains = Toolchains()

    def seen() -> list[str]:
        return [mount.inside for mount in chains.mounts(f"/usr/bin:{tools}", "/nowhere", str(work))]

    assert seen() == []
    tools.mkdir()
    assert seen() == [str(tools)]
    assert seen() == [str(tools)]
    tools.rmdir()
    assert seen() == []


def test_directories_of_path_are_not_looked_for_again_within_a_moment(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    chains, looks_again = Toolchains(rest=1e12), Toolchains()
    for number in range(2):
        found = chains.mounts(str(tools), "/nowhere", "/elsewhere")
        assert [mount.inside for mount in found] == [str(tools)]
        assert bool(looks_again.mounts(str(tools), "/nowhere", "/elsewhere")) is (number == 0)
        if not number:
            tools.rmdir()


def test_the_interpreter_behind_an_environment_is_seen_with_it(tmp_path: Path) -> None:
    installed, environment, work = tmp_path / "python", tmp_path / "venv", tmp_path / "work"
    for folder in (installed / "bin", installed / "lib", environment / "bin", work / ".venv" / "bin"):
        folder.mkdir(parents=True)
    (installed / "bin" / "python3").touch()
    (environment / "pyvenv.cfg").touch()
    for folder in (environment / "bin", work / ".venv" / "bin"):
        os.symlink(installed / "bin" / "python3", folder / "python")
    chains = Toolchains()
    on_path = chains.mounts(f"{environment}/bin", "/nowhere", "/elsewhere")
    assert [mount.inside for mount in on_path] == [str(environment), str(installed)]
    assert [mount.inside for mount in chains.mounts(f"{work}/.venv/bin", "/nowhere", str(work))] == [str(installed)]
