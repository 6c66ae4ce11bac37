"""From what people write to the types of the settings: one value at a time, so that each error names its own place.

Holds the lenient readings (`none` for unlimited, one word for a list) and the lowest values that are raised instead of
refused. Where a value comes from is not known here.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from hermes.config.schema import FIELDS, KNOWN_UNUSED, SECTIONS, Field

__all__ = ["Misfit", "convert_value", "nearest_key", "substitute", "unsupported", "wanted"]

_UNLIMITED = {"none", "unlimited", "inf", "infinite", "null", "0", "-1", ""}
_UNLIMITED_KEYS = {"agent.max_turns", "delegation.max_iterations", "store.keep_days"}
_OFF_IS_ZERO = {"delegation.child_timeout_seconds", "agent.run_budget_seconds"}
_FLOORS: Mapping[str, float] = {
    "delegation.max_concurrent_children": 1,
    "delegation.max_async_children": 1,
    "delegation.max_spawn_depth": 1,
    "delegation.child_timeout_seconds": 30,
}
_BOOLS = {"yes": True, "on": True, "no": False, "off": False}
_FOREIGN_MODES = {"manual": "ask", "smart": "ask", "off": "ask"}


class Misfit(ValueError):
    """A value that cannot be used; the text says what is wanted."""


def _unwrap(hint: Any) -> list[Any]:
    if get_origin(hint) is Annotated:
        return _unwrap(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return [kind for part in get_args(hint) for kind in _unwrap(part)]
    return [hint]


def _soften(field: Field, value: Any) -> Any:
    kinds = _unwrap(field.type)
    origins = [get_origin(kind) for kind in kinds]
    if field.key in _UNLIMITED_KEYS and (
        value is None or value == float("inf") or str(value).strip().lower() in _UNLIMITED
    ):
        return None
    if field.key in _OFF_IS_ZERO and str(value).strip().lower() in {"0", "0.0", "none", ""}:
        return None
    if tuple in origins and isinstance(value, str) and str not in kinds:
        return [part.strip() for part in value.split(",") if part.strip()]
    if field.key == "platform_toolsets" and isinstance(value, Mapping):
        return {name: _words(entry) for name, entry in value.items()}
    if isinstance(value, str) and value.strip().lower() in _BOOLS and (bool in kinds or field.default is False):
        return _BOOLS[value.strip().lower()]
    if field.key == "approvals.mode" and isinstance(value, str):
        return _FOREIGN_MODES.get(value, value)
    if field.key == "approvals.mode" and value is False:
        return "ask"
    return value


def _words(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value or []


def wanted(field: Field) -> str:
    """What a setting may be, for people: `a whole number or null`."""
    words = []
    for kind in _unwrap(field.type):
        origin = get_origin(kind)
        if kind is type(None):
            words.append("null")
        elif kind in _PLAIN:
            words.append(_PLAIN[kind])
        elif origin is tuple:
            words.append("a list of names" if get_args(kind)[0] is str else "a list")
        elif origin is dict or (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            words.append("a map")
        else:
            words.extend(f"`{choice}`" if choice != "" else "empty" for choice in get_args(kind))
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


_PLAIN: Mapping[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def convert_value(key: str, value: Any) -> tuple[Any, str]:
    """Convert `value` for the setting `key`: (value, remark); the remark is empty unless the value was changed.

    Raises:
        Misfit: it is no such value.
    """
    field = FIELDS[key]
    soft = _soften(field, value)
    if soft is None and key not in _UNLIMITED_KEYS | _OFF_IS_ZERO:
        return field.default, ""
    remark = unsupported(key, soft)
    if remark:
        raise Misfit(remark)
    try:
        result = msgspec.convert(soft, field.type, strict=False)
    except msgspec.ValidationError as error:
        bound = re.search(r"Expected `\w+` ([<>]=? [\d.]+)", str(error))
        inner = re.search(r" - at `\$\.?(.+)`", str(error))
        if inner and isinstance(soft, (dict, list)):
            place = inner[1].replace("[...]", _culprit(field, soft), 1).lstrip(".")
            raise Misfit(f"{str(error).split(' - at')[0]} at {place}") from None
        secret = key.endswith(("api_key", "webhook", "database_url"))
        shown = "a value of another kind" if secret or len(repr(value)) > 80 else repr(value)
        raise Misfit(f"expected {wanted(field)}{' ' + bound[1] if bound else ''}, found {shown}") from None
    floor = _FLOORS.get(key)
    if floor is not None and result is not None and result < floor:
        return type(result)(floor), f"{value} is below the lowest value; {floor:g} is used"
    if key == "approvals.mode" and soft != value:
        return result, f"{value!r} is a word of another program; {soft!r} is used"
    return result, ""


def _culprit(field: Field, value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    for name, item in value.items():
        try:
            msgspec.convert({name: item}, field.type, strict=False)
        except msgspec.ValidationError:
            return f"{name}"
    return ""


def unsupported(key: str, value: Any) -> str:
    """Why a value cannot be honoured here; empty if there is nothing to say.

    Ignoring one that asks for isolation would run commands with less of it than was asked for.
    """
    if key == "terminal.backend" and isinstance(value, str) and value not in ("auto", "local", "sandbox", "docker", ""):
        return (
            f"the backend {value!r} is not in this release and commands would run on this machine. Set it to sandbox, "
            "docker or local"
        )
    if key == "notify.webhook" and isinstance(value, str) and value and not value.startswith(("http://", "https://")):
        return "the address has to begin with http:// or https:// (a ${NAME} in it has to be set)"
    if key == "web.allowed_networks" and isinstance(value, (list, tuple)):
        return next((f"{item!r} is no network such as 10.1.0.0/16" for item in value if not _is_network(item)), "")
    return ""


def _is_network(value: Any) -> bool:
    try:
        ipaddress.ip_network(str(value), strict=False)
    except ValueError:
        return False
    return True


def nearest_key(key: str) -> str | None:
    """The setting that `key` is probably a misspelling of, compared within its section only."""
    section, _, name = key.rpartition(".")
    if section:
        siblings = [known[len(section) + 1 :] for known in (*FIELDS, *KNOWN_UNUSED) if known.startswith(section + ".")]
    else:
        siblings = [known for known in (*FIELDS, *KNOWN_UNUSED, *SECTIONS) if "." not in known]
    found = difflib.get_close_matches(name.lower().replace("-", "_"), siblings, 1, 0.8)
    return (f"{section}.{found[0]}" if section else found[0]) if found else None


_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def substitute(value: Any, variables: Mapping[str, str]) -> Any:
    """Replace `${NAME}` in every text inside `value`; an undefined one stays as it is written."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: variables.get(found[1], found[0]), value)
    if isinstance(value, Mapping):
        return {str(key): substitute(item, variables) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [substitute(item, variables) for item in value]
    return value
