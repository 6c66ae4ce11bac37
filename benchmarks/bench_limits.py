"""300 agents × 4 turns against a loopback provider that allows 50 requests a second and 50 at once.

It answers after 100 to 500 ms and refuses what is beyond with 429 and a Retry-After of a second. What is asked is the
stack of a real run (retries, keys, learned limits, HTTP). The same work is done by the usual policy for comparison: 64
at once, exponential back-off, three attempts. Figures count from the first refusal on; the ramp is told apart.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
from figures import Figure, Options, run
from stage import MODEL, model_process, part, scratch

from hermes.compose import Parts
from hermes.compose.keys import KeyPools
from hermes.config import find_home, load
from hermes.core.errors import ModelError
from hermes.core.messages import Text, User
from hermes.core.model import Model, ModelProfile, ModelRequest
from hermes.credentials import Endpoint as KeyEndpoint
from hermes.credentials import Key
from hermes.credentials.limits import START
from hermes.providers.http import HttpSession
from hermes.providers.openai_chat import Endpoint, OpenAIChat
from hermes.providers.pooled import Pooled
from hermes.providers.retrying import Backoff, Retrying

RATE, BURST = 50.0, 50.0


class Counted:
    """Moments of answers and refusals."""

    def __init__(self) -> None:
        self.accepted: list[float] = []
        self.refused: list[float] = []
        self.failed = 0


class Asking(OpenAIChat):
    """A model that counts what its provider says to each request."""

    counted: Counted

    async def send(self, request: ModelRequest) -> Any:
        try:
            found = await super().send(request)
        except ModelError as error:
            if error.status == 429:
                self.counted.refused.append(anyio.current_time())
            raise
        self.counted.accepted.append(anyio.current_time())
        return found


def asking(base_url: str, secret: str, session: HttpSession, counted: Counted) -> Asking:
    model = Asking(MODEL, Endpoint(base_url=base_url, api_key=secret), ModelProfile(), session)
    model.counted = counted
    return model


def learned(base_url: str, folder: Path, session: HttpSession, counted: Counted, count: int) -> Model:
    """The program's own stack over `count` keys, taking the provider for one on the network."""
    keys = tuple(
        Key(provider="p", base_url=base_url, secret=f"sk-bench-{n}-0123456789", source=f"key {n}", variable=f"KEY_{n}")
        for n in range(count)
    )
    home = find_home({"HERMES_HOME": str(folder / "home")})
    endpoint = KeyEndpoint(
        provider="p", base_url=base_url, api_key=keys[0].secret, key_source=keys[0].source, model=MODEL
    )
    pools = KeyPools(Parts(loaded=load(home, {}), endpoint=endpoint, keys=keys))

    def make(secret: str, observe: Callable[[Mapping[str, str]], None]) -> Model:
        return asking(base_url, secret, session, counted)

    return Retrying(Pooled(MODEL, ModelProfile(), pools.of(endpoint, start=START), make))


async def work(model: Model, counted: Counted, tasks: int, turns: int, gate: anyio.CapacityLimiter | None) -> float:
    """Let every task take its turns; returns the seconds that took."""
    began = anyio.current_time()

    async def turn(name: str) -> None:
        request = ModelRequest(system="x", entries=(User(content=(Text("go"),)),), watched=False, affinity=name)
        async with model.stream(request) as deltas:
            async for _ in deltas:
                pass

    async def one(number: int) -> None:
        try:
            for _ in range(turns):
                if gate is None:
                    await turn(f"task-{number}")
                else:
                    async with gate:
                        await turn(f"task-{number}")
        except ModelError:
            counted.failed += 1

    async with anyio.create_task_group() as group:
        for number in range(tasks):
            group.start_soon(one, number)
    return anyio.current_time() - began


async def measure(base_url: str, policy: str, keys: int, tasks: int, turns: int) -> dict[str, Any]:
    """One run of a policy."""
    counted, session = Counted(), HttpSession()
    try:
        with scratch() as folder:
            if policy == "learned":
                took = await work(learned(base_url, folder, session, counted, keys), counted, tasks, turns, None)
            else:
                plain = asking(base_url, "sk-bench-0123456789", session, counted)
                usual = Retrying(plain, backoff=Backoff(), jitter=random.random)
                took = await work(usual, counted, tasks, turns, anyio.CapacityLimiter(64))
    finally:
        await session.close()
    first = min(counted.refused, default=0.0)
    after = [at for at in counted.accepted if at >= first]
    span = max(after) - first if after else 0.0
    # what was let through before the first refusal is known later, and belongs to the ramp
    rush = max(0, int(BURST * keys) - (len(counted.accepted) - len(after))) if first else 0
    return {
        "took": took,
        "failed": counted.failed,
        "refused": len(counted.refused) / (len(counted.refused) + len(counted.accepted)),
        # the provider's bucket is empty at the first refusal: from then on it allows its rate
        "used": min(1.0, (len(after) - rush) / (RATE * keys * span)) if span else 0.0,
        "ramp": len(counted.accepted) - len(after) + rush,
    }


def figures(given: Options) -> list[Figure]:
    """Use of the limit, refusals, failures; the usual policy; two keys over one."""
    tasks, turns = (100, 3) if given.quick else (300, 4)
    runs: dict[str, list[dict[str, Any]]] = {}
    for name, policy, keys in (("one", "learned", 1), ("two", "learned", 2), ("usual", "usual", 1)):
        for _ in range(given.runs):
            with model_process("limited", "--latency", "0.3", "--jitter", "0.67") as base_url:
                run = part(__file__, base_url, policy, str(keys), str(tasks * keys), str(turns))
            runs.setdefault(name, []).append(run)

    def middle(name: str, field: str) -> float:
        return statistics.median(run[field] for run in runs[name])

    what = f"{tasks} agents × {turns} turns, 50 requests/s"
    two = 2 * middle("one", "took") / middle("two", "took")  # twice the agents have two keys
    usual = runs["usual"][0]
    return [
        Figure(
            name=f"{what}: time over what the limit allows", bar=1.11, measured=1 / max(0.01, middle("one", "used")),
            unit="x", note=f"{middle('one', 'took'):.1f} s in all, {middle('one', 'ramp'):.0f} in the ramp",
        ),
        Figure(name="requests answered 429", bar=5, measured=100 * middle("one", "refused"), unit="%"),
        Figure(name="failed agents", bar=0, measured=max(run["failed"] for run in runs["one"]), unit=""),
        Figure(
            name="requests a second of one key over those of two", bar=0.526, measured=1 / two, unit="x",
            note=f"two keys: {two:.2f} x",
        ),
        Figure(
            name="64 at once with back-off, for comparison: failed agents", measured=usual["failed"], unit="",
            note=f"{usual['took']:.1f} s, {100 * usual['refused']:.0f} % answered 429",
        ),
    ]  # fmt: skip


async def run_part(base_url: str, policy: str, keys: str, tasks: str, turns: str) -> dict[str, Any]:
    return await measure(base_url, policy, int(keys), int(tasks), int(turns))


if __name__ == "__main__":
    run(__doc__, figures, run_part, sys.argv[1:])
