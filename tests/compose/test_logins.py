"""A whole runtime whose key belongs to a login: it is renewed before its end or when it is refused, once for all."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from hermes.compose import Parts, open_runtime
from hermes.config import find_home, load
from hermes.core.clock import held
from hermes.credentials import EndpointFlags, find_endpoint, find_keys, read_auth_file
from hermes.credentials.auth_change import add_entry
from hermes.testing import faults
from hermes.testing.clock import VirtualClock
from hermes.testing.faults import Fault
from hermes.testing.lab import Lab
from hermes.testing.scripted import Reply, reply
from hermes.testing.server import ProviderServer, Request
from tests.credentials.test_oauth import Issuer, served

pytestmark = pytest.mark.anyio


def parts_of(url: str, token_url: str, folder: Path, clock: VirtualClock, expires_in: float) -> Parts:
    environ = {"HERMES_HOME": str(folder / "hermes"), "PATH": "/usr/bin:/bin"}
    home = find_home(environ)
    home.prepare(home.run_dir)
    kept = {"refresh_token": "refresh-0", "token_url": token_url, "expires_at": clock.now() + expires_in}
    add_entry(home.auth_file, "openai", "access-0", label="work", base_url=url, login=kept)
    loaded = load(home, environ, {"delegation.max_concurrent_children": 60})
    keys = find_keys(environ, loaded.dotenv, read_auth_file(home.auth_file))
    endpoint = find_endpoint(loaded.require(), EndpointFlags(model="test-model"), keys, environ)
    return Parts(
        loaded=loaded, endpoint=endpoint, keys=keys, variables=environ, environ=environ, memory=True,
        watchdog=False, clock=clock, hold=clock, state_root=home.path / "tasks",
    )  # fmt: skip


@asynccontextmanager
async def opened(
    issuer: Issuer, folder: Path, clock: VirtualClock, script: Any, expires_in: float
) -> AsyncIterator[tuple[Lab, ProviderServer]]:
    with served(issuer) as token_url:
        async with ProviderServer(script) as server:
            with held(clock):
                parts = await anyio.to_thread.run_sync(parts_of, server.base_url, token_url, folder, clock, expires_in)
            async with open_runtime(parts) as assembly:
                yield Lab(assembly, folder), server


@pytest.mark.fault("B066")
@pytest.mark.parametrize("expires_in", [-5.0, 3600.0])
async def test_fifty_tasks_renew_a_key_once(tmp_path: Path, virtual_clock: VirtualClock, expires_in: float) -> None:
    """Whether its time has come or it was refused before."""
    issuer = Issuer()

    def script(request: Request) -> Reply | Fault:
        return reply("done") if request.key == "access-1" else faults.bad_key()

    async with opened(issuer, tmp_path, virtual_clock, script, expires_in) as (lab, server):
        tasks = [await lab.start(f"goal {number}", toolsets=()) for number in range(50)]
        results = [await lab.runtime.result(task) for task in tasks]
        keys = Counter(request.key for request in server.requests)
    assert {result.summary for result in results} == {"done"}
    assert len(issuer.asked) == 1 and not issuer.revoked
    assert keys["access-1"] == 50 and (keys["access-0"] > 0) is (expires_in > 0)
    text = await anyio.Path(tmp_path / "hermes" / "auth.json").read_text()
    assert json.loads(text)["credential_pool"]["openai"][0]["access_token"] == "access-1"


async def test_a_revoked_login_ends_a_task_with_what_to_do(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    issuer = Issuer()
    issuer.revoked = True
    async with opened(issuer, tmp_path, virtual_clock, lambda request: faults.bad_key(), -5.0) as (lab, server):
        result = await lab.runtime.result(await lab.start("goal", toolsets=()))
    assert result.state == "failed" and "hermes auth add openai --type oauth" in result.error
    assert server.count == 0 and len(issuer.asked) == 1
