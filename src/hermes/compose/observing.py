"""What runs beside a runtime that a person follows: transcripts, notifications, and keeping house once a day."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import aiohttp
import anyio

from hermes.compose.parts import Parts
from hermes.credentials.redact import Redactor
from hermes.delegation.toolset import Delegation
from hermes.observe.notify import LIMIT, Channel, Notifier, NotifyFailed, Post, channels, notifying
from hermes.observe.occasions import Occasion, Occasions
from hermes.observe.retention import Keep, Retention
from hermes.observe.transcript import LIVE, Transcripts, transcribing
from hermes.providers.catalog import Catalog
from hermes.providers.http import StreamTimeout, post
from hermes.runtime.runtime import Runtime

__all__ = ["observing", "tell"]

_log = logging.getLogger(__name__)

#: Seconds in which everything that is told at once has to be sent.
SECONDS = 30.0


def _ways(parts: Parts, catalog: Catalog) -> list[Channel]:
    settings = parts.loaded.settings
    return channels(
        settings.notify,
        post=_poster(catalog),
        environ=parts.environ or os.environ,
        passthrough=settings.terminal.env_passthrough,
        hold=parts.hold,
    )


async def tell(parts: Parts, redactor: Redactor, occasions: Sequence[Occasion]) -> None:
    """Tell a person these by the configured ways, in `SECONDS` at most; what fails is logged. No runtime is needed."""
    catalog = Catalog(parts.loaded.settings.models)
    try:
        ways = _ways(parts, catalog)
        with anyio.move_on_after(SECONDS) as scope:
            await Notifier(Occasions(()), ways, redact=redactor.json_bytes).tell(occasions)
        if scope.cancelled_caught:
            _log.warning("of %d messages not all were sent within %g s; the rest is not told", len(occasions), SECONDS)
    finally:
        with anyio.CancelScope(shield=True):
            await catalog.close()


@asynccontextmanager
async def observing(
    parts: Parts, runtime: Runtime, delegation: Delegation, redactor: Redactor, catalog: Catalog
) -> AsyncIterator[None]:
    """Observe a runtime during a block, where `parts.observed` asks for it."""
    if not parts.observed or parts.memory:
        yield
        return
    settings, home = parts.loaded.settings, parts.loaded.home
    async with AsyncExitStack() as stack:
        if settings.store.transcript_days:
            transcripts = Transcripts(home.path.joinpath(*LIVE), redact=redactor.text, hold=parts.hold)
            delegation.reports.transcript = lambda task: str(transcripts.path(task.scope.session_id, task.id))
            await stack.enter_async_context(transcribing(transcripts, runtime.bus))
        ways = _ways(parts, catalog)
        if ways:
            notifier = Notifier(Occasions(settings.notify.on), ways, redact=redactor.json_bytes)
            await stack.enter_async_context(notifying(notifier, runtime.bus))
        group = await stack.enter_async_context(anyio.create_task_group())
        keep = Keep(sessions=settings.store.keep_days, transcripts=settings.store.transcript_days)
        retention = Retention(runtime.store, home, now=parts.clock.now, hold=parts.hold)
        group.start_soon(retention.daily, keep)
        try:
            yield
        finally:
            group.cancel_scope.cancel()


def _poster(catalog: Catalog) -> Post:
    """Posts over the process's one client session. What it raises names the host alone: a path may be a secret."""

    async def send(url: str, body: bytes) -> int:
        try:
            response = await post(
                catalog.session(), url, body=body, headers={"Content-Type": "application/json"}, limit=LIMIT
            )
        except (aiohttp.ClientError, StreamTimeout, OSError, ValueError) as error:
            reason = type(error).__name__
            raise NotifyFailed(f"{urlsplit(url).hostname} cannot be reached ({reason})") from error
        try:
            return response.status
        finally:
            response.close()

    return send
