"""A process that asks a loopback provider with one key and prints what came of it: `asker URL HOME TASKS TURNS`."""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio

from hermes.compose import Parts
from hermes.compose.keys import KeyPools
from hermes.config import find_home, load
from hermes.core.errors import ModelError
from hermes.core.messages import Text, User
from hermes.core.model import Model, ModelProfile, ModelRequest
from hermes.credentials import Endpoint as KeyEndpoint
from hermes.credentials import Key
from hermes.credentials.limits import START
from hermes.providers.endpoint import Endpoint
from hermes.providers.http import HttpSession
from hermes.providers.openai_chat import OpenAIChat
from hermes.providers.pooled import Pooled
from hermes.providers.retrying import Retrying
from hermes.store.owner import take_ownership
from tests.credentials.slow_time import SlowLoop, now

SECRET = "sk-shared-0123456789"


class SlowClock:
    """The wall clock of slow time."""

    now = staticmethod(now)


class Counted(OpenAIChat):
    """A model that notes when its provider accepted and refused, in seconds of slow time."""

    accepted: list[float]
    refused: list[float]

    async def send(self, request: ModelRequest) -> Any:
        try:
            found = await super().send(request)
        except ModelError:
            self.refused.append(now())
            raise
        self.accepted.append(now())
        return found


async def main(base_url: str, folder: str, tasks: int, turns: int) -> None:
    home = find_home({"HERMES_HOME": folder})
    home.prepare(home.run_dir)
    key = Key(provider="p", base_url=base_url, secret=SECRET, source="key", variable="KEY")
    endpoint = KeyEndpoint(provider="p", base_url=base_url, api_key=SECRET, key_source="key", model="test-model")
    parts = Parts(loaded=load(home, {}), endpoint=endpoint, keys=(key,), clock=SlowClock())
    pools, session, failed = KeyPools(parts), HttpSession(), 0
    began = now()
    make = Counted("test-model", Endpoint(base_url=base_url, api_key=SECRET), ModelProfile(), session)
    make.accepted, make.refused = [], []
    model: Model = Retrying(Pooled("test-model", ModelProfile(), pools.of(endpoint, start=START), lambda *_: make))

    async def task(number: int) -> None:
        nonlocal failed
        request = ModelRequest(system="x", entries=(User(content=(Text("go"),)),), watched=False, affinity=f"{number}")
        try:
            for _ in range(turns):
                async with model.stream(request) as deltas:
                    async for _ in deltas:
                        pass
        except ModelError:
            failed += 1

    with take_ownership(home.path) as owner:
        async with anyio.create_task_group() as group:
            for run in pools.sharing(owner.owner_id):
                group.start_soon(run)
            async with anyio.create_task_group() as asking:
                for number in range(tasks):
                    asking.start_soon(task, number)
            group.cancel_scope.cancel()
    await session.close()
    said = {"began": began, "ended": now(), "failed": failed, "accepted": make.accepted, "refused": make.refused}
    print(json.dumps(said))


if __name__ == "__main__":
    options = {"loop_factory": SlowLoop}
    anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), backend_options=options)
