"""Answers by a JSON schema: the schema checked before a child starts, the value found in its text and validated.

A schema is data from a model: it may refer to its own parts only, and nothing is fetched for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from hermes.core.errors import ToolError

__all__ = ["check_schema", "find_value", "schema_text", "validate"]

#: A larger schema would take the child's context before it began.
MAX_SCHEMA = 20_000
#: Errors that a child is told at once, and characters of each.
MAX_ERRORS, MAX_ERROR = 8, 300
_FENCED = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL)


def schema_text(schema: Mapping[str, Any]) -> str:
    """The schema as it is told to the child."""
    return msgspec.json.encode(schema).decode()


def check_schema(schema: Any) -> dict[str, Any]:
    """Return a schema (an object, or its JSON text) that can be used. Imports the validator: call it on a thread.

    Raises:
        ToolError: it is none; says why.
    """
    if isinstance(schema, str):
        try:
            schema = msgspec.json.decode(schema)
        except msgspec.DecodeError as error:
            raise ToolError(f"output_schema is not valid JSON ({error}). Send a JSON schema as an object.") from None
    if not isinstance(schema, dict) or not schema:
        raise ToolError('output_schema must be a JSON schema: an object such as {"type": "object", …}.')
    size = len(schema_text(schema))
    if size > MAX_SCHEMA:
        raise ToolError(f"output_schema has {size} characters; at most {MAX_SCHEMA} are taken. Ask for less.")
    outside = next((reference for reference in _references(schema) if not reference.startswith("#")), None)
    if outside is not None:
        raise ToolError(f"output_schema refers to {outside[:100]!r}; it may refer to its own parts only (#/…).")
    # edge: the validator takes a tenth of a second to import and few tasks have a schema
    import jsonschema

    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ToolError(f"output_schema is no JSON schema: {error.message[:MAX_ERROR]}.") from None
    except RecursionError:
        raise ToolError("output_schema is nested too deeply.") from None
    return schema


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(item, str):
                yield item
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def find_value(text: str) -> tuple[Any, str]:
    """The JSON value of a final text: (value, "") or (None, why there is none).

    The whole text, else its last fenced block, else the last object or array that stands in it.
    """
    stripped = text.strip()
    if not stripped:
        return None, "the answer is empty"
    candidates = [stripped, *reversed(_FENCED.findall(text))]
    for opening, closing in (("{", "}"), ("[", "]")):
        start, end = stripped.find(opening), stripped.rfind(closing)
        if 0 <= start < end:
            candidates.append(stripped[start : end + 1])
    problem = ""
    for candidate in candidates:
        try:
            return msgspec.json.decode(candidate), ""
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            problem = problem or str(error)
    return None, f"the answer is not JSON ({problem})"


def validate(value: Any, schema: Mapping[str, Any]) -> tuple[str, ...]:
    """What is wrong with a value by a checked schema, nothing if it fits. May take long: call it on a thread."""
    # edge: the validator takes a tenth of a second to import and few tasks have a schema
    import jsonschema
    import referencing

    # An empty registry: the validator would otherwise fetch what a reference names.
    validator = jsonschema.Draft202012Validator(schema, registry=referencing.Registry())
    found: list[str] = []
    try:
        for error in validator.iter_errors(value):
            place = error.json_path if error.absolute_path else "the answer"
            found.append(f"{place}: {error.message}"[:MAX_ERROR])
            if len(found) == MAX_ERRORS:
                break
    except (referencing.exceptions.Unresolvable, RecursionError) as error:
        found.append(f"the schema cannot be applied ({str(error)[:MAX_ERROR]})")
    return tuple(found)
