"""`hermes chat`: reads the flags and decides between one question and a conversation. The work is done elsewhere."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from hermes.cli.beginning import Wish, begin
from hermes.cli.faces import chosen_face
from hermes.cli.options import (
    GlobalOptions,
    face_options,
    merged,
    open_sources,
    options_of,
    refused,
    resume_options,
    run_options,
    worktree_option,
)
from hermes.cli.running import run_async
from hermes.cli.taped import refuse_tape_with, tape_options
from hermes.cli.usage_file import check_usage_file
from hermes.core.codec import scrub_surrogates
from hermes.core.errors import UsageError

__all__ = ["chat"]

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
@click.option("--image", "images", multiple=True, metavar="PATH", help="A picture that goes along with the question.")
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
        for name, flag in (("as_json", "--json"), ("timeout", "--timeout"), ("images", "--image")):
            if given[name]:
                also = "; in a conversation @path names a picture" if name == "images" else ""
                raise UsageError(f"{flag} belongs to a single question: give -q TEXT or --query-file PATH{also}.")
        if given["detach"]:
            raise UsageError("--detach needs a question: give -q TEXT. In a conversation /detach does it.")
        return _converse(options, given)
    # edge: the first picture of a conversation does not wait for what a question needs
    from hermes.cli.asking import ask

    return ask(options, given, text, usage_file)


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


def _converse(options: GlobalOptions, given: dict[str, Any]) -> int:
    sources = open_sources(options)
    sources.loaded.require()
    face = chosen_face(options.face, os.environ, sources.loaded.settings.display.interface)
    wish = Wish(
        sources=sources,
        face=face,
        workspace=os.getcwd(),
        toolsets=options.toolsets,
        verbose=given["verbose"],
        source=given["source"],
        resume=given["resume"],
        record=given["record"],
        replay=given["replay"],
        detaches=not (given["no_detach"] or given["record"] or given["replay"]),
    )
    return run_async(lambda: begin(wish))
