"""`hermes sessions` reads the journal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from hermes.chat.render import columns
from hermes.cli.sessions_cmd import listed
from hermes.core.codec import encode_entry
from hermes.core.messages import Assistant, Text, ToolCall, ToolResult, User
from hermes.store.ops import AddEntry, AddSession, AddTask, SessionRow, TaskRow, Unit
from hermes.store.sqlite import open_store
from tests.cli.conftest import Ran

Hermes = Callable[..., Ran]


def unit(session: str, at: float) -> Unit:
    task = TaskRow(
        task_id=f"main_{session[-6:]}",
        session_id=session,
        root_id="r",
        parent_id=None,
        kind="main",
        role="leaf",
        depth=0,
        goal="count",
        state="completed",
        spec=b"{}",
        owner="o",
        epoch=1,
        call_key=None,
        child_index=0,
        group_id="",
        attempt=1,
        created_at=at,
    )
    entries = (
        User(content=(Text("how many?"),)),
        Assistant(calls=(ToolCall(id="c", name="terminal", raw='{"command": "ls"}'),)),
        ToolResult(position=1, index=0, call_id="c", name="terminal", content=(Text("\x1b[31m" + "x" * 500),)),
        Assistant(text="three"),
    )
    row = SessionRow(
        session_id=session, root_task=task.task_id, created_at=at, updated_at=at, title="[bold]T", model="m"
    )
    adds = [
        AddEntry(task_id=task.task_id, position=place, kind="entry", at=at, body=encode_entry(entry))
        for place, entry in enumerate(entries)
    ]
    return Unit(ops=(AddSession(row=row), AddTask(row=task), *adds))


@pytest.fixture
def two(hermes_home: Path) -> None:
    async def fill() -> None:
        store = await open_store(hermes_home / "runtime.db")
        try:
            for session, at in (("20260225_143052_a1b2c3", 100.0), ("20260226_143052_d4e5f6", 200.0)):
                await store.submit(unit(session, at)).wait()
        finally:
            await store.close()

    anyio.run(fill)


def test_without_a_journal_none_is_made(hermes: Hermes, hermes_home: Path) -> None:
    assert hermes("sessions", "list").out == "no sessions yet\n"
    assert hermes("sessions", "list", "--json").out == "[]\n"
    assert hermes("sessions", "show", "latest").code == 1
    assert list(hermes_home.iterdir()) == []


@pytest.mark.usefixtures("two")
def test_the_list_is_newest_first(hermes: Hermes) -> None:
    found = json.loads(hermes("sessions", "list", "--json").out)
    assert [row["session_id"] for row in found] == ["20260226_143052_d4e5f6", "20260225_143052_a1b2c3"]
    out = hermes("sessions", "list", "--limit", "1").out
    assert "20260226_143052_d4e5f6" in out and "20260225" not in out


def test_the_list_cuts_no_id_however_narrow_the_terminal() -> None:
    row = unit("20260225_143052_a1b2c3", 100.0).ops[0]
    assert isinstance(row, AddSession)
    found = [msgspec.structs.replace(row.row, model="vendor/a-model-with-a-long-name", title="слово " * 30)]
    for width in (40, 60, 80, None):
        head, line = listed(found, width).splitlines()
        assert line.startswith("20260225_143052_a1b2c3  ") and " слово" in line
        assert width is None or columns(line) <= width
        assert ("last used" in head, "model" in head) == (width != 40, width not in (40, 60))


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("name", ["latest", "20260226_143052_d4e5f6", "20260226"])
def test_show_by_id_its_beginning_or_latest(hermes: Hermes, name: str) -> None:
    ran = hermes("sessions", "show", name)
    assert ran.code == 0 and ran.out.startswith("20260226_143052_d4e5f6")
    assert "you: how many?" in ran.out and '→ terminal {"command": "ls"}' in ran.out and "model: three" in ran.out
    assert "(--full)" in ran.out and "\x1b" not in ran.out
    assert "x" * 500 in hermes("sessions", "show", name, "--full").out


@pytest.mark.usefixtures("two")
def test_show_as_json_and_unclear_ids(hermes: Hermes) -> None:
    answer = json.loads(hermes("sessions", "show", "latest", "--json").out)
    assert [entry["type"] for entry in answer["entries"]["main_d4e5f6"]] == [
        "user",
        "assistant",
        "tool_result",
        "assistant",
    ]
    assert hermes("sessions", "show", "2026").code == 2
    ran = hermes("sessions", "show", "nope")
    assert ran.code == 1 and "there is no session 'nope'" in ran.err
