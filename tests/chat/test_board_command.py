"""`/kanban` in a conversation does what `hermes kanban` does, for the conversation's home."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes.chat.own_command import OwnCommand, board_command
from hermes.chat.parsing import parse
from hermes.core.errors import UsageError


@pytest.mark.anyio
async def test_the_board_is_reached_from_a_conversation(tmp_path: Path) -> None:
    said: list[str] = []
    own = OwnCommand(said.append)
    environ = {**os.environ, "HERMES_HOME": str(tmp_path / "own"), "COLUMNS": "60"}
    for line in ('/kanban create "Read; $HOME" --assignee default', "/kanban", "/kanban show t_none"):
        await own.run(board_command(parse(line).argument), str(tmp_path), environ)
    text = "\n".join(said)
    assert "is ready, for default" in text and "ready  default  Read; $HOME" in text
    assert "there is no card 't_none' on this board" in text and "exit code 1" in text


def test_an_open_quotation_is_named() -> None:
    assert parse("/kanban list --mine").name == "kanban" and parse("/kan").name == "kanban"
    with pytest.raises(UsageError, match="No closing quotation"):
        board_command('comment t_1 "open')
