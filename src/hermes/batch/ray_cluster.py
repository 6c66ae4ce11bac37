"""Processes of a run on the nodes of a Ray cluster: an actor on a node holds each.

The cluster is there already and is somebody's: nothing here starts, configures or stops one, and nothing of a run
stays in it. Whoever asks for it says where it is; none is looked for. What the processes do is the ordinary worker's.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from hermes.batch.link import Connect, Link
from hermes.batch.ray_relay import VERSIONS, Relay
from hermes.core.errors import OperatorError, TryLater, UsageError

__all__ = ["OpenCluster", "open_cluster"]

#: Joins a cluster; see `open_cluster`.
OpenCluster = Callable[[str | None, int, Callable[[str], None]], AbstractAsyncContextManager[Sequence[Connect]]]

#: Seconds in which the head of a cluster has to take a connection.
CONNECTS = 5.0
#: Seconds between two looks whether the head is there, and how often it may be missed: less than Ray's own minute.
LOOK_EVERY = 5.0
MISSED = 4
#: Seconds in which a cluster has to answer.
ANSWERS = 30.0
#: Seconds that an actor may wait for its place.
PLACED = 50.0
#: Bytes handed over at once: what is larger, Ray keeps in memory that all of a node share, and may write to its disk.
PIECE = 65_536
#: Seconds that leaving the cluster may take.
LEAVING = 1.0


@asynccontextmanager
async def open_cluster(
    address: str | None, each: int, say: Callable[[str], None], ray: Any = None
) -> AsyncIterator[Sequence[Connect]]:
    """Join the cluster at `address` (None: `RAY_ADDRESS`) and yield what starts its processes, `each` on every node
    that has as many CPUs. `ray` stands in for the package.

    Raises:
        UsageError: there is no Ray here, no address, or not one node with enough CPUs.
        OperatorError: the cluster cannot be reached, or fits not to this Ray.
    """
    ray = ray or _ray()
    address = address or os.environ.get("RAY_ADDRESS", "")
    if not address:
        raise UsageError(
            "where is the cluster? --ray_address=HOST:PORT, as `ray start --head --port=PORT` was given it."
        )
    if "://" in address:
        raise UsageError(
            f"--ray_address={address}: a run takes part in the cluster and uses no client. Start it on one of the "
            "nodes (`ray start --address=HOST:PORT --num-cpus=0` makes this machine one), with --ray_address=HOST:PORT."
        )
    await _answers(address)
    await _join(ray, address)
    try:
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= each]
        if not nodes:
            raise UsageError(f"no node of the cluster at {address} has {each} CPUs: lower --processes.")
        say(f"Ray cluster at {address}: {each} on each of {len(nodes)} nodes")
        head = _Head(address)
        yield [partial(_actor, ray, head, node["NodeID"], say) for node in nodes for _ in range(each)]
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(LEAVING):
            await anyio.to_thread.run_sync(ray.shutdown, abandon_on_cancel=True)


def _ray() -> Any:
    # No word of a run leaves it: Ray would count its uses at its makers'.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # What Ray has to say of lost nodes, pages of it, would come among the lines of the run; it stands in Ray's logs.
    os.environ["RAY_DEDUP_LOGS_SKIP_REGEX"] = "(?s).*"
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "error")
    try:
        # edge: an extra of its own, 200 MB
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise UsageError(
            "--executor=ray needs Ray: pip install 'hermes-tasktree[ray]', here and on every node."
        ) from error
    logging.getLogger("ray").setLevel(logging.ERROR)
    return ray


async def _answers(address: str) -> None:
    """See that somebody listens there: Ray would try for minutes.

    Raises:
        UsageError: this is no address.
        OperatorError: nobody does.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--ray_address={address} is no address: write HOST:PORT.")
    try:
        with anyio.fail_after(CONNECTS):
            stream = await anyio.connect_tcp(host.strip("[]"), int(port))
            await stream.aclose()
    except (OSError, TimeoutError) as error:
        raise OperatorError(
            f"nobody answers at {address}, where the Ray cluster should be ({error or 'no connection in time'}). It is "
            "the address that `ray start --head` named."
        ) from error


class _Head:
    """Notices when the head of the cluster is gone: Ray would end this process a minute later, in the middle of its
    work."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._next = anyio.current_time() + LOOK_EVERY
        self._missed = 0

    async def look(self) -> None:
        """See whether it is there, every so often; who listens to a process comes by twice a second.

        Raises:
            OperatorError: it has been missed too often.
        """
        now = anyio.current_time()
        if now >= self._next:
            self._next = now + LOOK_EVERY
            try:
                await _answers(self._address)
                self._missed = 0
            except OperatorError:
                self._missed += 1
        if self._missed >= MISSED:
            raise OperatorError(f"the head of the Ray cluster at {self._address} is gone. Start it, then use --resume.")


async def _join(ray: Any, address: str) -> None:
    start = partial(
        ray.init,
        address=address,
        log_to_driver=False,
        configure_logging=False,
        logging_level=logging.ERROR,
        include_dashboard=False,
    )
    try:
        # In a thread of its own: in the first one Ray would take the signals.
        with anyio.fail_after(ANSWERS):
            await anyio.to_thread.run_sync(start, abandon_on_cancel=True)
    except TimeoutError:
        raise OperatorError(f"the Ray cluster at {address} has not answered within {ANSWERS:g} s.") from None
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise OperatorError(f"the Ray cluster at {address} cannot be joined: {_first_line(error)}") from error


@asynccontextmanager
async def _actor(ray: Any, head: _Head, node: str, say: Callable[[str], None], again: bool) -> AsyncIterator[Link]:
    """One process, in an actor on `node`; in the place of one that died, wherever there is room."""
    at = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    actor = (
        ray.remote(Relay)
        .options(
            # What takes the place of a lost one must not wait for a CPU that nobody gives back.
            num_cpus=0 if again else 1,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=at(node_id=node, soft=True),
        )
        .remote()
    )
    try:
        await _check(ray, actor)
        await _of(ray, actor.start.remote())
        actor.listen.remote()
        yield _Actor(ray, head, actor, say)
    finally:
        ray.kill(actor, no_restart=True)


async def _check(ray: Any, actor: Any) -> None:
    """See that the node of an actor has what this machine has."""
    try:
        with anyio.fail_after(PLACED):
            about = await _of(ray, actor.about.remote())
    except TimeoutError:
        raise TryLater(
            f"the cluster had no place for a process within {PLACED:g} s: its CPUs are in use. Try later, or "
            "with fewer --processes."
        ) from None
    except _Unfit as error:
        raise OperatorError(
            f"a node cannot carry rollouts out ({error}). Install hermes-tasktree {VERSIONS['hermes']} for the "
            "Python that runs Ray there."
        ) from error
    for name, ours in VERSIONS.items():
        if about[name] != ours:
            raise OperatorError(
                f"node {about['node']} has {name} {about[name]}, and this machine {ours}: install the same."
            )


class _Unfit(Exception):
    """An actor could not be made on its node."""


async def _of(ray: Any, reference: Any) -> Any:
    """The result of a call of an actor.

    Raises:
        BrokenResourceError: the actor, its process or its node has died.
        _Unfit: the class of the actor cannot be had on its node.
    """
    try:
        return await reference
    except ray.exceptions.RayError as error:
        if "ModuleNotFoundError" in str(error) or isinstance(error, ray.exceptions.RuntimeEnvSetupError):
            raise _Unfit(_last_line(error)) from error
        raise anyio.BrokenResourceError from error


class _Actor:
    """The process that an actor holds."""

    def __init__(self, ray: Any, head: _Head, actor: Any, say: Callable[[str], None]) -> None:
        self._ray = ray
        self._head = head
        self._actor = actor
        self._say = say
        self._closed = False

    async def send(self, data: bytes) -> None:
        for begin in range(0, len(data), PIECE):
            await _of(self._ray, self._actor.send.remote(data[begin : begin + PIECE]))

    async def receive(self) -> bytes:
        await self._head.look()
        data: bytes = await _of(self._ray, self._actor.receive.remote())
        if not data:
            words = await _of(self._ray, self._actor.last_words.remote())
            if words and not self._closed:
                self._say(f"the last words of a process: {words}")
            raise anyio.EndOfStream
        return data

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await _of(self._ray, self._actor.close.remote())


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _last_line(error: Exception) -> str:
    return str(error).strip().rpartition("\n")[2]
