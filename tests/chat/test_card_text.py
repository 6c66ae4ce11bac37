"""Cards and what happens to them, as text for people."""

from __future__ import annotations

from typing import Any

from hermes.chat.card_text import event_line
from hermes.kanban.card import CardEvent


def _line(payload: dict[str, Any]) -> str:
    return event_line(
        CardEvent(id=1, card_id="t_1", run_id=None, kind="edited", author="me", created_at=0.0, payload=payload)
    )


def test_a_change_is_one_line_however_long_its_text() -> None:
    line = _line({"fields": {"body": "first\nsecond " + "x" * 2000, "priority": 5}})
    assert "body=first second xxx" in line and line.endswith("…  priority=5")
    assert "\n" not in line and len(line) < 400


def test_what_was_said_stands_without_its_name_and_nothing_empty_is_shown() -> None:
    line = _line({"reason": "red or blue?", "kind": "needs_input", "session_id": "", "cards": []})
    assert line.endswith("me  red or blue?  kind=needs_input")
