"""A whole runtime with several keys: children share what is known of them, and no key goes to a foreign server."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest

from hermes.chat.tree_text import tree_lines
from hermes.compose import Parts, open_runtime
from hermes.compose.keys import KeyPools, keys_of
from hermes.compose.models import Models
from hermes.config import find_home, load
from hermes.core.clock import held
from hermes.core.events import CredentialCooled, FallbackUsed, QuotaWaiting
from hermes.core.result import TaskResult
from hermes.credentials import Endpoint, EndpointFlags, Key, MissingKey, find_endpoint, find_keys, read_auth_file
from hermes.credentials.auth_change import add_entry
from hermes.providers.catalog import Catalog
from hermes.runtime.spec import ModelChoice
from hermes.testing import faults
from hermes.testing.clock import VirtualClock
from hermes.testing.faults import Fault
from hermes.testing.lab import Lab
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import ProviderServer, Request

pytestmark = pytest.mark.anyio

A, B, OTHER = "sk-aaaa-0123456789", "sk-bbbb-0123456789", "sk-other-0123456789"


def parts_of(server: ProviderServer, tmp_path: Path, clock: VirtualClock, settings: Mapping[str, Any]) -> Parts:
    """The keys are one of a variable and one of the file."""
    environ = {
        "HERMES_HOME": str(tmp_path / "hermes"),
        "OPENAI_API_KEY": A,
        "OPENAI_BASE_URL": server.base_url,
        "ANTHROPIC_API_KEY": OTHER,
        "LAB": OTHER,
        "PATH": "/usr/bin:/bin",
    }
    home = find_home(environ)
    home.prepare(home.run_dir)
    if not home.auth_file.exists():
        add_entry(home.auth_file, "openai", B, label="second", base_url=server.base_url)
    loaded = load(home, environ, {"delegation.max_concurrent_children": 60, **settings})
    keys = find_keys(environ, loaded.dotenv, read_auth_file(home.auth_file))
    endpoint = find_endpoint(loaded.require(), EndpointFlags(model="test-model"), keys, environ)
    return Parts(
        loaded=loaded, endpoint=endpoint, keys=keys, variables=environ, environ=environ, memory=True,
        watchdog=False, clock=clock, hold=clock, state_root=home.path / "tasks",
    )  # fmt: skip


@asynccontextmanager
async def opened(
    server: ProviderServer, tmp_path: Path, clock: VirtualClock, settings: Mapping[str, Any] | None = None
) -> AsyncIterator[Lab]:
    """A runtime with these keys."""
    parts = await anyio.to_thread.run_sync(parts_of, server, tmp_path, clock, settings or {})
    async with open_runtime(parts) as assembly:
        yield Lab(assembly, tmp_path)


async def ask(lab: Lab, goal: str) -> TaskResult:
    return await lab.ask(goal, toolsets=("delegation",))


def delegating(children: int, child: Any) -> Any:
    """A parent that starts `children` children at once; `child` answers them."""

    def script(request: Request) -> Reply | Fault:
        if not request.first_user.startswith("parent"):
            answer: Reply | Fault = child(request)
            return answer
        if request.turn == 0:
            return reply(calls=[call("delegate_task", tasks=[{"goal": f"child {n}"} for n in range(children)])])
        return reply("all done")

    return script


async def test_fifty_children_finish_while_one_of_two_keys_is_refused(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    seen: list[tuple[str, float]] = []

    def child(request: Request) -> Reply | Fault:
        seen.append((request.key, request.at))
        if request.key == A and request.at < 60:
            return faults.rate_limited("60")
        return reply("done", delay=0.3)

    async with ProviderServer(delegating(50, child)) as server:
        async with opened(server, tmp_path, virtual_clock) as lab:
            result = await ask(lab, "parent")
    assert result.summary == "all done" and len(result.children) == 50
    assert {each.status for each in result.children} == {"completed"}
    keys = Counter(key for key, _ in seen)
    assert set(keys) == {A, B} and keys[A] + keys[B] == 50 + keys[A]
    first = min(at for key, at in seen if key == A)
    assert all(at < first + 1.0 for key, at in seen if key == A)  # those under way when it was refused
    (cooled,) = lab.of(CredentialCooled)
    assert (cooled.label, cooled.seconds, cooled.reason) == ("OPENAI_API_KEY", 60.0, "rate_limit")
    assert not any(secret in repr(lab.events) for secret in (A, B, OTHER))
    text = await anyio.Path(tmp_path / "hermes" / "auth.json").read_text()
    written = json.loads(text)["credential_pool"]["openai"]
    assert [entry.get("access_token") for entry in written] == [B, None] and A not in json.dumps(written)
    assert written[1]["source"] == "env:OPENAI_API_KEY" and written[1]["last_error_code"] == 429


async def test_a_mark_of_an_earlier_process_holds(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    def child(request: Request) -> Reply | Fault:
        return faults.rate_limited("900") if request.key == A else reply("done")

    async with ProviderServer(child) as server:
        async with opened(server, tmp_path, virtual_clock) as lab:
            assert (await ask(lab, "one")).summary == "done"
        async with opened(server, tmp_path, virtual_clock) as lab:
            assert (await ask(lab, "two")).summary == "done"
        assert [request.key for request in server.requests] == [A, B, B]


async def test_waiting_for_the_quota_shows_in_the_view_and_ends(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    def child(request: Request) -> Reply | Fault:
        return faults.rate_limited("40") if request.at < 30 else reply("done")

    async with ProviderServer(child) as server, opened(server, tmp_path, virtual_clock) as lab:
        first = await lab.start("one", toolsets=())
        await anyio.sleep(1.0)
        second = await lab.start("two", toolsets=())
        await anyio.sleep(1.0)
        view = lab.runtime.bus.tree.tasks[second.id]
        assert (view.phase, view.phase_detail) == ("quota", "39 s openai")
        checked = lab.assembly.delegation.verbs.check(second)
        assert checked["phase"] == "quota 39 s openai"
        tree = tree_lines(lab.runtime.bus.tree, virtual_clock.now(), width=120)
        assert sum("running quota 39 s openai" in line for line in tree) == 1
        results = [await lab.runtime.result(task) for task in (first, second)]
        waits = [event.seconds for event in lab.of(QuotaWaiting, second.id)]
    assert [result.summary for result in results] == ["done", "done"]
    assert waits == [pytest.approx(39.0, abs=0.2), 0.0]
    assert server.count == 4 and virtual_clock.elapsed < 60


@pytest.mark.fault("B058")
async def test_a_stand_in_gets_its_own_host_and_key_and_only_for_one_request(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    def sick(request: Request) -> Reply | Fault:
        return faults.no_credit() if request.last.startswith("one") else reply("well again")

    async with ProviderServer(sick) as first, ProviderServer(lambda request: reply("stand-in")) as second:
        stand_in = {"provider": "lab", "model": "other", "base_url": second.base_url, "key_env": "LAB"}
        settings = {"fallback_providers": [stand_in, {"model": "ignored"}]}
        async with opened(first, tmp_path, virtual_clock, settings) as lab:
            one, two = await ask(lab, "one"), await ask(lab, "two")
        assert (one.summary, two.summary) == ("stand-in", "well again")
        assert [(event.model, event.reason) for event in lab.of(FallbackUsed)] == [("other", "billing")]
        assert {request.key for request in first.requests} == {A, B}
        assert [request.key for request in second.requests] == [OTHER]


async def test_a_childs_model_may_name_its_provider(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    settings = {"providers": {"work": {"base_url": "https://work.example/v1"}}}
    async with ProviderServer(lambda request: reply("x")) as server:
        with held(virtual_clock):
            parts = await anyio.to_thread.run_sync(parts_of, server, tmp_path, virtual_clock, settings)
        models = Models(parts, Catalog({}), KeyPools(parts))
        here = ModelChoice(provider=parts.endpoint.provider, base_url=parts.endpoint.base_url)
        with pytest.raises(MissingKey, match=r"no key for work\.example"):
            models.check(msgspec.structs.replace(here, name="work/qwen"))
        models.check(msgspec.structs.replace(here, name="ollama/qwen"))  # a name of the user's own server


def test_only_keys_of_the_same_server_are_exchanged() -> None:
    url = "https://api.openai.com/v1"
    own = Key(
        provider="openai", base_url=url, secret=A, source="OPENAI_API_KEY (environment)", variable="OPENAI_API_KEY"
    )
    keys = (
        own,
        Key(provider="openai", base_url=url, secret=B, source="auth.json, openai second"),
        Key(provider="openai", base_url="http://127.0.0.1:1/v1", secret=OTHER, source="auth.json, openai third"),
        Key(provider="openrouter", base_url="https://openrouter.ai/api/v1", secret="sk-or", source="x"),
    )
    endpoint = Endpoint(provider="openai", base_url=url, api_key=A, key_source=own.source, model="m")
    assert [key.secret for key in keys_of(endpoint, keys)] == [A, B]
    named = Endpoint(provider="openai", base_url=url, api_key=A, key_source="--api_key", model="m")
    assert keys_of(named, keys) == ()
