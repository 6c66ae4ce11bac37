"""The command line itself: global options, the table of commands, and errors turned into one message and an exit code.

Commands are imported only when they are called.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

import hermes
from hermes.chat.render import printable
from hermes.cli.fast import reader_gone
from hermes.cli.lazy_group import Entry, LazyGroup, ReaderGone
from hermes.cli.options import GlobalOptions, face_options, refused, resume_options, run_options, worktree_option
from hermes.cli.taped import tape_options
from hermes.config.home import RENAMING, base_home
from hermes.core.errors import HermesError, UsageError
from hermes.credentials import known_secrets
from hermes.credentials.redact import Redactor

__all__ = ["COMMANDS", "cli", "run"]


#: Every command: where it is and what it is for. The summaries stand here so that help loads none of the modules.
COMMANDS: dict[str, Entry] = {
    "chat": Entry("hermes.cli.chat_cmd", "chat", "Talk with a model, or ask one question with -q."),
    "batch": Entry("hermes.cli.batch_group", "batch", "Run a file of prompts and write training rows."),
    "kanban": Entry("hermes.cli.kanban_group", "kanban", "A board of cards that several named agents work on."),
    "tools": Entry("hermes.cli.tools_cmd", "tools", "Show toolsets, turn them on and off."),
    "agents": Entry("hermes.cli.agents_cmd", "agents", "Look at the agent types that children may be given."),
    "profile": Entry("hermes.cli.profile_cmd", "profile", "Named agents with settings and keys of their own."),
    "config": Entry("hermes.cli.config_cmd", "config", "Read and change settings."),
    "sessions": Entry("hermes.cli.sessions_cmd", "sessions", "Look at earlier conversations, export and remove them."),
    "tasks": Entry("hermes.cli.tasks_cmd", "tasks", "Look at tasks of any terminal, correct, stop, collect them."),
    "attach": Entry("hermes.cli.attach_cmd", "attach", "Bring running work back to this terminal."),
    "host": Entry("hermes.cli.host_cmd", "host", ""),
    "usage": Entry("hermes.cli.usage_cmd", "usage", "What was spent, from the calls that are stored."),
    "model": Entry("hermes.cli.model_cmd", "model", "List the models of a server, test one, choose the default."),
    "auth": Entry("hermes.cli.auth_cmd", "auth", "Several keys of a provider: add, order, see which rest."),
    "fallback": Entry("hermes.cli.fallback_cmd", "fallback", "Models that answer where the configured one cannot."),
    "setup": Entry("hermes.cli.setup_cmd", "setup", "Store a key, test it, choose a model."),
    "update": Entry("hermes.cli.update_cmd", "update", "Bring another version; what runs goes on under it."),
    "completion": Entry("hermes.cli.completion_cmd", "completion", "Print what makes a shell complete commands."),
    "doctor": Entry("hermes.cli.doctor_cmd", "doctor", "Check this installation and say what is wrong."),
}

_EPILOG = """\b
Examples:
  hermes                                  talk in this folder
  hermes chat -q "What does this code do?"  one answer on stdout
  hermes -m embedded -z "List the files"  without any key
  hermes batch run --dataset_file=prompts.jsonl --run_name=first
  hermes doctor                           what is configured, what is wrong
"""


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)
@click.version_option(hermes.__version__, "-V", "--version", message="hermes %(version)s")
@run_options
@click.option("-p", "--profile", default=None, metavar="NAME", help="Use that profile's home.")
@click.option("--in", "directory", default=None, metavar="DIR", help="Run as if started in DIR.")
@click.option("-z", "prompt", default=None, metavar="PROMPT", help="Print the final answer to PROMPT and end.")
@resume_options()
@click.option("--usage-file", default=None, metavar="PATH", help="Write tokens and cost of the run as JSON to PATH.")
@tape_options
@worktree_option
@face_options
@refused(
    session="--pass-session-id",
    config="--ignore-user-config",
    rules="--ignore-rules",
    dev="--dev",
    hooks="--accept-hooks",
    skills="-s --skills",
)
@click.pass_context
def cli(
    context: click.Context,
    /,
    reasoning: str | None,
    resume: str | None,
    proceed: str | None,
    record: str,
    replay: str,
    **given: Any,
) -> int | None:
    """Hermes runs trees of language-model agents: talk, delegate, watch, steer, and write training data.

    Without a command it starts a conversation. Nothing is sent anywhere but to the model you configure: no telemetry.
    """
    options = GlobalOptions(reasoning=reasoning or "", **given)
    context.obj = options
    if options.directory is not None:
        try:
            os.chdir(options.directory)
        except OSError as error:
            raise UsageError(f"--in {options.directory}: {error.strerror}. Name an existing folder.") from None
    _finish_renaming()
    if context.invoked_subcommand is not None:
        if options.prompt is not None:
            raise UsageError(f"-z and the command {context.invoked_subcommand} exclude each other. Give one of them.")
        if options.max_cost is not None and context.invoked_subcommand != "chat":
            raise UsageError(f"--max-cost is a limit of chat and does nothing in {context.invoked_subcommand}.")
        if options.worktree and context.invoked_subcommand != "chat":
            raise UsageError(f"--worktree is for chat and does nothing in {context.invoked_subcommand}.")
        if resume or proceed:
            raise UsageError(f"--resume and --continue stand after chat: hermes {context.invoked_subcommand} has none.")
        if record or replay:
            raise UsageError("--record and --replay stand after chat or batch run, or go with -z.")
        return None
    passed = {"--resume": resume, "--continue": None if resume else proceed, "--record": record, "--replay": replay}
    args = ["-Q", f"--query={options.prompt}"] if options.prompt is not None else []
    args += [f"{flag}={value}" for flag, value in passed.items() if value]
    command = cli.get_command(context, "chat")
    if command is None:
        raise UsageError("this installation has no chat. Name a command; `hermes --help` lists them.")
    with command.make_context("chat", args, parent=context) as inner:
        result: int | None = command.invoke(inner)
        return result


def _finish_renaming() -> None:
    """Before anything looks for a profile: a rename that was killed is brought to its end."""
    try:
        home = base_home(os.environ)
    except HermesError:
        return  # the command itself says what is wrong
    if os.path.exists(os.path.join(home.root, "profiles", RENAMING)):
        # edge: nearly no command has to pay for this
        from hermes.cli.profile_renaming import finish_renaming

        finish_renaming(home)


def run(args: Sequence[str], command: click.Command = cli) -> int:
    """Run a command line (`hermes` itself) and return the exit code; every failure is one message on stderr.

    The whole traceback is printed only where HERMES_DEBUG is set.
    """
    try:
        if instruction := os.environ.get("_HERMES_COMPLETE"):
            # edge: only a shell that completes a line needs what may be offered
            from hermes.cli.completing import answer

            return answer(command, instruction)
        result = command.main(list(args), prog_name="hermes", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.exceptions.Abort as error:
        return 1 if isinstance(error.__cause__, EOFError) else 130
    except KeyboardInterrupt:
        return 130
    except (BrokenPipeError, ReaderGone):
        return reader_gone()
    except Exception as error:
        return _report(error)


def _report(error: BaseException) -> int:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if os.environ.get("HERMES_DEBUG"):
        traceback.print_exception(error)
    code = 1
    if isinstance(error, click.UsageError):
        help_ = f"\nTry '{error.ctx.command_path} --help'." if error.ctx is not None else ""
        text, code = error.format_message() + help_, 2
    elif isinstance(error, click.ClickException):
        text, code = error.format_message(), error.exit_code
    elif isinstance(error, HermesError):
        text, code = str(error), error.exit_code
    elif isinstance(error, OSError):
        cure = " Make room and start again." if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        where = f"{error.filename}: " if error.filename else ""
        text = f"{where}{error.strerror or error}.{cure}"
    else:
        text = f"internal error: {type(error).__name__}: {error}. HERMES_DEBUG=1 shows where."
    text = printable(Redactor(known_secrets(os.environ, {})).text(text))
    click.echo(f"hermes: {text}", err=True)
    return code
