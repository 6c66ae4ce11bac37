"""`hermes tasks`: the verbs on tasks from another terminal, whether their process lives or not.

Reads and writes the journal; what a living process has is asked of it. Knows no model, except where it takes work up.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import click

from hermes.chat.leaving import goes_on
from hermes.chat.render import duration, escaped, one_line, printable
from hermes.chat.tailing import tail_lines
from hermes.chat.tree_text import task_details
from hermes.cli.oneshot import OneShot, Request
from hermes.cli.opening import parts_of
from hermes.cli.options import Sources, open_sources, options_of
from hermes.cli.reaching import hand_to_host, reach
from hermes.cli.running import run_async
from hermes.cli.screens import print_json, rows
from hermes.core.errors import HermesError
from hermes.runtime.remote import Answer, Remote
from hermes.store.ops import TaskRow

__all__ = ["tasks"]

EXIT_TIMEOUT = 124
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_receipt = click.option("--receipt", default="", metavar="ID", help="Of the request: the same one asks only once.")
_timeout = click.option(
    "--timeout", type=click.FloatRange(min=0), default=None, metavar="SECONDS", help="Wait no longer; exit code 124."
)


class _Refused(HermesError):
    """The verb was answered with no."""


@click.group(
    epilog='\b\nExamples:\n  hermes tasks list\n  hermes tasks steer sa-1f3 "only the north"\n'
    "  hermes tasks collect async_90 --timeout 600"
)
def tasks() -> None:
    """Look at tasks of any terminal, correct, stop and collect them.

    Ids may be shortened. A task without a living process is `suspended`: what is said to it is kept until somebody
    takes it up (resume, adopt, hermes chat --resume).
    """


@tasks.command("list", epilog="\b\nExamples:\n  hermes tasks list --all\n  hermes tasks list --json")
@click.option("--session", default=None, metavar="ID", help="Only those of this session.")
@click.option("--all", "ended", is_flag=True, help="The newest 50 that have ended, too.")
@_as_json
@click.pass_context
def list_(context: click.Context, /, session: str | None, ended: bool, as_json: bool) -> None:
    """List tasks: running, queued, suspended; ended ones with --all or --json.

    A conversation that waits for its person is `idle`; with --json it is running in the phase idle.
    """

    async def found(remote: Remote) -> Answer:
        chosen = await remote.session(session) if session is not None else None
        return await remote.list(chosen)

    sources = open_sources(options_of(context))
    answer: Answer = {"tasks": [], "active": 0}
    if sources.loaded.home.database.exists():
        answer = _ask(sources, found)
    if as_json:
        print_json(answer)
        return
    shown = answer["tasks"] if ended else answer["tasks"][: answer["active"]]
    if not shown:
        click.echo("no tasks" if ended else "nothing is unfinished; --all shows what has ended")
        return
    table = [(row["task_id"], _state(row), _time(row), row["session_id"], one_line(row["goal"], 60)) for row in shown]
    click.echo(rows([("task", "state", "time", "session", "goal"), *table], indent=""))


@tasks.command(epilog="\b\nExamples:\n  hermes tasks show sa-1f3\n  hermes tasks show sa-1f3 --json")
@click.argument("task_id")
@_as_json
@click.pass_context
def show(context: click.Context, /, task_id: str, as_json: bool) -> None:
    """Show one task: its state, newest output, use, and what was asked of it."""

    async def looked(remote: Remote, row: TaskRow) -> tuple[Answer, list[str]]:
        answer = await remote.check(row)
        tree = await remote.tree(row.session_id)
        view = tree.tasks.get(row.task_id)
        details = task_details(tree, view, remote.clock.now()) if view is not None else [f"{row.task_id} {row.goal}"]
        return answer, details

    answer, details = _one(context, task_id, looked, as_json)
    if as_json:
        print_json(answer)
        return
    click.echo(printable("\n".join(details)))
    if answer["status"] == "suspended":
        click.echo(f"  suspended: {answer['how_to_resume']}")


@tasks.command(epilog="\b\nExamples:\n  hermes tasks tail sa-1f3\n  hermes tasks tail main_77 --no-follow")
@click.argument("task_id")
@click.option("--no-follow", is_flag=True, help="Print what there is and end.")
@_as_json
@click.pass_context
def tail(context: click.Context, /, task_id: str, no_follow: bool, as_json: bool) -> None:
    """Print what a task says and does, as it happens, until it ends. Ctrl+C ends the printing alone."""

    async def printed(remote: Remote, row: TaskRow) -> None:
        safe = escaped if as_json else printable
        await tail_lines(remote, row, follow=not no_follow, as_json=as_json, write=lambda line: click.echo(safe(line)))

    _one(context, task_id, printed, as_json)


@tasks.command(epilog='\b\nExamples:\n  hermes tasks steer sa-1f3 "only the north"')
@click.argument("task_id")
@click.argument("text")
@_receipt
@_as_json
@click.pass_context
def steer(context: click.Context, /, task_id: str, text: str, receipt: str, as_json: bool) -> None:
    """Correct a task without stopping it: it reads TEXT at its next step."""
    _talk(context, task_id, "steer", text, receipt, as_json)


@tasks.command("continue", epilog='\b\nExamples:\n  hermes tasks continue sa-1f3 "now the south as well"')
@click.argument("task_id")
@click.argument("text")
@_receipt
@_as_json
@click.pass_context
def continue_(context: click.Context, /, task_id: str, text: str, receipt: str, as_json: bool) -> None:
    """Let a task that has ended go on: it keeps what it knows and reads TEXT next.

    Where no process has its session, the session goes on in the background.
    """
    sources = open_sources(options_of(context))

    async def sent(remote: Remote, row: TaskRow) -> Answer:
        answer = await remote.send(row, "continue", text, receipt=receipt)
        if answer.get("ok") and await remote.gone(row.owner):
            await hand_to_host(remote, sources, row.session_id)
            answer = await remote.send(row, "continue", text, receipt=answer["receipt"]["id"])
            answer["message"] = f"It goes on in the background: hermes attach {row.session_id}"
        return answer

    _print(_one(context, task_id, sent, as_json), as_json)


@tasks.command(epilog="\b\nExamples:\n  hermes tasks cancel sa-1f3")
@click.argument("task_id")
@click.option("--reason", default="cancelled from another terminal", metavar="TEXT", help="What its result will say.")
@_receipt
@_as_json
@click.pass_context
def cancel(context: click.Context, /, task_id: str, reason: str, receipt: str, as_json: bool) -> None:
    """Stop a task and everything under it; what it has is kept."""
    _talk(context, task_id, "cancel", reason, receipt, as_json)


@tasks.command(epilog="\b\nExamples:\n  hermes tasks wait sa-1f3 sa-22c --mode any")
@click.argument("task_ids", nargs=-1, required=True)
@click.option("--mode", type=click.Choice(["all", "any"]), default="all", show_default=True, help="For which of them.")
@_timeout
@_as_json
@click.pass_context
def wait(context: click.Context, /, task_ids: tuple[str, ...], mode: Any, timeout: float | None, as_json: bool) -> int:
    """Wait until tasks have ended. Suspended ones are named, not waited for."""

    async def waited(remote: Remote) -> Answer:
        found = []
        for task_id in task_ids:
            row = await remote.find(task_id)
            if not isinstance(row, TaskRow):
                return row
            found.append(row.task_id)
        return await remote.wait(found, mode=mode, timeout=timeout)

    answer = _ask(open_sources(options_of(context)), waited)
    _print(answer, as_json)
    return EXIT_TIMEOUT if answer["timed_out"] else 0


@tasks.command(epilog="\b\nExamples:\n  hermes tasks collect async_90\n  hermes tasks collect async_90 --json")
@click.argument("task_id")
@_timeout
@_as_json
@click.pass_context
def collect(context: click.Context, /, task_id: str, timeout: float | None, as_json: bool) -> int:
    """Wait for a task and print its result. Exit code: 0 completed, 1 ended otherwise or suspended."""

    async def collected(remote: Remote, row: TaskRow) -> Answer:
        return await remote.collect(row, timeout=timeout)

    answer: Answer = _one(context, task_id, collected, as_json)
    if as_json:
        print_json(answer)
    elif "summary" in answer:
        text = answer["summary"] or ""
        click.echo(printable(text) if sys.stdout.isatty() else text)
        if answer["error"]:
            click.echo(f"hermes: {answer['status']}: {one_line(answer['error'], 1_000)}", err=True)
    else:
        click.echo(f"{answer['task_id']} is {answer['status']}. {answer.get('how_to_resume', '')}".rstrip(), err=True)
    if answer.get("timed_out"):
        return EXIT_TIMEOUT
    return 0 if answer["status"] == "completed" else 1


@tasks.command(epilog="\b\nExamples:\n  hermes tasks resume 20260225_14\n  hermes tasks resume async_90")
@click.argument("which")
@_as_json
@click.pass_context
def resume(context: click.Context, /, which: str, as_json: bool) -> None:
    """Let suspended work go on in the background: a session, or that of a task."""
    sources = open_sources(options_of(context))

    async def resumed(remote: Remote) -> Answer:
        session = await remote.session(which)
        found = await remote.store.tasks(session)
        if all(row.ended_at is not None for row in found):
            return {"error": f"Session {session} has ended; {goes_on(session)} asks it further."}
        await hand_to_host(remote, sources, session)
        return {"ok": True, "session_id": session, "message": f"It goes on in the background: hermes attach {session}"}

    _print(_ask(sources, resumed), as_json)


@tasks.command(epilog="\b\nExamples:\n  hermes tasks adopt 20260225_14")
@click.argument("which")
@_as_json
@click.pass_context
def adopt(context: click.Context, /, which: str, as_json: bool) -> int:
    """Let suspended work go on in this process, to its end: a session, or that of a task."""
    sources = open_sources(options_of(context))

    async def named(remote: Remote) -> Answer:
        return {"session_id": await remote.session(which)}

    session = _ask(sources, named)["session_id"]
    request = Request(text="", workspace=os.getcwd(), json=as_json, resume=session, options=sources.options)
    parts = parts_of(sources)
    return run_async(lambda: OneShot(request, parts).run())


def _state(row: Answer) -> str:
    """The state of a task; of a conversation that waits for its person, that."""
    if row.get("phase") != "idle":
        return str(row["status"])
    return "idle" if row["status"] == "running" else f"{row['status']}, idle"


def _time(row: Answer) -> str:
    """How long a task has run; of a suspended one only its own events say."""
    return "" if row["status"] == "suspended" else duration(row["elapsed"])


def _talk(context: click.Context, task_id: str, verb: str, text: str, receipt: str, as_json: bool) -> None:
    async def sent(remote: Remote, row: TaskRow) -> Answer:
        return await remote.send(row, verb, text, receipt=receipt)

    _print(_one(context, task_id, sent, as_json), as_json)


def _ask(sources: Sources, question: Callable[[Remote], Awaitable[Any]]) -> Any:
    async def asked() -> Any:
        async with reach(sources) as remote:
            return await question(remote)

    return anyio.run(asked)


def _one(
    context: click.Context, task_id: str, question: Callable[[Remote, TaskRow], Awaitable[Any]], as_json: bool
) -> Any:
    """The answer of a question about one task; an id that names none ends the command."""

    async def asked(remote: Remote) -> Any:
        row = await remote.find(task_id)
        return (await question(remote, row), None) if isinstance(row, TaskRow) else (None, row)

    answer, missing = _ask(open_sources(options_of(context)), asked)
    if missing is not None:
        _print(missing, as_json)
    return answer


def _print(answer: Answer, as_json: bool) -> None:
    """Print an answer; one that says no ends the command with exit code 1.

    Raises:
        _Refused: it says no.
    """
    if as_json:
        print_json(answer)
    if "error" in answer or answer.get("ok") is False:
        near = f" Near: {', '.join(answer['nearest'])}." if answer.get("nearest") else ""
        if as_json:
            raise click.exceptions.Exit(1)
        raise _Refused(f"{answer.get('error', 'refused')}{near}")
    if as_json:
        return
    receipt = answer.get("receipt")
    if receipt is not None:
        place = f" at position {receipt['position']}" if "position" in receipt else ""
        click.echo(f"{receipt['verb']} {receipt['id']}: {receipt['state']}{place}")
    for key in ("cancelled", "ended", "suspended", "running"):
        if answer.get(key):
            value = answer[key]
            click.echo(f"{key}: {value if isinstance(value, str) else ' '.join(value)}")
    if "message" in answer:
        click.echo(answer["message"])
