"""`python -m hermes.testing.server`: the loopback provider as a process, for benchmarks and end-to-end tests.

Prints one line of JSON with its address and serves until it is terminated, or until its standard input closes with
`--watch-stdin` (so that it never outlives who started it).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import signal
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio

from hermes.testing.faults import Fault
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import ProviderServer, Request, Script

__all__ = ["main", "script_named"]


def _turns(request: Request, *, turns: int, tool: str, arguments: dict[str, Any]) -> Reply | Fault:
    """Call `tool` in each of `turns` - 1 turns, then answer."""
    if request.turn < turns - 1:
        return reply(thinking="one more step", calls=[call(tool, call_id=f"call_{request.turn}", **arguments)])
    return reply("done", thinking="all steps are made")


def script_named(name: str) -> Script:
    """Return a script by name.

    `final[:TEXT]` answers at once; `turns:N[:TOOL[:JSON]]` calls TOOL (default terminal, `{"command": "true"}`) in N-1
    turns and then answers; `module:function` and `path.py:function` are functions of the request.

    Raises:
        ValueError: it is none of these.
    """
    kind, _, rest = name.partition(":")
    if kind == "final":
        return lambda _request: reply(rest or "done")
    if kind == "turns":
        count, _, more = rest.partition(":")
        tool, _, arguments = more.partition(":")
        if not count.isdigit() or int(count) < 1:
            raise ValueError(f"script {name!r}: turns needs a number of at least 1, as in turns:5")
        given = json.loads(arguments) if arguments else {"command": "true"}
        return partial(_turns, turns=int(count), tool=tool or "terminal", arguments=given)
    where, _, attribute = name.rpartition(":")
    if not where:
        raise ValueError(f"script {name!r}: use final, turns:N, module:function or path.py:function")
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location("provider_script", where)
        if spec is None or spec.loader is None:
            raise ValueError(f"script {name!r}: {where} cannot be loaded")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    script: Script = getattr(module, attribute)
    return script


async def _serve(options: argparse.Namespace) -> None:
    server = ProviderServer(
        script_named(options.script),
        latency=options.latency,
        jitter=options.jitter,
        seed=options.seed,
        models=options.models.split(","),
        port=options.port,
        record=False,
    )
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with server, anyio.create_task_group() as group:

            async def until_signal() -> None:
                async for _ in signals:
                    group.cancel_scope.cancel()
                    return

            async def until_stdin_closes() -> None:
                await anyio.wait_readable(sys.stdin.fileno())
                group.cancel_scope.cancel()

            print(json.dumps({"port": server.port, "base_url": server.base_url}), flush=True)
            group.start_soon(until_signal)
            if options.watch_stdin:
                group.start_soon(until_stdin_closes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server from the command line."""
    parser = argparse.ArgumentParser(prog="python -m hermes.testing.server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--script", default="final", help=script_named.__doc__)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--jitter", type=float, default=0.0, help="part of the latency that varies, 0 to 1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", default="test-model", help="names that /v1/models lists, with commas")
    parser.add_argument("--watch-stdin", action="store_true", help="end when standard input closes")
    anyio.run(_serve, parser.parse_args(arguments))
    return 0
