"""Workspaces of children's own: worktrees, copies, empty folders; what is left of them, and what they never touch."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from hermes.core.errors import OperatorError
from hermes.core.events import WorkspaceConflict, WorkspaceEscaped
from hermes.runtime import worktree
from hermes.runtime.task import Task
from hermes.runtime.workspaces import Workspaces
from hermes.testing import lab as laboratory
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import Lab
from hermes.testing.scripted import Reply, call, reply
from tests.delegation.family import answers, asked_by, child_of, family
from tests.runtime.repository import Checkout, new_repository

pytestmark = [pytest.mark.anyio, pytest.mark.may_block]
TOOLS = ["terminal", "file", "delegation"]


def open_lab(model: Any, **options: Any) -> Any:
    """With a home beside the workspace, so that nothing of it shows there."""
    return laboratory.open_lab(model, environ=dict(os.environ), **options)


def terminal(*commands: str) -> Reply:
    return reply(calls=[call("terminal", command=command) for command in commands])


def spawn(*goals: str, workspace: str = "worktree", **more: Any) -> Reply:
    return reply(
        calls=[call("spawn_parallel", tasks=[{"prompt": goal, "workspace": workspace, **more} for goal in goals])]
    )


@pytest.fixture
def repository(tmp_path: Path) -> Checkout:
    return new_repository(tmp_path / "repo")


def results(model: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = next(
        answer["results"] for request in model.requests for answer in answers(request) if "results" in answer
    )
    return found


@pytest.mark.fault("B018")
@pytest.mark.fault("B017")
@pytest.mark.parametrize("backend", ["local", "sandbox"])
async def test_three_children_commit_inside_a_linked_checkout_and_the_parents_is_untouched(
    tmp_path: Path, repository: Checkout, virtual_clock: VirtualClock, backend: str, needs_tool: Any
) -> None:
    if backend == "sandbox":
        needs_tool("bwrap")
    parent = repository.linked(tmp_path / "linked")
    before, first = parent.state(), repository.state()
    work = {
        name: [terminal(f"echo {name} > {name}.txt && git add -A && git commit -qm {name} && pwd"), reply("done")]
        for name in ("uno", "due", "tre")
    }
    model = family(
        [spawn("uno", "due", "tre", "idle", "look"), terminal("pwd && git status -s"), reply("ok")],
        **work,
        idle=[reply("nothing to do")],
        look=[terminal("git log --oneline && python3 -c 'import os; os.makedirs(\"__pycache__\")'"), reply("seen")],
    )
    settings = {"terminal.backend": backend}
    async with open_lab(model, workspace=parent.path, clock=virtual_clock, settings=settings) as lab:
        await lab.ask("parent", toolsets=TOOLS)
        ids = {name: child_of(lab, name).id for name in (*work, "idle", "look")}
        home = lab.assembly.home.path
    (listed,) = answers(asked_by(model, "parent")[-1])
    assert listed["output"] == f"{parent.path}\n", "the parent's session is where it was, and its directory clean"
    assert parent.state() == before and repository.state() == first
    found = {result["task_id"]: result["worktree"] for result in results(model)}
    for name in work:
        place = found[ids[name]]
        branch = f"hermes/{ids[name]}"
        path = str(home / "workspaces" / ids[name])
        assert place == {
            "mode": "worktree", "path": path, "branch": branch, "base": before[1], "commits": 1, "dirty": False,
            "removed": False,
        }  # fmt: skip
        assert repository.git("log", "--format=%s", f"main..{branch}") == name
        assert repository.git("show", f"{branch}:{name}.txt") == name
    for name in ("idle", "look"):
        assert found[ids[name]]["removed"] and found[ids[name]]["path"] is None
        assert not (home / "workspaces" / ids[name]).exists()
    assert sorted(repository.branches()) == sorted(["main", "linked", *(f"hermes/{ids[name]}" for name in work)])
    assert len(repository.worktrees()) == 2 + len(work)


async def test_what_is_left_in_a_worktree_is_never_removed(
    tmp_path: Path, repository: Checkout, virtual_clock: VirtualClock
) -> None:
    left = {
        "changed": "echo two > README",
        "untracked": "echo x > new.txt",
        "ignored": "mkdir data && echo x > data/result.csv",
        "staged": "echo x > s && git add s",
        "branched": "git switch -qc other && git commit -q --allow-empty -m o",
        "detached": "git checkout -q --detach && git commit -q --allow-empty -m o",
        "deleted": "rm README",
    }
    scripts = {name: [terminal(command), reply("done")] for name, command in left.items()}
    model = family([spawn(*left), reply("ok")], **scripts)
    async with open_lab(model, workspace=repository.path, clock=virtual_clock, yolo=True) as lab:
        await lab.ask("parent", toolsets=TOOLS)
    for name, result in zip(left, results(model), strict=True):
        place = result["worktree"]
        committed = name in ("branched", "detached")
        assert not place["removed"] and os.path.isdir(place["path"]), name
        assert (place["dirty"], place["commits"]) == (not committed, 1 if committed else 0), name
        if name == "branched":
            assert place["branch"] == "other", "the branch that its checkout really is on"


@pytest.mark.fault("B136")
@pytest.mark.parametrize("setting", [True, False])
async def test_isolation_that_cannot_be_had_starts_nothing(
    tmp_path: Path, virtual_clock: VirtualClock, setting: bool
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    Checkout(empty).git("init", "-q")
    plain = tmp_path / "plain"
    plain.mkdir()
    for folder, words in ((empty, "has none yet"), (plain, "is in none")):
        asked = (
            call("spawn_agent", prompt="child") if setting else call("spawn_agent", prompt="c", workspace="worktree")
        )
        model = family([reply(calls=[asked]), reply("ok")])
        settings = {"delegation.worktree_isolation": setting}
        async with open_lab(model, workspace=folder, clock=virtual_clock, settings=settings) as lab:
            result = await lab.ask("parent", toolsets=TOOLS)
        (answer,) = answers(model.requests[-1])
        assert answer["error"].startswith("environment_unavailable") and words in answer["error"]
        assert "Nothing was started" in answer["error"] and result.children == ()


@pytest.mark.fault("B136")
async def test_the_setting_isolates_children_that_do_not_say_otherwise(
    tmp_path: Path, repository: Checkout, virtual_clock: VirtualClock
) -> None:
    tasks = [{"prompt": "own"}, {"prompt": "both", "workspace": "shared"}]
    model = family(
        [reply(calls=[call("spawn_parallel", tasks=tasks)]), reply("ok")],
        own=[terminal("pwd; cat a.py; ls ../README"), reply("done")],
        both=[terminal("pwd"), reply("done")],
    )
    (repository.path / "src" / "late.py").write_text("late = 1\n")
    settings = {"delegation.worktree_isolation": True}
    async with open_lab(model, workspace=repository.path / "src", clock=virtual_clock, settings=settings) as lab:
        await lab.ask("parent", toolsets=TOOLS)
        own = child_of(lab, "own")
        assert own.spec.isolation is not None and own.scope.workspace == own.spec.isolation.top + "/src"
        assert own.scope.workspace in own.spec.system and own.spec.isolation.branch in own.spec.system
    (told,) = answers(asked_by(model, "own")[-1])
    assert told["output"] == f"{own.scope.workspace}\na = 1\n../README\n"
    (told,) = answers(asked_by(model, "both")[-1])
    assert told["output"] == f"{repository.path}/src\n"
    (answer,) = answers(asked_by(model, "parent")[-1])
    assert any("what is not committed" in note for note in answer["notes"])


async def test_a_copy_and_an_empty_folder(tmp_path: Path, repository: Checkout, virtual_clock: VirtualClock) -> None:
    linked = repository.linked(tmp_path / "linked")
    (linked.path / "draft.txt").write_text("draft\n")
    before = linked.state()
    tasks = [
        {"prompt": "copied", "workspace": "copy"},
        {"prompt": "reader", "workspace": "copy"},
        {"prompt": "scratched", "workspace": "scratch"},
        {"prompt": "nothing", "workspace": "scratch"},
    ]
    model = family(
        [reply(calls=[call("spawn_parallel", tasks=tasks)]), reply("ok")],
        copied=[terminal("cat draft.txt; echo more >> draft.txt; git commit -qam x 2>&1 | head -c 20"), reply("done")],
        reader=[terminal("cat draft.txt"), reply("done")],
        scratched=[terminal("ls -A; echo x > out.txt"), reply("done")],
        nothing=[reply("done")],
    )
    async with open_lab(model, workspace=linked.path, clock=virtual_clock) as lab:
        await lab.ask("parent", toolsets=TOOLS)
        root = lab.assembly.home.path / "workspaces"
    copied, reader, scratched, nothing = (result["workspace"] for result in results(model))
    assert (Path(copied["path"]) / "draft.txt").read_text() == "draft\nmore\n"
    assert os.listdir(scratched["path"]) == ["out.txt"]
    assert reader["removed"] and nothing["removed"], "nothing was left in them"
    left = {path.name for path in root.iterdir()}
    assert left == {
        name for place in (copied, scratched) for name in (Path(place["path"]).name, Path(place["path"]).name + ".made")
    }
    assert linked.state() == before


async def test_a_way_out_of_the_workspace_is_seen_after_the_step(
    tmp_path: Path, repository: Checkout, virtual_clock: VirtualClock
) -> None:
    target = repository.path / "README"
    model = family(
        [spawn("child"), reply("ok")],
        child=[
            terminal(f"echo out >> {target}"),
            reply(
                calls=[
                    call("write_file", path=str(target), content="mine"),
                    call("patch", path=str(target), old_string="o", new_string="0", replace_all=True),
                ]
            ),
            terminal(f"git -C {repository.path} commit -qam theirs"),
            terminal("echo in > mine.txt"),
            reply("done"),
        ],
    )  # fmt: skip
    async with open_lab(model, workspace=repository.path, clock=virtual_clock, yolo=True) as lab:
        await lab.ask("parent", toolsets=TOOLS)
        events = lab.of(WorkspaceEscaped)
    requests = asked_by(model, "child")
    assert "files outside of your workspace" in answers(requests[1])[0]["note"]
    for answer in answers(requests[2]):
        assert "from which this task is isolated" in answer["error"]
    assert "note" not in answers(requests[4])[0], "its own work is no way out"
    assert [event.paths for event in events] == [(str(target),), (str(target), "HEAD")]
    (result,) = results(model)
    assert result["worktree"]["escaped"] == [str(target), "HEAD"]
    assert target.read_text() == "one\nout\n"


@pytest.mark.parametrize("workspace", ["worktree", "scratch", "shared"])
async def test_a_workspace_deleted_under_a_running_child_is_a_clear_error(
    tmp_path: Path, repository: Checkout, virtual_clock: VirtualClock, workspace: str
) -> None:
    work = repository.path / "src"
    model = family(
        [spawn("child", workspace=workspace), reply("ok")],
        child=[
            terminal("echo kept > kept.txt; git add -A; git commit -qm kept; true"),
            terminal('rm -rf "$PWD"'),
            terminal("pwd"),
            reply(calls=[call("read_file", path="kept.txt")]),
            reply("lost"),
        ],
    )
    async with open_lab(model, workspace=work, clock=virtual_clock, yolo=True) as lab:
        result = await lab.ask("parent", toolsets=TOOLS)
    requests = asked_by(model, "child")
    assert "no longer exists" in answers(requests[3])[0]["error"]
    assert "There is no file" in answers(requests[4])[0]["error"]
    assert result.state == "completed"
    (told,) = results(model)
    if workspace == "worktree":
        assert told["worktree"]["commits"] == 1 and not told["worktree"]["removed"]
        assert repository.git("log", "--format=%s", f"main..{told['worktree']['branch']}") == "kept"
    if workspace == "scratch":
        assert "was deleted" in told["workspace"]["error"]


async def test_who_shares_a_worktree_behind_a_boundary_commits_on_its_branch(
    tmp_path: Path, repository: Checkout, virtual_clock: VirtualClock, needs_tool: Any
) -> None:
    """Each sees the others' commits, and none takes the branch back to where it saw it last."""
    needs_tool("bwrap")

    def commit(name: str) -> Reply:
        return terminal(f"echo {name} > {name}.txt && git add -A && git commit -qm {name}; git log --format=%s")

    model = family(
        [spawn("owner", role="orchestrator"), reply("ok")],
        owner=[commit("one"), spawn("guest", workspace="shared"), commit("three"), reply("done")],
        guest=[commit("two"), reply("done")],
    )
    settings = {"terminal.backend": "sandbox", "delegation.max_spawn_depth": 3}
    async with open_lab(model, workspace=repository.path, clock=virtual_clock, settings=settings) as lab:
        await lab.ask("parent", toolsets=TOOLS)
        branch = f"hermes/{child_of(lab, 'owner').id}"
    (guest,) = answers(asked_by(model, "guest")[-1])
    assert guest == {"output": "two\none\nfirst\n", "exit_code": 0}
    assert answers(asked_by(model, "owner")[-1])[0]["output"] == "three\ntwo\none\nfirst\n"
    assert repository.git("log", "--format=%s", branch).split() == ["three", "two", "one", "first"]


@pytest.mark.fault("B096")
async def test_a_record_of_git_without_a_checkout_is_no_obstacle(
    tmp_path: Path, repository: Checkout, virtual_clock: VirtualClock
) -> None:
    gone = tmp_path / "gone"
    repository.git("worktree", "add", "-q", "-b", "stale", str(gone))
    shutil.rmtree(gone)
    model = family([spawn("child"), reply("ok")], child=[terminal("git commit -q --allow-empty -m x"), reply("done")])
    async with open_lab(model, workspace=repository.path, clock=virtual_clock) as lab:
        await lab.ask("parent", toolsets=TOOLS)
    assert results(model)[0]["worktree"]["commits"] == 1
    assert str(gone) not in repository.worktrees() and "stale" in repository.branches()


@pytest.mark.fault("B096")
def test_a_branch_that_is_there_is_taken_up_with_its_work(tmp_path: Path, repository: Checkout) -> None:
    origin = str(repository.path)
    _, isolation, _ = worktree.plan(origin, str(tmp_path / "sa-1"), worktree.checkout_of(origin))
    worktree.make(isolation, begun=False)
    Checkout(tmp_path / "sa-1").git("commit", "-q", "--allow-empty", "-m", "kept")
    shutil.rmtree(tmp_path / "sa-1")
    with pytest.raises(OperatorError, match="workspace_missing.*on the branch hermes/sa-1"):
        worktree.make(isolation, begun=True)
    worktree.make(isolation, begun=False)
    assert Checkout(tmp_path / "sa-1").git("log", "-1", "--format=%s") == "kept"
    shutil.rmtree(tmp_path / "sa-1")
    repository.git("worktree", "prune")
    repository.git("worktree", "add", "-q", str(tmp_path / "elsewhere"), "hermes/sa-1")
    with pytest.raises(OperatorError, match="environment_unavailable.*already"):
        worktree.make(isolation, begun=False)


def test_a_checkout_that_was_being_made_when_everything_died_is_made_whole(
    tmp_path: Path, repository: Checkout
) -> None:
    origin, top = str(repository.path), tmp_path / "sa-1"
    _, isolation, _ = worktree.plan(origin, str(top), worktree.checkout_of(origin))
    worktree.make(isolation, begun=False)
    # as git leaves it when it is killed: .git stands, the files do not, and the record is locked
    (top / "README").unlink()
    Path(isolation.record, "index").unlink()
    Path(isolation.record, "locked").write_text("initializing")
    worktree.make(isolation, begun=True)
    assert (top / "README").exists() and Checkout(top).state()[::2] == ("hermes/sa-1", "")
    assert "hermes/sa-1" in repository.branches()


async def test_who_shares_a_workspace_begins_when_it_is_whole(tmp_path: Path, repository: Checkout) -> None:
    spaces = Workspaces(tmp_path / "spaces")
    workspace, isolation, _ = await spaces.plan("worktree", str(repository.path), "main-1")
    owner, guest = (
        cast(
            Task,
            SimpleNamespace(spec=SimpleNamespace(isolation=own), history=None, scope=SimpleNamespace(workspace=at)),
        )
        for own, at in ((isolation, workspace), (None, f"{workspace}/src"))
    )
    found: list[bool] = []

    async def share() -> None:
        await spaces.make(guest)
        found.append(Path(workspace, "src", "a.py").exists())

    async with anyio.create_task_group() as group:
        group.start_soon(spaces.make, owner)
        group.start_soon(share)
    assert found == [True]


async def test_a_child_that_goes_on_finds_its_worktree_again(
    tmp_path: Path, repository: Checkout, virtual_clock: VirtualClock
) -> None:
    def model() -> Any:
        return family(
            [
                reply(calls=[call("delegate_task_async", goal="child", workspace="worktree")]),
                reply("waiting"),
                reply("ok"),
            ],
            child=[terminal("echo 1 > one.txt"), terminal("sleep 1; cat one.txt; pwd"), reply("done")],
        )

    settings = {"delegation.recover": "auto"}
    async with open_lab(
        model(), workspace=repository.path, clock=virtual_clock, memory=False, settings=settings
    ) as lab:
        session = await lab.converse(goal="parent", toolsets=[*TOOLS, "async_delegation"])
        child = await _begun(lab, "child")
        name, path = session.id, child.scope.workspace
    assert Path(path, "one.txt").exists()
    async with open_lab(
        model(), workspace=repository.path, clock=virtual_clock, memory=False, settings=settings
    ) as lab:
        await lab.assembly.recovery.adopt(name)
        child = child_of(lab, "child")
        result = await lab.runtime.result(child)
    assert child.scope.workspace == path and result.workspace is not None
    assert result.workspace.dirty and not result.workspace.removed and result.workspace.path == path


async def _begun(lab: Lab, goal: str) -> Any:
    while True:
        found = [task for task in lab.runtime.supervisor.tasks.values() if goal in str(task.spec.goal) and task.parent]
        if found and len(asked_by(lab.assembly.model, goal)) >= 2:
            return found[0]
        await anyio.sleep(0.01)


@pytest.mark.fault("B016")
async def test_siblings_that_write_one_file_learn_of_it(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    write = call("write_file", path="out.txt", content="x")
    model = family(
        [spawn("early", "later", workspace="shared"), reply("ok")],
        early=[reply(calls=[write]), reply("done", delay=5)],
        later=[reply(calls=[write], delay=1), reply("done")],
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("parent", toolsets=TOOLS)
        early, later = child_of(lab, "early").id, child_of(lab, "later").id
        (event,) = lab.of(WorkspaceConflict)
        assert lab.of(WorkspaceConflict, later) == [event] and event.other == early
    assert f"was written by task {early}" in answers(asked_by(model, "later")[-1])[0]["warning"]
    first, second = results(model)
    path = str(tmp_path / "out.txt")
    assert first["conflicts"] == [f"{path} was written by this task first and then by {later}"]
    assert second["conflicts"] == [f"{path} was written by task {early} first and then by this one"]
    assert json.dumps(results(model))


@pytest.mark.fault("B016")
async def test_siblings_with_folders_of_their_own_do_not_meet(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    def child(value: str) -> list[Reply]:
        write = call("write_file", path="out.txt", content=value)
        return [
            reply(calls=[write]),
            terminal(f"export V={value}; sleep 0.05"),
            terminal("cat out.txt; echo $V"),
            reply("done"),
        ]

    model = family([spawn("early", "later", workspace="scratch"), reply("ok")], early=child("1"), later=child("2"))
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("parent", toolsets=TOOLS)
        assert lab.of(WorkspaceConflict) == []
    assert answers(asked_by(model, "early")[-1])[0]["output"] == "11\n"
    assert answers(asked_by(model, "later")[-1])[0]["output"] == "22\n"


def resumed(folder: Path) -> Task:
    """A task without a workspace of its own that goes on."""
    spec, scope = SimpleNamespace(isolation=None), SimpleNamespace(workspace=str(folder))
    return cast(Task, SimpleNamespace(spec=spec, scope=scope, history=object()))


async def test_a_crowd_that_goes_on_in_one_folder_shares_a_look_at_it(tmp_path: Path) -> None:
    held: list[int] = []

    class Counting:
        def hold(self) -> None:
            held.append(1)

        def release(self) -> None:
            pass

    workspaces = Workspaces(tmp_path / "own", Counting())
    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(workspaces.make, resumed(tmp_path))
    assert len(held) == 1
    await workspaces.make(resumed(tmp_path))
    assert len(held) == 2  # nothing is remembered


async def test_who_shares_a_look_that_is_cancelled_looks_itself(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "own")
    missing = tmp_path / "gone"
    failed: list[str] = []

    async def go_on() -> None:
        with pytest.raises(OperatorError) as caught:
            await workspaces.make(resumed(missing))
        failed.append(str(caught.value))

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            scope.cancel()
            group.start_soon(go_on)
            await workspaces.make(resumed(missing))
    assert len(failed) == 1 and failed[0].startswith("workspace_missing")
