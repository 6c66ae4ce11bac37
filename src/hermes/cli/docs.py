"""Makes the generated pages: `python -m hermes.cli.docs` writes them, `--check` tells whether they are true.

`docs/settings.md` comes from the schema of the settings, `docs/events.md` from the events, `docs/cli.md` and the quick
help text from the commands.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from hermes.cli import fast
from hermes.cli.group import COMMANDS, cli
from hermes.config.reference import settings_page
from hermes.core.events import EPHEMERAL, EVENT_TYPES, SCHEMA

__all__ = ["cli_page", "events_page", "help_text", "main", "pages"]

_ROOT = Path(__file__).resolve().parents[3]
_MADE = "Made from the program itself by `make docs`; do not edit.\n"
#: Help is wrapped for a terminal of this many columns.
_WIDTH = 80


def _help(command: click.Command, name: str, parent: click.Context | None = None) -> tuple[click.Context, str]:
    sizes = {"terminal_width": _WIDTH, "max_content_width": _WIDTH}
    context = click.Context(command, info_name=name, parent=parent, **{**command.context_settings, **sizes})
    return context, command.get_help(context).rstrip() + "\n"


def help_text() -> str:
    """What `hermes --help` prints."""
    return _help(cli, "hermes")[1]


def _sections(command: click.Command, name: str, parent: click.Context | None, path: str) -> list[str]:
    context, text = _help(command, name, parent)
    parts = [f"\n## {path}\n\n```text\n{text}```\n"]
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None and not found.hidden:
                parts += _sections(found, inner, context, f"{path} {inner}")
    return parts


def cli_page() -> str:
    """The page `docs/cli.md`."""
    context, text = _help(cli, "hermes")
    parts = [f"# Commands\n\n{_MADE}\n## hermes\n\n```text\n{text}```\n"]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        if command is not None:
            parts += _sections(command, name, context, f"hermes {name}")
    return "".join(parts)


def _kind(info: Any) -> str:
    if isinstance(info, msgspec.inspect.UnionType):
        kinds = [_kind(part) for part in info.types]
        return "entry of the history" if len(kinds) > 3 else " or ".join(kinds)
    if isinstance(info, (msgspec.inspect.VarTupleType, msgspec.inspect.ListType)):
        return f"list of {_kind(info.item_type)}"
    if isinstance(info, msgspec.inspect.StructType):
        return f"object `{info.cls.__name__}`"
    name = type(info).__name__.removesuffix("Type").lower()
    return {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "none": "null"}.get(
        name, name
    )


def _default(field: msgspec.inspect.Field) -> str:
    if field.required:
        return "always there"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory
    return f"default `{msgspec.json.encode(value).decode()}`" if not callable(value) else "default empty"


def events_page() -> str:
    """The page `docs/events.md`."""
    parts = [
        f"# Events\n\n{_MADE}\n"
        "`hermes chat --json` prints one JSON object a line. Every line has "
        f"`schema` ({SCHEMA}), `seq` (grows by one within a process), `at` (seconds since the epoch), `session_id`, "
        "`task_id`, `parent_id` (or null) and `type`, then the fields of its type. Fields are only ever added within a "
        "schema number, so readers pass over what they do not know. The last line has the type `result`.\n\n"
        "Types marked *shown only* are for whoever watches and are not kept in the journal.\n"
    ]
    for kind in EVENT_TYPES:
        info = msgspec.inspect.type_info(kind)
        assert isinstance(info, msgspec.inspect.StructType)
        mark = " *(shown only)*" if kind in EPHEMERAL else ""
        meaning = " ".join((kind.__doc__ or "").split())
        parts.append(f"\n## {info.tag}{mark}\n\n{meaning}\n\n")
        if info.fields:
            parts.append("| Field | Value | |\n|---|---|---|\n")
        parts += [f"| `{field.encode_name}` | {_kind(field.type)} | {_default(field)} |\n" for field in info.fields]
    structs = {
        field.type.cls: field.type
        for kind in EVENT_TYPES
        for field in msgspec.inspect.type_info(kind).fields  # type: ignore[attr-defined]
        if isinstance(field.type, msgspec.inspect.StructType)
    }
    for cls, info in structs.items():
        parts.append(f"\n## Object {cls.__name__}\n\n{' '.join((cls.__doc__ or '').split())}\n\n")
        parts.append("| Field | Value | |\n|---|---|---|\n")
        parts += [f"| `{field.encode_name}` | {_kind(field.type)} | {_default(field)} |\n" for field in info.fields]
    return "".join(parts)


def pages(root: Path = _ROOT) -> dict[Path, str]:
    """Every generated file and what it should hold."""
    return {
        Path(fast.HELP_FILE): help_text(),
        root / "docs" / "settings.md": settings_page(),
        root / "docs" / "cli.md": cli_page(),
        root / "docs" / "events.md": events_page(),
    }


def main(argv: Sequence[str]) -> int:
    """Write the pages, or with `--check` name those that are out of date (exit code 1)."""
    check = list(argv) == ["--check"]
    if argv and not check:
        sys.stderr.write("usage: python -m hermes.cli.docs [--check]\n")
        return 2
    stale = []
    for path, text in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path)
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    for path in stale:
        sys.stdout.write(f"{'out of date' if check else 'written'}: {path}\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
