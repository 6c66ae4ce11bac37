"""Sends a file of scored groups to a running Atropos server, as an environment would.

Posts nothing before the server has said that a trainer is there: a group that comes earlier spoils it. Whole groups
only, those without a signal are left out. Holds no trainer and starts no server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec

from hermes.core.codec import encode_json
from hermes.core.errors import OperatorError, TryLater, UsageError

__all__ = ["PushReport", "push_groups"]

#: Seconds between two questions whether a trainer is there.
POLL = 1.0
#: Seconds of one request.
TIMEOUT = 30.0


class PushReport(msgspec.Struct, frozen=True, kw_only=True):
    """How many groups the server took, and how many were left out because their scores are all equal."""

    sent: int
    no_signal: int


async def push_groups(
    path: Path,
    url: str,
    *,
    name: str,
    wait: float = 60.0,
    keep_no_signal: bool = False,
    sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
) -> PushReport:
    """Send the groups of `path` to the server at `url`; `wait` is how many seconds a trainer may take to come.

    Raises:
        TryLater: no trainer came in time; nothing was sent.
        UsageError: the file holds no groups, or groups of different sizes.
        OperatorError: the server cannot be reached, or refuses a group.
    """
    size, longest = _shape(path)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        try:
            env_id = await _register(session, url, name, size, longest, wait, sleep)
            sent = skipped = 0
            for group in _groups(path):
                if len(set(group["scores"])) < 2 and not keep_no_signal:
                    skipped += 1
                    continue
                answer = await _post(session, f"{url.rstrip('/')}/scored_data", {**group, "env_id": env_id})
                if answer.get("status") not in ("received", "buffered"):
                    raise OperatorError(f"{url} did not take group {sent + skipped}: {str(answer)[:300]}")
                sent += 1
        except aiohttp.ClientError as error:
            raise OperatorError(f"cannot reach the Atropos server at {url}: {error}") from error
    return PushReport(sent=sent, no_signal=skipped)


def _groups(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield msgspec.json.decode(line, type=dict[str, Any])
            except msgspec.DecodeError as error:
                raise UsageError(f"{path}:{number} is no group: {error}") from error


def _shape(path: Path) -> tuple[int, int]:
    """Return (rollouts of a group, longest sequence in tokens)."""
    size = longest = 0
    for number, group in enumerate(_groups(path), 1):
        if not isinstance(group.get("tokens"), list) or not isinstance(group.get("scores"), list):
            raise UsageError(f"{path}:{number} is no scored group: it has no `tokens` and `scores`.")
        if size and len(group["tokens"]) != size:
            raise UsageError(f"{path}:{number} has {len(group['tokens'])} rollouts, the first group has {size}.")
        size = len(group["tokens"])
        longest = max([longest, *(len(tokens) for tokens in group["tokens"])])
    if not size:
        raise UsageError(f"{path} holds no groups.")
    return size, longest


async def _register(
    session: aiohttp.ClientSession,
    url: str,
    name: str,
    size: int,
    longest: int,
    wait: float,
    sleep: Callable[[float], Awaitable[object]],
) -> int:
    body = {"max_token_length": longest, "desired_name": name, "weight": 1.0, "group_size": size}
    left = wait
    while True:
        answer = await _post(session, f"{url.rstrip('/')}/register-env", body)
        if answer.get("status") == "success":
            return int(answer["env_id"])
        if left <= 0:
            raise TryLater(
                f"no trainer has come to {url} within {wait:g} s: start it, then push again. Nothing was sent."
            )
        await sleep(POLL)
        left -= POLL


async def _post(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    async with session.post(url, data=encode_json(body), headers=headers) as response:
        text = await response.text()
        if response.status != 200:
            raise OperatorError(f"{url} answered {response.status}: {text[:300]}")
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise OperatorError(f"{url} answered something else than JSON: {text[:200]!r}") from error
