"""`hermes sessions export|rename|delete|prune|stats`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from hermes.core.codec import encode_envelope
from hermes.core.events import Envelope, TurnEnded
from hermes.core.messages import Usage
from hermes.core.usage import TURN_ENDED
from hermes.store.ops import (
    AddEntry,
    AddEvent,
    AddTask,
    EndTask,
    EventRow,
    PutDelivery,
    Unit,
)
from hermes.store.owner import take_ownership
from hermes.store.sqlite import open_store
from tests.cli.conftest import Ran
from tests.cli.test_sessions import unit
from tests.store.rows import delivery, task

Hermes = Callable[..., Ran]

ENDED, OPEN = "20260225_143052_a1b2c3", "20260226_143052_d4e5f6"
DAY = 86_400.0


async def fill(home: Path, owner: str) -> None:
    now = time.time()
    child = task(
        "sa-1", session_id=ENDED, root_id="main_a1b2c3", parent_id="main_a1b2c3", depth=1, kind="child", goal="part"
    )
    store = await open_store(home / "runtime.db")
    try:
        for session, age in ((ENDED, 40.0), (OPEN, 50.0)):
            await store.submit(unit(session, now - age * DAY)).wait()
        more = (
            AddTask(row=child),
            AddEntry(task_id="sa-1", position=0, kind="user", at=1.0, body=b'{"type":"user","content":[]}'),
            EndTask(task_id="sa-1", state="completed", ended_at=now - 40 * DAY, end=b"{}"),
            EndTask(task_id="main_a1b2c3", state="completed", ended_at=now - 40 * DAY, end=b'{"summary":"three"}'),
            AddTask(row=task("bg_1", session_id=OPEN, owner=owner)),
        )
        await store.submit(Unit(ops=more)).wait()
    finally:
        await store.close()
    for session in (ENDED, OPEN):
        (home / "tasks" / session / "sa-1").mkdir(parents=True)
        (home / "tasks" / session / "sa-1" / "report.md").write_text("long report")


@pytest.fixture
def two(hermes_home: Path) -> Path:
    anyio.run(fill, hermes_home, "nobody")
    return hermes_home


def names(hermes: Hermes) -> list[str]:
    return [row["session_id"] for row in json.loads(hermes("sessions", "list", "--json").out)]


def pending(home: Path) -> None:
    async def put() -> None:
        store = await open_store(home / "runtime.db")
        await store.submit(Unit(ops=(PutDelivery(row=delivery("sa-1", "main_a1b2c3")),))).wait()
        await store.close()

    anyio.run(put)


@pytest.mark.usefixtures("two")
def test_export_for_people(hermes: Hermes, tmp_path: Path) -> None:
    text = hermes("sessions", "export", "20260225").out
    assert text.startswith("# [bold]T\n") and "**you:**\n\nhow many?" in text and "**model:**\n\nthree" in text
    assert 'terminal {"command": "ls"}' in text and "x" * 500 in text, "a tool's output stands whole"
    assert "## `sa-1` (child, completed, child of `main_a1b2c3`)" in text
    assert "`sa-1/report.md` (11 bytes)" in text


@pytest.mark.usefixtures("two")
def test_export_for_programs(hermes: Hermes, tmp_path: Path) -> None:
    document = json.loads(hermes("sessions", "export", ENDED, "--json").out)
    assert [row["task_id"] for row in document["tasks"]] == ["main_a1b2c3", "sa-1"]
    assert document["tasks"][0]["end"] == {"summary": "three"}
    assert [entry["type"] for entry in document["entries"]["main_a1b2c3"]][:2] == ["user", "assistant"]
    lines = [json.loads(line) for line in hermes("sessions", "export", ENDED, "--format", "jsonl").out.splitlines()]
    assert [line["record"] for line in lines] == ["session", "task", *["entry"] * 4, "task", "entry", "file"]


def test_an_export_says_which_answers_were_given_while_children_worked(hermes: Hermes, two: Path) -> None:
    async def put() -> None:
        store = await open_store(two / "runtime.db")
        for seq, children in ((101, ()), (102, ("sa-1",))):
            event = TurnEnded(
                turn=seq, model="m", usage=Usage(), duration=1.0, calls=0, purpose="main", unfinished_children=children
            )
            envelope = Envelope(
                seq=seq, at=float(seq), session_id=ENDED, task_id="main_a1b2c3", parent_id=None, event=event
            )
            body = encode_envelope(envelope)
            row = EventRow(session_id=ENDED, task_id="main_a1b2c3", seq=seq, type=TURN_ENDED, at=float(seq), body=body)
            await store.submit(Unit(ops=(AddEvent(row=row),))).wait()
        await store.close()

    anyio.run(put)
    told = {"task_id": "main_a1b2c3", "at": 102.0, "unfinished_children": ["sa-1"]}
    assert json.loads(hermes("sessions", "export", ENDED, "--json").out)["unfinished_answers"] == [told]
    lines = [json.loads(line) for line in hermes("sessions", "export", ENDED, "--format", "jsonl").out.splitlines()]
    assert [line for line in lines if line["record"] == "unfinished_answer"] == [
        {"record": "unfinished_answer", **told}
    ]


@pytest.mark.usefixtures("two")
def test_export_to_a_file_with_the_files_of_the_tasks(hermes: Hermes, tmp_path: Path) -> None:
    target = tmp_path / "talk.json"
    ran = hermes("sessions", "export", ENDED, "-o", str(target), "--files")
    assert (ran.code, ran.out) == (0, "") and "2 tasks" in ran.err
    assert json.loads(target.read_text())["session"]["session_id"] == ENDED, "the form is that of the ending"
    assert target.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "talk.json.files" / "sa-1" / "report.md").read_text() == "long report"
    ran = hermes("sessions", "export", ENDED, "-o", str(tmp_path / "none" / "x.md"))
    assert ran.code == 2 and "none/x.md" in ran.err
    assert hermes("sessions", "export", ENDED, "--files").code == 2


@pytest.mark.usefixtures("two")
def test_rename_moves_nothing_in_the_list(hermes: Hermes) -> None:
    before = names(hermes)
    ran = hermes("sessions", "rename", "20260226", "  Audit of\nthe parser ")
    assert (ran.code, ran.out) == (0, f"{OPEN}  Audit of the parser\n")
    assert names(hermes) == before
    assert "Audit of the parser" in hermes("sessions", "show", OPEN).out
    assert json.loads(hermes("sessions", "rename", OPEN, "B", "--json").out)["title"] == "B"
    assert hermes("sessions", "rename", OPEN, "  ").code == 2
    assert hermes("sessions", "rename", "nope", "x").code == 1


def test_delete_asks_first_and_takes_children_and_files(hermes: Hermes, two: Path) -> None:
    ran = hermes("sessions", "delete", ENDED)
    assert ran.code == 2 and "Add -y" in ran.err and "2 tasks" in ran.err
    assert len(names(hermes)) == 2
    answer = json.loads(hermes("sessions", "delete", ENDED, "-y", "--json").out)
    assert answer == {"session_id": ENDED, "tasks": 2, "bytes": 11, "failed": []}
    assert names(hermes) == [OPEN]
    assert [path.name for path in (two / "tasks").iterdir()] == [OPEN]
    assert hermes("sessions", "show", ENDED).code == 1


def test_delete_of_unfinished_work_whose_process_is_gone(hermes: Hermes, two: Path) -> None:
    ran = hermes("sessions", "delete", OPEN, "-y")
    assert ran.code == 0 and "2 not ended" in ran.out
    assert names(hermes) == [ENDED]


def test_a_session_of_a_living_process_is_never_deleted(hermes: Hermes, hermes_home: Path) -> None:
    with take_ownership(hermes_home) as owner:
        anyio.run(fill, hermes_home, owner.owner_id)
        ran = hermes("sessions", "delete", OPEN, "-y")
        assert ran.code == 1 and "a process that works on it lives" in ran.err
        assert len(names(hermes)) == 2 and (hermes_home / "tasks" / OPEN).exists()
    assert hermes("sessions", "delete", OPEN, "-y").code == 0


def test_prune_keeps_what_is_unfinished(hermes: Hermes, two: Path) -> None:
    ran = hermes("sessions", "prune", "--dry-run")
    assert ran.code == 0 and ENDED in ran.out and "would remove 1 sessions" in ran.out
    assert len(names(hermes)) == 2
    assert "removed 0 sessions" in hermes("sessions", "prune", "--days", "45").out
    done = json.loads(hermes("sessions", "prune", "--json").out)
    assert done["sessions"] == [ENDED] and done["bytes"] == 11 and done["kept"]["unfinished"] == 2
    assert names(hermes) == [OPEN] and [path.name for path in (two / "tasks").iterdir()] == [OPEN]


@pytest.mark.fault("B041")
def test_prune_keeps_results_nobody_saw_and_show_marks_them(hermes: Hermes, two: Path) -> None:
    pending(two)
    assert "sa-1 (child, completed) part  ● nobody saw this result" in hermes("sessions", "show", ENDED).out
    shown = json.loads(hermes("sessions", "show", ENDED, "--json").out)
    assert [row["unseen"] for row in shown["tasks"]] == [False, True]
    ran = hermes("sessions", "prune")
    assert "removed 0 sessions" in ran.out and "1 results nobody saw" in ran.out
    assert len(names(hermes)) == 2


def test_prune_follows_the_settings(hermes: Hermes, two: Path) -> None:
    (two / "config.yaml").write_text("store: {keep_days: unlimited}\n")
    assert "for ever" in hermes("sessions", "prune").out and len(names(hermes)) == 2
    (two / "config.yaml").write_text("store: {keep_days: 10}\n")
    assert "removed 1 sessions" in hermes("sessions", "prune").out


def test_stats(hermes: Hermes, two: Path) -> None:
    answer = json.loads(hermes("sessions", "stats", "--json").out)
    assert (answer["sessions"], answer["tasks"], answer["unfinished"], answer["unseen"]) == (2, 4, 2, 0)
    assert answer["bytes"]["task_files"] == 22 and answer["bytes"]["journal"] > 0
    out = hermes("sessions", "stats").out
    assert "4, 2 not ended" in out and "22 B" in out


def test_without_a_journal_none_is_made(hermes: Hermes, hermes_home: Path) -> None:
    assert json.loads(hermes("sessions", "stats", "--json").out)["sessions"] == 0
    assert "removed 0 sessions" in hermes("sessions", "prune").out
    for verb in (("export", "latest"), ("delete", "latest", "-y"), ("rename", "latest", "x")):
        assert hermes("sessions", *verb).code == 1
    assert list(hermes_home.iterdir()) == []
