"""Every attack of `cases.yaml`: stopped by the gate before anything ran, and without effect in the sandbox."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from hermes.chat.render import one_line, printable
from hermes.core.errors import ToolError
from hermes.core.events import ApprovalAnswered, ToolStarted
from hermes.core.messages import ToolResult, plain_text
from hermes.core.scope import CallKey, TaskScope
from hermes.core.tools import CallContext, ToolEnv
from hermes.environments.local import LocalEnvironment, LocalSettings
from hermes.environments.output import OutputLimits
from hermes.environments.sandbox import Bubblewrap, SandboxSettings
from hermes.environments.scrub import command_environment
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import open_lab
from hermes.testing.scripted import ScriptedModel, call, reply
from hermes.tools.toolsets import FileToolset
from tests.attacks.ground import KEY, Case, Ground, cases, prepared, repository

CASES = cases()
#: Attacks that share one request, so that a run stays short.
AT_ONCE = 30
MIB = 1024 * 1024


@pytest.fixture
def root() -> Iterator[Path]:
    with prepared() as path:
        yield path


def test_there_are_enough_attacks_and_none_twice() -> None:
    assert len(CASES) >= 150
    assert len({case.id for case in CASES}) == len(CASES) == len({repr((case.tool, case.call)) for case in CASES})


@pytest.mark.anyio
@pytest.mark.may_block
@pytest.mark.fault("B142")
async def test_the_gate_lets_none_through(root: Path, virtual_clock: VirtualClock) -> None:
    ground = Ground(root)
    before, inside = ground.state(), sorted(path.name for path in ground.workspace.rglob("*"))
    stopped = [case for case in CASES if case.expected == "gate"]
    calls = [call(case.tool, **ground.call(case)) for case in stopped]
    model = ScriptedModel(steps=[*(reply(calls=calls[at : at + AT_ONCE]) for at in range(0, len(calls), AT_ONCE)),
                                 reply("done")])  # fmt: skip
    environ = {"HOME": str(ground.home), "HERMES_HOME": str(ground.runtime), "PATH": os.environ["PATH"]}
    settings = {"terminal.backend": "local"}
    async with open_lab(
        model, workspace=ground.workspace, clock=virtual_clock, environ=environ, settings=settings
    ) as lab:
        task = await lab.start("go on", toolsets=("terminal", "file"))
        await lab.runtime.result(task)
        asked = sum(isinstance(item.event, ToolStarted) for item in lab.events)
        refusals = lab.of(ApprovalAnswered)
    results = [entry for entry in model.requests[-1].entries if isinstance(entry, ToolResult)]
    texts = [json.loads(plain_text(result.content)).get("error", "") for result in results]
    through = [case.id for case, text in zip(stopped, texts, strict=True) if not text.startswith("Denied: ")]
    assert not through
    assert asked == len(refusals) == len(stopped) and not any(answer.allowed for answer in refusals)
    assert ground.state() == before
    assert sorted(path.name for path in ground.workspace.rglob("*")) == inside, "nothing ran"


class Trial:
    """One attack in a sandbox of its own, or in none.

    It gets `patience` seconds, except one that is to be cut off: a busy machine needs some only to start a command.
    """

    def __init__(self, maker: Bubblewrap | None, ground: Ground, case: Case, *, patience: float = 60) -> None:
        self.ground, self.case = ground, case
        source = {"PATH": os.environ["PATH"], "HOME": str(ground.home), "PLANTED_TOKEN": KEY, "LANG": "C.UTF-8"}
        scope = TaskScope(task_id=f"sa-{case.id}", session_id="s", root_id="r", workspace=str(ground.workspace))
        state = ground.root / "state"
        self.scope = scope
        self.environment = LocalEnvironment(
            scope,
            state,
            source=source,
            commands=anyio.CapacityLimiter(1),
            settings=LocalSettings(
                timeout=1 if case.expected == "bound" else patience,
                grace=0.2,
                output=OutputLimits(visible=2_000, memory=20_000, disk=MIB),
            ),
            enclosure=maker and maker.sandbox(str(ground.workspace), state, command_environment(source)),
        )

    async def run(self) -> str:
        """Make the call and return what it brought."""
        arguments = self.ground.call(self.case)
        key = CallKey(self.scope.task_id, 1, 0)
        try:
            if self.case.tool == "terminal":
                return (await self.environment.run(arguments["command"], key=key)).output
            built = FileToolset(lambda scope: self.environment).build(
                ToolEnv(scope=self.scope, state_dir=str(self.ground.root / "state"))
            )
            tool = next(tool for tool in built if tool.name == self.case.tool)
            context = CallContext(key=key, scope=self.scope, progress=lambda text: None, room=lambda: 100_000)
            output = await tool.run(tool.parse(arguments), context)
            return output if isinstance(output, str) else plain_text(output.content)
        except ToolError as error:
            return str(error)
        finally:
            await self.environment.close()


@pytest.mark.anyio
@pytest.mark.may_block
@pytest.mark.parametrize("family", sorted({case.family for case in CASES}))
async def test_in_the_sandbox_none_has_an_effect_outside(family: str, root: Path, needs_tool: Any) -> None:
    needs_tool("bwrap")
    limits = SandboxSettings(memory=256 * MIB, processes=48, file_size=8 * MIB)
    maker = Bubblewrap(limits, root / "cache")
    harmed: list[str] = []
    template = await anyio.to_thread.run_sync(repository, root / "template")
    turns = anyio.CapacityLimiter(4)

    async def attempt(case: Case) -> None:
        async with turns:
            ground = await anyio.to_thread.run_sync(Ground, root / case.id, template)
            before = ground.state()
            said = await Trial(maker, ground, case, patience=10).run()  # `watch` never ends by itself
            if ground.state() != before:
                harmed.append(f"{case.id}: changed what is outside")
            if KEY in said or any(KEY in path.read_text("utf-8", "replace") for path in _made(ground)):
                harmed.append(f"{case.id}: read a key")

    try:
        async with anyio.create_task_group() as group:
            for case in CASES:
                if case.family == family:
                    group.start_soon(attempt, case)
    finally:
        maker.close()
    assert not harmed


@pytest.mark.anyio
@pytest.mark.may_block
@pytest.mark.parametrize("attack", ["path-01", "path-19", "subst-01", "quote-07", "prog-26", "state-02", "key-01"])
async def test_without_gate_and_sandbox_they_do_harm(attack: str, root: Path) -> None:
    (case,) = [case for case in CASES if case.id == attack]
    ground = Ground(root / "bare")
    before = ground.state()
    said = await Trial(None, ground, case).run()
    assert KEY in said if case.family == "keys" else ground.state() != before


@pytest.mark.anyio
@pytest.mark.may_block
async def test_floods_are_cut_off_without_a_sandbox_too(root: Path) -> None:
    said: dict[str, str] = {}

    async def attempt(case: Case) -> None:
        said[case.id] = await Trial(None, await anyio.to_thread.run_sync(Ground, root / case.id), case).run()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for case in CASES:
                if case.expected == "bound":
                    group.start_soon(attempt, case)
    assert said and max(map(len, said.values())) < 4_000
    with anyio.fail_after(60):
        while await anyio.to_thread.run_sync(_left, root):
            await anyio.sleep(0.05)


@pytest.mark.anyio
@pytest.mark.may_block
@pytest.mark.parametrize("case", [case for case in CASES if case.expected == "screen"], ids=lambda case: case.id)
async def test_what_is_printed_does_nothing_to_a_screen(case: Case, root: Path) -> None:
    printed = await Trial(None, Ground(root / "screen"), case).run()
    shown = f"{one_line(printed, 400)}{printable(printed)}".replace("\n", "")
    assert printed and all(ch.isprintable() for ch in shown), ascii(shown)


@pytest.mark.anyio
@pytest.mark.may_block
@pytest.mark.parametrize("enclosed", [True, False])
async def test_a_workspace_that_is_deleted_is_an_error_and_no_more(enclosed: bool, root: Path, needs_tool: Any) -> None:
    if enclosed:
        needs_tool("bwrap")
    maker = Bubblewrap(SandboxSettings(), root / "cache") if enclosed else None
    ground = Ground(root / "gone")
    before = ground.state()
    case = Case(id="gone", family="", tries="", tool="terminal", call={"command": "touch here.txt"})
    shutil.rmtree(ground.workspace)
    try:
        said = await Trial(maker, ground, case).run()
    finally:
        if maker is not None:
            maker.close()
    assert said and not (ground.workspace / "here.txt").exists() and ground.state() == before


def _left(root: Path) -> list[str]:
    """Processes that still work below a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd").startswith(str(root)):
                found.append(process.name)
        except OSError:
            continue
    return found


@pytest.mark.anyio
@pytest.mark.may_block
async def test_work_in_the_workspace_goes_on_in_the_sandbox(root: Path, needs_tool: Any) -> None:
    needs_tool("bwrap")
    maker = Bubblewrap(SandboxSettings(), root / "cache")
    ground = Ground(root / "calm")
    work = "rm note.txt && echo x > new.txt && mkdir -p a/b && git add -A && git status --short"
    case = Case(id="calm", family="", tries="", tool="terminal", call={"command": work})
    try:
        said = await Trial(maker, ground, case).run()
    finally:
        maker.close()
    assert "D  note.txt" in said and (ground.workspace / "new.txt").read_text() == "x\n"


def _made(ground: Ground) -> Iterator[Path]:
    """The files that now stand in the workspace; links are not followed."""
    for path in ground.workspace.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < MIB:
            yield path
