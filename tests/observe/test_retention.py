"""Old sessions go with their files; unfinished work, unseen results and other programs' files stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from hermes.config import Home
from hermes.core.codec import encode_json
from hermes.core.errors import StoreError
from hermes.core.result import TaskResult
from hermes.observe.retention import DAY, Keep, Retention
from hermes.observe.unseen import mark_shown, pending_results
from hermes.store.memory import MemoryStore
from hermes.store.ops import AddSession, AddTask, EndTask, PutDelivery, SessionRow, TaskRow, Unit
from tests.store.rows import child, delivery, task

pytestmark = pytest.mark.anyio

NOW = 100 * DAY
OLD, FRESH, BUSY, UNSEEN = (f"2026022{n}_143052_a1b2c{n}" for n in range(4))


class House:
    """A home with four sessions and files of each."""

    def __init__(self, path: Path) -> None:
        self.home = Home(root=path, path=path)
        self.store = MemoryStore()
        self.now = NOW
        self.retention = Retention(self.store, self.home, now=lambda: self.now)

    def folder(self, *parts: str, at: float = 0.0, text: str = "1234567890") -> Path:
        folder = self.home.path.joinpath(*parts)
        (folder / "sa-1").mkdir(parents=True)
        (folder / "sa-1" / "report.md").write_text(text)
        for path in (folder / "sa-1" / "report.md", folder / "sa-1", folder):
            os.utime(path, (at, at))
        return folder

    async def session(self, name: str, *, used: float, ended: bool = True, pending: bool = False) -> None:
        root, sub = f"main_{name[-1]}", f"sa-{name[-1]}"
        rows: tuple[TaskRow, ...] = (
            task(root, session_id=name, root_id=root),
            replace(child(sub, session_id=name, root_id=root, goal=f"part of {name[-1]}"), parent_id=root),
        )
        end = encode_json(TaskResult(task_id=sub, state="completed", exit_reason="completed", summary="seven"))
        ops = [
            AddSession(row=SessionRow(session_id=name, root_task=root, created_at=used, updated_at=used)),
            *(AddTask(row=row) for row in rows),
            EndTask(task_id=sub, state="completed", ended_at=used, end=end),
            *([EndTask(task_id=root, state="completed", ended_at=used, end=end)] if ended else []),
            *([PutDelivery(row=delivery(sub, root))] if pending else []),
        ]
        await self.store.submit(Unit(ops=tuple(ops))).wait()
        self.folder("tasks", name)

    async def names(self) -> list[str]:
        return sorted(row.session_id for row in await self.store.sessions())


@pytest.fixture
async def house(tmp_path: Path) -> House:
    made = House(tmp_path / "h")
    await made.session(OLD, used=NOW - 31 * DAY)
    await made.session(FRESH, used=NOW - 29 * DAY)
    await made.session(BUSY, used=NOW - 99 * DAY, ended=False)
    await made.session(UNSEEN, used=NOW - 99 * DAY, pending=True)
    return made


async def test_what_is_old_goes_with_its_files(house: House) -> None:
    plan = await house.retention.prune(Keep(sessions=30, transcripts=7), dry_run=True)
    assert [row.session_id for row in plan.sessions] == [OLD] and plan.bytes == 10
    assert await house.names() == [OLD, FRESH, BUSY, UNSEEN] and house.retention.folders(OLD)[0].exists()
    done = await house.retention.prune(Keep(sessions=30, transcripts=7))
    assert done == plan
    assert await house.names() == [FRESH, BUSY, UNSEEN]
    assert sorted(path.name for path in (house.home.path / "tasks").iterdir()) == [FRESH, BUSY, UNSEEN]
    assert (done.unfinished, done.unseen) == (1, 1)


async def test_for_ever_is_for_ever(house: House) -> None:
    house.folder("tasks", "20200101_000000_ffffff")
    assert (await house.retention.prune(Keep(sessions=None, transcripts=7))).bytes == 0
    assert len(await house.names()) == 4


async def test_a_result_shown_keeps_nothing_any_more(house: House) -> None:
    found = await pending_results(house.store, is_gone=lambda owner: True)
    assert [(item.session_id, item.goal, item.status, item.summary) for item in found] == [
        (UNSEEN, "part of 3", "completed", "seven")
    ]
    await mark_shown(house.store, [item.task_id for item in found], NOW)
    assert await pending_results(house.store, is_gone=lambda owner: True) == []
    await house.retention.prune(Keep(sessions=30, transcripts=7))
    assert await house.names() == [FRESH, BUSY]


async def test_what_a_living_conversation_will_be_told_is_not_unseen(house: House) -> None:
    await house.session("20260224_143052_a1b2c4", used=NOW, ended=False, pending=True)
    asked: list[str] = []

    def gone(owner: str) -> bool:
        asked.append(owner)
        return False

    assert [item.task_id for item in await pending_results(house.store, is_gone=gone)] == ["sa-3"]
    assert asked == ["o1"]
    later = await pending_results(house.store, is_gone=lambda owner: True)
    assert [(item.task_id, item.resumable) for item in later] == [("sa-3", False), ("sa-4", True)]


async def test_files_without_a_session_and_old_transcripts_go_and_others_files_stay(house: House) -> None:
    lost = house.folder("tasks", "20200101_000000_ffffff", at=NOW - 31 * DAY)
    new = house.folder("tasks", "20200102_000000_ffffff", at=NOW - 2 * DAY)
    live = ("cache", "delegation", "live")
    transcript = house.folder(*live, FRESH, at=NOW - 8 * DAY)
    followed = house.folder(*live, BUSY, at=NOW - 6 * DAY)
    foreign = [house.folder(*live, "deleg_12ab34cd"), house.folder("tasks", "notes"), house.folder("cache", OLD)]
    link = house.home.path / "tasks" / "20200103_000000_ffffff"
    link.symlink_to(house.home.path / "cache", target_is_directory=True)
    done = await house.retention.prune(Keep(sessions=30, transcripts=7))
    assert done.folders == (str(lost),) and done.transcripts == (str(transcript),)
    assert [path.exists() for path in (lost, transcript)] == [False, False]
    assert all(path.exists() for path in (new, followed, link, *foreign))


async def test_at_most_once_a_day(house: House) -> None:
    keep = Keep(sessions=30, transcripts=7)
    first = await house.retention.daily(keep)
    assert first is not None and [row.session_id for row in first.sessions] == [OLD]
    house.now += 23 * 3600
    assert await house.retention.daily(keep) is None
    house.now += 2 * DAY
    second = await house.retention.daily(keep)
    assert second is not None and [row.session_id for row in second.sessions] == [FRESH]


async def test_what_fails_at_start_is_logged_and_stops_nothing(house: House, caplog: pytest.LogCaptureFixture) -> None:
    house.home.path.joinpath("cache").write_text("in the way")
    assert await house.retention.daily(Keep(sessions=30, transcripts=7)) is None
    assert "old sessions were not removed" in caplog.text


async def test_deleting_one_session(house: House) -> None:
    with pytest.raises(StoreError, match="is not deleted"):
        await house.retention.delete(BUSY)
    assert house.retention.folders(BUSY)[0].exists()
    assert await house.retention.delete(BUSY, unfinished=True) == (10, [])
    assert BUSY not in await house.names() and not house.retention.folders(BUSY)[0].exists()
    assert house.retention.folders("../x") == [], "a name leads nowhere else"
