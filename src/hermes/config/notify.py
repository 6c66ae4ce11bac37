"""The settings of notifications; `hermes.config.schema` holds them among all others. Sends nothing."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = ["NotifySettings"]


class NotifySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Being told while looking elsewhere. Each event is told once, in the background, within ten seconds or not."""

    command: Annotated[
        str | tuple[str, ...],
        Meta(description="Command that gets the event as JSON on stdin: a line for the shell, or a list of arguments."),
    ] = ""
    webhook: Annotated[
        str,
        Meta(description="Address (http or https) that gets the event as JSON by POST."),
    ] = ""
    bell: Annotated[bool, Meta(description="Ring the terminal's bell.")] = False
    on: Annotated[
        tuple[Literal["needs_answer", "failed", "budget", "done"], ...],
        Meta(
            description="Which events: `needs_answer` a question waits for you, `failed` for good, `budget` at 80 % "
            "and 100 %, `done` all done."
        ),
    ] = ("needs_answer", "failed", "budget", "done")
