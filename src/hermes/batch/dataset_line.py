"""One line of a dataset: what it has to hold, and the row made of it."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, NoReturn

import msgspec

from hermes.batch.verifiers import Verifier, check_modules, parse_verifiers
from hermes.core.codec import scrub_surrogates

__all__ = ["BadLine", "DatasetRow", "read_row", "stripped"]

_BOM = b"\xef\xbb\xbf"
#: Bytes of a line that is not copied where that can be avoided.
LONG = 1_000_000


class DatasetRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `line` counts from 1 in the file. `prompt` is what the model is asked; of a row of `messages` it is the
    last one, `before` are those of user and assistant before it, `system` the system text. `toolsets` is None where the
    row leaves the choice to the run.

    `source` is the whole row as decoded; what has no meaning here is carried through with it.
    """

    line: int
    prompt: str
    source: dict[str, Any]
    cwd: str | None = None
    toolsets: tuple[str, ...] | None = None
    image: str | None = None
    system: str = ""
    before: tuple[dict[str, str], ...] = ()
    verifiers: tuple[Verifier, ...] = ()


class BadLine(Exception):
    """One line cannot be used; the text says why."""


def stripped(number: int, raw: bytes) -> bytes:
    """What stands in line `number` of a file, which may begin with a byte-order mark; empty for a blank line.

    A long line is not copied to be without its line end, which no parser minds.
    """
    line = raw.removeprefix(_BOM) if number == 1 else raw
    if len(line) > LONG:
        return b"" if line.isspace() else line
    return line.strip()


def read_row(number: int, line: bytes, modules: Collection[str]) -> tuple[DatasetRow, int]:
    """The row in line `number`, and how many of its texts held lone surrogates, which are replaced.

    Raises:
        BadLine: it cannot be used.
    """
    try:
        value, whole = _decode(line)
    except BadLine as error:
        raise BadLine(f"{error}{_of_many_lines(line)}") from None
    if not isinstance(value, dict):
        hint = _of_many_lines(line) or '; write {"prompt": …}'
        raise BadLine(f"not an object but {_kind(value)}{hint}")
    scrubbed = [0]
    source = value if whole else _scrub(value, scrubbed)
    prompt, before, system = _asked(source)
    image = _text(source, "docker_image") or _text(source, "image")
    return (
        DatasetRow(
            line=number,
            prompt=prompt,
            source=source,
            cwd=_text(source, "cwd"),
            toolsets=_toolsets(source.get("toolsets")),
            system="\n\n".join(part for part in (_text(source, "system"), system) if part),
            before=before,
            verifiers=_verifiers(source.get("verifier"), modules),
            image=image,
        ),
        scrubbed[0],
    )


def _of_many_lines(line: bytes) -> str:
    """What makes rows of a file that is one array, or objects of several lines; empty where neither begins here."""
    if line in (b"[", b"{") or line.startswith(b"[{"):
        return f"; a row is one line: jq -c {'.' if line == b'{' else repr('.[]')} FILE makes such lines"
    return ""


def _asked(source: dict[str, Any]) -> tuple[str, tuple[dict[str, str], ...], str]:
    """What a row asks: the prompt, the messages before it, and their system text."""
    if "messages" in source and "prompt" not in source:
        return _conversation(source["messages"])
    if "prompt" not in source:
        raise BadLine('no "prompt" (or "messages")')
    prompt = source["prompt"]
    if not isinstance(prompt, str):
        raise BadLine(f'"prompt" is {_kind(prompt)}, not a string')
    if not prompt or prompt.isspace():
        raise BadLine('"prompt" is empty')
    return prompt, (), ""


def _conversation(messages: Any) -> tuple[str, tuple[dict[str, str], ...], str]:
    if not isinstance(messages, list) or not messages:
        raise BadLine(f'"messages" is {_kind(messages)}, not a list of messages')
    system: list[str] = []
    said: list[dict[str, str]] = []
    for number, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if role not in ("system", "user", "assistant") or not isinstance(content, str):
            raise BadLine(f'message {number} needs "role" (system, user, assistant) and "content", a string')
        if role == "system":
            system.append(content)
        elif bool(said) and said[-1]["role"] == role or not said and role == "assistant":
            raise BadLine(f"message {number}: user and assistant have to take turns, the user first")
        else:
            said.append({"role": role, "content": content})
    if not said or said[-1]["role"] != "user" or not said[-1]["content"].strip():
        raise BadLine("the last message has to be a user's, and not empty")
    return said[-1]["content"], tuple(said[:-1]), "\n\n".join(system)


def _decode(line: bytes) -> tuple[Any, bool]:
    """The value of a line, and whether it is known to hold no lone surrogate."""
    try:
        return msgspec.json.decode(line), True
    except msgspec.DecodeError:
        pass  # msgspec takes no lone surrogates and names no column: the standard parser decides
    except RecursionError:
        raise BadLine("nested too deeply") from None
    try:
        return json.loads(line.decode("utf-8"), parse_constant=_no_constant), False
    except UnicodeDecodeError as error:
        raise BadLine(f"not UTF-8 (byte {error.start + 1} is 0x{line[error.start]:02x})") from None
    except json.JSONDecodeError as error:
        raise BadLine(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise BadLine("nested too deeply") from None


def _no_constant(name: str) -> NoReturn:
    raise BadLine(f"not JSON: {name} is no JSON value")


def _scrub(value: Any, count: list[int]) -> Any:
    if isinstance(value, str):
        clean = scrub_surrogates(value)
        count[0] += clean != value
        return clean
    if isinstance(value, dict):
        return {_scrub(key, count): _scrub(item, count) for key, item in value.items()}
    if isinstance(value, list):
        return [_scrub(item, count) for item in value]
    return value


def _text(source: dict[str, Any], name: str) -> str | None:
    value = source.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise BadLine(f'"{name}" is {_kind(value)}, not a string')
    return value


def _toolsets(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadLine('"toolsets" is not a list of names')
    return tuple(dict.fromkeys(value))


def _verifiers(value: Any, modules: Collection[str]) -> tuple[Verifier, ...]:
    try:
        verifiers = parse_verifiers(value)
        check_modules(verifiers, modules)
    except ValueError as error:
        raise BadLine(str(error)) from None
    return verifiers


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, list):
        return "a list"
    return "a string" if isinstance(value, str) else "an object"
