"""A provider with one bucket for all who ask it, on slow time: prints its address, ends with its input."""

from __future__ import annotations

import json
import sys

import anyio

from hermes.testing.faults import Fault, rate_limited
from hermes.testing.scripted import Reply, reply
from hermes.testing.server import ProviderServer, Request
from tests.credentials.slow_time import SlowLoop


async def main(rate: float, burst: float) -> None:
    left, last = burst, 0.0

    def answer(request: Request) -> Reply | Fault:
        nonlocal left, last
        left, last = min(burst, left + rate * (request.at - last)), request.at
        if left < 1:
            return rate_limited("1")
        left -= 1
        return reply("ok")

    async with ProviderServer(answer, latency=0.3, jitter=0.67, models=("test-model",), record=False) as server:
        print(json.dumps({"base_url": server.base_url}), flush=True)
        await anyio.wait_readable(sys.stdin.fileno())


if __name__ == "__main__":
    anyio.run(main, float(sys.argv[1]), float(sys.argv[2]), backend_options={"loop_factory": SlowLoop})
