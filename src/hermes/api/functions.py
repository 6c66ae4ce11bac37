"""Functions of a program as tools of its agent: the signature is the schema, the docstring the description.

A plain function runs on a thread of a bounded pool, a coroutine function on the loop. What is left behind when a call
is stopped is counted; no thread is ever killed.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, get_type_hints

import msgspec

from hermes.core.errors import ToolError, UsageError
from hermes.core.tools import CallContext, Tool, ToolEnv, ToolOutput, json_output, parameters_of
from hermes.runtime.blocking import BlockingPool

__all__ = ["FUNCTIONS", "Function", "FunctionToolset", "read_functions"]

#: The toolset that given functions stand in.
FUNCTIONS = "functions"


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A function with what a model is told of it."""

    name: str
    description: str
    arguments: type[msgspec.Struct]
    call: Callable[..., Any]


def read_functions(given: Sequence[Callable[..., Any]], taken: Sequence[str] = ()) -> tuple[Function, ...]:
    """Read the functions given as tools; `taken` are names of other tools.

    Raises:
        UsageError: one has no name, a parameter without a type that a model can send, or a name that is taken.
    """
    read: dict[str, Function] = {}
    for call in given:
        name = getattr(call, "__name__", "")
        if not callable(call) or not name.isidentifier():
            raise UsageError(f"a tool has to be a function with a name, not {call!r}; a lambda needs a `def`")
        if name in read or name in taken:
            raise UsageError(f"there are two tools called {name!r}: rename the function")
        read[name] = Function(name=name, description=_described(call), arguments=_arguments(name, call), call=call)
    return tuple(read.values())


def _described(call: Callable[..., Any]) -> str:
    text = inspect.getdoc(call) or ""
    return text.strip() or f"The function {call.__name__} of the program."


def _arguments(name: str, call: Callable[..., Any]) -> type[msgspec.Struct]:
    fields: list[Any] = []
    try:
        hints = get_type_hints(call, include_extras=True)
        for parameter in inspect.signature(call).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise TypeError(f"{parameter} cannot be given by name")
            hint = hints.get(parameter.name, Any)
            if parameter.default is parameter.empty:
                fields.append((parameter.name, hint))
            else:
                fields.append((parameter.name, hint, parameter.default))
        arguments = msgspec.defstruct(name, fields, kw_only=True)
        parameters_of(arguments)
    except (TypeError, NameError, ValueError) as error:
        raise UsageError(
            f"{name} cannot be a tool: {error}. Give each parameter a type such as str, int or list[str]."
        ) from None
    return arguments


class FunctionToolset:
    """The given functions, for every task that has the toolset."""

    name = FUNCTIONS
    label = "Functions of the program"
    opt_in = True

    def __init__(self, functions: Sequence[Function], pool: BlockingPool) -> None:
        self._functions = functions
        self._pool = pool
        self.tool_names = tuple(function.name for function in functions)

    def build(self, env: ToolEnv) -> Sequence[Tool]:
        """Build the tools for one task."""
        return [
            Tool(
                name=function.name,
                description=function.description,
                arguments=function.arguments,
                run=self._runner(function),
            )
            for function in self._functions
        ]

    def _runner(self, function: Function) -> Callable[[Any, CallContext], Awaitable[ToolOutput | str]]:
        async def run(arguments: Any, context: CallContext) -> ToolOutput | str:
            given = {name: getattr(arguments, name) for name in function.arguments.__struct_fields__}
            try:
                if inspect.iscoroutinefunction(function.call):
                    value = await function.call(**given)
                else:
                    value = await self._pool.run(context, function.name, lambda: function.call(**given))
                return value if isinstance(value, str) else json_output(value)
            except ToolError:
                raise
            except Exception as error:  # the model reads what went wrong, as from any tool  # noqa: BLE001
                raise ToolError(f"{function.name}: {type(error).__name__}: {error}") from error

        return run
