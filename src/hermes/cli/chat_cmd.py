"""`hermes chat`: reads the flags and decides between one question and a conversation. The work is done elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import click
import msgspec

from hermes.cli.faces import chosen_face
from hermes.cli.leaving import hand_over, say_on_stderr
from hermes.cli.oneshot import OneShot, Request, failed, unwrapped
from hermes.cli.options import (
    GlobalOptions,
    Sources,
    face_options,
    merged,
    open_sources,
    options_of,
    refused,
    resume_options,
    run_options,
    worktree_option,
)
from hermes.cli.reaching import take_from_host
from hermes.cli.taped import refuse_tape_with, tape_options
from hermes.cli.usage_file import check_usage_file
from hermes.compose import Parts
from hermes.compose.children import levels_above
from hermes.compose.taping import cassettes, replay_endpoint
from hermes.core.codec import scrub_surrogates
from hermes.core.errors import HermesError, UsageError
from hermes.credentials import Endpoint
from hermes.environments.process import DEPTH

__all__ = ["chat", "parts_of", "parts_without_model", "run_async"]

_EXAMPLES = """\b
Examples:
  hermes chat                                   talk in this folder
  hermes chat -q "How many lines has README.md?"  the answer alone on stdout
  hermes chat --query-file task.md --timeout 600
  git diff | hermes chat -q "Review this" --query-file -
  hermes chat -q "…" --json                     every event as a line, the result last
  hermes chat --resume                          go on with the newest conversation and its tasks
  hermes chat --detach -q "Audit this"          work that no terminal can end
  hermes chat -q "…" --record tape.jsonl        keep all replies and results; --replay answers from them
"""


@click.command(epilog=_EXAMPLES)
@click.option("-q", "--query", default=None, metavar="TEXT", help="Answer TEXT and end.")
@click.option("--query-file", default=None, metavar="PATH", help="The same with the text of a file; - is stdin.")
@click.option("--oneshot", is_flag=True, help="One question and the end; implied without a terminal and by -Q.")
@click.option("-Q", "--quiet", is_flag=True, help="Print only the final answer and the session.")
@click.option("-v", "--verbose", is_flag=True, help="Show results and thoughts beside the calls.")
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines, the last one is the result.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=None,
    metavar="SECONDS",
    help="End with exit code 124 and what there is after so long.",
)
@click.option("--usage-file", default=None, metavar="PATH", help="Write tokens and cost as JSON, also after a failure.")
@click.option("--in", "directory", default=None, metavar="DIR", help="Run as if started in DIR.")
@face_options
@resume_options("; with -q as its next input")
@click.option("--detach", is_flag=True, help="Let the work begin in the background and print the session.")
@click.option("--no-detach", is_flag=True, help="Leaving stops what runs, resumable, in place of letting it go on.")
@click.option("--source", default="cli", metavar="TAG", help="Recorded as the source of the session.")
@tape_options
@run_options
@worktree_option
@refused(
    session="--pass-session-id",
    config="--ignore-user-config",
    rules="--ignore-rules",
    dev="--dev",
    hooks="--accept-hooks",
    skills="-s --skills",
    image="--image",
    checkpoints="--checkpoints",
    safe="--safe-mode",
)
@click.pass_context
def chat(context: click.Context, /, reasoning: str | None, directory: str | None, **given: Any) -> int:
    """Talk with a model in this folder, or ask one question with -q.

    With a question the answer alone goes to stdout, everything else to stderr. Exit code: 0 answered, 1 failed,
    2 wrong usage, 75 quota or budget used up, 124 out of time, 130 interrupted.
    """
    numbers, switches = ("max_turns", "run_budget", "max_cost"), ("yolo", "host_commands", "worktree")
    names = ("model", "toolsets", "provider", "face", *numbers, *switches, "usage_file")
    options = merged(options_of(context), reasoning=reasoning, **{name: given.pop(name) for name in names})
    if directory is not None:
        try:
            os.chdir(directory)
        except OSError as error:
            raise UsageError(f"--in {directory}: {error.strerror}. Name an existing folder.") from None
    given["resume"] = _session_named(given["resume"], given.pop("proceed"))
    refuse_tape_with(given["record"], given["replay"], resume=given["resume"], detach=given["detach"])
    if options.worktree and (given["resume"] or given["detach"]):
        raise UsageError("--worktree begins something new: it goes with neither --resume, --continue nor --detach.")
    text = _question(given, options.face)
    usage_file = check_usage_file(options.usage_file)
    if text is None:
        for name, flag in (("as_json", "--json"), ("timeout", "--timeout")):
            if given[name]:
                raise UsageError(f"{flag} belongs to a single question: give -q TEXT or --query-file PATH.")
        if given["detach"]:
            raise UsageError("--detach needs a question: give -q TEXT. In a conversation /detach does it.")
        return _converse(options, given)
    return _ask(options, given, text, usage_file)


def _session_named(resume: str | None, proceed: str | None) -> str:
    """The session to go on with, empty for a new one."""
    if resume is not None and proceed is not None:
        raise UsageError(f"--resume {resume} and --continue {proceed} exclude each other: give one of them.")
    return resume or proceed or ""


def _question(given: dict[str, Any], face: str | None) -> str | None:
    """The text to answer, or None for a conversation."""
    query, path = given["query"], given["query_file"]
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if face is not None and not (query or path):
        return None
    if path is None and query is None:
        if terminal and not (given["oneshot"] or given["quiet"]):
            return None
        if terminal:
            raise UsageError("there is no question: give -q TEXT, --query-file PATH, or pipe one in.")
        path = "-"
    parts = [query] if query is not None else []
    if path is not None:
        parts.append(_read(path))
    text = scrub_surrogates("\n\n".join(parts))
    if not text.strip():
        if given["resume"] and path == "-":
            return ""  # nothing new to say: what is unfinished goes on to its end
        if path == "-" and given["query_file"] is None:
            raise UsageError(
                "there is no terminal to talk in and nothing was piped in. Give -q TEXT, or pipe a question in; "
                "`hermes --help` lists the commands."
            )
        where = "stdin" if path == "-" else path or "-q"
        raise UsageError(f"the question is empty ({where}). Give a text.")
    return text


def _read(path: str) -> str:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"--query-file {path}: {error.strerror}.") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"--query-file {path}: byte {error.start} is not UTF-8. Convert it, for example with iconv."
        ) from None


def _ask(options: GlobalOptions, given: dict[str, Any], text: str, usage_file: Path | None) -> int:
    request = Request(
        text=text,
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


def _converse(options: GlobalOptions, given: dict[str, Any]) -> int:
    # edge: a single question must not pay for the line editor
    from hermes.cli.converse import converse

    sources = open_sources(options)
    parts = parts_of(sources, given["record"], given["replay"])
    face = chosen_face(options.face, os.environ, sources.loaded.settings.display.interface)
    return run_async(
        lambda: converse(
            sources,
            parts,
            workspace=os.getcwd(),
            toolsets=options.toolsets,
            face=face,
            verbose=given["verbose"],
            source=given["source"],
            resume=given["resume"],
            detaches=not (given["no_detach"] or given["record"] or given["replay"]),
        )
    )


def parts_of(sources: Sources, record: str = "", replay: str = "") -> Parts:
    """What a runtime of the settings is opened with. `record` and `replay` are files, empty for none.

    Raises:
        HermesError: nothing is configured, or a setting cannot be used.
    """
    # before anything else is said: in a child's terminal there are no keys, which would hide the reason
    settings = sources.loaded.require()
    levels_above(settings, os.environ)
    file, cassette = cassettes(record, replay)
    if cassette is not None:
        endpoint = replay_endpoint(cassette, sources.options.model, settings.model.aliases)
    else:
        endpoint = sources.endpoint()
    return Parts(
        loaded=sources.loaded,
        endpoint=endpoint,
        record=file,
        replay=cassette,
        keys=sources.keys,
        variables=sources.variables,
        yolo=sources.options.yolo,
        observed=True,
    )


def parts_without_model(sources: Sources) -> Parts:
    """The same for what asks no model: nothing has to be configured. Raises `HermesError` for a setting that cannot
    be used."""
    sources.loaded.require()
    nothing = Endpoint(provider="", base_url="", api_key="", key_source="", model="")
    return Parts(
        loaded=sources.loaded,
        endpoint=nothing,
        keys=sources.keys,
        variables=sources.variables,
        yolo=sources.options.yolo,
    )


def run_async(main: Callable[[], Awaitable[int]]) -> int:
    """Run a command's coroutine; the first error inside groups is raised as itself."""

    async def begin() -> int:
        return await main()

    try:
        try:
            return anyio.run(begin)
        except BaseExceptionGroup as errors:
            raise unwrapped(errors) from None
    except BrokenPipeError:
        # the reader went away (`hermes … | head`), and click would make an ordinary failure of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
