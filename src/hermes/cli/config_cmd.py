"""`hermes config`: read and change settings, each with its source; keys are masked and go to `.env`."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import signal
import subprocess
import sys
from typing import Any

import click

from hermes.cli.options import home_of, open_sources, options_of
from hermes.cli.screens import print_json, rows
from hermes.config import Home, load
from hermes.config.document import parse_value
from hermes.config.dotenv import read_dotenv, set_variable, unset_variable
from hermes.config.edit import render, set_value, split_key, unset_value
from hermes.config.load import read_document
from hermes.config.reference import plain, shown
from hermes.config.schema import FIELDS, KNOWN_UNUSED, SECTIONS
from hermes.config.values import Misfit, convert_value, nearest_key, substitute
from hermes.core.errors import HermesError, OperatorError, UsageError
from hermes.core.names import did_you_mean
from hermes.credentials import mask
from hermes.runtime.modes import mode_rows

__all__ = ["config"]

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class _NotFound(HermesError):
    """There is no such setting or variable."""


@click.group(
    epilog="\b\nExamples:\n  hermes config show\n  hermes config set delegation.max_iterations 80\n"
    "  hermes config set OPENROUTER_API_KEY sk-…   (goes to .env)\n  hermes config get agent.max_turns --json"
)
def config() -> None:
    """Read and change settings."""


def _keyed(key: str) -> str:
    """The dotted key without escapes, where it is a known one; short forms are `model` and `approvals`."""
    return {"model": "model.default", "approvals": "approvals.mode"}.get(key, key)


@config.command("show", epilog="\b\nExamples:\n  hermes config show\n  hermes config show delegation\n"
    "  hermes -m other/model config show --json")  # fmt: skip
@click.argument("section", default="")
@_json
@click.pass_context
def show(context: click.Context, /, section: str, as_json: bool) -> None:
    """Print every setting (of a SECTION), its value and where it came from. Keys are masked."""
    sources = open_sources(options_of(context))
    table = shown(sources.loaded)
    if section:
        sections = sorted({entry.key.partition(".")[0] for entry in table})
        table = [entry for entry in table if f"{entry.key}.".startswith(f"{section}.")]
        if not table:
            hint = did_you_mean(section, sections)
            raise UsageError(f"there is no section {section!r}.{hint} There are: {', '.join(sections)}.")
    problems = [problem for problem in sources.loaded.problems if problem.level != "note"]
    if as_json:
        print_json({"home": sources.loaded.home.path, "settings": table, "problems": problems})
        return
    click.echo(f"Settings of {sources.loaded.home.path}:")
    click.echo(rows([(entry.key, entry.source, render(entry.value)) for entry in table]))
    if section in ("", "approvals"):
        click.echo("Dangerous commands by default (alone: one-shot, batch, cards, background and their children):")
        table_rows = [(row.who, row.runs_in, row.dangerous) for row in mode_rows()]
        click.echo(rows(table_rows))
    for key in () if section else sources.keys:
        click.echo(f"  key for {key.base_url}  {mask(key.secret) if key.secret else 'none'}  {key.source}")
    for problem in problems:
        click.echo(f"{problem.level}: {problem.message}", err=True)


@config.command("get", epilog="\b\nExamples:\n  hermes config get delegation.max_concurrent_children\n"
    "  hermes config get delegation --json")  # fmt: skip
@click.argument("key")
@_json
@click.pass_context
def get(context: click.Context, /, key: str, as_json: bool) -> None:
    """Print the value of a setting, a section, a variable of .env (masked), or an unknown key of the file."""
    home = home_of(context)
    if _VARIABLE.fullmatch(key):
        value = read_dotenv(home.env_file).get(key)
        if value is None:
            raise _NotFound(f"{home.env_file} has no {key}.")
        found: Any = value if key.endswith("_BASE_URL") else mask(value)
        source = ".env"
    else:
        found, source = _lookup(context, home, key)
    if as_json:
        print_json({"key": key, "value": found, "source": source})
    else:
        click.echo(found if isinstance(found, str) else render(found))


def _lookup(context: click.Context, home: Home, key: str) -> tuple[Any, str]:
    loaded = open_sources(options_of(context)).loaded
    known = {entry.key: entry for entry in shown(loaded)}
    entry = known.get(_keyed(key))
    if entry is not None:
        return entry.value, entry.source
    if key in SECTIONS:
        return {name.split(".", 1)[1]: each.value for name, each in known.items() if name.startswith(key + ".")}, "-"
    document = read_document(home.config_file)
    value: Any = substitute(document.data, {}) if document is not None else {}
    part = ""
    for part in split_key(key):
        if not isinstance(value, dict) or part not in value:
            near = nearest_key(key) or next(iter(difflib.get_close_matches(key, FIELDS, 1, 0.7)), None)
            hint = f" Did you mean {near}?" if near else " `hermes config show` prints all."
            raise _NotFound(f"there is no setting {key}.{hint}")
        value = value[part]
    return plain({part: value})[part], "config.yaml"


def _typed(key: str, value: str) -> Any:
    """The value as it should stand in the file. Raises UsageError for one that the setting cannot take."""
    field = FIELDS.get(key)
    data: Any = value if field is not None and isinstance(field.default, str) else parse_value(value)
    if field is None:
        return data
    try:
        convert_value(key, substitute(data, {}) if "${" in value else data)
    except Misfit as error:
        if "${" not in value:
            raise UsageError(f"{key}: {error}.") from None
    if isinstance(field.default, tuple) or key == "delegation.default_toolsets":
        data = [part.strip() for part in data.split(",") if part.strip()] if isinstance(data, str) else data
    return data


@config.command("set", epilog="\b\nExamples:\n  hermes config set model anthropic/claude-sonnet-4.6\n"
    "  hermes config set agent.max_turns unlimited\n  hermes config set OPENAI_API_KEY sk-…\n"
    "  hermes config set 'models.gpt-4\\.1.context_length' 1000000")  # fmt: skip
@click.argument("key")
@click.argument("value")
@click.pass_context
def set_(context: click.Context, /, key: str, value: str) -> None:
    """Set a setting. API keys and other NAMES go to .env; a backslash keeps a dot of a key literal."""
    home = home_of(context)
    home.prepare(home.run_dir)
    if _VARIABLE.fullmatch(key):
        set_variable(home.env_file, key, value)
        click.echo(f"{key} is set in {home.env_file}")
        return
    parts = split_key(key)
    if parts[-1] == "api_key" and not value.startswith("${") and value:
        variable = "HERMES_" + re.sub(r"[^A-Z0-9]+", "_", "_".join(parts).upper())
        set_variable(home.env_file, variable, value)
        click.echo(f"the key is kept in {home.env_file} as {variable}")
        value = "${" + variable + "}"
    name = _keyed(".".join(parts))
    top = parts[0] if parts[0] in FIELDS else name
    if name not in FIELDS and top not in FIELDS and name not in KNOWN_UNUSED and parts[0] not in KNOWN_UNUSED:
        near = nearest_key(name)
        if near is not None:
            raise UsageError(f"there is no setting {name}. Did you mean {near}?")
        click.echo(f"note: {name} is no setting of this program; it is written and has no effect here", err=True)
    document = read_document(home.config_file)
    target = list(split_key(name)) if name in FIELDS else list(parts)
    if target in (["model", "default"], ["approvals", "mode"]):
        current = document.data.get(target[0]) if document is not None else None
        target = target if isinstance(current, dict) else target[:1]
    data = _typed(name, value)
    set_value(home.config_file, target, data, lock=home.run_dir / "config.lock")
    click.echo(f"{name} = {render(data)}  ({home.config_file})")


@config.command("unset", epilog="\b\nExamples:\n  hermes config unset agent.max_turns\n"
    "  hermes config unset OPENAI_API_KEY")  # fmt: skip
@click.argument("key")
@click.pass_context
def unset(context: click.Context, /, key: str) -> None:
    """Remove a setting or a variable, so that its default is used again."""
    home = home_of(context)
    if _VARIABLE.fullmatch(key):
        if not unset_variable(home.env_file, key):
            raise _NotFound(f"{home.env_file} has no {key}; nothing was changed.")
        click.echo(f"{key} is gone from {home.env_file}")
        return
    if not home.config_file.exists():
        raise _NotFound(f"there is no {home.config_file}; nothing was changed.")
    home.prepare(home.run_dir)
    if not unset_value(home.config_file, split_key(key), lock=home.run_dir / "config.lock"):
        raise _NotFound(f"{key} is not set in {home.config_file}; nothing was changed.")
    click.echo(f"{key} is gone from {home.config_file}")


@config.command("path", epilog='\b\nExample:\n  cat "$(hermes config path)"')
@click.pass_context
def path(context: click.Context, /) -> None:
    """Print where config.yaml is."""
    click.echo(home_of(context).config_file)


@config.command("edit", epilog="\b\nExamples:\n  hermes config edit\n  EDITOR=nano hermes config edit")
@click.pass_context
def edit(context: click.Context, /) -> int:
    """Open config.yaml in $VISUAL or $EDITOR (else vi), then check it. Exit code 2 if something cannot be used."""
    home = home_of(context)
    wanted = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    if not wanted and not sys.stdin.isatty():
        raise UsageError("there is no terminal for an editor. `hermes config set KEY VALUE` changes one setting.")
    home.prepare()
    try:
        command = [*shlex.split(wanted or "vi"), str(home.config_file)]
        code = _edited(command)
    except (OSError, ValueError) as error:
        raise OperatorError(
            f"the editor {wanted or 'vi'!r} cannot be started ({error}); set EDITOR to yours."
        ) from None
    if code:
        raise OperatorError(
            f"the editor {wanted or 'vi'!r} ended with code {code}; {home.config_file} is as it left it."
        )
    return _check(context, home)


def _edited(command: list[str]) -> int:
    """Run an editor on this terminal to its end. Ctrl+C is a key of the editor's and does not end what waits for it."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)  # ignoring it would be inherited
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)


@config.command("env-path", epilog="\b\nExample:\n  hermes config env-path")
@click.pass_context
def env_path(context: click.Context, /) -> None:
    """Print where .env is."""
    click.echo(home_of(context).env_file)


@config.command("check", epilog="\b\nExamples:\n  hermes config check\n  hermes config check --json")
@_json
@click.pass_context
def check(context: click.Context, /, as_json: bool) -> int:
    """Check config.yaml: errors, warnings, and keys without effect. Exit code 2 if something cannot be used."""
    return _check(context, home_of(context), as_json)


def _check(context: click.Context, home: Home, as_json: bool = False) -> int:
    loaded = load(home, flags=options_of(context).flags())
    if as_json:
        print_json({"path": home.config_file, "problems": loaded.problems})
    else:
        for problem in loaded.problems:
            click.echo(f"{problem.level}: {problem.message}")
        if not home.config_file.exists():
            click.echo(f"there is no {home.config_file}; the defaults are used")
        elif not loaded.problems:
            click.echo(f"{home.config_file} is fine")
    return 2 if any(problem.level == "error" for problem in loaded.problems) else 0
