"""`hermes profile describe`: what a profile is good at, printed, set, or written by a model.

The model is the profile's own, and is told of what stands in its files: persona, toolsets, agent types. What it writes
is shown first; a text that a person wrote stays unless that is said.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from hermes.chat.render import printable
from hermes.cli.one_answer import Question, answered
from hermes.cli.opening import parts_without_model
from hermes.cli.options import Sources, home_of, open_sources, options_of
from hermes.cli.profile_parts import named_profile
from hermes.cli.running import run_async
from hermes.cli.screens import print_json
from hermes.cli.tools_cmd import enabled_toolsets
from hermes.compose.opening import redactor_of
from hermes.config import Home
from hermes.config.home import profile_names
from hermes.config.profiles import Profile, change_profile, read_profile
from hermes.core.errors import HermesError, OperatorError, UsageError
from hermes.core.limits import Limits
from hermes.core.toolsets import KNOWN_TOOLSETS
from hermes.delegation.agent_types import agent_folders, load_agents

__all__ = ["describe"]

_SYSTEM = (
    "You write one description of an agent for a list from which work is given out. You have no tools. Answer with one "
    "JSON object and nothing else."
)
_SCHEMA = {
    "type": "object",
    "properties": {"description": {"type": "string", "minLength": 1, "maxLength": 300}},
    "required": ["description"],
}
#: Characters of a persona that are told, and of a description that are kept.
_PERSONA, _MOST = 6_000, 300
#: What one description may cost.
_LIMITS = Limits(tokens=50_000, cost_usd=0.25)


@click.command(
    epilog='\b\nExamples:\n  hermes profile describe coder\n  hermes profile describe coder --text "Fixes bugs"\n'
    "  hermes profile describe coder --auto\n  hermes profile describe --all --auto --yes",
)
@click.argument("name", required=False)
@click.option("--text", default=None, metavar="TEXT", help="Set it.")
@click.option("--auto", is_flag=True, help="Let the profile's model write it; it is shown before it is saved.")
@click.option("--overwrite", is_flag=True, help="With --auto: also in place of a text that a person wrote.")
@click.option("--all", "everything", is_flag=True, help="Every profile.")
@click.option("-y", "--yes", is_flag=True, help="With --auto: save it without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --auto it is saved only with --yes.")
@click.pass_context
def describe(
    context: click.Context, /, name: str | None, text: str | None, auto: bool, overwrite: bool, everything: bool,
    yes: bool, as_json: bool,
) -> int:  # fmt: skip
    """Print what a profile is good at, or set it. Whoever gives out work reads this."""
    _check(name, text, auto, overwrite or yes, everything)
    here = home_of(context)
    homes = [here.of(each) for each in profile_names(here.root)] if everything else [named_profile(context, name)]
    if auto:
        return _write(context, homes, alone=not everything, overwrite=overwrite, yes=yes, as_json=as_json)
    if text is not None:
        found: list[Profile | _Written] = [
            change_profile(homes[0], description=" ".join(text.split()), description_auto=False)
        ]
    else:
        found = [_read(home) if everything else read_profile(home) for home in homes]
    failed = [each for each in found if isinstance(each, _Written)]
    if as_json:
        print_json({"profiles": [_plain(each) for each in found]} if everything else found[0])
        return int(bool(failed))
    for each in found:
        if isinstance(each, _Written):
            _tell(each, alone=False)
            continue
        said = printable(each.description) or f"(no description set for '{each.name}')"
        click.echo(f"{each.name}: {said}" if everything else said)
    return int(bool(failed))


def _check(name: str | None, text: str | None, auto: bool, of_auto: bool, everything: bool) -> None:
    if auto and text is not None:
        raise UsageError("--auto and --text exclude each other: the model writes it, or you do.")
    if of_auto and not auto:
        raise UsageError("--overwrite and --yes go with --auto.")
    if everything and (name is not None or text is not None):
        raise UsageError("--all is for every profile: give neither a name nor --text with it.")


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one profile; `error` says why nothing was written for it."""

    name: str
    description: str = ""
    before: str = ""
    saved: bool = False
    declined: bool = False
    kept: bool = False
    error: str = ""


def _read(home: Home) -> Profile | _Written:
    """What is written of a profile, or why that cannot be read: one damaged file hides none of the others."""
    try:
        return read_profile(home)
    except HermesError as error:
        return _Written(name=home.profile, error=str(error))


def _plain(found: Profile | _Written) -> object:
    return {"name": found.name, "error": found.error} if isinstance(found, _Written) else found


def _write(
    context: click.Context, homes: Sequence[Home], *, alone: bool, overwrite: bool, yes: bool, as_json: bool
) -> int:
    """Let the model write each; `alone`: one profile was meant, not all of them."""
    found: list[_Written] = []
    for home in homes:
        before = _read(home)
        if isinstance(before, _Written):
            found.append(before)
        elif before.description and not before.description_auto and not overwrite:
            found.append(_Written(name=home.profile, before=before.description, kept=True))
        else:
            found.append(_one(context, home, before, yes=yes, as_json=as_json))
        if not as_json:
            _tell(found[-1], alone=alone)
    if as_json:
        print_json(found[0] if alone else {"profiles": found})
    # To keep a person's text is what was asked for where all are meant, and is not where one is named.
    missed = [each for each in found if each.error or (each.kept and alone)]
    unsaved = [each for each in found if not (each.saved or each.kept or each.error or each.declined)]
    return int(bool(missed) or bool(unsaved and not as_json))


def _one(context: click.Context, home: Home, before: Profile, *, yes: bool, as_json: bool) -> _Written:
    try:
        text = written(open_sources(msgspec.structs.replace(options_of(context), profile=home.profile)))
        if not as_json:
            click.echo(f"{home.profile}: {printable(text)}")
            if before.description:
                click.echo(f"  in place of: {printable(before.description)}")
        asked = not yes and not as_json and sys.stdin is not None and sys.stdin.isatty()
        if asked:
            yes = click.confirm("Save it?", err=True)
        if yes:
            change_profile(home, description=text, description_auto=True)
    except HermesError as error:
        return _Written(name=home.profile, before=before.description, error=str(error))
    declined = asked and not yes
    return _Written(name=home.profile, description=text, before=before.description, saved=yes, declined=declined)


def _tell(found: _Written, *, alone: bool) -> None:
    if found.error:
        click.echo(f"hermes: {found.name}: {printable(found.error)}", err=True)
    elif found.kept:
        more = "; --overwrite lets the model replace it" if alone else ""
        click.echo(f"hermes: {found.name} keeps what a person wrote: {printable(found.before)}{more}", err=True)
    elif found.saved:
        click.echo(f"saved for {found.name}")
    else:
        how = "" if found.declined else "; --yes saves it without asking"
        click.echo(f"hermes: nothing was saved{how}", err=True)


def written(sources: Sources) -> str:
    """A description of a profile in one line, by its own model.

    Raises:
        HermesError: nothing is configured, or the model gave none.
    """
    goal = redactor_of(parts_without_model(sources)).text(_told(sources))
    question = Question(
        system=_SYSTEM, goal=goal, schema=_SCHEMA, label="description", source="profile", limits=_LIMITS
    )
    answers: list[Any] = []

    async def ask() -> int:
        answers.append(await answered(sources, question, refusal="the model gave no description"))
        return 0

    run_async(ask)
    text = " ".join(printable(str(answers[0]["description"])).split())[:_MOST].strip()
    if not text:
        raise OperatorError("the model gave an empty description; try again, or write it: --text TEXT.")
    return text


def _told(sources: Sources) -> str:
    """What the model is told of a profile."""
    loaded = sources.loaded
    on = enabled_toolsets(loaded)
    tools = [f"- {info.name}: {info.label}" for info in KNOWN_TOOLSETS if info.name in on and info.available]
    types = load_agents(agent_folders(loaded.home.path, None)).types.values()
    agents = [f"- {each.name}: {each.description}" for each in types]
    parts = [
        f"Name: {loaded.home.profile}",
        f"Persona:\n{loaded.persona[:_PERSONA] or '(none was written)'}",
        f"Toolsets:\n{chr(10).join(tools) or '(none)'}",
        f"Commands run in: {loaded.settings.terminal.backend}",
        *([f"Kinds of helpers it may send out:\n{chr(10).join(agents)}"] if agents else []),
        "Say in one or two sentences, at most 200 characters, what kind of work this agent is good at, so that whoever "
        "gives out work can tell it from the others. Begin with a verb. Write in the language of the persona, claim "
        "nothing that does not follow from the above, and name no model.",
    ]
    return "\n\n".join(parts)
