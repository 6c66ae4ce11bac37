"""Rollouts as tasks of the runtime: what a row gets of its family, and that nothing stays of those that ended."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest

from hermes.batch.attempt import Attempts
from hermes.batch.execute import RuntimeEngine
from hermes.batch.folder import RunFolder
from hermes.batch.identity import session_name
from hermes.batch.index import RecordIndex
from hermes.batch.output import RecordWriter
from hermes.batch.record import Head, Record
from hermes.batch.rollout import RolloutRequest, RolloutResult
from hermes.batch.settings import BatchSettings
from hermes.batch.workplace import Workplace
from hermes.compose import Assembly, Parts, open_runtime
from hermes.config import find_home, load
from hermes.core.clock import NO_HOLD, SystemClock
from hermes.core.errors import OperatorError
from hermes.core.events import Envelope
from hermes.core.messages import Assistant, ToolResult, User, plain_text
from hermes.core.model import Model
from hermes.credentials import Endpoint
from hermes.runtime.spec import ModelChoice
from hermes.testing.clock import VirtualClock
from hermes.testing.scripted import ScriptedModel, call, reply
from tests.batch.fakes import FakeEngine
from tests.environments.docker_stand_in import StandIn
from tests.runtime.repository import new_repository

pytestmark = pytest.mark.anyio

#: Long enough to be kept in a file while its row runs.
PART = "a part " * 100


@asynccontextmanager
async def opened(
    model: Model, tmp_path: Path, clock: VirtualClock | None, environ: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[Assembly, RuntimeEngine]]:
    hold = NO_HOLD if clock is None else clock
    parts = Parts(
        loaded=load(find_home({"HERMES_HOME": str(tmp_path / "home")}), {}, {}),
        endpoint=Endpoint(provider="test", base_url="", api_key="", key_source="none", model=model.name),
        model=model,
        memory=True,
        traceless=True,
        watchdog=False,
        clock=clock or SystemClock(),
        hold=hold,
        environ=environ or {},
        state_root=tmp_path / "state",
    )
    async with open_runtime(parts) as assembly:
        choice = ModelChoice(name=model.name)
        yield assembly, RuntimeEngine(assembly.runtime, model=model, choice=choice, ceiling=("delegation",), hold=hold)


async def test_a_row_has_its_children_and_leaves_nothing(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    rows = 3
    scripts = {
        f"row {number}": [reply(calls=[call("delegate_task", goal=f"part {number}")]), reply(f"all of {number}")]
        for number in range(rows)
    }
    scripts |= {f"part {number}": [reply(PART)] for number in range(rows)}
    seen: list[weakref.ref[object]] = []
    async with opened(ScriptedModel("m", scripts=scripts), tmp_path, virtual_clock) as (assembly, engine):
        runtime = assembly.runtime

        def look(envelope: Envelope) -> None:
            seen.append(weakref.ref(runtime.supervisor.tasks[envelope.task_id]))

        runtime.bus.subscribe(look)
        for number in range(rows):
            result = await engine.run(
                RolloutRequest(
                    key=str(number),
                    index=number,
                    prompt=f"row {number}",
                    workspace=str(tmp_path),
                    toolsets=("delegation",),
                )
            )
            assert isinstance(result.entries[0], User) and isinstance(result.entries[-1], Assistant)
            assert result.entries[-1].text == f"all of {number}"
            assert [child.entries[-1].text for child in result.children] == [PART]  # type: ignore[union-attr]
        gc.collect()
        assert not [ref for ref in seen if ref() is not None]
        assert not runtime.supervisor.tasks and not runtime.bus.tree.tasks
        counts = await runtime.store.counts()
        assert (counts.sessions, counts.tasks) == (0, 0)


@pytest.mark.parametrize("keep", [False, True])
async def test_what_a_written_up_rollout_leaves_on_the_disk_goes_while_others_run(tmp_path: Path, keep: bool) -> None:
    folder = RunFolder(tmp_path, "r")
    settings = BatchSettings(dataset_file="p.jsonl", run_name="r", keep_workspaces=keep)
    engine = FakeEngine()
    heads = [Head(key=f"k{number}", index=number, outcome="finished") for number in range(3)]
    for head in heads:
        for place in (folder.state / session_name(head.key, head.attempt) / "task", folder.workspace(head.index, 0)):
            place.mkdir(parents=True)
            (place / "output").write_text(PART)
    await Attempts(engine, folder, settings).clear(heads[:2])
    assert engine.ended == ["k0", "k1"]
    assert [path.name for path in folder.state.iterdir()] == [session_name("k2", 1)]
    assert len(list(folder.workspaces.iterdir())) == (3 if keep else 1)


@pytest.mark.parametrize("keep", [False, True])
async def test_empty_workspaces_are_made_for_many_rows_at_once(tmp_path: Path, keep: bool) -> None:
    folder = RunFolder(tmp_path, "r")
    left = folder.workspace(1, 0)
    left.mkdir(parents=True)
    (left / "of an earlier process").touch()
    workplace = Workplace(folder, BatchSettings(dataset_file="p.jsonl", run_name="r", keep_workspaces=keep))
    await anyio.to_thread.run_sync(workplace.make_ready, [(number, 0) for number in range(3)])
    made = {path.name for path in folder.workspaces.iterdir()}
    assert made == ({"1-0"} if keep else {"0-0", "1-0", "2-0"})
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").touch()
    for number, cwd in ((0, None), (1, None), (2, str(tmp_path / "source"))):
        request = RolloutRequest(key=f"k{number}", index=number, prompt="p", cwd=cwd)
        entered = await workplace.enter(request, ())
        assert entered.workspace == str(folder.workspace(number, 0)) and entered.borrows == ()
        assert os.listdir(entered.workspace) == ([] if cwd is None else ["file"])
    (folder.workspace(0, 0) / "of the first attempt").touch()
    again = await workplace.enter(RolloutRequest(key="k0", index=0, prompt="p", attempt=2), ())
    assert os.listdir(again.workspace) == [], "an attempt finds what the one before it left"


async def test_a_record_counts_although_its_row_could_not_be_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "r")
    folder.batch_path(0).mkdir(parents=True)  # no row can be written where a directory stands
    settled: list[str] = []
    index = RecordIndex()
    writer = RecordWriter(
        folder, index, offered=(), batch_size=10, settled=lambda head, _: settled.append(head.key), redact=bytes
    )
    head = Head(key="k", index=0, outcome="finished")
    record = Record(head=head, source={"prompt": "p"}, toolsets=(), result=RolloutResult(state="completed"))
    await writer.add(record)
    writer.close()
    await writer.run()
    assert writer.broken is not None and settled == []
    assert index.before(head) is not None and index.size == folder.records_path.stat().st_size > 0
    with pytest.raises(OperatorError):
        await writer.add(record)


async def test_a_row_with_an_image_runs_in_its_container_and_nowhere_else(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    (tmp_path / "bin").mkdir()
    engine = StandIn(tmp_path / "bin")
    steps = [reply(calls=[call("terminal", command="echo inside")]), reply("done")]
    model = ScriptedModel("m", scripts={"there": steps, "missing": steps})
    environ = {"PATH": f"{engine.folder}:{os.environ['PATH']}"}
    async with opened(model, tmp_path, virtual_clock, environ) as (_, rollouts):
        for number, image in enumerate(("some/image:1", "missing/image")):
            result = await rollouts.run(
                RolloutRequest(
                    key=str(number),
                    index=number,
                    prompt="missing" if number else "there",
                    workspace=str(tmp_path),
                    image=image,
                    toolsets=("terminal",),
                )
            )
            if number:
                assert result.error is not None and result.error.kind == "environment_unavailable"
                assert result.error.message.startswith("Docker image not available: missing/image")
            else:
                assert result.state == "completed" and image in engine.of("run")[0]
    assert engine.containers == [] and len(engine.of("run")) == 1


async def test_a_row_in_a_checkout_and_its_child_commit_in_the_sandbox(tmp_path: Path, needs_tool: Any) -> None:
    needs_tool("bwrap")
    origin = await anyio.to_thread.run_sync(new_repository, tmp_path / "origin")
    before = await anyio.to_thread.run_sync(origin.state)
    folder = RunFolder(tmp_path / "data", "r")
    settings = BatchSettings(dataset_file="p.jsonl", run_name="r")

    def commit(text: str) -> str:
        return f"echo {text} > README && git commit -qam {text} && git log --format=%s | tr '\\n' ' '"

    scripts = {
        "the row": [
            reply(calls=[call("terminal", command=commit("mine"))]),
            reply(calls=[call("delegate_task", goal="the child", toolsets=["terminal"])]),
            reply("done"),
        ],
        "the child": [reply(calls=[call("terminal", command=commit("childs"))]), reply("committed")],
    }
    async with opened(ScriptedModel("m", scripts=scripts), tmp_path, None, os.environ) as (_, engine):
        request = RolloutRequest(
            key="k", index=0, prompt="the row", cwd=str(origin.path), toolsets=("terminal", "delegation")
        )
        ready = await Workplace(folder, settings).enter(request, ())
        result = await engine.run(ready)
    answers = [
        plain_text(entry.content)
        for entries in (result.entries, *(child.entries for child in result.children))
        for entry in entries
        if isinstance(entry, ToolResult) and entry.name == "terminal"
    ]
    said = [msgspec.json.decode(answer)["output"].split() for answer in answers]
    assert said == [["mine", "first"], ["childs", "mine", "first"]]
    assert await anyio.to_thread.run_sync(origin.state) == before
