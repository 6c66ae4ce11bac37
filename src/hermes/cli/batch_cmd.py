"""`hermes batch run` and `show`: start, resume and look at batch runs. Reads flags, handles Ctrl+C and the terminal;
the work is done by `hermes.batch`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import click
import msgspec

from hermes.batch.accounts import NO_FAILURE, read_allowed
from hermes.batch.dry import PriceOf, dry_run
from hermes.batch.folder import RunFolder
from hermes.batch.job import JobOptions, OpenEngine, run_job
from hermes.batch.listing import run_state
from hermes.batch.progress import BarDisplay, Display, LineDisplay, Tree
from hermes.batch.run import DRAIN, StopSwitch
from hermes.batch.settings import check_run_name
from hermes.batch.show import rows_of, show_rows
from hermes.batch.summary import StopCause, resume_command
from hermes.chat.render import printable
from hermes.cli.batch_detached import command_line, run_detached, without_detach
from hermes.cli.batch_distributions import distribution_lines, known_tables
from hermes.cli.batch_flags import executor_options, routing_options, sampling_options
from hermes.cli.batch_flags import flag as _flag
from hermes.cli.batch_flags import option as _option
from hermes.cli.options import GlobalOptions, listened, merged, options_of
from hermes.cli.screens import print_json
from hermes.cli.taped import refuse_tape_with, tape_options
from hermes.config.endpoints import EFFORTS
from hermes.core.codec import decode_json, encode_json
from hermes.core.errors import UsageError

__all__ = ["BatchParts", "data_dir_of", "run", "show"]

DATA = Path("data")
#: Seconds between two drawings of the running rows.
REDRAW = 0.25

#: Flags with which a run does not end here, and where to look for JSON instead.
_OTHER_JSON = {
    "list_distributions": "hermes batch distributions --json prints them.",
    "dry_run": "A dry run ends nothing; its estimate is for people.",
    "detach": "hermes batch status NAME --json tells how one is.",
}
_EXAMPLES = """\b
Examples:
  hermes batch run --dataset_file=prompts.jsonl --run_name=first --model=anthropic/claude-sonnet-4.6
  hermes batch run --run_name=first --resume
  hermes batch run --dataset_file=prompts.jsonl --run_name=try --model=embedded --max_samples=3
  hermes batch run --dataset_file=prompts.jsonl --run_name=again --replay=tape.jsonl
"""


class BatchParts(msgspec.Struct, frozen=True, kw_only=True):
    """What the command works with where it is not the ordinary one: put one on the context's chain of objects.

    `tree` draws the rows that run; `announce` is given what takes the line that names the model.
    `strayed` says at the end whether a replay went otherwise than its recording, `price_of` what is known of the model.
    `drain` is how many seconds rows in flight have after the first Ctrl+C.
    """

    open_engine: OpenEngine
    data_dir: Path = DATA
    tree: Tree = lambda most, width: ()
    announce: Callable[[Callable[[str], None]], None] = lambda say: None
    strayed: Callable[[], bool] = lambda: False
    price_of: PriceOf = lambda settings: (settings.model or "the default model", None)
    drain: float = DRAIN


def data_dir_of(context: click.Context) -> Path:
    """Where the runs are."""
    parts = context.find_object(BatchParts)
    return parts.data_dir if parts is not None else DATA


@click.command(epilog=_EXAMPLES)
@_option(
    "dataset_file",
    metavar="PATH",
    help='JSONL, one object a line: {"prompt": …}, optional cwd, toolsets, verifier, image.',
)
@_option("run_name", metavar="NAME", help="Names the folder data/NAME.")
@_option("batch_size", type=int, metavar="N", help="Rows in one batch file (10).")
@_option("model", "-m", metavar="MODEL", help="Model of all rows; `embedded` is the local one.")
@_option("base_url", metavar="URL", help="Endpoint, if not the configured one.")
@_option("api_key", metavar="KEY", help="Key; better in the environment, where no other user sees it.")
@_option("num_workers", type=int, metavar="N", help="Rows in flight at once (4); 1000 is a fair number.")
@_option("max_turns", type=int, metavar="N", help="Model calls with tools for one row (10).")
@_option("max_tokens", type=int, metavar="N", help="Output tokens of one reply.")
@_option("max_samples", type=int, metavar="N", help="Take only the first N rows.")
@_option("distribution", metavar="NAME", help="Toolsets of rows that name none (default); also FILE.yaml.")
@_option("reasoning_effort", metavar="LEVEL", help=f"How much the model thinks: {', '.join(EFFORTS)}.")
@_flag("reasoning_disabled", help="The same as --reasoning_effort=none, and wins over it.")
@_option("ephemeral_system_prompt", metavar="TEXT", help="System text while running; never saved in rows.")
@_option("prefill_messages_file", metavar="PATH", help="JSON array of few-shot messages; never saved in rows.")
@sampling_options
@routing_options
@_option(
    "cwd_mode",
    metavar="MODE",
    help="auto: each rollout in its own checkout of cwd, or a copy where that is no repository (default); copy: always "
    "a copy; inplace: in cwd itself, one at a time.",
)
@_option("max_copy_mb", type=int, metavar="MB", help="Largest copy of a cwd, shared blocks left out (1024).")
@_flag("keep_workspaces", help="Leave the rows' workspaces in data/NAME/workspaces.")
@_option("row_timeout", type=float, metavar="SECONDS", help="Running time of one row (3600).")
@executor_options
@_option("max_cost", type=float, metavar="USD", help="What the whole run may cost; then no other row starts.")
@_option("max_total_tokens", type=int, metavar="N", help="Tokens the whole run may use; then no other row starts.")
@_option("allow_failed", metavar="N|N%", help="Exit 0 though so many rows failed.")
@_option("max_failure_share", type=float, metavar="SHARE", help="Stop once more than this share of rows failed (1).")
@_flag("resume", help="Go on with the run of this name; settings not given come from its record.")
@_flag("accept_changes", help="With --resume: the dataset may have changed; only new rows are run.")
@_option("retry", metavar="KINDS", help="With --resume: also run failures of these kinds, or `all`.")
@_option("redo", metavar="WHAT", help="With --resume: also run rows that were rejected, as rejected:REASON.")
@_flag("overwrite", help="Move an old run of this name aside and start anew.")
@_flag("yes", help="Go on though the first ten rows were all rejected.")
@_flag("verbose", help="Log how each row ended.")
@_option(
    "log_prefix_chars", type=click.IntRange(min=0), metavar="N", help="How much of a prompt a log line shows (100)."
)
@_flag("allow_host_commands", help="Run the rows' dangerous commands on this machine, in no sandbox.")
@_flag("dry_run", help="Estimate tokens and cost, and end.")
@_flag("detach", help="Work in the background; the words go to data/NAME/run.log.")
@_flag("list_distributions", help="Print the distributions and end.")
@click.option("--json", "as_json", is_flag=True, help="Print how it ended as one JSON object; the words go to stderr.")
@tape_options
@click.pass_context
def run(context: click.Context, /, **given: Any) -> int:
    """Run the prompts of a dataset, or go on with a run.

    Rows, kept and rejected, stand in data/NAME/batch_N.jsonl as they end; trajectories.jsonl, rejected.jsonl,
    failed.jsonl and statistics.json are made at the end. Exit code: 0 if nothing failed or is pending, 1 if something
    did, 2 for wrong usage, 75 if waiting helps, 130 after Ctrl+C.
    """
    as_json = given.pop("as_json")
    for name, instead in _OTHER_JSON.items() if as_json else ():
        if given[name]:
            raise UsageError(f"--json and --{name} exclude each other: it prints how a run ended. {instead}")
    if given.pop("list_distributions"):
        for line in distribution_lines(known_tables(options_of(context), None)):
            click.echo(line)
        return 0
    dry, detach = given.pop("dry_run"), given.pop("detach")
    record, replay = given.pop("record"), given.pop("replay")
    refuse_tape_with(record, replay, resume=given["resume"])
    globals_ = merged(options_of(context), host_commands=given.pop("allow_host_commands"))
    options = _options(given, globals_)
    parts = context.find_object(BatchParts) or _ordinary_parts(globals_, record, replay)
    if dry:
        for line in dry_run(options, parts.price_of, parts.data_dir):
            click.echo(printable(line))
        return 0
    if detach:
        name = check_run_name(options.given["run_name"] or "")
        return run_detached(RunFolder(parts.data_dir, name), without_detach(command_line()))
    if not options.resume and options.given["batch_size"] is None:
        click.echo("--batch_size is not given: 10 rows in a batch file", err=True)
    code = anyio.run(_run, options, parts, as_json)
    if as_json:
        print_json(_ended(RunFolder(parts.data_dir, str(options.given["run_name"])), code))
    return code


def _ended(folder: RunFolder, code: int) -> dict[str, Any]:
    """How a run ended, as `hermes batch status` tells it, with its statistics; None where it was stopped at once."""
    state = msgspec.structs.asdict(run_state(folder))
    path = folder.path / "statistics.json"
    whole = state["exit_code"] is not None and path.exists()
    go_on = resume_command(folder.run_name) if state["pending"] or state["failed"] else ""
    statistics = decode_json(path.read_bytes()) if whole else None
    return {**state, "exit_code": code, "go_on": go_on, "statistics": statistics}


def _options(given: dict[str, Any], globals_: GlobalOptions) -> JobOptions:
    wishes = {name: bool(given.pop(name)) for name in ("resume", "overwrite", "accept_changes", "yes")}
    kinds, redo, allowed = (given.pop(name) or "" for name in ("retry", "redo", "allow_failed"))
    if given.pop("reasoning_disabled"):
        given["reasoning_effort"] = "none"
    if globals_.toolsets is not None:
        raise UsageError("-t has no meaning for a batch: rows name their toolsets, or --distribution draws them.")
    given["max_cost"] = globals_.max_cost if given["max_cost"] is None else given["max_cost"]
    given["model"] = given["model"] or globals_.model or None
    given["reasoning_effort"] = given["reasoning_effort"] or globals_.reasoning or None
    if given["max_turns"] is None and isinstance(globals_.max_turns, int):
        given["max_turns"] = globals_.max_turns
    if given["dataset_file"] is None and not wishes["resume"]:
        raise UsageError("no dataset: give --dataset_file=prompts.jsonl (and --run_name=NAME).")
    return JobOptions(
        given=given,
        retry=_names(kinds),
        redo=_names(redo),
        allowed=read_allowed(allowed) if allowed else NO_FAILURE,
        tables=known_tables(globals_, given["distribution"]),
        **wishes,
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _ordinary_parts(globals_: GlobalOptions, record: str, replay: str) -> BatchParts:
    # edge: the whole runtime, wanted only when a batch really starts
    from hermes.cli.batch_engine import BatchEngine

    engine = BatchEngine(globals_, DATA, record=record, replay=replay)
    return BatchParts(
        open_engine=engine.open,
        tree=engine.tree,
        announce=engine.announce,
        strayed=lambda: engine.strayed,
        price_of=engine.price_of,
    )


async def _run(options: JobOptions, parts: BatchParts, as_json: bool) -> int:
    terminal = sys.stderr.isatty()
    display = _display(terminal, parts.tree)
    parts.announce(display.note)
    switch = StopSwitch(parts.drain)
    code = 130
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_signals, switch, group.cancel_scope, display.note)
            if isinstance(display, BarDisplay):
                group.start_soon(_redraw, display)
            code = await run_job(
                options,
                open_engine=parts.open_engine,
                display=display,
                say=lambda line: click.echo(printable(line), err=as_json),
                switch=switch,
                data_dir=parts.data_dir,
                ask=(lambda why: _ask(display, why)) if terminal and sys.stdin.isatty() else None,
            )
            group.cancel_scope.cancel()
            if terminal:
                await anyio.to_thread.run_sync(_tables, parts.data_dir / str(options.given["run_name"]))
            return code or int(parts.strayed())
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) == 1:
            raise errors.exceptions[0] from None
        raise
    finally:
        display.close()
    name = str(options.given["run_name"])
    click.echo(f"stopped at once; what is written stands. Go on: {resume_command(name)}", err=True)
    return switch.cause.exit_code if switch.cause is not None else code


def _tables(folder: Path) -> None:
    # edge: wanted only on a terminal
    from rich.console import Console

    # edge: as above
    from hermes.cli.batch_tables import print_tables

    print_tables(Console(stderr=True), folder)


async def _redraw(display: BarDisplay) -> None:
    while True:
        display.refresh()
        await anyio.sleep(REDRAW)


def _display(terminal: bool, tree: Tree) -> Display:
    if not terminal:
        return LineDisplay(lambda line: click.echo(printable(line), err=True))
    # edge: costs 60 ms to import and is wanted only on a terminal
    from rich.console import Console

    return BarDisplay(Console(stderr=True), tree)


async def _signals(switch: StopSwitch, scope: anyio.CancelScope, note: Callable[[str], None]) -> None:
    """The first Ctrl+C lets rows in flight end for a second and saves; the second stops at once."""
    with anyio.open_signal_receiver(*listened()) as received:
        async for number in received:
            if switch.cause is not None and switch.cause.kind == "interrupted":
                scope.cancel()
                return
            code = 128 + number
            switch.stop(StopCause(kind="interrupted", message="interrupted; what has ended is saved", exit_code=code))
            if not switch.attached:
                scope.cancel()
                return
            if number == signal.SIGINT:  # after the others nobody reads
                note("saving what has ended (Ctrl+C again stops at once)")


async def _ask(display: Display, why: str) -> bool:
    display.note(f"{why}\nPress Enter to go on all the same, or q and Enter to stop.")
    with display.paused() if isinstance(display, BarDisplay) else nullcontext():
        await anyio.wait_readable(sys.stdin.fileno())
    answer = os.read(sys.stdin.fileno(), 100).decode("utf-8", "replace").strip().lower()
    return not answer.startswith(("q", "n"))


@click.command(
    epilog="\b\nExamples:\n  hermes batch show first\n  hermes batch show first 12\n"
    "  hermes batch show first --rejected -n 1\n  hermes batch show first 12 --json\n"
)
@click.argument("run_name", metavar="RUN")
@click.argument("index", metavar="[INDEX]", type=click.IntRange(min=0), required=False)
@click.option("-n", "count", type=click.IntRange(min=1), default=3, metavar="N", help="How many rows (3).")
@click.option("--rejected", "which", flag_value="rejected", help="Rows that the filters rejected.")
@click.option("--failed", "which", flag_value="failed", help="Rows that failed.")
@click.option("--trajectories", "which", flag_value="trajectories", help="Kept rows (default without INDEX).")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as they stand, one JSON object a line.")
@click.pass_context
def show(
    context: click.Context, run_name: str, index: int | None, count: int, which: str | None, as_json: bool
) -> None:
    """Print rows of a run in readable form: the first ones, or all rollouts of the row INDEX.

    While a run has not ended, these are the rows that have, before the filters.
    """
    chosen = which or ("" if index is not None else "trajectories")
    if as_json:
        for row in rows_of(data_dir_of(context), run_name, chosen, count, index):
            click.echo(encode_json(row).decode())
        return
    for line in show_rows(data_dir_of(context), run_name, chosen, count, index):
        click.echo(line)
