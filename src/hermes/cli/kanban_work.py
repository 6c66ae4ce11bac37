"""`hermes kanban work`: the process of a worker. Started by the dispatcher, not by hand.

Reads what it was started with, opens the profile's runtime, and leaves its last word where the dispatcher finds it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import anyio
import click
import msgspec

from hermes.chat.stream import Narrator
from hermes.cli.kanban_parts import claim_seconds, for_board, repository_of
from hermes.cli.opening import parts_of
from hermes.cli.options import GlobalOptions, Sources, open_sources, options_of
from hermes.cli.running import run_async
from hermes.compose import Assembly, Parts, conversation_spec, open_runtime
from hermes.config.schema import Settings
from hermes.core.errors import HermesError, OperatorError, UsageError
from hermes.core.events import Envelope
from hermes.core.toolsets import configured_toolsets
from hermes.kanban.bench import Bench
from hermes.kanban.board import AsyncBoard, Board
from hermes.kanban.card import Card
from hermes.kanban.errors import CardNotFound, ClaimLost
from hermes.kanban.home import open_boards
from hermes.kanban.launching import TOLD
from hermes.kanban.run_process import ExitNote, RunFiles, end_own_commands
from hermes.kanban.seat import Seat, seat_from
from hermes.kanban.worker import Shift
from hermes.runtime.runtime import tune_interpreter
from hermes.runtime.spec import TaskSpec

__all__ = ["work"]


@click.command(hidden=True, epilog="\b\nExamples:\n  hermes kanban dispatch")
@click.argument("card")
@click.pass_context
def work(context: click.Context, /, card: str) -> int:
    """Work on a card that was claimed for this process. Started by the dispatcher, not by hand."""
    seat = seat_from(os.environ)
    if seat is None or seat.claim.card_id != card:
        raise UsageError(
            "workers are started by `hermes kanban dispatch` and `hermes kanban daemon`; to take a card yourself use "
            f"`hermes kanban claim {card}`"
        )
    options = options_of(context)
    sources = for_board(open_sources(options), os.environ)
    boards = open_boards(sources.loaded.home, sources.loaded.settings)
    slug = boards.current()
    folder = boards.folder(slug)
    repository = repository_of(boards, slug, sources)
    board = boards.open()
    files = RunFiles(folder / "runs")
    ended: list[ExitNote] = []

    async def begin() -> int:
        ended.append(await _work(options, sources, board, folder, repository, seat))
        return 0

    note = ExitNote(code=1, error="the worker was stopped")
    try:
        run_async(begin)
        note = ended[0]
    except ClaimLost as error:
        note = ExitNote(code=1, error=str(error), outcome="reclaimed")
    except CardNotFound as error:
        note = ExitNote(code=1, error=str(error), outcome="precondition_failed")
    except HermesError as error:
        note = ExitNote(code=error.exit_code if error.exit_code == 75 else 1, error=str(error))
    except Exception as error:
        note = ExitNote(code=1, error=f"internal error: {type(error).__name__}: {error}"[:500])
        raise
    finally:
        end_own_commands(seat.claim.run_id)
        if files.folder.is_dir():
            files.write_note(seat.claim.run_id, note)
        board.close()
    if note.error:
        _say(note.error)
    _say(f"ends with exit code {note.code}")
    return note.code


async def _work(
    options: GlobalOptions, sources: Sources, board: Board, folder: Path, repository: str, seat: Seat
) -> ExitNote:
    settings = sources.loaded.settings
    bench = Bench(settings.terminal.timeout)
    shift = Shift(
        AsyncBoard(board),
        seat,
        author=sources.loaded.home.profile,
        folder=folder,
        repository=repository,
        ttl=claim_seconds(os.environ),
        say=_say,
        tells=os.environ.get(TOLD) != "1",
    )
    begun = await shift.begin()
    if isinstance(begun, ExitNote):
        return begun
    view, place = begun
    seat = msgspec.structs.replace(
        seat, workspace=place.workspace, check=bench.check, refused=bench.refused, unsaved=bench.unsaved
    )
    parts = msgspec.structs.replace(_parts(options, sources, view.task), seat=seat)
    note = ExitNote(code=143, error="the worker was asked to end")
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            group.start_soon(_signals, scope)
            async with open_runtime(parts) as assembly:
                tune_interpreter()
                spec_of = partial(_spec, assembly, options.toolsets, view.task)
                _narrate(assembly)
                note = await shift.work(assembly.runtime, assembly.recovery, view, place, spec_of, bench)
        group.cancel_scope.cancel()
    return note


def _narrate(assembly: Assembly) -> None:
    """Write into the card's log what the worker does, as a person sees it in a conversation."""
    session, hide = "", assembly.redactor.text
    narrator = Narrator(assembly.runtime.bus.tree, lambda line: _say(hide(line)), session_id=lambda: session)

    def hear(envelope: Envelope) -> None:
        nonlocal session
        session = envelope.session_id
        narrator.tell(envelope)

    assembly.runtime.bus.subscribe(hear)


def _parts(options: GlobalOptions, sources: Sources, card: Card) -> Parts:
    """The profile's own, with the model that the card asks for, if it does."""
    wanted = msgspec.structs.replace(
        options,
        model=card.model_override or options.model,
        provider=card.provider_override or options.provider,
        reasoning=card.reasoning_effort or options.reasoning,
    )
    if wanted != options:
        sources = for_board(open_sources(wanted), os.environ)
    return parts_of(sources)


def _spec(
    assembly: Assembly, wanted: tuple[str, ...] | None, card: Card, goal: str, workspace: str, system: str
) -> TaskSpec:
    settings: Settings = assembly.settings
    named = (
        wanted
        if wanted is not None
        else configured_toolsets(
            settings.platform_toolsets.get("cli"), settings.toolsets, settings.agent.disabled_toolsets
        )
    )
    if "kanban" in settings.agent.disabled_toolsets:
        raise OperatorError(
            "agent.disabled_toolsets of this profile names kanban, so its workers could never end a card: remove it "
            "there"
        )
    spec, _notes = conversation_spec(
        assembly,
        goal=goal,
        interactive=False,
        workspace=workspace,
        toolsets=tuple(dict.fromkeys([*named, "kanban"])),
        extra_system=system,
    )
    limit = card.max_runtime_seconds
    return msgspec.structs.replace(
        spec, limits=msgspec.structs.replace(spec.limits, clock=float(limit) if limit else spec.limits.clock)
    )


async def _signals(scope: anyio.CancelScope) -> None:
    """SIGTERM leaves everything resumable."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        async for number in received:
            _say(f"ends: signal {number}")
            scope.cancel()
            return


def _say(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")
    sys.stderr.flush()
