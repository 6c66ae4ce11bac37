"""`hermes attach`: brings a conversation that runs elsewhere back to this terminal."""

from __future__ import annotations

import os

import anyio
import click

from hermes.cli.beginning import Wish, begin
from hermes.cli.faces import chosen_face
from hermes.cli.opening import parts_of
from hermes.cli.options import Sources, face_options, merged, open_sources, options_of, run_options
from hermes.cli.reaching import reach
from hermes.cli.running import run_async
from hermes.core.errors import UsageError
from hermes.runtime.moving import ANSWERS, have_let_go
from hermes.runtime.remote import Remote

__all__ = ["attach"]


@click.command(epilog="\b\nExamples:\n  hermes attach\n  hermes attach 20260225_14")
@click.argument("session_id", default="latest")
@click.option("-v", "--verbose", is_flag=True, help="Show results and thoughts beside the calls.")
@face_options
@click.option("--no-detach", is_flag=True, help="Leaving stops what runs, resumable, in place of letting it go on.")
@run_options
@click.pass_context
def attach(
    context: click.Context,
    /,
    session_id: str,
    verbose: bool,
    no_detach: bool,
    **given: object,
) -> int:
    """Go on here with a conversation that runs in the background or in another terminal.

    Without an id it is the newest one with unfinished work. It is let go there first; a process that does not answer
    (stopped, asleep) keeps it.
    """
    options = merged(options_of(context), **given)
    sources = open_sources(options)
    parts_of(sources)  # what cannot be opened is refused before anybody lets go
    session, went_on = anyio.run(_freed, sources, session_id)
    wish = Wish(
        sources=sources,
        face=chosen_face(options.face, os.environ, sources.loaded.settings.display.interface),
        workspace=os.getcwd(),
        toolsets=options.toolsets,
        verbose=verbose,
        source="cli",
        resume=session,
        went_on=went_on,
        detaches=not no_detach,
    )
    return run_async(lambda: begin(wish))


async def _freed(sources: Sources, wanted: str) -> tuple[str, bool]:
    """The session that is meant, once nobody has it any more, and whether somebody had it."""
    async with reach(sources) as remote:
        session = await _unfinished(remote) if wanted == "latest" else await remote.session(wanted)
        wait = sources.loaded.settings.runtime.handover_wait_seconds
        return session, await have_let_go(remote, session, patience=ANSWERS + wait)


async def _unfinished(remote: Remote) -> str:
    for session in await remote.store.sessions(limit=100):
        rows = await remote.store.tasks(session.session_id)
        if session.source != "batch" and any(row.ended_at is None for row in rows):
            return session.session_id
    raise UsageError("nothing is unfinished; hermes chat --resume goes on with the newest conversation")
