"""What people read about settings: the table of all of them, and the value and source of each.

Secrets are masked here, so that no caller can forget it.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from hermes.config.load import Loaded
from hermes.config.schema import FIELDS, SECTIONS, Field
from hermes.config.values import wanted

__all__ = ["Shown", "plain", "settings_page", "shown"]

_MASK = "…"
_SECRET = re.compile(r"(?:^|_)(?:api_?key|key|token|secret|password)$", re.IGNORECASE)


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as `hermes config show` prints it; `value` is plain data with its secrets masked."""

    key: str
    value: Any
    source: str


def plain(value: Any) -> Any:
    """A value as plain data; what stands under a secret's name (`api_key`, `…_TOKEN`) is masked."""
    return _masked(msgspec.to_builtins(value))


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _hide(item) if _SECRET.search(str(key)) else _masked(item) for key, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list) else value


def _hide(secret: Any) -> Any:
    if not isinstance(secret, str) or not secret or secret.startswith("${"):
        return secret
    return _MASK + secret[-4:] if len(secret) >= 12 else _MASK


def _value(loaded: Loaded, key: str) -> Any:
    value: Any = loaded.settings
    for part in key.split("."):
        value = getattr(value, part)
    return _hide(value) if key.endswith(("api_key", "webhook", "database_url")) else plain(value)


def shown(loaded: Loaded) -> list[Shown]:
    """Every setting with its value and where it came from."""
    return [Shown(key=key, value=_value(loaded, key), source=loaded.sources[key]) for key in FIELDS]


_HEAD = """\
# Settings

Made from the program itself by `make docs`; do not edit.

Settings stand in `config.yaml` of the home (`~/.hermes`, or HERMES_HOME). What wins: the command line, then
`config.yaml`, then the environment and `.env`, then the default. `${NAME}` inside a value is replaced by that variable;
an undefined one stays as it is written. `hermes config show` prints every value and where it came from, `hermes config
set KEY VALUE` changes one and leaves the rest of the file as it is, `hermes config check` finds mistakes.

Keys that this program does not know are kept as they are, since other programs use the same file. A key that looks like
a misspelling is an error with its line. A null value means the default, except where null is named below.

"""


def _row(field: Field, name: str) -> str:
    default = json.dumps(msgspec.to_builtins(field.default), ensure_ascii=False)
    variables = "".join(f" Variable: `{variable}`." for variable in field.env)
    return f"| `{name}` | {wanted(field)} | `{default}` | {field.description}{variables} |\n"


def settings_page() -> str:
    """The page `docs/settings.md`."""
    head = "| Key | Value | Default | Meaning |\n|---|---|---|---|\n"
    top = [field for key, field in FIELDS.items() if "." not in key]
    parts = [_HEAD, "## Top level\n\n", head, *(_row(field, field.key) for field in top)]
    for name, struct in SECTIONS.items():
        parts += [f"\n## {name}\n\n", f"{(struct.__doc__ or '').strip()}\n\n", head]
        parts += [_row(field, key) for key, field in FIELDS.items() if key.startswith(name + ".")]
    return "".join(parts)
