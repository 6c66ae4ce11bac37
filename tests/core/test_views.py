"""What the views keep of a task, however long it runs."""

from __future__ import annotations

from hermes.core.events import Envelope, ToolEnded
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
