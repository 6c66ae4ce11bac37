"""What a tool is: its description for the model, and a function that is bound to one task.

A tool's arguments are a msgspec struct: its fields give the JSON schema and the check. The function gets the struct and
a `CallContext`. It returns text or a `ToolOutput`; what it raises as `ToolError` reaches the model as it is, any other
exception as `{"error": "<type>: <text>"}`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from hermes.core.codec import encode_json
from hermes.core.errors import ToolError
from hermes.core.messages import Content, Text
from hermes.core.model import ToolSpec
from hermes.core.scope import CallKey, TaskScope

__all__ = [
    "CallContext",
    "Guard",
    "Tool",
    "ToolCalls",
    "ToolEnv",
    "ToolOutput",
    "Toolset",
    "error_output",
    "json_output",
    "text_output",
]


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a call brought: `content` for the model, `details` for people and programs.

    `success` is what statistics count; by default a call succeeded when it is no error. `preview` is one short line for
    a person; `files_read` and `files_written` are absolute paths. `delivers` names children whose end this output
    brings to the reader, so that no notice repeats it. `conflicts` are (path, task) of written files that another task
    had changed since this one saw them; `escaped` are files outside of an isolated workspace that changed meanwhile.
    """

    content: Content
    details: Any = None
    is_error: bool = False
    success: bool | None = None
    preview: str = ""
    files_read: tuple[str, ...] = ()
    files_written: tuple[str, ...] = ()
    delivers: tuple[str, ...] = ()
    conflicts: tuple[tuple[str, str], ...] = ()
    escaped: tuple[str, ...] = ()


def text_output(text: str, *, is_error: bool = False, details: Any = None, **more: Any) -> ToolOutput:
    """A plain text output."""
    return ToolOutput(content=(Text(text),), is_error=is_error, details=details, **more)


def json_output(value: Any, *, is_error: bool = False, **more: Any) -> ToolOutput:
    """A JSON output: `value` is encoded for the model and kept as `details`."""
    return ToolOutput(content=(Text(encode_json(value).decode()),), details=value, is_error=is_error, **more)


def error_output(message: str, **more: Any) -> ToolOutput:
    """`{"error": message}` as an error result."""
    return json_output({"error": message}, is_error=True, **more)


class ToolCalls(Protocol):
    """The task's other tools, for a call that makes calls itself. They pass the same gate and the same limits."""

    def parameters(self) -> dict[str, tuple[str, ...]]:
        """The tools by name, each with the names of its parameters in their order."""

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        """Make one call; whatever goes wrong with it is its output. Each has a key of its own below the outer one's."""


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a running call may know: its key (an idempotency key for everything that changes state), its task, a way to
    report progress, the tokens of context its task still has room for, and the task's other tools (None within a call
    that was made by a call)."""

    key: CallKey
    scope: TaskScope
    progress: Callable[[str], None]
    room: Callable[[], int]
    calls: ToolCalls | None = None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool, bound to one task.

    `run` is awaited with the parsed arguments; what blocks belongs on a thread (`runtime/blocking.py`).
    `safe_to_repeat` says that running the same call twice does no harm. `interactive` tools never run beside others.
    `timeout` is seconds, None = none. `describe` makes the one-line preview a person sees.
    """

    name: str
    description: str
    arguments: type[msgspec.Struct]
    run: Callable[[Any, CallContext], Awaitable[ToolOutput | str]]
    safe_to_repeat: bool = False
    interactive: bool = False
    timeout: float | None = None
    describe: Callable[[dict[str, Any]], str] | None = None
    parameters: dict[str, Any] | None = None

    @property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        return ToolSpec(
            name=self.name,
            description=self.description,
            parameters=self.parameters or parameters_of(self.arguments),
        )

    def parse(self, arguments: dict[str, Any]) -> Any:
        """Check `arguments` against the schema.

        Raises:
            ToolError: with the field and what it should be.
        """
        try:
            # Models write null for what they leave out.
            given = {name: value for name, value in arguments.items() if value is not None}
            return msgspec.convert(given, self.arguments, strict=False)
        except msgspec.ValidationError as error:
            fields = ", ".join(parameters_of(self.arguments)["properties"]) or "no arguments"
            raise ToolError(f"{self.name}: {error}. Expected fields: {fields}.") from None

    def preview(self, arguments: dict[str, Any]) -> str:
        """One short line about a call for a person; control characters are gone."""
        if self.describe is not None:
            try:
                text = self.describe(arguments)
            except (KeyError, TypeError, ValueError, AttributeError):
                text = ""
        else:
            text = next((str(value) for value in arguments.values() if isinstance(value, str)), "")
        line = " ".join(text.split())
        return (line if line.isprintable() else "".join(ch for ch in line if ch.isprintable()))[:120]


_schemas: dict[type[msgspec.Struct], dict[str, Any]] = {}


def parameters_of(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of an argument struct, flattened to one object without references at the top."""
    known = _schemas.get(arguments)
    if known is None:
        (_,), components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
        main = dict(components.pop(arguments.__name__))
        main.pop("title", None)
        schema: dict[str, Any] = {"type": "object", "properties": main.get("properties", {})}
        if main.get("required"):
            schema["required"] = main["required"]
        if components:
            schema["$defs"] = components
        _schemas[arguments] = known = schema
    return known


class ToolEnv(msgspec.Struct, frozen=True, kw_only=True):
    """What a toolset factory is given to bind its tools to a task.

    `state_dir` is a directory of the task's own for overflow and snapshots (created on first use by whoever needs it).
    `unattended` says that nobody can answer a question, `tiny` that the model is good for the simplest schema only.
    """

    scope: TaskScope
    state_dir: str
    unattended: bool = False
    tiny: bool = False


#: Makes a call in place of the tool's own `run`: whoever decides whether a call may be made stands here.
Guard = Callable[[Tool, Any, CallContext], Awaitable[ToolOutput | str]]


class Toolset(Protocol):
    """A named family of tools and a factory for them. `opt_in` sets are never matched by `all` or `*`.

    One with an attribute `alike` that is true builds tools for every task that differ in nothing but what `run` is
    bound to, at no other effect: a task's are then built when it first calls one of them.
    """

    @property
    def name(self) -> str: ...

    @property
    def label(self) -> str:
        """One line for `hermes tools list`."""

    @property
    def opt_in(self) -> bool: ...

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names its tools will have, known without building them."""

    def build(self, env: ToolEnv) -> Sequence[Tool]:
        """Build the tools for one task: no globals, no context variables."""
