"""`hermes kanban dispatch` and `daemon`: serve the board once, or until stopped."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

import click
import msgspec

from hermes.cli.kanban_parts import (
    OpenedBoard,
    dispatcher_of,
    open_named,
    refuse_in_task,
    serving_options,
    stop_on_signals,
)
from hermes.cli.kanban_telling import teller_of
from hermes.core.errors import OperatorError, UsageError
from hermes.core.program import program_path
from hermes.kanban.board_lock import BoardLock
from hermes.kanban.dispatcher import Passed
from hermes.kanban.launching import Outliving, open_log
from hermes.kanban.reasons import when

__all__ = ["daemon", "dispatch"]

#: Exit code when another dispatcher serves the board.
BUSY = 3
#: Seconds in which a detached dispatcher has to have begun.
BEGINS = 60.0


_ONCE = """\b
Examples:
  hermes kanban dispatch
  hermes kanban dispatch --dry-run
  hermes kanban dispatch --max 1 --json
"""
_SERVE = """\b
Examples:
  hermes kanban daemon --detach
  hermes kanban daemon --status
  hermes kanban daemon --stop
  hermes kanban daemon --print-systemd > ~/.config/systemd/user/hermes-kanban.service
"""


@click.command(epilog=_ONCE)
@click.option("--dry-run", is_flag=True, help="Start nothing; say what would be.")
@click.option(
    "--max",
    "most",
    type=click.IntRange(min=0),
    default=None,
    metavar="N",
    help="Start at most N, plans of ideas included.",
)
@click.option(
    "--failure-limit", type=click.IntRange(min=1), default=None, metavar="N",
    help="Failures in a row after which a card is put aside; else as configured.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def dispatch(
    context: click.Context, /, dry_run: bool, most: int | None, failure_limit: int | None, as_json: bool
) -> int:
    """Look after the board once: release what is gone, start workers for what is ready.

    The workers go on by themselves. Exit code 3: another dispatcher serves the board.
    """
    refuse_in_task("hermes kanban dispatch")
    opened = open_named(context)
    with opened.board:
        tell = teller_of(opened.sources, opened.slug)
        dispatcher = dispatcher_of(opened, lambda line: None, failures=failure_limit, tell=tell)
        if not dry_run and not dispatcher.lock.take():
            return _busy(dispatcher.lock, as_json)
        try:
            passed = dispatcher.pass_once(most=most, dry_run=dry_run, sign=False)
        finally:
            dispatcher.lock.release()
    if as_json:
        click.echo(msgspec.json.encode(passed).decode())
    else:
        _tell(passed, dry_run)
    return 0


def _busy(lock: BoardLock, as_json: bool) -> int:
    holder = lock.holder()
    who = f"process {holder.pid} since {when(holder.since)}" if holder is not None else "another process"
    if as_json:
        click.echo(json.dumps({"skipped_locked": True, "holder": who}))
    click.echo(f"{who} dispatches this board already; `hermes kanban daemon --stop` ends it", err=True)
    return BUSY


def _tell(passed: Passed, dry_run: bool) -> None:
    for card_id, status in passed.released.items():
        click.echo(f"{card_id} is {status}: its worker is gone")
    for card_id in passed.promoted:
        click.echo(f"{card_id} is ready now")
    for each in passed.spawned:
        click.echo(f"{each.card}: {each.profile} {'would work' if dry_run else f'works, process {each.pid}'}")
    for card_id in passed.planned:
        click.echo(f"{card_id}: a model plans it")
    for card_id, error in passed.failed.items():
        click.echo(f"{card_id}: no worker could be started: {error}")
    for reason in passed.left[:20]:
        click.echo(f"{reason.card_id} waits: {reason.detail}{f'   ({reason.cure})' if reason.cure else ''}")
    if len(passed.left) > 20:
        click.echo(f"… {len(passed.left) - 20} more wait")
    if not (passed.spawned or passed.left or passed.failed or passed.planned):
        click.echo("nothing is ready" if not passed.running else f"nothing more is ready, {passed.running} workers run")


@click.command(epilog=_SERVE)
@click.option("--detach", is_flag=True, help="Go on in the background.")
@click.option("--stop", is_flag=True, help="End the one that serves the board; workers go on.")
@click.option("--status", is_flag=True, help="Say who serves the board.")
@click.option("--print-systemd", "systemd", is_flag=True, help="Print a unit for systemd that serves the board.")
@click.option("--force", is_flag=True, hidden=True, help="No effect: one dispatcher serves a board.")
@click.option("--json", "as_json", is_flag=True, help="Who serves the board then, as one JSON object.")
@click.pass_context
def daemon(
    context: click.Context, /, detach: bool, stop: bool, status: bool, systemd: bool, force: bool, as_json: bool
) -> int:
    """Serve the board until it is stopped: start workers as cards become ready, and look after them.

    Started where another serves the board, it stands by and takes over once that one is gone.
    """
    del force
    if detach + stop + status + systemd > 1:
        raise UsageError("--detach, --stop, --status and --print-systemd exclude each other: give one of them.")
    if as_json and not (detach or stop or status):
        raise UsageError("--json goes with --detach, --stop or --status.")
    if not (status or stop or systemd):
        refuse_in_task("hermes kanban daemon")
    opened = open_named(context)
    with opened.board:
        lock = BoardLock(opened.folder / "dispatcher.lock")
        if systemd:
            click.echo(_unit(opened), nl=False)
            return 0
        if not (status or stop or detach):
            return _serve(opened)
        said = _status(lock, opened) if status else _stop(lock, opened) if stop else _detach(context, opened, lock)
        holder = lock.holder() if as_json else None
        if as_json:
            told = {"board": opened.slug, "log": str(_log(opened)), "pid": holder.pid if holder else None,
                    "since": holder.since if holder else None}  # fmt: skip
            said = json.dumps(told, ensure_ascii=False)
        click.echo(said)
        return 0


def _log(opened: OpenedBoard) -> Path:
    return opened.folder / "logs" / "dispatcher.log"


def _status(lock: BoardLock, opened: OpenedBoard) -> str:
    holder = lock.holder()
    if holder is None:
        return "no dispatcher serves the board on this machine; start one: hermes kanban daemon --detach"
    return f"process {holder.pid} serves the board since {when(holder.since)}, log {_log(opened)}"


def _stop(lock: BoardLock, opened: OpenedBoard) -> str:
    if lock.holder() is None:
        return "no dispatcher serves the board on this machine"
    if not lock.end_holder():
        raise OperatorError(f"the dispatcher does not end; its log is {_log(opened)}")
    return "stopped; its workers go on, and the next dispatcher looks after them"


def _serve(opened: OpenedBoard) -> int:
    dispatcher = dispatcher_of(opened, _say, tell=teller_of(opened.sources, opened.slug))
    stop = threading.Event()
    stop_on_signals(stop)
    if not dispatcher.lock.take():
        holder = dispatcher.lock.holder()
        _say(f"stands by: process {holder.pid if holder else '?'} serves the board")
        while not dispatcher.lock.take():
            if stop.wait(1.0):
                return 0
    limits = opened.sources.loaded.settings.kanban.limits
    _say(f"serves the board {opened.slug} as process {os.getpid()}: {limits}")
    try:
        dispatcher.serve(stop)
    finally:
        dispatcher.lock.release()
    _say("ended; workers go on")
    return 0


def _detach(context: click.Context, opened: OpenedBoard, lock: BoardLock) -> str:
    holder = lock.holder()
    if holder is not None:
        return f"process {holder.pid} serves the board already"
    log = _log(opened)
    home = opened.sources.loaded.home
    environ = {**os.environ, "HERMES_HOME": str(home.root), **program_path(os.environ)}
    with open_log(log, opened.sources.loaded.settings.kanban.worker_log_rotate_bytes) as out:
        process = Outliving(
            _command(opened),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=home.root,
            env=environ,
            start_new_session=True,
        )
    until = time.monotonic() + BEGINS
    while (holder := lock.holder()) is None:
        if process.poll() is not None or time.monotonic() >= until:
            raise OperatorError(f"the dispatcher did not begin ({_last_line(log)}); its log is {log}")
        time.sleep(0.05)
    return f"process {holder.pid or process.pid} serves the board; log {log}; end it: hermes kanban daemon --stop"


def _command(opened: OpenedBoard) -> list[str]:
    """What serves the board with everything that was said on this command line."""
    options = serving_options(opened.sources)
    return [sys.executable, "-m", "hermes.cli.main", *options, "kanban", "--board", opened.slug, "daemon"]


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    return lines[-1][:300] if lines else "it said nothing"


def _unit(opened: OpenedBoard) -> str:
    home = opened.sources.loaded.home
    command = shlex.join(_command(opened)).replace("%", "%%")
    return f"""[Unit]
Description=Hermes board {opened.slug}
After=network-online.target

[Service]
Environment={shlex.quote(f"HERMES_HOME={home.root}").replace("%", "%%")}
ExecStart={command}
Restart=on-failure
RestartSec=10
KillMode=process

[Install]
WantedBy=default.target
"""


def _say(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")
    sys.stderr.flush()
