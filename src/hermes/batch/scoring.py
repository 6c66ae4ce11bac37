"""Checks of a finished rollout that run in a process of their own, since a pattern or a function may never come back:
a process can be ended. It reads one check as JSON and writes what it found; deciding what to check is not its own.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["call_function", "fits_schema", "main", "matches"]

_FENCED = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL)

#: A score and what to say of it, and whether it is an error of the check itself.
Found = tuple[float, str, bool]


def matches(pattern: str, text: str) -> Found:
    """Whether a pattern is found."""
    return (1.0, "", False) if re.search(pattern, text) else (0.0, f"nothing matches {pattern}", False)


def fits_schema(schema: Mapping[str, Any], text: str) -> Found:
    """Whether a text is JSON that fits a schema."""
    blocks = _FENCED.findall(text)
    try:
        value = json.loads(blocks[0] if len(blocks) == 1 else text)
    except (ValueError, RecursionError) as error:
        return 0.0, f"not JSON: {error}", False
    if not schema:
        return 1.0, "", False
    # edge: the validator takes a tenth of a second to import and few datasets have a schema
    import jsonschema

    wrong = next(jsonschema.Draft202012Validator(schema).iter_errors(value), None)
    return (1.0, "", False) if wrong is None else (0.0, f"{wrong.json_path}: {wrong.message}"[:300], False)


def call_function(function: str, rollout: Mapping[str, Any]) -> Found:
    """Call `module:function` in the rollout's workspace."""
    module, _, name = function.partition(":")
    try:
        called = getattr(importlib.import_module(module), name)
        os.chdir(rollout["workspace"])
        value = called(dict(rollout))
        if isinstance(value, bool):
            return float(value), "", False
        if isinstance(value, (int, float)) and 0 <= value <= 1:
            return float(value), "", False
        return 0.0, f"{function} returned {value!r:.200}, which is no score from 0 to 1", True
    except Exception as error:  # noqa: BLE001  whatever it raised is what was found
        return 0.0, f"{function} raised {type(error).__name__}: {error}"[:500], True


def main() -> None:
    """Read [check, arguments, seconds] from stdin and write [score, detail, whether it is an error] to stdout."""
    out = os.dup(1)
    os.dup2(2, 1)  # what a function prints is no part of the answer
    name, given, limit = json.load(sys.stdin)
    signal.alarm(int(limit) + 10)  # ends this process where the one that would end it was killed
    checks: dict[str, Callable[..., Found]] = {
        "matches": matches,
        "fits_schema": fits_schema,
        "call_function": call_function,
    }
    found = checks[name](*given)
    os.write(out, json.dumps(found).encode())
