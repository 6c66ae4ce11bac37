"""What the full screen takes from the stream of events."""

from __future__ import annotations

from hermes.core.events import Envelope, TaskQueued, ToolProgress
from hermes.core.views import TreeView
from hermes.tui.feed import MOST_DETAIL, CallOutput, Feed

SECRET = "sk-0123456789abcdef0123456789abcdef"


def test_a_secret_at_a_cut_is_hidden_before_it_is_halved() -> None:
    tree = TreeView()
    feed = Feed(lambda text: text.replace(SECRET, "[hidden]"), lambda: "s")
    feed.follow(tree, lambda text: text.replace(SECRET, "[hidden]"))

    def tell(event: TaskQueued | ToolProgress) -> None:
        envelope = Envelope(seq=1, at=1.0, session_id="s", task_id="main_1", parent_id=None, event=event)
        tree.apply(envelope)
        feed.tell(envelope)

    tell(TaskQueued(kind="main", goal="", depth=0))
    tell(ToolProgress(position=1, index=0, name="terminal", text=SECRET + "x" * (MOST_DETAIL - 10)))
    (shown,) = [item for item in feed.take(10) if isinstance(item, CallOutput)]
    assert len(shown.text) <= MOST_DETAIL
    assert not any(SECRET[-size:] in shown.text for size in range(4, len(SECRET)))


def test_inside_tmux_another_key_is_named() -> None:
    for environ, named in (({"TMUX": "/tmp/tmux-0/default,1,0"}, "F4"), ({"TMUX": ""}, "Ctrl+B or F4")):
        feed = Feed(str, lambda: "s", environ)
        assert named in [key for key, _ in feed.keys] and feed.in_tmux is (named == "F4")
    assert any("press it twice" in what for _, what in Feed(str, lambda: "s", {"TMUX": "x"}).keys)
