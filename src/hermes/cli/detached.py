"""`hermes chat --detach`: a question whose work begins in the background; this process only writes it down."""

from __future__ import annotations

import click
import msgspec

from hermes.chat.leaving import goes_on
from hermes.chat.notes import describe_source
from hermes.cli.oneshot import Request, shown_with
from hermes.cli.options import Sources
from hermes.cli.reaching import hand_to_host, reach
from hermes.compose import Parts, conversation_spec, open_runtime

__all__ = ["detached"]


async def detached(request: Request, sources: Sources, parts: Parts) -> int:
    """Store the request as a session that nobody has, let the host take it up, print the session's id.

    Raises:
        HermesError: it could not be stored, or the host did not take it up; then it is kept all the same.
    """
    async with open_runtime(parts) as assembly:
        spec, notes = conversation_spec(
            assembly,
            goal=request.text,
            interactive=False,
            workspace=request.workspace,
            toolsets=request.toolsets,
        )
        spec = msgspec.structs.replace(spec, goal=shown_with(assembly, request))
        session = await assembly.runtime.place(spec, source=request.source)
        click.echo(describe_source(assembly), err=True)
        for note in (*parts.loaded.warnings, *notes):
            click.echo(f"note: {note}", err=True)
        if parts.yolo:
            click.echo("note: --yolo ends with this command; in the background the configured policy decides", err=True)
    async with reach(sources) as remote:
        await hand_to_host(remote, sources, session)
    click.echo(session)
    click.echo(f"it runs in the background: hermes tasks list · hermes attach {session}", err=True)
    click.echo(f"once it has ended: {goes_on(session)}", err=True)
    return 0
