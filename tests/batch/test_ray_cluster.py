"""What a run asks of a Ray cluster, on a stand-in whose actors live in this process; `make test-ray` has real ones."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.abc
import pytest

from hermes.batch import wire
from hermes.batch.link import Connect
from hermes.batch.ray_cluster import open_cluster
from hermes.batch.ray_relay import VERSIONS, Relay
from hermes.core.errors import HermesError, OperatorError, TryLater, UsageError

pytestmark = pytest.mark.anyio


class RayError(Exception):
    pass


class RuntimeEnvSetupError(RayError):
    pass


class Handle:
    """An actor of this process: its methods are asked as those of Ray's are."""

    def __init__(self, actor: Any, ray: Ray) -> None:
        self._actor, self._ray = actor, ray
        self.calls: list[asyncio.Task[Any]] = []

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any) -> Any:
            self._ray.called.append((name, *arguments))
            if self._ray.fails is not None:
                raise self._ray.fails
            try:
                return await getattr(self._actor, name)(*arguments)
            except anyio.BrokenResourceError as error:
                raise RayError(str(error)) from error

        def remote(*arguments: Any) -> asyncio.Task[Any]:
            self.calls.append(asyncio.ensure_future(call(*arguments)))  # it begins whether or not anybody waits
            return self.calls[-1]

        return SimpleNamespace(remote=remote)


class Ray:
    """As much of the package as is used."""

    def __init__(self, *nodes: tuple[str, float, bool], relay: type[Any] = Relay) -> None:
        self._nodes, self._relay = nodes, relay
        self.exceptions = SimpleNamespace(RayError=RayError, RuntimeEnvSetupError=RuntimeEnvSetupError)
        self.util = SimpleNamespace(
            scheduling_strategies=SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node_id, soft: (node_id, soft))
        )
        self.fails: Exception | None = None
        self.called: list[tuple[Any, ...]] = []
        self.placed: list[tuple[float, Any]] = []
        self.killed = 0
        self.joined: list[dict[str, Any]] = []
        self.left = 0
        self.relays: list[Any] = []

    async def end(self) -> None:
        """What the actors' own ends would do to the processes that they hold."""
        for relay in self.relays:
            await relay.close()

    def init(self, **options: Any) -> None:
        self.joined.append(options)

    def shutdown(self) -> None:
        self.left += 1

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": name, "Alive": alive, "Resources": {"CPU": cpus}} for name, cpus, alive in self._nodes]

    def remote(self, actor: type[Any]) -> Any:
        assert actor is Relay

        def options(**options: Any) -> Any:
            assert options["max_restarts"] == options["max_task_retries"] == 0
            self.placed.append((options["num_cpus"], options["scheduling_strategy"]))
            return SimpleNamespace(remote=self._made)

        return SimpleNamespace(options=options)

    def _made(self) -> Handle:
        self.relays.append(self._relay())
        return Handle(self.relays[-1], self)

    def kill(self, actor: Handle, no_restart: bool) -> None:
        self.killed += 1
        for each in actor.calls:
            each.cancel()


@pytest.fixture
def address() -> Iterator[str]:
    """Where somebody listens, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


async def started(ray: Ray, address: str, each: int = 1) -> list[Connect]:
    async with open_cluster(address, each, lambda text: None, ray) as connects:
        return list(connects)


async def test_processes_go_to_every_node_that_has_room_and_the_next_one_anywhere(address: str) -> None:
    ray = Ray(("head", 0, True), ("a", 4, True), ("b", 2, True), ("dead", 8, False), ("small", 1, True))
    said: list[str] = []
    async with open_cluster(address, 2, said.append, ray) as connects:
        assert len(connects) == 4
        for again in (False, True):
            async with connects[0](again) as link:
                await link.close()
    assert ray.placed == [(1, ("a", True)), (0, ("a", True))]
    assert said == [f"Ray cluster at {address}: 2 on each of 2 nodes"]
    assert ray.killed == 2 and ray.left == 1
    assert ray.joined[0]["log_to_driver"] is False


async def test_a_real_process_is_reached_through_its_actor_in_small_pieces(address: str) -> None:
    ray = Ray(("a", 1, True))
    (connect,) = await started(ray, address)
    begin = wire.Begin(number=0, data_dir="", settings={"x": "y" * 200_000}, options={}, away="0" * 32)
    async with connect(False) as link:
        await link.send(wire.encode(begin))
        with pytest.raises(anyio.EndOfStream), anyio.fail_after(100):  # it cannot use what it was given, and ends
            while True:
                await link.receive()
    await ray.end()
    pieces = [len(arguments[0]) for name, *arguments in ray.called if name == "send"]
    assert sum(pieces) > 200_000 and max(pieces) <= 65_536


class Older(Relay):
    async def about(self) -> dict[str, str]:
        return {**VERSIONS, "hermes": "0.0.1", "node": "old-node"}


async def refusal(connect: Connect) -> HermesError:
    with pytest.raises(HermesError) as error:
        async with connect(False):
            pytest.fail("it started")
    return error.value


async def test_a_node_of_another_version_is_refused_by_name(address: str) -> None:
    (connect,) = await started(Ray(("a", 1, True), relay=Older), address)
    error = await refusal(connect)
    assert isinstance(error, OperatorError)
    assert "old-node has hermes 0.0.1" in str(error) and VERSIONS["hermes"] in str(error)


async def test_a_node_without_the_program_is_told_what_to_install(address: str) -> None:
    ray = Ray(("a", 1, True))
    (connect,) = await started(ray, address)
    ray.fails = RayError("…\nModuleNotFoundError: No module named 'hermes'")
    error = await refusal(connect)
    assert "Install hermes-tasktree" in str(error) and "No module named 'hermes'" in str(error)


async def test_a_node_that_dies_is_an_end_and_no_refusal(address: str) -> None:
    ray = Ray(("a", 1, True))
    (connect,) = await started(ray, address)
    ray.fails = RayError("the node has died")
    with pytest.raises(anyio.BrokenResourceError):
        async with connect(False):
            pytest.fail("it started")
    assert ray.killed == 1


async def test_a_cluster_that_is_in_use_is_worth_another_try(address: str) -> None:
    ray = Ray(("a", 1, True))
    (connect,) = await started(ray, address)
    ray.fails = TimeoutError()  # what becomes of an actor that gets no place in time
    error = await refusal(connect)
    assert isinstance(error, TryLater) and error.exit_code == 75


@pytest.mark.parametrize(
    ("given", "said"), [("", "--ray_address"), ("ray://127.0.0.1:1", "no client"), ("127.0.0.1", "HOST:PORT")]
)
async def test_what_is_no_address_of_a_cluster(given: str, said: str) -> None:
    ray = Ray(("a", 1, True))
    with pytest.raises(UsageError, match=said):
        await started(ray, given)
    assert not ray.joined


async def test_no_node_with_as_many_processors(address: str) -> None:
    ray = Ray(("a", 2, True))
    with pytest.raises(UsageError, match="has 3 CPUs"):
        await started(ray, address, 3)
    assert ray.left == 1


async def test_nobody_at_the_address_is_told_at_once() -> None:
    ray = Ray(("a", 2, True))
    with pytest.raises(OperatorError, match="nobody answers at 127.0.0.1:1"):
        await started(ray, "127.0.0.1:1")
    assert not ray.joined
