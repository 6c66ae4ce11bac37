"""What a row may say of how its rollouts are to be judged: one verifier or a list of them, read and checked before
anything runs. Nothing is judged here.

    {"prompt": "…", "verifier": {"type": "command", "run": "pytest -q", "timeout": 60}}
    {"prompt": "…", "verifier": [{"type": "exact", "value": "42"}, {"type": "file", "path": "a.txt", "weight": 2}]}
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from importlib.machinery import PathFinder
from typing import Any

import msgspec

from hermes.core.result import CheckScore

__all__ = [
    "Command",
    "Contains",
    "Exact",
    "File",
    "Json",
    "Python",
    "Regex",
    "Verifier",
    "check_modules",
    "mean_score",
    "parse_verifiers",
]

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class _Verifier(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """`weight` is its part in the mean, `timeout` the seconds it may take."""

    weight: float = 1.0
    timeout: float = 60.0


class Exact(_Verifier, frozen=True, kw_only=True, tag="exact"):
    """The answer is `value`, blanks around both left out."""

    value: str
    ignore_case: bool = False


class Contains(_Verifier, frozen=True, kw_only=True, tag="contains"):
    """The answer holds `value`, or each of several."""

    value: str | tuple[str, ...]
    ignore_case: bool = False


class Regex(_Verifier, frozen=True, kw_only=True, tag="regex"):
    """The pattern of Python's `re` is found in the answer."""

    pattern: str


class Json(_Verifier, frozen=True, kw_only=True, tag="json"):
    """The answer, or its only fenced block, is JSON that fits `schema`; without one any JSON will do."""

    schema: dict[str, Any] = {}


class File(_Verifier, frozen=True, kw_only=True, tag="file"):
    """A file of the workspace is there, and its text is `value`, holds `contains`, matches `pattern`, where given."""

    path: str
    value: str | None = None
    contains: str | tuple[str, ...] = ()
    pattern: str = ""


class Command(_Verifier, frozen=True, kw_only=True, tag="command"):
    """A shell command in the workspace ends with exit code 0."""

    run: str


class Python(_Verifier, frozen=True, kw_only=True, tag="python"):
    """`module:function` returns a score, 0 to 1, or a truth value. It is given one dictionary: `prompt`, `answer`,
    `row`, `workspace`."""

    function: str

    @property
    def module(self) -> str:
        """The module that is imported."""
        return self.function.partition(":")[0]


Verifier = Exact | Contains | Regex | Json | File | Command | Python
#: What a verifier may be.
TYPES = ("exact", "contains", "regex", "json", "file", "command", "python")
_TYPES_ARE = f'. Write an object as {{"type": "exact", "value": "42"}}; types: {", ".join(TYPES)}'


def parse_verifiers(value: Any) -> tuple[Verifier, ...]:
    """Read what stands under `verifier` in a row; none where there is nothing.

    Raises:
        ValueError: it is no verifier; the text says which part and why.
    """
    if value is None:
        return ()
    items = value if isinstance(value, list) else [value]
    if not items:
        raise ValueError('"verifier" is an empty list; leave it out')
    found = []
    for number, item in enumerate(items):
        where = f'"verifier"[{number}]' if isinstance(value, list) else '"verifier"'
        try:
            verifier = msgspec.convert(item, Verifier)
            _check(verifier)
        except (msgspec.ValidationError, ValueError) as error:
            known = isinstance(item, dict) and item.get("type") in TYPES
            raise ValueError(f"{where}: {error}{'' if known else _TYPES_ARE}") from None
        found.append(verifier)
    return tuple(found)


def _check(verifier: Verifier) -> None:
    if not verifier.weight > 0:
        raise ValueError(f"weight {verifier.weight:g} is not above 0")
    if not 0 < verifier.timeout <= 3600:
        raise ValueError(f"timeout {verifier.timeout:g} is not within 0 and 3600 s")
    if isinstance(verifier, (Regex, File)) and verifier.pattern:
        try:
            re.compile(verifier.pattern)
        except re.error as error:
            raise ValueError(f"the pattern {verifier.pattern!r} is none: {error}") from None
    if isinstance(verifier, File) and (verifier.path.startswith(("/", "~")) or ".." in verifier.path.split("/")):
        raise ValueError(f"the path {verifier.path!r} leads out of the workspace")
    if isinstance(verifier, Command) and not verifier.run.strip():
        raise ValueError("the command is empty")
    if isinstance(verifier, Python) and not _FUNCTION.fullmatch(verifier.function):
        raise ValueError(f"{verifier.function!r} is not module:function")
    if isinstance(verifier, Json) and verifier.schema:
        _check_schema(verifier.schema)


def _check_schema(schema: Mapping[str, Any]) -> None:
    outside = next((reference for reference in _references(schema) if not reference.startswith("#")), None)
    if outside is not None:
        raise ValueError(f"the schema refers to {outside!r}; it may refer to its own parts only (#/…)")
    fault = _schema_fault(msgspec.json.encode(schema))
    if fault:
        raise ValueError(f"the schema is none: {fault}")


@lru_cache(maxsize=256)
def _schema_fault(schema: bytes) -> str:
    """Why a schema is none, "" if it is one. Rows of a dataset share theirs, and looking at one takes 2 ms."""
    # edge: the validator takes a tenth of a second to import and few datasets have a schema
    import jsonschema

    try:
        jsonschema.Draft202012Validator.check_schema(msgspec.json.decode(schema))
    except jsonschema.SchemaError as error:
        return error.message[:200]
    return ""


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for name, value in schema.items():
            if name in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            yield from _references(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from _references(item)


def check_modules(verifiers: Collection[Verifier], allowed: Collection[str]) -> None:
    """See that the functions that a row names may run, and can be found from here.

    They run on this machine as part of the program, so whoever starts the run has to name their modules.

    Raises:
        ValueError: a module was not named, or is not there.
    """
    for module in dict.fromkeys(each.module for each in verifiers if isinstance(each, Python)):
        if module not in allowed:
            raise ValueError(
                f'"verifier" names the Python module {module}, whose functions run on this machine in no sandbox: '
                f"allow it with --verifier_modules={','.join([*allowed, module])}"
            )
        if not _is_there(module.partition(".")[0]):
            raise ValueError(f'"verifier" names the Python module {module}, which is not found here or on PYTHONPATH')


@lru_cache(maxsize=256)
def _is_there(name: str) -> bool:
    return PathFinder.find_spec(name, ["", *sys.path]) is not None


def mean_score(scores: Collection[CheckScore]) -> float | None:
    """The weighted mean of `scores`, 0 to 1; None where nothing was verified."""
    weight = sum(each.weight for each in scores)
    return sum(each.score * each.weight for each in scores) / weight if weight else None
