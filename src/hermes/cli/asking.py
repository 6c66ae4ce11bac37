"""One question of `hermes chat -q`: what its flags mean for the request, and where its work goes when it is left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from hermes.cli.leaving import hand_over, say_on_stderr
from hermes.cli.oneshot import OneShot, Request, failed
from hermes.cli.opening import parts_of
from hermes.cli.options import GlobalOptions, Sources, open_sources
from hermes.cli.reaching import take_from_host
from hermes.cli.running import run_async
from hermes.compose import Parts
from hermes.core.errors import HermesError, UsageError
from hermes.environments.process import DEPTH

__all__ = ["ask"]


def ask(options: GlobalOptions, given: dict[str, Any], text: str, usage_file: Path | None) -> int:
    """Answer `text` as the flags of `hermes chat` in `given` say, and return the exit code.

    Raises:
        HermesError: it could not be begun.
    """
    request = Request(
        text=text,
        images=given["images"],
        toolsets=options.toolsets,
        workspace=os.getcwd(),
        quiet=given["quiet"],
        json=given["as_json"],
        verbose=given["verbose"],
        timeout=given["timeout"],
        usage_file=usage_file,
        source=given["source"],
        resume=given["resume"],
        options=options,
        worktree=options.worktree,
    )
    if given["detach"] and (given["resume"] or given["as_json"] or given["timeout"]):
        raise UsageError("--detach goes with -q alone; hermes tasks resume ID goes on with work.")
    try:
        sources = open_sources(options)
        parts = parts_of(sources, given["record"], given["replay"])
        if given["detach"] and os.environ.get(DEPTH):
            raise UsageError("a command of a task cannot detach work: it would outlive the task. Use its tools.")
        if given["detach"]:
            # edge: only this reaches other processes
            from hermes.cli.detached import detached

            return run_async(lambda: detached(request, sources, parts))
        detaches = not (given["no_detach"] or given["record"] or given["replay"])
        return run_async(lambda: _one_shot(request, sources, parts, detaches=detaches))
    except HermesError as error:
        failed(error, json=request.json, usage_file=usage_file, model=options.model)
        raise


async def _one_shot(request: Request, sources: Sources, parts: Parts, *, detaches: bool) -> int:
    if request.resume:
        session, _ = await take_from_host(sources, request.resume)
        request = msgspec.structs.replace(request, resume=session)
    detaches = detaches and parts.loaded.settings.runtime.on_hangup == "detach"
    shot = OneShot(msgspec.structs.replace(request, detaches=detaches), parts)
    code = await shot.run()
    if shot.hung_up and shot.session_id and detaches:
        await hand_over(sources, shot.session_id, say_on_stderr, hurry=True)
    return code
