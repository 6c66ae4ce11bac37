"""What the views keep of a task, however long it runs."""

from __future__ import annotations

from hermes.core.events import (
    Envelope,
    Event,
    TaskAdopted,
    TaskPhase,
    TaskStarted,
    TaskSuspended,
    ToolEnded,
    TurnStarted,
)
from hermes.core.views import MAX_FILES, TreeView


def ended(number: int, *paths: str) -> Envelope:
    event = ToolEnded(
        position=number,
        index=0,
        name="write_file",
        is_error=False,
        success=True,
        duration=0.0,
        result_bytes=0,
        files_written=paths,
    )
    return Envelope(seq=number, at=float(number), session_id="s", task_id="t", parent_id=None, event=event)


def test_the_newest_files_are_kept_and_no_more() -> None:
    tree = TreeView()
    for number in range(3 * MAX_FILES):
        tree.apply(ended(number, f"file {number}", "the same every time"))
    (view,) = tree.tasks.values()
    newest = [f"file {number}" for number in range(2 * MAX_FILES + 1, 3 * MAX_FILES)]
    assert list(view.files_written) == [*newest, "the same every time"]


def told(at: float, event: Event) -> Envelope:
    return Envelope(seq=1, at=at, session_id="s", task_id="t", parent_id=None, event=event)


def test_running_time_is_what_ran_over_all_processes_and_no_sleep() -> None:
    tree = TreeView()
    for at, event in (
        (10.0, TaskStarted(attempt=1, model="m")),
        (12.0, TurnStarted(turn=1, model="m", input_estimate=1)),
        (20.0, TaskSuspended(reason="the program is ending")),  # 10 s
        (500.0, TaskAdopted(epoch=2)),
        (501.0, TaskStarted(attempt=2, model="m")),
        (506.0, TurnStarted(turn=2, model="m", input_estimate=1)),  # 5 s more, then killed
        (900.0, TaskAdopted(epoch=3)),
        (901.0, TaskStarted(attempt=3, model="m")),
    ):
        tree.apply(told(at, event))
    (view,) = tree.tasks.values()
    assert view.seconds(903.0) == 17.0
    tree.apply(told(1_000.0, TaskPhase(phase="model", slept=90.0)))
    assert view.seconds(1_002.0) == 26.0
    assert view.lived == 15.0, "killed before it did anything more, it has lost none of what it ran"
    tree.apply(told(1_003.0, TaskSuspended(reason="the program is ending")))
    assert view.seconds(5_000.0) == view.lived == 27.0
