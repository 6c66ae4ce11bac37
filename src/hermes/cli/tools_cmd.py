"""`hermes tools`: which toolsets are on for a platform, and turning them on and off in `config.yaml`.

A toolset that is opt-in (the Kanban board) is on only where its own name is written; `all` never means it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click
import msgspec

from hermes.cli.options import open_sources, options_of
from hermes.cli.screens import print_json, rows
from hermes.config import Loaded
from hermes.config.edit import set_value
from hermes.core.errors import HermesError, UsageError
from hermes.core.names import did_you_mean
from hermes.core.toolsets import COMPOSITES, KNOWN_TOOLSETS, configured_toolsets

__all__ = ["enabled_toolsets", "tools"]

_KNOWN = {info.name: info for info in KNOWN_TOOLSETS}
_EVERYTHING = ("all", "*")

_platform = click.option("--platform", default="cli", show_default=True, metavar="P", help="Whose list.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class _Change(msgspec.Struct, frozen=True, kw_only=True):
    applied: tuple[str, ...]
    errors: tuple[str, ...]
    notes: tuple[str, ...]


class _NothingApplied(HermesError):
    """None of the names could be applied."""


def _expanded(names: Iterable[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        if name in _EVERYTHING:
            found.extend(info.name for info in KNOWN_TOOLSETS if not info.opt_in)
        else:
            found.extend(COMPOSITES.get(name, (name,)))
    return list(dict.fromkeys(found))


def enabled_toolsets(loaded: Loaded, platform: str = "cli") -> tuple[str, ...]:
    """The toolsets that are on, composites and `all` taken apart, those that are always off left out."""
    settings = loaded.settings
    names = configured_toolsets(settings.platform_toolsets.get(platform), settings.toolsets)
    expanded = configured_toolsets(_expanded(names), ())
    off = set(_expanded(settings.agent.disabled_toolsets))
    off.update(name for name in settings.agent.disabled_toolsets if name in _KNOWN)
    return tuple(name for name in expanded if name not in off)


def _checked(loaded: Loaded, platform: str) -> None:
    known = ["cli", *(name for name in loaded.settings.platform_toolsets if name != "cli")]
    if platform not in known:
        hint = did_you_mean(platform, known)
        raise UsageError(f"Unknown platform '{platform}'.{hint} Known: {', '.join(known)}.")


def _print_list(context: click.Context, platform: str, as_json: bool) -> None:
    loaded = open_sources(options_of(context)).loaded
    loaded.require()
    _checked(loaded, platform)
    on = enabled_toolsets(loaded, platform)
    if as_json:
        table = [
            {
                "name": info.name,
                "label": info.label,
                "enabled": info.name in on,
                "available": info.available,
                "opt_in": info.opt_in,
                "tools": info.tools,
            }
            for info in KNOWN_TOOLSETS
        ]
        print_json({"platform": platform, "toolsets": table})
        return
    click.echo(f"Built-in toolsets ({platform}):")
    lines = []
    for info in KNOWN_TOOLSETS:
        mark = "✓ enabled" if info.name in on else "✗ disabled"
        lines.append((mark, info.name, info.label + ("" if info.available else " (not in this release)")))
    click.echo(rows(lines))
    others = [name for name in on if name not in _KNOWN]
    if others:
        click.echo(f"Unknown names in the list, without effect: {', '.join(others)}")


@click.group(
    invoke_without_command=True,
    epilog="\b\nExamples:\n  hermes tools list\n  hermes tools enable kanban\n  hermes tools disable todo file",
)
@click.option("--summary", is_flag=True, help="Print the list (this is what happens without a command, too).")
@_platform
@click.pass_context
def tools(context: click.Context, /, summary: bool, platform: str) -> None:
    """Show toolsets, turn them on and off."""
    if context.invoked_subcommand is None:
        _print_list(context, platform, as_json=False)


@tools.command("list", epilog="\b\nExamples:\n  hermes tools list\n  hermes tools list --json")
@_platform
@_json
@click.pass_context
def list_(context: click.Context, /, platform: str, as_json: bool) -> None:
    """Show every toolset and whether it is on."""
    _print_list(context, platform, as_json)


def _sort(names: Iterable[str]) -> tuple[list[str], list[str]]:
    known: list[str] = []
    errors: list[str] = []
    for name in dict.fromkeys(names):
        if ":" in name:
            errors.append(f"'{name}' names a tool of an MCP server; those are not in this release")
        elif name in _KNOWN or name in COMPOSITES or name in _EVERYTHING:
            known.append(name)
        else:
            hint = did_you_mean(name, (*_KNOWN, *COMPOSITES))
            errors.append(f"Unknown toolset '{name}'{f'.{hint}' if hint else ''}")
    return known, errors


def _enabling(loaded: Loaded, current: list[str], names: Iterable[str]) -> tuple[list[str], _Change]:
    known, errors = _sort(names)
    result = list(current)
    notes: list[str] = []
    disabled = loaded.settings.agent.disabled_toolsets
    for name in known:
        if name not in result:
            result.append(name)
        info = _KNOWN.get(name)
        if name in _EVERYTHING:
            literal = [info.name for info in KNOWN_TOOLSETS if info.opt_in and info.name not in result]
            notes.extend(f"{each} stays off: it is turned on only by its own name" for each in literal)
        if name == "kanban":
            notes.append(
                "kanban is turned on by its own name alone, since several agents cost more tokens than one; in force: "
                f"{loaded.settings.kanban.limits} (kanban.* in config.yaml)"
            )
        if info is not None and not info.available:
            notes.append(f"{name} is not in this release: it is written down and has no effect until it comes")
        if name in disabled:
            notes.append(f"{name} stands in agent.disabled_toolsets, which wins: it stays off until removed there")
    return result, _Change(applied=tuple(known), errors=tuple(errors), notes=tuple(notes))


def _disabling(loaded: Loaded, current: list[str], names: Iterable[str]) -> tuple[list[str], _Change]:
    known, errors = _sort(names)
    gone = set(known)
    gone.update(part for name in known for part in COMPOSITES.get(name, ()))
    if gone.intersection(_EVERYTHING):
        return [], _Change(applied=tuple(known), errors=tuple(errors), notes=())
    result: list[str] = []
    for name in current:
        parts = _expanded([name])
        result.extend([name] if name not in gone and not gone.intersection(parts) else parts)
    kept = [name for name in dict.fromkeys(result) if name not in gone]
    notes = []
    if "async_delegation" in gone and "delegation" in kept:
        notes.append("delegation brings async_delegation along: disable delegation too to turn it off")
    return kept, _Change(applied=tuple(known), errors=tuple(errors), notes=tuple(notes))


_Edit = Callable[[Loaded, list[str], Iterable[str]], tuple[list[str], _Change]]


def _change(
    context: click.Context, platform: str, names: tuple[str, ...], as_json: bool, word: str, edit: _Edit
) -> None:
    loaded = open_sources(options_of(context)).loaded
    settings = loaded.require()
    _checked(loaded, platform)
    written = settings.platform_toolsets.get(platform)
    # without a list of its own the platform has the default one, and a first list must not take anything away
    current = list(configured_toolsets(written, settings.toolsets)) if written is None else list(written)
    if written is None:
        current = list(dict.fromkeys(_expanded(current)))
    wanted, change = edit(loaded, current, names)
    if change.applied and (written is None or wanted != list(written)):
        home = loaded.home
        home.prepare(home.run_dir)
        set_value(home.config_file, ("platform_toolsets", platform), wanted, lock=home.run_dir / "config.lock")
    if as_json:
        answer: dict[str, Any] = {word.lower(): change.applied, "errors": change.errors, "notes": change.notes}
        print_json({"platform": platform, **answer, "toolsets": wanted})
    else:
        if change.applied:
            click.echo(f"{word}: {', '.join(change.applied)}")
        for note in change.notes:
            click.echo(f"  {note}")
    if not change.applied:
        raise _NothingApplied("; ".join(change.errors) + ". `hermes tools list` shows the names.")
    for error in change.errors:
        click.echo(f"hermes: {error}", err=True)


@tools.command("enable", epilog="\b\nExamples:\n  hermes tools enable kanban\n  hermes tools enable web file --json")
@click.argument("names", nargs=-1, required=True)
@_platform
@_json
@click.pass_context
def enable(context: click.Context, /, names: tuple[str, ...], platform: str, as_json: bool) -> None:
    """Turn toolsets on. `all` means every one that is not opt-in; the board (kanban) only its own name."""
    _change(context, platform, names, as_json, "Enabled", _enabling)


@tools.command("disable", epilog="\b\nExamples:\n  hermes tools disable kanban\n  hermes tools disable all")
@click.argument("names", nargs=-1, required=True)
@_platform
@_json
@click.pass_context
def disable(context: click.Context, /, names: tuple[str, ...], platform: str, as_json: bool) -> None:
    """Turn toolsets off."""
    _change(context, platform, names, as_json, "Disabled", _disabling)
