"""Live transcripts are files that people can follow, and never in anybody's way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes.core.events import EntryAdded, Envelope, Event, TaskEnded, TaskQueued, TaskStarted, TurnStarted
from hermes.core.messages import Assistant, Text, ToolCall, ToolResult, User
from hermes.observe.transcript import MANIFEST, Transcripts, transcribing
from hermes.runtime.bus import Bus
from hermes.testing.clock import VirtualClock

pytestmark = pytest.mark.anyio
SESSION = "20260225_143052_a1b2c3"


def envelope(event: Event, task: str = "main_1", parent: str | None = None) -> Envelope:
    return Envelope(seq=1, at=1_000.0, session_id=SESSION, task_id=task, parent_id=parent, event=event)


def queued(goal: str, kind: str = "main") -> TaskQueued:
    return TaskQueued(kind=kind, goal=goal, depth=0)


def hide(text: str) -> str:
    return text.replace("hunter2-hunter2", "[redacted:secret]")


async def written(root: Path, clock: VirtualClock, *events: Envelope, **options: object) -> Transcripts:
    made = Transcripts(root, redact=hide, hold=clock, **options)  # type: ignore[arg-type]
    bus = Bus()
    async with transcribing(made, bus):
        for item in events:
            bus.publish(item)
    return made


async def test_a_task_can_be_read(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    call = ToolCall(id="c", name="terminal", raw='{"command": "ls"}')
    result = ToolResult(position=1, index=0, call_id="c", name="terminal", content=(Text("a\x1b[31m.py\nb.py"),))
    made = await written(
        tmp_path,
        virtual_clock,
        envelope(queued("count hunter2-hunter2")),
        envelope(TaskStarted(model="m")),
        envelope(TurnStarted(turn=1, model="m")),
        envelope(EntryAdded(position=0, entry=User(content=(Text("count them"),)))),
        envelope(EntryAdded(position=1, entry=Assistant(text="I look.", thinking="hm", calls=(call,)))),
        envelope(EntryAdded(position=2, entry=result)),
        envelope(TaskEnded(state="completed", status="completed", exit_reason="completed", elapsed=2.0, api_calls=1)),
    )
    path = made.path(SESSION, "main_1")
    lines = [line.partition("] ")[2] or line for line in path.read_text("utf-8").splitlines()]
    assert lines == [
        "queued (main, leaf): count [redacted:secret]",
        "started · m",
        "user: count them",
        "thinking: hm",
        "    model: I look.",
        '    → terminal {"command": "ls"}',
        "← terminal: a.py",
        "    b.py",
        "ended: completed after 2.0s · 1 requests, 0 in, 0 out",
    ]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_the_manifest_tells_how_each_task_stands(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    await written(tmp_path, virtual_clock, envelope(queued("all")), envelope(TaskStarted(model="m")))
    await written(
        tmp_path,
        virtual_clock,
        envelope(queued("hunter2-hunter2", "child"), "sa-1", "main_1"),
        envelope(TaskEnded(state="failed", status="failed", exit_reason="error"), "sa-1", "main_1"),
    )
    manifest = json.loads((tmp_path / SESSION / MANIFEST).read_text())
    rows = [(row["id"], row["parent"], row["goal"], row["status"], row["log"]) for row in manifest["tasks"]]
    assert rows == [
        ("main_1", None, "all", "running", "main_1.log"),
        ("sa-1", "main_1", "[redacted:secret]", "failed", "sa-1.log"),
    ], "an earlier process's tasks stay"


async def test_batch_rows_have_none_unless_asked(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    events = (envelope(queued("row", "row"), "row_1"), envelope(queued("child", "child"), "sa-1", "row_1"))
    await written(tmp_path / "off", virtual_clock, *events)
    await written(tmp_path / "on", virtual_clock, *events, rows=True)
    assert not (tmp_path / "off").exists()
    assert (tmp_path / "on" / SESSION / "sa-1.log").exists()


async def test_a_full_queue_leaves_lines_out_and_says_so(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    made = await written(
        tmp_path, virtual_clock, *(envelope(TaskStarted(model=f"m{n}")) for n in range(5)), most_waiting=2
    )
    text = made.path(SESSION, "main_1").read_text("utf-8")
    assert "m1" in text and "m2" not in text and "3 events left out" in text


async def test_a_disk_that_fails_is_told_once(
    tmp_path: Path, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    made = Transcripts(tmp_path / "file", redact=str, hold=virtual_clock)
    bus = Bus()
    async with transcribing(made, bus):
        for _ in range(2):
            bus.publish(envelope(TaskStarted()))
            await made.finish()
    assert [record.getMessage()[:35] for record in caplog.records] == [
        "no more transcripts are written: " + str(tmp_path)[:2]
    ]


async def test_nobody_waits_for_the_disk(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    made = Transcripts(tmp_path, redact=str, hold=virtual_clock)
    for number in range(1_000):
        made.listen(envelope(TaskStarted(model=str(number))))
    assert not (tmp_path / SESSION).exists()
    await made.finish()
    assert len(made.path(SESSION, "main_1").read_text().splitlines()) == 1_000
