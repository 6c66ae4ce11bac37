"""`hermes batch list`, `status`, `pause`, `unpause`, `workers`, `stop`: looking at runs and steering them from another
terminal. They read and write small files in the folder of a run; its process does the rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from hermes.batch.folder import RunFolder
from hermes.batch.listing import RunState, find_run, living, run_state, run_states
from hermes.batch.progress import duration_text, usd
from hermes.batch.steering import Status, Wish, change_wish, is_held, read_status
from hermes.batch.summary import resume_command
from hermes.cli.batch_cmd import data_dir_of
from hermes.cli.screens import print_json, rows
from hermes.core.errors import OperatorError, UsageError

__all__ = ["list_", "pause", "status", "stop", "unpause", "workers"]

#: Seconds in which a living run has to do what is wished; it looks twice a second, on a busy machine late.
PATIENCE = 20.0
#: Seconds in which a stopped run has to end: rows get a moment, then everything is written and merged.
ENDING = 60.0

_Command = TypeVar("_Command", bound=Callable[..., Any])
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _folder(context: click.Context, run_name: str | None) -> RunFolder:
    """The run that is named, or the only one that runs."""
    data_dir = data_dir_of(context)
    if run_name is not None:
        return find_run(data_dir, run_name)
    names = living(data_dir)
    if len(names) == 1:
        return RunFolder(data_dir, names[0])
    which = f"several run ({', '.join(names)})" if names else f"no run in {data_dir} is being worked on"
    raise UsageError(f"{which}: name one, as in `hermes batch {context.info_name} RUN`.")


@click.command("list", epilog="\b\nExamples:\n  hermes batch list\n  hermes batch list --json")
@_as_json
@click.pass_context
def list_(context: click.Context, /, as_json: bool) -> None:
    """List the runs in data/, the newest first."""
    states = run_states(data_dir_of(context))
    if as_json:
        print_json(states)
    elif not states:
        click.echo(f"no runs in {data_dir_of(context)}. hermes batch run starts one.")
    else:
        header = ["run", "state", "kept", "rejected", "failed", "pending", "of", "cost", "started"]
        click.echo(rows([header, *(_cells(state) for state in states)], indent=""))


def _cells(state: RunState) -> list[str]:
    counts = (state.kept, state.rejected, state.failed, state.pending, state.total)
    cost = usd(state.cost_usd) if state.cost_usd is not None else "-"
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(state.created_at))
    return [state.run_name, state.state, *map(str, counts), cost, started]


@click.command(epilog="\b\nExamples:\n  hermes batch status\n  hermes batch status first --json")
@click.argument("run_name", metavar="[RUN]", required=False)
@_as_json
@click.pass_context
def status(context: click.Context, /, run_name: str | None, as_json: bool) -> None:
    """Say how a run is; without RUN the one that runs, or else the newest."""
    data_dir = data_dir_of(context)
    states = run_states(data_dir) if run_name is None and not living(data_dir) else []
    state = states[0] if states else run_state(_folder(context, run_name))
    if as_json:
        print_json(state)
        return
    for line in _status_lines(state):
        click.echo(line)


def _counts(state: RunState) -> str:
    return f"kept {state.kept} rejected {state.rejected} failed {state.failed} pending {state.pending} of {state.total}"


def _status_lines(state: RunState) -> list[str]:
    ago = duration_text(max(0.0, time.time() - state.updated_at))
    lines = [f"{state.run_name}: {state.state}" + (f", process {state.pid}" if state.pid else "") + f", {ago} ago"]
    if state.line:
        lines.append(f"{state.line} · {state.workers} workers")
    else:
        money = f" · {usd(state.cost_usd)}" if state.cost_usd is not None else ""
        lines.append(f"{_counts(state)}{money}")
    if state.state == "died":
        lines.append(f"its process is dead; what it has written stands. Go on: {resume_command(state.run_name)}")
    elif state.state == "stopped":
        lines.append(f"go on: {resume_command(state.run_name)}")
    return lines


def _wish(folder: RunFolder, change: Callable[[Wish], Wish]) -> Status:
    """Wish something of a living run and wait until it has done it."""
    if not is_held(folder):
        state = run_state(folder)
        again = "" if state.state == "finished" else f" Go on with it: {resume_command(state.run_name)}"
        raise OperatorError(
            f"nobody works on run {state.run_name!r} ({state.state}): there is nothing to steer.{again}"
        )
    wish = change_wish(folder, change)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        said = read_status(folder)
        if said is not None and said.obeyed >= wish.number:
            return said
        if not is_held(folder):
            raise OperatorError(f"run {folder.run_name!r} ended meanwhile; `hermes batch status` says how.")
        time.sleep(0.05)
    raise OperatorError(
        f"run {folder.run_name!r} has not answered within {PATIENCE:g} s. It does what was asked once it looks again: "
        "it may be starting, or stand still."
    )


def _report(folder: RunFolder, said: Status, words: str, as_json: bool) -> None:
    if as_json:
        print_json({"run_name": folder.run_name, **msgspec.structs.asdict(said)})
    else:
        click.echo(f"{folder.run_name}: {words}")


@click.command(epilog="\b\nExamples:\n  hermes batch pause\n  hermes batch pause first")
@click.argument("run_name", metavar="[RUN]", required=False)
@_as_json
@click.pass_context
def pause(context: click.Context, /, run_name: str | None, as_json: bool) -> None:
    """Let rows under way come to their end and start no other."""
    folder = _folder(context, run_name)
    said = _wish(folder, lambda wish: msgspec.structs.replace(wish, paused=True))
    running = f"{said.running} row{'s' * (said.running > 1)} under way end first" if said.running else "nothing runs"
    _report(folder, said, f"paused, {running}. hermes batch unpause goes on", as_json)


@click.command(epilog="\b\nExamples:\n  hermes batch unpause\n  hermes batch unpause first")
@click.argument("run_name", metavar="[RUN]", required=False)
@_as_json
@click.pass_context
def unpause(context: click.Context, /, run_name: str | None, as_json: bool) -> None:
    """Go on with a paused run."""
    folder = _folder(context, run_name)
    said = _wish(folder, lambda wish: msgspec.structs.replace(wish, paused=False))
    _report(folder, said, f"goes on with {said.workers} workers", as_json)


@click.command(epilog="\b\nExamples:\n  hermes batch workers 16\n  hermes batch workers first 16")
@click.argument("words", metavar="[RUN] N", nargs=-1, required=True)
@_as_json
@click.pass_context
def workers(context: click.Context, /, words: tuple[str, ...], as_json: bool) -> None:
    """Change how many rows run at once."""
    *names, number = words
    if len(names) > 1 or not number.isdecimal() or int(number) < 1:
        raise click.UsageError("write `hermes batch workers N` or `hermes batch workers RUN N`, N at least 1.", context)
    folder = _folder(context, names[0] if names else None)
    said = _wish(folder, lambda wish: msgspec.structs.replace(wish, workers=int(number)))
    _report(folder, said, f"{said.workers} workers", as_json)


@click.command(epilog="\b\nExamples:\n  hermes batch stop\n  hermes batch stop first")
@click.argument("run_name", metavar="[RUN]", required=False)
@_as_json
@click.pass_context
def stop(context: click.Context, /, run_name: str | None, as_json: bool) -> None:
    """Stop a run and save everything; --resume goes on, half-done rows from their last step."""
    folder = _folder(context, run_name)
    if not is_held(folder):
        _wish(folder, lambda wish: wish)
    change_wish(folder, lambda wish: msgspec.structs.replace(wish, stop=True))
    deadline = time.monotonic() + ENDING
    while is_held(folder):
        if time.monotonic() > deadline:
            raise OperatorError(f"run {folder.run_name!r} was told to stop and has not ended within {ENDING:g} s.")
        time.sleep(0.05)
    state = run_state(folder)
    if as_json:
        print_json(state)
    else:
        again = f" · go on: {resume_command(folder.run_name)}" if state.pending or state.failed else ""
        click.echo(f"{folder.run_name}: stopped. {_counts(state)}{again}")
