"""What the commands of the board share: which board, its folder, a dispatcher for it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from hermes.cli.options import Sources, arguments_of, open_sources, options_of
from hermes.core.errors import UsageError
from hermes.environments.process import DEPTH
from hermes.kanban.board import CLAIM_SECONDS, Board
from hermes.kanban.boards import Boards
from hermes.kanban.dispatcher import Dispatcher
from hermes.kanban.home import open_boards, profile_names
from hermes.kanban.launching import DATABASE_URL, ProcessLauncher
from hermes.kanban.run_process import RUN_ID
from hermes.kanban.telling import Tiding

__all__ = [
    "NOBODY",
    "OpenedBoard",
    "changing",
    "claim_seconds",
    "dispatcher_of",
    "for_board",
    "open_board_of",
    "open_named",
    "refuse_in_task",
    "refuse_worker",
    "repository_of",
    "serving_options",
    "stop_on_signals",
]


#: What stands for nobody, or for nothing, where a name is asked for.
NOBODY = ("none", "-", "null")


class OpenedBoard(msgspec.Struct, frozen=True, kw_only=True):
    """An open board with what is around it; `folder` holds its workspaces and logs. Close `board`."""

    sources: Sources
    boards: Boards
    board: Board
    folder: Path
    slug: str

    @property
    def author(self) -> str:
        """Who acts on this command line."""
        return os.environ.get("HERMES_PROFILE", "").strip() or os.environ.get("USER", "").strip() or "user"

    @property
    def repository(self) -> str:
        """The repository of worktree cards that name none: the board's, else as configured; empty without one."""
        return repository_of(self.boards, self.slug, self.sources)


def repository_of(boards: Boards, slug: str, sources: Sources) -> str:
    """The repository of a board's worktree cards that name none: what the board says, else as configured, or empty."""
    return boards.info(slug).default_workdir or sources.loaded.settings.kanban.default_workdir


def open_named(context: click.Context) -> OpenedBoard:
    """Open the board that is meant. Raises as `Boards.open`."""
    return open_board_of(open_sources(options_of(context)), context.meta.get("hermes.kanban.board"))


def open_board_of(sources: Sources, named: str | None = None) -> OpenedBoard:
    """Open the board that is meant, or the `named` one. Raises as `Boards.open`."""
    boards = open_boards(sources.loaded.home, sources.loaded.settings)
    slug = boards.current(named)
    return OpenedBoard(sources=sources, boards=boards, board=boards.open(named), folder=boards.folder(slug), slug=slug)


def changing(context: click.Context) -> OpenedBoard:
    """Open the board that is meant, to change it as a person does.

    Raises:
        UsageError: a worker asks, whose rights end with its card; or as `Boards.open`.
    """
    refuse_worker()
    return open_named(context)


def refuse_worker() -> None:
    """Refuse what only a person may change. Raises `UsageError` where a worker asks."""
    if os.environ.get("HERMES_KANBAN_TASK") or os.environ.get(RUN_ID):
        raise UsageError("a worker changes the board with its tools (kanban_complete, kanban_block, …), not like this.")


def for_board(sources: Sources, environ: Mapping[str, str]) -> Sources:
    """The settings of a worker's profile with the board it was started for; its commands carry its run."""
    settings = sources.loaded.settings
    kanban = msgspec.structs.replace(settings.kanban, database_url=environ.get(DATABASE_URL, ""))
    passed = tuple(dict.fromkeys([*settings.terminal.env_passthrough, RUN_ID]))
    terminal: Any = msgspec.structs.replace(settings.terminal, env_passthrough=passed)
    settings = msgspec.structs.replace(settings, kanban=kanban, terminal=terminal)
    return msgspec.structs.replace(sources, loaded=msgspec.structs.replace(sources.loaded, settings=settings))


def stop_on_signals(stop: threading.Event) -> dict[signal.Signals, Any]:
    """Set `stop` on INT and TERM; returns the handlers that were there before."""

    def handle(*_: object) -> None:
        # By another thread: setting it here would wait for ever where this thread is just about to wait for it.
        threading.Thread(target=stop.set).start()

    return {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}


def claim_seconds(environ: Mapping[str, str]) -> float:
    """How long a claim holds without a sign of life: HERMES_KANBAN_CLAIM_TTL_SECONDS, else 15 minutes."""
    text = environ.get("HERMES_KANBAN_CLAIM_TTL_SECONDS", "").strip()
    try:
        return max(1.0, float(text)) if text else CLAIM_SECONDS
    except ValueError:
        raise UsageError(f"HERMES_KANBAN_CLAIM_TTL_SECONDS is {text!r}: give a number of seconds") from None


def refuse_in_task(what: str) -> None:
    """Refuse to start workers from the terminal of a task: they would outlive it and its limits. Raises UsageError."""
    if os.environ.get(DEPTH) or os.environ.get("HERMES_KANBAN_TASK") or os.environ.get(RUN_ID):
        raise UsageError(f"{what} starts agents, which a command of a task may not; make cards with its tools instead.")


def dispatcher_of(
    opened: OpenedBoard,
    say: Callable[[str], None],
    workers: int | None = None,
    *,
    failures: int | None = None,
    tell: Callable[[Sequence[Tiding]], None] | None = None,
) -> Dispatcher:
    """A dispatcher for an open board; `workers` replaces the configured number of workers at once, `failures` that of
    failures in a row; `tell` is told what a person has to know."""
    sources = opened.sources
    settings = sources.loaded.require().kanban
    if workers is not None:
        settings = msgspec.structs.replace(settings, max_in_progress=workers)
    if failures is not None:
        settings = msgspec.structs.replace(settings, failure_limit=failures)
    home = sources.loaded.home
    launcher = ProcessLauncher(
        opened.board.location,
        folder=opened.folder,
        root=home.root,
        environ=os.environ,
        options=arguments_of(sources.options),
        planner=serving_options(sources),
        tells=tell is not None,
        log_bytes=settings.worker_log_rotate_bytes,
    )
    return Dispatcher(
        opened.board,
        launcher,
        folder=opened.folder,
        settings=settings,
        profiles=lambda: profile_names(home),
        ttl=claim_seconds(os.environ),
        say=say,
        started_with=serving_options(sources),
        tell=tell,
        plan=launcher.plan,
    )


def serving_options(sources: Sources) -> list[str]:
    """Arguments before a command with which another process serves a board as this one would: profile, then options."""
    # Always by name: `hermes profile use` may say another one meanwhile.
    return ["-p", sources.loaded.home.profile, *arguments_of(sources.options)]
