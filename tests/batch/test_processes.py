"""Rollouts shared out among processes that die in every way; the processes are made of memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest

from hermes.batch import wire
from hermes.batch.identity import session_name
from hermes.batch.link import Connect, Link
from hermes.batch.place import DEATHS, STILLBORN
from hermes.batch.processes import ProcessEngine, open_processes
from hermes.batch.rollout import RolloutRequest
from hermes.core.errors import OperatorError, UsageError
from hermes.core.model import ModelProfile
from hermes.runtime.taping import TapeShare
from tests.batch.fakes import TOOLSETS, answered

pytestmark = pytest.mark.anyio

Answer = Callable[["Life", wire.Run], Awaitable[None]]


class Life:
    """One life of a process. It answers a rollout by `answer`, at once where that is None, and dies when told to."""

    def __init__(self, number: int, again: bool, answer: Answer | None, begun: tuple[str, ...] = ()) -> None:
        self.number, self.again = number, again
        self.begin: wire.Begin | None = None
        self.heard: list[wire.ToWorker] = []
        self.closed = False
        self.closing = 0.0  # seconds that it takes to end
        self.toolsets = dict(TOOLSETS)
        self._answer = answer
        self._begun = begun
        self._out, self._in = anyio.create_memory_object_stream[bytes](100)

    def say(self, message: wire.ToRun) -> None:
        self._out.send_nowait(wire.encode(message))

    def done(self, message: wire.Run) -> None:
        self.say(wire.Done(id=message.id, result=answered(wire.request_of(message).prompt)))

    def die(self) -> None:
        self._out.close()

    async def send(self, data: bytes) -> None:
        if self.closed or not self._out.statistics().open_send_streams:
            raise anyio.BrokenResourceError
        message = wire.decode_to_worker(data)
        self.heard.append(message)
        if isinstance(message, wire.Begin):
            self.begin = message
            opened = wire.Opened(
                model="m",
                profile=ModelProfile(),
                toolsets=self.toolsets,
                begun=self._begun,
                journal=message.journal or str(self.number),
                host="node",
            )
            self.say(opened)
        elif isinstance(message, wire.Cancel):
            self.say(wire.Gone(id=message.id))
        elif isinstance(message, wire.Run):
            await anyio.sleep(0)
            if self._answer is None:
                self.done(message)
            else:
                await self._answer(self, message)

    async def receive(self) -> bytes:
        return await self._in.receive()

    async def close(self) -> None:
        self.closed = True
        await anyio.sleep(self.closing)
        self.die()

    def drop(self) -> None:
        self._out.close()
        self._in.close()


class Places:
    """What starts the processes, and all of their lives. `open` may refuse to start one."""

    def __init__(self, answer: Answer | None = None, open: Callable[[int, bool], None] = lambda n, again: None) -> None:
        self.lives: list[Life] = []
        self.said: list[str] = []
        self._answer, self._open = answer, open
        self.begun: dict[int, tuple[str, ...]] = {}
        self.toolsets: dict[int, dict[str, tuple[str, ...]]] = {}

    def connect(self, number: int) -> Connect:
        @asynccontextmanager
        async def start(again: bool) -> AsyncIterator[Link]:
            self._open(number, again)
            life = Life(number, again, self._answer, () if again else self.begun.get(number, ()))
            life.toolsets = self.toolsets.get(number, dict(TOOLSETS))
            self.lives.append(life)
            try:
                yield life
            finally:
                life.drop()

        return start

    @asynccontextmanager
    async def engine(
        self, count: int = 2, lasting: int | None = None, tape: Callable[[TapeShare], None] | None = None
    ) -> AsyncIterator[ProcessEngine]:
        begins = [wire.Begin(number=n, data_dir="", settings={}, options={}) for n in range(count)]
        connects = [self.connect(number) for number in range(count)]
        async with open_processes(
            begins, connects, say=self.said.append, redact=bytes, lasting=lasting, tape=tape
        ) as engine:
            yield engine


def request(name: str) -> RolloutRequest:
    return RolloutRequest(key=name, index=0, prompt=name)


async def run_all(engine: ProcessEngine, names: list[str]) -> Counter[str]:
    states: Counter[str] = Counter()

    async def one(name: str) -> None:
        states[(await engine.run(request(name))).state] += 1

    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(one, name)
    return states


async def test_a_process_that_dies_costs_nothing_that_another_does_not_do_again(virtual_clock: object) -> None:
    async def once(life: Life, message: wire.Run) -> None:
        if not life.again and life.number == 0:
            life.die()
        else:
            life.done(message)

    places = Places(once)
    async with places.engine() as engine:
        assert await run_all(engine, [f"r{n}" for n in range(6)]) == {"completed": 6}
    assert [line for line in places.said if "died" in line] == [
        "process 0 on node died; another takes its place and goes on with its 3 rollouts"
    ]
    second = next(life for life in places.lives if life.again)
    assert second.begin is not None and second.begin.journal == "0"
    keep = next(message for message in second.heard if isinstance(message, wire.Keep))
    assert set(keep.names) == {session_name(f"r{n}", 1) for n in (0, 2, 4)}


async def test_a_rollout_over_which_one_after_the_other_dies_is_given_up(virtual_clock: object) -> None:
    async def deadly(life: Life, message: wire.Run) -> None:
        if wire.request_of(message).prompt == "deadly":
            life.die()
        else:
            life.done(message)

    places = Places(deadly)
    async with places.engine(1) as engine:
        result = await engine.run(request("deadly"))
        assert (await engine.run(request("harmless"))).state == "completed"
    assert result.error is not None and result.error.kind == "crashed"
    assert len(places.lives) == DEATHS + 1


async def test_processes_that_cannot_begin_do_not_count_against_a_rollout(virtual_clock: object) -> None:
    """A node that has died takes a while to be known as dead: what is started there meanwhile comes to nothing."""
    tries: list[bool] = []

    def hard(number: int, again: bool) -> None:
        tries.append(again)
        if again and len(tries) <= DEATHS + 2:
            raise anyio.BrokenResourceError

    async def once(life: Life, message: wire.Run) -> None:
        life.done(message) if life.again else life.die()

    places = Places(once, hard)
    async with places.engine(1) as engine:
        assert (await engine.run(request("r"))).state == "completed"
    assert sum("died" in line for line in places.said) == 1


@pytest.mark.parametrize("error", [OperatorError("no room"), anyio.BrokenResourceError()])
async def test_the_others_do_what_a_place_had_that_is_given_up(virtual_clock: object, error: Exception) -> None:
    tries: Counter[int] = Counter()

    def gone(number: int, again: bool) -> None:
        tries[number] += 1
        if again and number == 0:
            raise error

    async def once(life: Life, message: wire.Run) -> None:
        life.die() if life.number == 0 else life.done(message)

    places = Places(once, gone)
    async with places.engine() as engine:
        assert await run_all(engine, [f"r{n}" for n in range(6)]) == {"completed": 6}
        assert await run_all(engine, ["late"]) == {"completed": 1}
    assert tries[0] == (2 if isinstance(error, OperatorError) else STILLBORN + 1)


async def test_without_any_place_left_the_run_is_told_why(virtual_clock: object) -> None:
    def gone(number: int, again: bool) -> None:
        if again:
            raise OperatorError("the cluster has no node left")

    async def die(life: Life, message: wire.Run) -> None:
        life.die()

    places = Places(die, gone)
    async with places.engine() as engine:
        with pytest.raises(OperatorError, match="no node left"):
            await engine.run(request("r"))


async def test_what_cannot_be_started_at_all_is_refused_with_its_kind(virtual_clock: object) -> None:
    def refuse(number: int, again: bool) -> None:
        raise UsageError("install the same")

    with pytest.raises(UsageError, match="install the same"):
        async with Places(open=refuse).engine():
            pytest.fail("it opened")


async def test_a_process_hears_of_every_settled_record_before_it_ends(virtual_clock: object) -> None:
    places = Places()
    names = [f"r{n}" for n in range(6)]
    async with places.engine() as engine:
        await run_all(engine, names)
        for name in names:
            engine.settled(name, 1)
    heard = [message.key for life in places.lives for message in life.heard if isinstance(message, wire.Settled)]
    assert sorted(heard) == names
    assert all(life.closed for life in places.lives)


async def test_many_processes_end_as_fast_as_one(virtual_clock: object) -> None:
    places = Places()
    async with places.engine(count=24):
        for life in places.lives:
            life.closing = 0.2
        began = anyio.current_time()
    assert anyio.current_time() - began == pytest.approx(0.2)
    assert all(life.closed for life in places.lives)


async def test_who_has_begun_a_rollout_goes_on_with_it(virtual_clock: object) -> None:
    places = Places()
    places.begun[1] = (session_name("old", 1),)
    async with places.engine() as engine:
        assert engine.begun() == {session_name("old", 1)}
        await engine.run(request("old"))
    assert [life.number for life in places.lives if any(isinstance(each, wire.Run) for each in life.heard)] == [1]


async def test_a_cancelled_rollout_is_stopped_where_it_runs(virtual_clock: object) -> None:
    async def never(life: Life, message: wire.Run) -> None:
        return

    places = Places(never)
    async with places.engine(1) as engine:
        with anyio.move_on_after(1) as scope:
            await engine.run(request("r"))
        assert scope.cancelled_caught
    assert any(isinstance(message, wire.Cancel) for message in places.lives[0].heard)


async def test_what_a_rollout_got_of_a_replay_is_added_up_and_stands_in_no_result(virtual_clock: object) -> None:
    share = TapeShare(replies=(("row:a", 1),), calls=(("row:a", 1, 0),), wrong={"row:a": "otherwise"})

    async def answer(life: Life, message: wire.Run) -> None:
        result = answered(wire.request_of(message).prompt)
        life.say(wire.Done(id=message.id, result=msgspec.structs.replace(result, tape=share)))

    places = Places(answer)
    shares: list[TapeShare] = []
    async with places.engine(tape=shares.append) as engine:
        assert engine.taped
        result = await engine.run(request("r"))
    assert shares == [share] and result.tape is None


async def test_processes_whose_tools_differ_carry_out_nothing(virtual_clock: object) -> None:
    """A row would get other tools than were drawn for it, depending on where it runs."""
    places = Places()
    places.toolsets[1] = {"terminal": ("terminal",), "file": ("read_file",)}
    with pytest.raises(OperatorError, match="have other tools in: file, todo"):
        async with places.engine():
            pytest.fail("it opened")


async def test_fewer_processes_go_on_with_what_more_had_begun(virtual_clock: object) -> None:
    """One whose place is not wanted any more carries out what stands in its journal, and nothing else."""
    places = Places()
    places.begun |= {1: (session_name("old", 1),), 2: (session_name("gone", 1),)}
    async with places.engine(3, lasting=1) as engine:
        assert engine.begun() == {session_name("old", 1), session_name("gone", 1)}
        engine.keep_only({session_name("old", 1)})
        await run_all(engine, ["a", "old", "b"])
        assert not places.lives[1].closed
        engine.settled("old", 1)
        with anyio.fail_after(60):
            while not (places.lives[1].closed and places.lives[2].closed):
                await anyio.sleep(0.01)
        await run_all(engine, ["c"])
    ran = {life.number: [m for m in life.heard if isinstance(m, wire.Run)] for life in places.lives}
    assert [wire.request_of(message).prompt for message in ran[1]] == ["old"]
    assert len(ran[0]) == 3 and ran[2] == [] and len(places.lives) == 3
