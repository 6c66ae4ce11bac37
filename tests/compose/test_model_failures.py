"""What becomes of a task when its provider misbehaves: each kind of trouble has one outcome, and none shows half a
reply as an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from hermes.compose import Parts, open_runtime
from hermes.config import find_home, load
from hermes.core.clock import held
from hermes.core.events import ContextCompacted, FallbackUsed, StreamRestarted
from hermes.credentials import EndpointFlags, find_endpoint, find_keys
from hermes.testing import faults
from hermes.testing.clock import VirtualClock
from hermes.testing.faults import Disconnect, Raw, Status, sse
from hermes.testing.lab import Lab
from hermes.testing.scripted import call, reply
from hermes.testing.server import ProviderServer

pytestmark = pytest.mark.anyio

CUT = Disconnect(reply=reply("half a reply", pieces=4), events=4)
ODD = Raw(parts=(sse({"choices": [{"delta": {"content": "x"}, "finish_reason": "eos_17"}]}),))


def _parts(server: ProviderServer, tmp_path: Path, clock: VirtualClock, settings: Mapping[str, Any]) -> Parts:
    environ = {
        "HERMES_HOME": str(tmp_path / "hermes"),
        "OPENAI_API_KEY": "sk-aaaa-0123456789",
        "OPENAI_BASE_URL": server.base_url,
        "PATH": "/usr/bin:/bin",
    }
    home = find_home(environ)
    loaded = load(home, environ, settings)
    keys = find_keys(environ, {})
    endpoint = find_endpoint(loaded.require(), EndpointFlags(model="m"), keys, environ)
    return Parts(
        loaded=loaded, endpoint=endpoint, keys=keys, variables=environ, environ=environ, memory=True,
        watchdog=False, clock=clock, hold=clock, state_root=home.path / "tasks",
    )  # fmt: skip


@asynccontextmanager
async def asked(
    steps: Sequence[Any], tmp_path: Path, clock: VirtualClock, settings: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[Lab, ProviderServer]]:
    """A runtime whose server answers with `steps`, the last of them for ever."""
    left = list(steps)
    async with ProviderServer(lambda request: left.pop(0) if len(left) > 1 else left[0]) as server:
        with held(clock):
            parts = await anyio.to_thread.run_sync(_parts, server, tmp_path, clock, settings or {})
        async with open_runtime(parts) as assembly:
            yield Lab(assembly, tmp_path), server


@pytest.mark.parametrize(
    ("step", "reason", "requests"),
    [
        (faults.bad_key(), "auth", 1),
        (Status(status=401, message="This API key has expired"), "auth_permanent", 1),
        (Status(status=400, message="API key not valid. Please pass a valid API key."), "auth", 1),
        (faults.no_credit(), "billing", 1),
        (Status(status=400, message="flagged by our content policy"), "content_policy_blocked", 1),
        (reply("I will not", finish="content_filter"), "content_policy_blocked", 1),
        (faults.html(), "malformed_response", 3),
        (faults.empty_choices(), "malformed_response", 3),
        (faults.malformed_finish(), "malformed_response", 3),
        (faults.error_in_stream(), "server_error", 3),
        (CUT, "timeout", 3),
        (Disconnect(), "timeout", 3),
        (faults.server_error(), "server_error", 3),
    ],
)
async def test_what_lasts_fails_the_task_with_its_reason_and_without_half_a_reply(
    tmp_path: Path, virtual_clock: VirtualClock, step: Any, reason: str, requests: int
) -> None:
    async with asked([step], tmp_path, virtual_clock) as (lab, server):
        result = await lab.ask("go")
    assert (result.state, result.error_reason) == ("failed", reason), result.error
    assert server.count == requests
    assert "half" not in result.summary and "x" not in result.summary


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (CUT, "whole"),
        (faults.error_in_stream(), "whole"),
        (faults.html(502), "whole"),
        (faults.rate_limited("3"), "whole"),
        (ODD, "x"),
        (reply(calls=[call("todo", raw='{"todos": [{"content": "a')]), "whole"),
        (reply(calls=[call("todo", call_id="a", todos=[]), call("todo", call_id="a", todos=[])]), "whole"),
        (reply(""), "whole"),
    ],
)
async def test_what_passes_is_made_good(tmp_path: Path, virtual_clock: VirtualClock, first: Any, text: str) -> None:
    async with asked([first, reply("whole")], tmp_path, virtual_clock) as (lab, server):
        result = await lab.ask("go")
    assert (result.state, result.summary) == ("completed", text), result.error
    assert server.count == (1 if text == "x" else 2)
    if first is CUT:
        assert len(lab.of(StreamRestarted)) == 1, "what came of the lost reply is taken back from whoever watched"


async def test_a_conversation_that_is_too_long_is_compacted_and_one_that_is_too_fast_is_not(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    steps = [reply(calls=[call("todo", todos=[])])] * 6
    after = [faults.rate_limited("5"), faults.too_long(), reply("so far: lists"), reply("done")]
    async with asked([*steps, *after], tmp_path, virtual_clock) as (lab, server):
        result = await lab.ask("go")
    assert (result.state, result.summary) == ("completed", "done"), result.error
    assert len(lab.of(ContextCompacted)) == 1
    limited, again, summary, last = server.requests[-4:]
    assert limited.messages == again.messages and len(last.messages) < len(again.messages)
    assert not summary.tools


@pytest.mark.parametrize(
    ("step", "requests"),
    [(faults.bad_key(), 1), (faults.server_error(), 3), (faults.unknown_model("m"), 1), (CUT, 2), (faults.html(), 3)],
)
async def test_another_model_stands_in_for_this_request_only(
    tmp_path: Path, virtual_clock: VirtualClock, step: Any, requests: int
) -> None:
    async with ProviderServer(lambda request: reply("from the other")) as other:
        stand_in = {"model": "spare", "base_url": other.base_url}
        steps = [*[step] * requests, reply("from the first")]
        async with asked(steps, tmp_path, virtual_clock, {"fallback_providers": [stand_in]}) as (lab, server):
            first, second = await lab.ask("go"), await lab.ask("go on")
            assert (first.summary, second.summary) == ("from the other", "from the first")
            assert [event.model for event in lab.of(FallbackUsed)] == ["spare"]
        assert (server.count, other.count) == (requests + 1, 1)


@pytest.mark.parametrize("step", [Status(status=400, message="flagged by our content policy"), faults.too_long()])
async def test_what_another_model_would_refuse_too_is_not_sent_to_it(
    tmp_path: Path, virtual_clock: VirtualClock, step: Any
) -> None:
    async with ProviderServer(lambda request: reply("from the other")) as other:
        stand_in = {"model": "spare", "base_url": other.base_url}
        async with asked([step], tmp_path, virtual_clock, {"fallback_providers": [stand_in]}) as (lab, _):
            assert (await lab.ask("go")).state == "failed"
        assert other.count == 0
