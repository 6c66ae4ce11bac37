"""Tool calls for endpoints without tools: a JSON schema that the reply has to follow, read back as calls.

`SchemaTools` wraps any `Model`: it moves the tools of a request into a short system text and a `response_format`, and
turns the JSON that comes back into the usual deltas (`thought` becomes reasoning). Every string and list in the schema
is bounded, since small models ramble inside an argument until the token limit. It does not judge what a model wrote:
a reply that is no JSON is passed on as text, a call of an unknown tool as a call.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self

import msgspec

from hermes.core.errors import ModelError
from hermes.core.markers import defused
from hermes.core.messages import Assistant, Entry, Summary, Text, ToolResult, User, plain_text
from hermes.core.model import (
    CallArguments,
    CallStarted,
    Delta,
    Model,
    ModelRequest,
    Restarted,
    Stop,
    TextDelta,
    ThinkingDelta,
    ToolSpec,
)
from hermes.providers.wrapping import Wrapping

__all__ = ["Bounds", "Example", "SchemaTools", "bounded_schema", "compact_system", "reply_schema"]


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a reply and of a request, in characters and list items.

    `required_only` drops optional arguments from the schema (of an object that has required ones): a small model fills
    in every field it is offered. `system` bounds the whole system text when `cut_system` is set, else the part about
    the tools alone. `output` is what is kept of a tool's output.
    """

    thought: int = 200
    answer: int = 600
    string: int = 200
    items: int = 8
    output: int = 1_500
    system: int = 2_000
    cut_system: bool = True
    required_only: bool = True


#: Limits for tiny models.
NARROW = Bounds()

#: Limits for models that are no toys. Grammar compilers refuse repetitions over 2,000.
WIDE = Bounds(thought=1_000, answer=1_900, string=1_900, items=64, output=1_500, cut_system=False, required_only=False)


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One solved turn shown to the model before the conversation; left out where the request lacks its tool."""

    prompt: str
    thought: str
    tool: str
    arguments: Mapping[str, Any]


def _inline(schema: Any, definitions: Mapping[str, Any], seen: tuple[str, ...]) -> Any:
    """Replace references by what they refer to; one that refers to itself becomes a free object."""
    if isinstance(schema, list):
        return [_inline(item, definitions, seen) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        name = reference.rsplit("/", 1)[-1]
        if name in seen or name not in definitions:
            return {"type": "object"}
        return _inline(definitions[name], definitions, (*seen, name))
    return {key: _inline(value, definitions, seen) for key, value in schema.items() if key != "$defs"}


def _bound(schema: Any, bounds: Bounds) -> Any:
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {key: value for key, value in schema.items() if key not in ("title", "default", "examples")}
    for key in ("anyOf", "oneOf", "allOf"):
        if key in kept:
            kept[key] = [_bound(item, bounds) for item in kept[key]]
    kind = kept.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if "string" in kinds and "enum" not in kept and "const" not in kept:
        kept["maxLength"] = min(kept.get("maxLength", bounds.string), bounds.string)
        kept.pop("format", None)
    if "array" in kinds:
        least = kept.get("minItems", 0)
        kept["maxItems"] = max(least, min(kept.get("maxItems", bounds.items), bounds.items))
        kept["items"] = _bound(kept.get("items", {"type": "string"}), bounds)
    if "properties" in kept:
        required = kept.get("required") or []
        only = bool(required) and bounds.required_only
        kept["properties"] = {
            name: _bound(part, bounds) for name, part in kept["properties"].items() if not only or name in required
        }
        kept["additionalProperties"] = False
    return kept


def bounded_schema(parameters: Mapping[str, Any], bounds: Bounds = NARROW) -> dict[str, Any]:
    """Return `parameters` (a JSON schema of type object) without references and with every string and list bounded.

    `minItems` and `maxItems` of a list stay where they are stricter; a list's own `minItems` is never cut.
    """
    inlined = _inline(dict(parameters), parameters.get("$defs", {}), ())
    result: dict[str, Any] = _bound(inlined, bounds)
    result.setdefault("type", "object")
    result.setdefault("properties", {})
    return result


def reply_schema(tools: Sequence[ToolSpec], bounds: Bounds, *, calls: bool, answer: bool) -> dict[str, Any]:
    """Return the schema of a whole reply: `anyOf` one object per tool (with `calls`) and the answer (with `answer`)."""
    thought = {"type": "string", "minLength": 1, "maxLength": bounds.thought}
    options: list[dict[str, Any]] = []
    for tool in tools if calls else ():
        properties = {
            "thought": thought,
            "name": {"type": "string", "const": tool.name},
            "arguments": bounded_schema(tool.parameters, bounds),
        }
        options.append(_object(properties))
    if answer or not options:
        options.append(
            _object({"thought": thought, "answer": {"type": "string", "minLength": 1, "maxLength": bounds.answer}})
        )
    return options[0] if len(options) == 1 else {"anyOf": options}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _shape(schema: Mapping[str, Any]) -> str:
    """Write a bounded schema in a few characters: {"command": text}."""
    if "properties" in schema:
        return "{" + ", ".join(f'"{name}": {_shape(part)}' for name, part in schema["properties"].items()) + "}"
    if "enum" in schema:
        return "|".join(str(item) for item in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            parts = (_shape(part) for part in schema[key] if part.get("type") != "null")
            return " or ".join(dict.fromkeys(parts))
    if schema.get("type") == "array":
        return f"[{_shape(schema.get('items', {}))}, ...]"
    kind = schema.get("type", "value")
    return {"string": "text", "integer": "number", "boolean": "true|false"}.get(str(kind), str(kind))


def _clip(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: max(0, limit - 1)].rstrip() + "…"


def _tool_lines(tools: Sequence[ToolSpec], bounds: Bounds, room: int) -> str:
    """Describe the tools in at most `room` characters: first without long lines, then without lines, then cut."""
    shapes = [(tool, _shape(bounded_schema(tool.parameters, bounds))) for tool in tools]
    text = ""
    for width, shape_width in ((90, 160), (40, 120), (0, 80), (0, 24)):
        lines = []
        for tool, shape in shapes:
            first = tool.description.strip().split("\n", 1)[0].split(". ", 1)[0]
            line = f"- {tool.name} {_clip(shape, shape_width)}"
            lines.append(f"{line}: {_clip(first, width)}" if width and first else line)
        text = "\n".join(lines)
        if len(text) <= room:
            return text
    return text[: max(0, room)]


def compact_system(system: str, tools: Sequence[ToolSpec], bounds: Bounds, *, answer: bool) -> str:
    """Return the system text: the caller's (cut if `bounds.cut_system`), the tools, and how to reply.

    With `cut_system` the result has at most `bounds.system` characters.
    """
    if not tools:
        return system[: bounds.system] if bounds.cut_system else system
    rule = 'Reply with JSON: {"thought": why, "name": tool, "arguments": {...}}'
    if answer:
        rule += ' or, when done, {"thought": why, "answer": text}'
    room = bounds.system - len(rule) - len("Tools:\n") - 4
    lines = _tool_lines(tools, bounds, room)
    head = system.strip()
    if bounds.cut_system:
        head = head[: max(0, room - len(lines))]
    return "\n\n".join(part for part in (head, f"Tools:\n{lines}", f"{rule}.") if part)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _call_text(thought: str, name: str, arguments: Any) -> str:
    return _json({"thought": thought or "I use a tool.", "name": name, "arguments": arguments})


def _plain_entries(entries: Sequence[Entry], bounds: Bounds) -> tuple[Entry, ...]:
    """Rewrite calls and results as ordinary text in the form that the schema asks for."""
    plain: list[Entry] = []
    for entry in entries:
        if isinstance(entry, Assistant):
            thought = entry.thinking[: bounds.thought]
            if entry.calls:
                text = "\n".join(_call_text(thought, call.name, call.arguments) for call in entry.calls)
            else:
                text = _json({"thought": thought or "I can answer.", "answer": entry.text})
            plain.append(Assistant(text=text, at=entry.at))
        elif isinstance(entry, ToolResult):
            output = defused(plain_text(entry.content))
            if len(output) > bounds.output:
                output = output[: bounds.output] + f"\n[cut: {len(output)} characters]"
            plain.append(User(content=(Text(f"Output of {entry.name}:\n{output or '(none)'}"),), at=entry.at))
        else:
            plain.append(entry)
    return tuple(plain)


class SchemaTools(Wrapping):
    """A `Model` that calls tools through an endpoint that has none.

    Args:
        inner: the endpoint.
        bounds: limits; by default narrow ones for a `tiny` profile and wide ones otherwise.
        examples: solved turns put before every conversation whose tools they use.
    """

    def __init__(self, inner: Model, *, bounds: Bounds | None = None, examples: Sequence[Example] = ()) -> None:
        super().__init__(inner)
        self._bounds = bounds if bounds is not None else (NARROW if inner.profile.tiny else WIDE)
        self._examples = tuple(examples)

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Open one reply; its calls and its answer arrive when the reply is complete."""
        rewritten, must_call = self.rewrite(request)
        return _SchemaStream(self.inner, rewritten, frozenset(tool.name for tool in request.tools), must_call)

    def rewrite(self, request: ModelRequest) -> tuple[ModelRequest, bool]:
        """Return the request as it is sent to the model behind, and whether the reply has to be a call.

        A `tiny` model is forced to call on its first turn: left free it nearly always answers at once.
        """
        profile = self.inner.profile
        first = not any(isinstance(entry, (Assistant, Summary)) for entry in request.entries)
        calls = bool(request.tools) and request.tool_choice != "none"
        must_call = calls and (request.tool_choice == "required" or (profile.tiny and first))
        tools = request.tools if calls else ()
        schema = reply_schema(tools, self._bounds, calls=calls, answer=not must_call)
        # The text stays the same for a whole segment, so it always names the tools and the answer.
        system = compact_system(request.system, request.tools, self._bounds, answer=True)
        offered = {tool.name for tool in request.tools}
        shown: list[dict[str, str]] = []
        for example in self._examples:
            if example.tool in offered:
                text = _call_text(example.thought, example.tool, dict(example.arguments))
                shown += [{"role": "user", "content": example.prompt}, {"role": "assistant", "content": text}]
        response_format = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
        # Our own choice, which an endpoint may refuse; a wish of the caller's is no part of `extra`.
        calm = {"temperature": 0.0} if request.temperature is None else {}
        return (
            msgspec.structs.replace(
                request,
                system=system,
                entries=_plain_entries(request.entries, self._bounds),
                tools=(),
                tool_choice="auto",
                max_tokens=min(request.max_tokens or profile.max_output, profile.max_output),
                prefill=(*shown, *request.prefill),
                extra={**calm, **request.extra, "response_format": response_format},
            ),
            must_call,
        )


_ANSWER = re.compile(r'"answer"\s*:\s*"((?:[^"\\]|\\.)*)', re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"\\]+)"')
_ARGUMENTS = re.compile(r'"arguments"\s*:\s*(.*)\Z', re.DOTALL)
_THOUGHT = re.compile(r'"thought"\s*:\s*"((?:[^"\\]|\\.)*)', re.DOTALL)


def _unescape(text: str) -> str:
    try:
        return str(msgspec.json.decode(f'"{text}"'))
    except msgspec.DecodeError:
        return text


def _cut_reply(text: str) -> list[Delta]:
    """Make what can be made of a reply that is no complete JSON: cut by length, or from an endpoint without schemas."""
    deltas: list[Delta] = []
    thought = _THOUGHT.search(text)
    if thought:
        deltas.append(ThinkingDelta(_unescape(thought[1])))
    answer, name = _ANSWER.search(text), _NAME.search(text)
    if answer:
        deltas.append(TextDelta(_unescape(answer[1])))
    elif name:
        arguments = _ARGUMENTS.search(text)
        # Text that cannot be parsed: the model is told that its arguments are no JSON, instead of running half a call.
        deltas += [CallStarted(0, "", name[1]), CallArguments(0, arguments[1] if arguments else "{")]
    elif not thought and text.strip():
        deltas.append(TextDelta(text))
    return deltas


def read_reply(text: str) -> list[Delta]:
    """Turn the text of a reply into deltas: reasoning, then one call or the answer."""
    try:
        value = msgspec.json.decode(text.strip() or "null")
    except msgspec.DecodeError:
        return _cut_reply(text)
    if not isinstance(value, dict) or not ({"name", "answer"} & value.keys()):
        return [TextDelta(text)] if text.strip() else []
    deltas: list[Delta] = []
    if value.get("thought"):
        deltas.append(ThinkingDelta(str(value["thought"])))
    if "name" in value:
        deltas += [CallStarted(0, "", str(value["name"])), CallArguments(0, _json(value.get("arguments", {})))]
    elif value["answer"] is not None:
        deltas.append(TextDelta(str(value["answer"])))
    return deltas


class _SchemaStream:
    def __init__(self, inner: Model, request: ModelRequest, tools: frozenset[str], must_call: bool) -> None:
        self._context = inner.stream(request)
        self._label = inner.name
        self._tools = tools
        self._must_call = must_call
        self._text: list[str] = []
        self._ready: list[Delta] = []
        self._deltas: AsyncIterator[Delta] | None = None

    async def __aenter__(self) -> Self:
        self._deltas = await self._context.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._context.__aexit__(kind, error, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        assert self._deltas is not None, "a stream is entered before it is read"
        while not self._ready:
            delta = await self._deltas.__anext__()
            if isinstance(delta, TextDelta):
                self._text.append(delta.text)
                continue
            if isinstance(delta, Restarted):
                self._text.clear()
            if isinstance(delta, Stop):
                self._ready = self._finish(delta)
                continue
            return delta
        return self._ready.pop(0)

    def _finish(self, stop: Stop) -> list[Delta]:
        deltas = read_reply("".join(self._text)) if self._tools else _answer_only("".join(self._text))
        called = any(isinstance(delta, CallStarted) for delta in deltas)
        if self._must_call and not called and stop.reason != "length":
            raise ModelError(
                f"{self._label} answered without the call that was required of it; its endpoint may ignore "
                "`response_format: json_schema`",
                reason="malformed_response",
                retryable=True,
            )
        reason = "tool_calls" if called else "stop" if stop.reason == "tool_calls" else stop.reason
        return [*deltas, Stop(reason, stop.finish, stop.model)]


def _answer_only(text: str) -> list[Delta]:
    return [delta for delta in read_reply(text) if not isinstance(delta, (CallStarted, CallArguments))]
