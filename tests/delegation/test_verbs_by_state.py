"""The table of the life cycle: what each verb answers in each state of a task, the same to a model and to Python."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from hermes.core.messages import Steer, User, plain_text
from hermes.core.model import ModelRequest
from hermes.runtime.session import Session
from hermes.runtime.task import Task
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import EndlessModel, call, first_user_text, hang, reply
from tests.delegation.family import answers, until
from tests.runtime.test_outside import elsewhere, row_of

pytestmark = pytest.mark.anyio

Answer = Mapping[str, Any]
VERBS = ("check", "steer", "collect", "wait_any", "wait_all", "cancel", "list", "continue")
STATES = ("unknown", "queued", "running", "suspended", "ended")
FACES = ("tool", "python")
#: Seconds that a caller waits for what does not end.
PATIENCE = 5.0


class Stage:
    """A conversation with one task in a given state, and the verbs of both faces on it."""

    def __init__(self, lab: Lab, session: Session, requests: list[ModelRequest]) -> None:
        self.lab = lab
        self.session = session
        self.requests = requests
        self.orders: list[Any] = []
        self.task: Task | None = None

    @property
    def task_id(self) -> str:
        return self.task.id if self.task is not None else "async_00000000"

    async def ask(self, face: str, verb: str) -> Answer:
        """The answer of a verb."""
        return await (self._tool(verb) if face == "tool" else self._python(verb))

    async def _tool(self, verb: str) -> Answer:
        name = self.task_id
        self.orders.append(
            {
                "check": call("check_task", task_id=name),
                "steer": call("steer_task", task_id=name, message="only the north"),
                "collect": call("collect_task", task_id=name, timeout=PATIENCE),
                "wait_any": call("wait_tasks", task_ids=[name], mode="any", timeout=PATIENCE),
                "wait_all": call("wait_tasks", task_ids=[name], mode="all", timeout=PATIENCE),
                "cancel": call("cancel_task", task_id=name),
                "list": call("list_tasks"),
                "continue": call("continue_task", task_id=name, message="and the south"),
            }[verb]
        )
        await self.session.exchange("use it")
        given = [found for request in self.requests for found in answers(request)]
        return given[-1]  # type: ignore[no-any-return]

    async def _python(self, verb: str) -> Answer:
        verbs, scope = self.lab.assembly.delegation.verbs, self.session.task.scope
        if verb == "list":
            return verbs.list(self.lab.runtime.control.visible(scope))
        task = verbs.find(self.task_id, scope)
        if not isinstance(task, Task):
            return task
        room: dict[str, Any] = {"timeout": PATIENCE, "caller": None, "room_tokens": 10_000}
        asked: dict[str, Callable[[], Any]] = {
            "steer": lambda: verbs.steer(task, "only the north"),
            "collect": lambda: verbs.collect(task, **room),
            "wait_any": lambda: verbs.await_tasks([task], mode="any", **room),
            "wait_all": lambda: verbs.await_tasks([task], mode="all", **room),
            "cancel": lambda: verbs.cancel(task, "cancelled"),
            "continue": lambda: verbs.continue_task(task, "and the south"),
        }
        return verbs.check(task) if verb == "check" else await asked[verb]()  # type: ignore[no-any-return]


@asynccontextmanager
async def stage(folder: Path, clock: VirtualClock, state: str) -> AsyncIterator[Stage]:
    """A conversation whose child `it` is in the state. At most one child runs at once."""
    place: Stage
    requests: list[ModelRequest] = []

    def step(request: ModelRequest) -> object:
        goal = first_user_text(request)
        if goal != "start":
            return reply("its report") if goal == "it" and state == "ended" else hang()
        requests.append(request)
        last = request.entries[-1]
        if isinstance(last, User) and plain_text(last.content) == "start" and state != "unknown":
            goals = ["before", "it"] if state == "queued" else ["it"]
            return reply(calls=[call("delegate_task_async", goal=goal) for goal in goals])
        return reply(calls=[place.orders.pop()]) if place.orders else reply("ok")

    settings = {"delegation.max_concurrent_children": 1}
    async with open_lab(EndlessModel(step), workspace=folder, clock=clock, settings=settings) as lab:
        session = await lab.converse()
        place = Stage(lab, session, requests)
        await session.exchange("start")
        found = [task for task in session.task.children if plain_text(task.spec.goal) == "it"]
        if found:
            place.task = task = found[0]
            if state == "ended":
                await until(lambda: task.done.is_set() and not session.busy)
            elif state == "queued":
                assert task.state == "queued"
            else:
                await until(lambda: lab.runtime.control.view(task).phase == "model")
        if state == "suspended":  # as it stands between a lost process and the one that takes it up
            task.state = "suspended"
        yield place
        if state == "suspended" and not task.ended:
            task.state = "running"
        await session.close()


def missing(answer: Answer) -> None:
    assert answer["error"] == "Task not found: async_00000000"


def not_running(answer: Answer) -> None:
    assert answer["ok"] is False and answer["error"].endswith("is not running (status: completed).")


def not_ended(word: str) -> Callable[[Answer], None]:
    def found(answer: Answer) -> None:
        assert answer["ok"] is False and f"has not ended (status: {word})" in answer["error"]
        assert "use steer_task" in answer["error"]

    return found


def kept(answer: Answer) -> None:
    assert answer["ok"] is True and answer["receipt"]["state"] == "queued" and answer["receipt"]["id"]


def waited(answer: Answer) -> None:
    assert answer["timed_out"] is True


def collected(word: str) -> Callable[[Answer], None]:
    def found(answer: Answer) -> None:
        assert (answer["timed_out"], answer["status"], answer["summary"]) == (True, word, "")

    return found


def at_once(answer: Answer) -> None:
    assert (answer["status"], answer["timed_out"]) == ("suspended", False) and "--resume" in answer["how_to_resume"]


def report(answer: Answer) -> None:
    assert (answer["status"], answer["summary"], answer["timed_out"]) == ("completed", "its report", False)


def named(key: str) -> Callable[[Answer], None]:
    def found(answer: Answer) -> None:
        assert len(answer[key]) == 1 and answer["timed_out"] is False

    return found


def checked(word: str, *keys: str) -> Callable[[Answer], None]:
    def found(answer: Answer) -> None:
        assert answer["status"] == word and {"elapsed", "output_preview", "usage", *keys} <= set(answer)

    return found


def listed(*words: str) -> Callable[[Answer], None]:
    def found(answer: Answer) -> None:
        assert [row["status"] for row in answer["tasks"]] == list(words)

    return found


def stopped(answer: Answer) -> None:
    assert answer["ok"] is True and answer["cancelled"]


def being_stopped(answer: Answer) -> None:
    stopped(answer)
    assert answer["receipt"]["state"] == "queued" and answer["receipt"]["id"]


def goes_on(answer: Answer) -> None:
    kept(answer)
    assert answer["attempt"] == 2 and "No result exists yet" in answer["message"]


TABLE: dict[str, dict[str, Callable[[Answer], None]]] = {
    "unknown": {verb: missing for verb in VERBS if verb != "list"} | {"list": listed()},
    "queued": {
        "check": checked("queued", "position"),
        "steer": kept,
        "collect": collected("queued"),
        "wait_any": waited,
        "wait_all": waited,
        "cancel": being_stopped,
        "list": listed("running", "queued"),
        "continue": not_ended("queued"),
    },
    "running": {
        "check": checked("running", "phase", "turns", "last_activity_seconds"),
        "steer": kept,
        "collect": collected("running"),
        "wait_any": waited,
        "wait_all": waited,
        "cancel": being_stopped,
        "list": listed("running"),
        "continue": not_ended("running"),
    },
    "suspended": {
        "check": checked("suspended", "since", "how_to_resume"),
        "steer": kept,
        "collect": at_once,
        "wait_any": named("suspended"),
        "wait_all": named("suspended"),
        "cancel": stopped,
        "list": listed("suspended"),
        "continue": not_ended("suspended"),
    },
    "ended": {
        "check": checked("completed", "exit_reason", "truncated"),
        "steer": not_running,
        "collect": report,
        "wait_any": named("ended"),
        "wait_all": named("ended"),
        "cancel": not_running,
        "list": listed("completed"),
        "continue": goes_on,
    },
}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", STATES)
async def test_what_a_verb_answers(
    tmp_path: Path, virtual_clock: VirtualClock, state: str, verb: str, face: str
) -> None:
    async with stage(tmp_path, virtual_clock, state) as place:
        before = anyio.current_time()
        TABLE[state][verb](await place.ask(face, verb))
        spent = anyio.current_time() - before
        waits = state in ("queued", "running") and verb in ("collect", "wait_any", "wait_all")
        assert spent >= PATIENCE if waits else spent < PATIENCE
        task = place.task
        if task is None:
            return
        if verb == "cancel" and state != "ended":
            await until(lambda: task.done.is_set())
            assert task.state == "cancelled"
            requests = place.lab.runtime.control.view(task).api_calls
            assert requests == 0 if state == "queued" else requests <= 1
        elif verb == "continue" and state == "ended":
            await until(lambda: task.done.is_set())
            assert (task.attempt, task.state) == (2, "completed")
        elif verb != "cancel":
            assert task.ended == (state == "ended"), "looking and talking end nothing"


@pytest.mark.parametrize("face", FACES)
async def test_collecting_twice_brings_the_same(tmp_path: Path, virtual_clock: VirtualClock, face: str) -> None:
    async with stage(tmp_path, virtual_clock, "ended") as place:
        assert await place.ask(face, "collect") == await place.ask(face, "collect")


async def test_of_two_controls_at_once_the_second_hears_the_state_it_met(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    async with stage(tmp_path, virtual_clock, "running") as place:
        await place.ask("python", "cancel")
        second = await place.ask("python", "cancel")
        late = await place.ask("python", "steer")
        assert second["ok"] is False or second["cancelled"], "told what it met"
        assert place.task is not None
        await place.task.done.wait()
        assert place.task.state == "cancelled"
        assert not late["ok"] or place.task.result is not None and place.task.result.missed_steer == ("only the north",)


COMMANDS: dict[str, tuple[str, dict[str, Any]]] = {
    "steer": ("steer", {"ok": True}),
    "cancel": ("cancel", {"ok": True, "status": "cancelled"}),
    "continue": ("continue", {"ok": False}),
}


@pytest.mark.parametrize("verb", ["check", "collect", "wait", "list", *COMMANDS])
async def test_a_task_whose_process_is_gone_is_suspended_for_every_command(tmp_path: Path, verb: str) -> None:
    async with open_lab(EndlessModel(lambda _: hang()), workspace=tmp_path, memory=False) as lab:
        task = await lab.start("it")
        await until(lambda: lab.runtime.control.view(task).phase == "model")
    async with elsewhere(tmp_path) as remote:
        row = await row_of(remote, task.id)
        if verb == "check":
            answer = await remote.check(row)
            assert answer["status"] == "suspended" and answer["since"] and "--resume" in answer["how_to_resume"]
        elif verb == "collect":
            answer = await remote.collect(row)
            assert answer["status"] == "suspended" and not answer["timed_out"]
        elif verb == "wait":
            assert (await remote.wait([task.id], mode="any"))["suspended"] == [task.id]
        elif verb == "list":
            assert [item["status"] for item in (await remote.list())["tasks"]] == ["suspended"]
        else:
            answer = await remote.send(row, COMMANDS[verb][0], "only the north")
            assert COMMANDS[verb][1].items() <= answer.items()
            if verb == "continue":
                assert "has not ended (status: suspended)" in answer["error"]
    if verb != "steer":
        return
    seen: list[ModelRequest] = []

    def step(request: ModelRequest) -> object:
        seen.append(request)
        return reply("north")

    async with open_lab(EndlessModel(step), workspace=tmp_path, memory=False) as lab:
        await lab.runtime.result(await lab.assembly.recovery.adopt(row.session_id))
    assert [entry.text for entry in seen[0].entries if isinstance(entry, Steer)] == ["only the north"]
