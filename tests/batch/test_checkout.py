"""The checkout of a repository that a rollout works in: its own, at the commit, without a trace in the repository."""

from __future__ import annotations

import hashlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

from hermes.batch.checkout import REPOSITORIES, borrowed, check_out, remark
from hermes.batch.folder import RunFolder
from hermes.batch.rollout import RolloutRequest, RolloutResult
from hermes.batch.workspace import WorkspaceError, prepare, remove
from hermes.core.scope import CallKey, TaskScope
from hermes.environments.local import LocalEnvironment
from hermes.environments.sandbox import Bubblewrap, SandboxSettings
from hermes.environments.scrub import command_environment
from tests.batch.fakes import Desk, FakeEngine, answered, failed
from tests.runtime.repository import Checkout

COMMIT = 'git -c user.name=T -c user.email=t@example.invalid commit -q -a -m "of the rollout"'


@pytest.fixture
def origin(tmp_path: Path) -> Checkout:
    """Two commits on `trunk/main`, one more on `secret`; a changed file, a new one and an ignored one."""
    made = Checkout(tmp_path / "origin")
    (made.path / "below").mkdir(parents=True)
    made.git("init", "-q", "-b", "trunk/main")
    made.git("config", "user.name", "Owner")
    for number, text in enumerate(("one", "two")):
        (made.path / "a.txt").write_text(text, encoding="utf-8")
        (made.path / "below" / "ü.txt").write_text("below", encoding="utf-8")
        (made.path / ".gitignore").write_text("ignored\n", encoding="utf-8")
        made.git("add", "-A")
        made.git("commit", "-q", "-m", f"commit {number}")
    made.git("checkout", "-q", "-b", "secret")
    (made.path / "answer.txt").write_text("the answer", encoding="utf-8")
    made.git("add", "-A")
    made.git("commit", "-q", "-m", "the answer")
    made.git("checkout", "-q", "trunk/main")
    (made.path / "a.txt").write_text("changed", encoding="utf-8")
    (made.path / "new.txt").write_text("new", encoding="utf-8")
    (made.path / "ignored").write_text("ignored", encoding="utf-8")
    return made


def everything(folder: Path) -> dict[str, str]:
    """Each file below a folder with a hash of what it holds."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_checkout_is_at_the_commit_and_leaves_no_trace_in_the_repository(origin: Checkout, tmp_path: Path) -> None:
    before = everything(origin.path)
    one, other = (Checkout(tmp_path / "workspaces" / name) for name in ("0-0", "0-1"))
    assert check_out(origin.path, one.path) and check_out(origin.path, other.path)
    assert one.state() == ("trunk/main", origin.git("rev-parse", "HEAD"), "", [".git", ".gitignore", "a.txt", "below"])
    assert (one.path / "a.txt").read_text(encoding="utf-8") == "two"
    assert one.git("log", "--format=%s").splitlines() == ["commit 1", "commit 0"]
    assert one.git("config", "--local", "user.name") == "Owner"
    (one.path / "a.txt").write_text("of the rollout", encoding="utf-8")
    one.git("commit", "-q", "-a", "-m", "of the rollout")
    one.git("branch", "more")
    made = one.git("rev-parse", "HEAD")
    with pytest.raises(AssertionError):
        other.git("cat-file", "-e", made)
    assert other.git("branch", "--format=%(refname:short)") == "trunk/main"
    assert everything(origin.path) == before


@pytest.mark.parametrize(("name", "checked_out"), [("odd\u2028 \x85name", True), ("line\nbreak", False)])
def test_a_path_of_odd_characters_is_no_obstacle(
    origin: Checkout, tmp_path: Path, name: str, checked_out: bool
) -> None:
    odd = origin.path.rename(tmp_path / name)
    made = prepare(str(odd), tmp_path / "workspaces" / "0-0", tmp_path / "run", inplace=False, checkout=True)
    assert (made / "a.txt").read_text(encoding="utf-8") == ("two" if checked_out else "changed")


def test_other_branches_and_stashes_are_not_taken_over(origin: Checkout, tmp_path: Path) -> None:
    answer = origin.git("rev-parse", "secret:answer.txt")
    made = Checkout(tmp_path / "workspaces" / "0-0")
    assert check_out(origin.path, made.path)
    with pytest.raises(AssertionError):
        made.git("cat-file", "-e", answer)


def test_all_rollouts_of_a_run_begin_at_one_commit(origin: Checkout, tmp_path: Path) -> None:
    commit = origin.git("rev-parse", "HEAD")
    assert check_out(origin.path, tmp_path / "workspaces" / "0-0")
    origin.git("commit", "-q", "-a", "-m", "later")
    late = Checkout(tmp_path / "workspaces" / "1-0")
    assert check_out(origin.path, late.path) and late.git("rev-parse", "HEAD") == commit


def test_rollouts_that_begin_together_take_the_repository_over_once(origin: Checkout, tmp_path: Path) -> None:
    targets = [tmp_path / "workspaces" / f"0-{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(lambda target: check_out(origin.path, target), targets))
    assert all(Checkout(target).git("status", "--short") == "" for target in targets)
    (kept,) = [path for path in (tmp_path / "workspaces" / REPOSITORIES).iterdir() if path.is_dir()]
    assert borrowed(targets[3]) == (str(kept / "objects"),)


def test_what_a_killed_process_left_half_made_is_no_obstacle(origin: Checkout, tmp_path: Path) -> None:
    target = tmp_path / "run" / "workspaces" / "0-0"
    prepare(str(origin.path), target, tmp_path / "run", inplace=False, checkout=True)
    (store,) = [path for path in (target.parent / REPOSITORIES).iterdir() if path.is_dir()]
    store.rename(store.with_suffix(f".{os.getpid()}.new"))
    shutil.rmtree(target / ".git" / "refs")
    (target / ".git" / "index.lock").touch()
    prepare(str(origin.path), target, tmp_path / "run", inplace=False, checkout=True)
    assert Checkout(target).git("status", "--short") == "" and store.is_dir()


def test_detached_linked_and_shallow_checkouts_are_checked_out_as_well(origin: Checkout, tmp_path: Path) -> None:
    origin.git("worktree", "add", "-q", "--detach", str(tmp_path / "linked"), "HEAD~1")
    origin.git("clone", "-q", "--depth", "1", f"file://{origin.path}", str(tmp_path / "shallow"))
    for name, commits in (("linked", ["commit 0"]), ("shallow", ["commit 1"])):
        made = Checkout(tmp_path / "workspaces" / name)
        assert check_out(tmp_path / name, made.path)
        assert made.git("log", "--format=%s").splitlines() == commits and made.git("status", "--short") == ""


@pytest.mark.parametrize("why", ["no repository", "below", "no commit", "submodules"])
def test_what_cannot_be_checked_out_is_copied(origin: Checkout, tmp_path: Path, why: str) -> None:
    folder = origin.path
    if why == "below":
        folder = origin.path / "below"
    elif why == "submodules":
        (origin.path / ".gitmodules").touch()
    else:
        shutil.rmtree(origin.path / ".git")
        if why == "no commit":
            origin.git("init", "-q")
    target = tmp_path / "run" / "workspaces" / "0-0"
    prepare(str(folder), target, tmp_path / "run", inplace=False, checkout=True)
    assert sorted(os.listdir(target)) == sorted(os.listdir(folder))
    assert (why in remark(folder)) == (why in ("no commit", "submodules"))


def test_what_is_not_committed_is_told(origin: Checkout, tmp_path: Path) -> None:
    said = remark(origin.path)
    assert "2 files are not committed" in said and origin.git("rev-parse", "HEAD")[:12] in said
    origin.git("commit", "-q", "-a", "-m", "more")
    (origin.path / "new.txt").unlink()
    assert remark(origin.path) == "" and remark(tmp_path) == ""


def test_a_repository_that_git_cannot_read_is_an_error_that_names_the_way_out(origin: Checkout, tmp_path: Path) -> None:
    tree = origin.git("rev-parse", "HEAD:below")
    (origin.path / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    target = tmp_path / "run" / "workspaces" / "0-0"
    with pytest.raises(WorkspaceError, match="--cwd_mode=copy"):
        prepare(str(origin.path), target, tmp_path / "run", inplace=False, checkout=True)
    assert not target.exists()


def test_only_what_lies_beside_the_workspaces_is_borrowed(tmp_path: Path) -> None:
    workspace = tmp_path / "workspaces" / "0-0"
    info = workspace / ".git" / "objects" / "info"
    info.mkdir(parents=True)
    assert borrowed(workspace) == ()
    for line in ("/etc", "../../../../secrets/objects", f"../../../{REPOSITORIES}/x/../../../secrets", "\0"):
        (info / "alternates").write_text(f"{line}\n", encoding="utf-8")
        assert borrowed(workspace) == ()


@pytest.mark.anyio
@pytest.mark.may_block
@pytest.mark.parametrize("keep", [False, True])
async def test_a_run_that_is_resumed_begins_at_the_same_commit(
    origin: Checkout, tmp_path: Path, anyio_backend: str, keep: bool
) -> None:
    desk = Desk(tmp_path)
    desk.dataset([{"prompt": f"p{number}", "cwd": str(origin.path)} for number in range(3)])
    seen: list[str] = []

    async def script(request: RolloutRequest) -> RolloutResult:
        seen.append((Path(request.workspace) / "a.txt").read_text(encoding="utf-8"))
        if len(seen) == 2:
            return failed("auth", "key revoked", permanent=True)
        return answered(request.prompt)

    assert await desk.start(FakeEngine(script), num_workers=1, keep_workspaces=keep) == 1
    await anyio.to_thread.run_sync(origin.git, "commit", "-q", "-a", "-m", "later")
    assert await desk.start(FakeEngine(script), resume=True) == 0
    assert seen == ["two"] * 4
    workspaces = desk.data / "r" / "workspaces"
    if keep:
        assert {path.name for path in workspaces.iterdir()} == {REPOSITORIES, "0-0", "1-0", "2-0"}
    else:
        assert not workspaces.exists()


def test_half_done_rollouts_keep_what_they_borrow_from(origin: Checkout, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "data", "r")
    targets = [folder.workspace(number, 0) for number in range(2)]
    assert all(check_out(origin.path, target) for target in targets)
    folder.remove_workspaces({targets[1]})
    assert not targets[0].exists() and Checkout(targets[1]).git("log", "--format=%s").startswith("commit 1")
    folder.remove_workspaces()
    assert not folder.workspaces.exists()


@pytest.mark.anyio
async def test_git_works_in_the_sandbox_and_cannot_write_what_others_borrow(
    origin: Checkout, tmp_path: Path, needs_tool: Any, anyio_backend: str
) -> None:
    needs_tool("bwrap")
    targets = [tmp_path / "workspaces" / f"0-{number}" for number in range(2)]
    for target in targets:
        await anyio.to_thread.run_sync(check_out, origin.path, target)
    (objects,) = await anyio.to_thread.run_sync(borrowed, targets[0])
    maker = Bubblewrap(SandboxSettings(), tmp_path / "cache")
    state, here = tmp_path / "state", str(targets[0])
    environment = LocalEnvironment(
        TaskScope(task_id="sa-1", session_id="s", root_id="sa-1", workspace=here),
        state,
        source=os.environ,
        commands=anyio.CapacityLimiter(4),
        enclosure=maker.sandbox(here, state, command_environment(os.environ), borrows=(objects,)),
    )
    command = (
        f"git log --format=%s && echo more >> a.txt && {COMMIT} && git log -1 --format=%s && git status --short; "
        f"touch {objects}/x || echo kept; ls {targets[1]} || echo alone"
    )
    try:
        done = await environment.run(command, key=CallKey("sa-1", 0, 0), timeout=60)
    finally:
        await environment.close()
        await anyio.to_thread.run_sync(maker.close)
    lines = [line for line in done.output.splitlines() if not line.startswith(("touch:", "ls:"))]
    assert lines == ["commit 1", "commit 0", "of the rollout", "kept", "alone"]


@pytest.mark.anyio
async def test_rows_of_a_repository_work_in_checkouts_and_nothing_is_left(
    desk: Desk, origin: Checkout, tmp_path: Path
) -> None:
    before = everything(origin.path)
    desk.dataset([{"prompt": str(number), "cwd": str(origin.path)} for number in range(6)])

    def work(workspace: Path) -> str:
        (workspace / "a.txt").write_text(workspace.name, encoding="utf-8")
        Checkout(workspace).git("commit", "-q", "-a", "-m", "of the rollout")
        return Checkout(workspace).git("log", "--format=%s").replace("\n", ", ")

    async def script(request: RolloutRequest) -> RolloutResult:
        return answered(request.prompt, text=await anyio.to_thread.run_sync(work, Path(request.workspace)))

    assert await desk.start(FakeEngine(script), num_workers=3) == 0
    answers = {row["conversations"][-1]["value"].splitlines()[-1] for row in desk.lines("trajectories.jsonl")}
    assert answers == {"of the rollout, commit 1, commit 0"}
    assert not (desk.data / "r" / "workspaces").exists()
    assert await anyio.to_thread.run_sync(everything, origin.path) == before
    (said,) = [note for note in desk.notes if "begin at commit" in note]
    assert str(origin.path) in said and "2 files are not committed" in said


def test_a_workspace_is_removed_with_its_repository_and_not_what_it_borrows(origin: Checkout, tmp_path: Path) -> None:
    target = tmp_path / "workspaces" / "0-0"
    assert check_out(origin.path, target)
    (objects,) = borrowed(target)
    remove(target)
    assert not target.exists() and os.path.isdir(objects)
