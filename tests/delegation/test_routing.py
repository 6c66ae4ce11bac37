"""Which model a child gets, and that a key stays with its server: real requests against loopback servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import msgspec
import pytest

from hermes.api.options import parts_of, read_options
from hermes.compose import conversation_spec, open_runtime
from hermes.compose.children import delegation_policy
from hermes.config import find_home, load
from hermes.core.errors import ConfigError, ToolError
from hermes.core.result import TaskResult
from hermes.delegation.routing import Route, Routing
from hermes.runtime.spec import ModelChoice
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import ProviderServer, Request

MAIN_KEY, ROUTE_KEY = "sk-main-000000000001", "sk-route-00000000002"
PARENT = ModelChoice(name="big", provider="openai", base_url="https://a/v1")


class Asked:
    """What a run of one parent with one child brought."""

    def __init__(self, result: TaskResult, entry: dict[str, Any]) -> None:
        self.result = result
        self.entry = entry


@asynccontextmanager
async def servers() -> AsyncIterator[tuple[ProviderServer, ProviderServer]]:
    """The parent's server, whose model delegates once, and another one; both answer children."""
    async with ProviderServer(_answer) as main, ProviderServer(_answer) as other:
        yield main, other


def _answer(request: Request) -> Reply:
    if "focused subagent" in request.system:
        return reply("child here", model=f"{request.model}-2026")
    if request.turn == 0:
        given = msgspec.json.decode(request.first_user)
        return reply(calls=[call(given.pop("tool", "delegate_task"), goal="CHILD", **given)])
    return reply("done")


async def run(
    main: ProviderServer,
    tmp_path: Path,
    settings: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
    **given: Any,
) -> Asked:
    """Let a parent at `main` make one child by the arguments `given`."""
    options = read_options(
        {
            "model": "big",
            "base_url": main.base_url,
            "api_key": MAIN_KEY,
            "settings": settings,
            "memory": True,
            "environ": {"HERMES_HOME": str(tmp_path / "own"), **(environ or {})},
        }
    )
    parts = msgspec.structs.replace(await anyio.to_thread.run_sync(parts_of, options), watchdog=False)
    async with open_runtime(parts) as assembly:
        spec, _ = conversation_spec(
            assembly,
            goal=msgspec.json.encode(given).decode(),
            interactive=False,
            workspace=str(tmp_path),
            toolsets=["terminal", "delegation", "async_delegation"],
        )
        result = await assembly.runtime.result(await assembly.runtime.start(spec))
    last = [message for message in main.requests[-1].messages if message["role"] == "tool"][-1]
    answer = msgspec.json.decode(last["content"])
    return Asked(result, answer["results"][0] if "results" in answer else answer)


def child(server: ProviderServer) -> Request:
    return next(request for request in server.requests if "focused subagent" in request.system)


@pytest.mark.anyio
@pytest.mark.fault("B131")
@pytest.mark.parametrize(
    ("configured", "called", "asked"), [("", "", "big"), ("cheap", "", "cheap"), ("cheap", "tiny", "tiny")]
)
async def test_the_call_wins_over_the_settings_and_these_over_the_parent(
    configured: str, called: str, asked: str, tmp_path: Path
) -> None:
    async with servers() as (main, _):
        settings = {"delegation.model": configured}
        found = await run(main, tmp_path, settings, **({"model": called} if called else {}))
    assert child(main).model == asked
    assert found.entry["model"] == f"{asked}-2026"  # the one that really answered


@pytest.mark.anyio
async def test_a_route_has_its_own_server_key_and_fields(tmp_path: Path) -> None:
    async with servers() as (main, other):
        routes = {
            "cheap": {
                "model": "small",
                "base_url": other.base_url,
                "api_key": ROUTE_KEY,
                "reasoning_effort": "low",
                "request_overrides": {"seed": 7},
            }
        }
        settings = {"delegation.routes": routes, "delegation.request_overrides": {"user": "me", "seed": 1}}
        found = await run(main, tmp_path, settings, model="cheap")
    request = child(other)
    assert (request.model, request.key) == ("small", ROUTE_KEY)
    assert (request.body["seed"], request.body["user"]) == (7, "me")
    assert request.body["reasoning_effort"] == "low"
    assert {item.key for item in main.requests} == {MAIN_KEY}
    assert "seed" not in main.requests[0].body
    assert found.entry["model"] == "small-2026"


@pytest.mark.anyio
@pytest.mark.parametrize("tool", ["delegate_task", "spawn_agent", "delegate_task_async"])
async def test_every_spawn_takes_a_route(tool: str, tmp_path: Path) -> None:
    async with servers() as (main, other):
        routes = {"cheap": {"model": "small", "base_url": other.base_url}}
        await run(main, tmp_path, {"delegation.routes": routes}, tool=tool, route="cheap")
    assert child(other).model == "small"


@pytest.mark.anyio
@pytest.mark.fault("B059")
async def test_a_child_speaks_as_its_own_model_needs(tmp_path: Path) -> None:
    """The parent's model has tool calls of its own, the child's gets them through a schema; its key is in `.env`."""
    home = tmp_path / "own"
    home.mkdir()
    (home / ".env").write_text(f"CHEAP_KEY={ROUTE_KEY}\n", encoding="utf-8")
    async with servers() as (main, other):
        (home / "config.yaml").write_text(
            "models:\n  small: {tool_calling: schema}\n"
            "delegation:\n  routes:\n"
            f"    cheap: {{model: small, base_url: '{other.base_url}', api_key: '${{CHEAP_KEY}}'}}\n",
            encoding="utf-8",
        )
        await run(main, tmp_path, {}, model="cheap")
    assert child(other).key == ROUTE_KEY
    assert main.requests[0].tools != ()
    assert other.requests[0].tools == ()
    assert "response_format" in other.requests[0].body


@pytest.mark.anyio
@pytest.mark.fault("B140")
async def test_no_key_travels_to_another_host_or_into_a_child(tmp_path: Path) -> None:
    async with servers() as (main, other):
        routes = {"elsewhere": {"model": "small", "base_url": other.base_url}}
        environ = {"OPENAI_API_KEY": "sk-env-000000000003", "PATH": "/usr/bin:/bin"}
        options = {"delegation.routes": routes}
        await run(main, tmp_path, options, environ, model="elsewhere")
        assert child(other).key == ""  # a server on this machine needs none, and gets none that is another's
        sent = msgspec.json.encode([request.body for request in (*main.requests, *other.requests)]).decode()
    for secret in (MAIN_KEY, ROUTE_KEY, environ["OPENAI_API_KEY"]):
        assert secret not in sent


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"route": "fast"}, "there is no route 'fast'. Routes: cheap."),
        ({"model": "gpt-unheard-of"}, "there is no model 'gpt-unheard-of'. Routes: cheap. Models: big, small."),
        ({"model": "x", "provider": "nowhere"}, "there is no provider 'nowhere'"),
        ({"model": "paid"}, None),
    ],
)
async def test_an_unknown_name_is_refused_with_the_list(
    given: dict[str, str], said: str | None, tmp_path: Path
) -> None:
    async with servers() as (main, other):
        routes = {"cheap": {"model": "small", "base_url": other.base_url}}
        if said is None:
            routes["paid"] = {"model": "large", "base_url": "https://models.invalid/v1", "api_key": "${NOT_SET}"}
            said = "delegation.routes.paid.api_key is ${NOT_SET}, but no such variable is set"
        found = await run(main, tmp_path, {"delegation.routes": routes, "model.default": "big"}, **given)
    assert said in found.entry["error"]
    assert all("focused subagent" not in request.system for request in (*main.requests, *other.requests))


ROUTING = Routing(
    model=ModelChoice(name="mid"),
    effort="medium",
    extra={"a": 1},
    routes={
        "near": Route(choice=ModelChoice(name="small", route="near"), extra={"b": 2}),
        "far": Route(choice=ModelChoice(name="other", base_url="https://b/v1", route="far"), effort="low"),
    },
    aliases={"short": "big-long-name"},
)


def test_a_route_without_a_server_stays_where_the_parent_is() -> None:
    chosen = ROUTING.choose(PARENT, route="near")
    assert chosen.choice == ModelChoice(name="small", provider="openai", base_url="https://a/v1", route="near")
    assert (chosen.elsewhere, chosen.effort, dict(chosen.extra)) == (False, "medium", {"a": 1, "b": 2})


def test_a_grandchild_keeps_the_route_of_its_parent() -> None:
    far = ROUTING.choose(PARENT, route="far")
    assert (far.elsewhere, far.effort) == (True, "low")
    below = Routing().choose(far.choice)
    assert below.choice == far.choice
    assert ROUTING.choose(far.choice, route="near").choice == ModelChoice(
        name="small", base_url="https://b/v1", route="far"
    )


def test_the_configured_model_may_be_a_route_and_names_have_aliases() -> None:
    assert (
        msgspec.structs.replace(ROUTING, model=ModelChoice(name="far")).choose(PARENT).choice.base_url == "https://b/v1"
    )
    assert ROUTING.choose(PARENT, model="short").choice.name == "big-long-name"
    assert ROUTING.choose(PARENT).choice.name == "mid"
    with pytest.raises(ToolError, match=r"none is configured \(delegation.routes\)"):
        Routing().choose(PARENT, route="x")


def test_an_agent_type_names_a_route_a_model_or_what_is_no_name_here() -> None:
    assert ROUTING.choose(PARENT, agent_model="far").choice.name == "other"
    assert ROUTING.choose(PARENT, agent_model="vendor/new").choice.name == "vendor/new"
    chosen = ROUTING.choose(PARENT, agent_model="sonnet")
    assert chosen.choice.name == "mid"
    assert "no alias or route" in chosen.notes[0]
    assert ROUTING.choose(PARENT, model="near", agent_model="far").choice.name == "small"


def test_a_key_without_a_server_is_refused_when_the_runtime_opens(tmp_path: Path) -> None:
    home = find_home({"HERMES_HOME": str(tmp_path)})
    settings = load(home, {}, {"delegation.routes": {"x": {"model": "m", "api_key": ROUTE_KEY}}}).require()
    with pytest.raises(ConfigError, match="delegation.routes.x has an api_key and no server"):
        delegation_policy(settings)


def test_a_misspelt_field_of_a_route_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("delegation:\n  routes:\n    cheap: {modle: small}\n", encoding="utf-8")
    loaded = load(find_home({"HERMES_HOME": str(tmp_path)}), {})
    with pytest.raises(ConfigError, match=r"config.yaml:2: delegation.routes: .*modle"):
        loaded.require()
