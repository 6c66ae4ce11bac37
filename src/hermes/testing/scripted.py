"""Models without a network: `ScriptedModel` plays steps, `EndlessModel` asks a function.

Made for tests of agents: a call that no step expects fails, a step that nobody asked for fails, and each request has to
extend the one before it (a conversation that changes in the middle costs the provider's prompt cache). Nothing here
judges what an agent says.

    model = ScriptedModel("test", [reply(calls=[call("terminal", command="ls")]), reply("done")])
    ...
    model.assert_complete()
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self

import anyio
import msgspec

from hermes.core.messages import Assistant, Entry, StopReason, Usage, User, plain_text
from hermes.core.model import (
    CallArguments,
    CallStarted,
    Delta,
    ModelProfile,
    ModelRequest,
    Stop,
    TextDelta,
    ThinkingDelta,
    UsageReport,
)

__all__ = [
    "Broken",
    "Call",
    "EndlessModel",
    "Hang",
    "Reply",
    "ScriptedModel",
    "Step",
    "UnexpectedCall",
    "broken",
    "call",
    "first_user_text",
    "hang",
    "reply",
]

#: What a reply costs unless it says otherwise.
DEFAULT_USAGE = Usage(input=10, output=5)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call of a reply. `raw` replaces the argument text, to write what is no JSON."""

    name: str
    arguments: Mapping[str, Any] = {}
    id: str = ""
    raw: str | None = None

    @property
    def text(self) -> str:
        """The argument text."""
        return msgspec.json.encode(self.arguments).decode() if self.raw is None else self.raw


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One reply. `delay` is seconds before it, `gap` seconds between its `pieces`; `finish` overrides the stop."""

    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    usage: Usage | None = DEFAULT_USAGE
    delay: float = 0.0
    gap: float = 0.0
    pieces: int = 1
    finish: str = ""
    model: str = ""


class Hang(msgspec.Struct, frozen=True):
    """Never answers; ends only by cancellation."""


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """Begins like `reply` and raises `error` in place of the stop."""

    reply: Reply
    error: Exception


Step = Reply | Hang | Broken | Exception | Callable[[ModelRequest], Any]


class UnexpectedCall(AssertionError):
    """A model was asked although no step was left, or with a request that does not extend the one before."""


def call(name: str, /, *, call_id: str = "", raw: str | None = None, **arguments: Any) -> Call:
    """A tool call: `call("terminal", command="ls")`."""
    return Call(name=name, arguments=arguments, id=call_id, raw=raw)


def reply(
    text: str = "",
    *,
    thinking: str = "",
    calls: Sequence[Call] = (),
    usage: Usage | None = DEFAULT_USAGE,
    delay: float = 0.0,
    gap: float = 0.0,
    pieces: int = 1,
    finish: str = "",
    model: str = "",
) -> Reply:
    """A reply of text, reasoning and calls."""
    return Reply(
        text=text,
        thinking=thinking,
        calls=tuple(calls),
        usage=usage,
        delay=delay,
        gap=gap,
        pieces=pieces,
        finish=finish,
        model=model,
    )


def hang() -> Hang:
    """A step that never answers."""
    return Hang()


def broken(error: Exception, **partial: Any) -> Broken:
    """A reply that breaks: `broken(ModelError(...), text="half")`."""
    return Broken(reply=reply(**partial), error=error)


def first_user_text(request: ModelRequest) -> str:
    """Return the text of the first user entry: for a child its goal."""
    return next((plain_text(entry.content) for entry in request.entries if isinstance(entry, User)), "")


def cut(text: str, pieces: int) -> list[str]:
    """Cut `text` into at most `pieces` parts of nearly one length."""
    size = max(1, -(-len(text) // max(1, pieces)))
    return [text[at : at + size] for at in range(0, len(text), size)]


def stop_reason(made: Reply) -> StopReason:
    """Return the stop reason that a reply ends with."""
    if made.finish in ("stop", "tool_calls", "length", "content_filter", "error"):
        return made.finish  # type: ignore[return-value]  # one of the literals
    return "tool_calls" if made.calls else "stop"


def deltas_of(made: Reply, model: str) -> list[Delta]:
    """Return the deltas of a reply, its stop included."""
    deltas: list[Delta] = [ThinkingDelta(part) for part in cut(made.thinking, made.pieces)]
    deltas += [TextDelta(part) for part in cut(made.text, made.pieces)]
    for index, item in enumerate(made.calls):
        deltas.append(CallStarted(index, item.id or f"call_{index}", item.name))
        deltas += [CallArguments(index, part) for part in cut(item.text, made.pieces)]
    if made.usage is not None:
        deltas.append(UsageReport(made.usage))
    deltas.append(Stop(stop_reason(made), made.finish or stop_reason(made), made.model or model))
    return deltas


class _Played:
    """A `Model` that plays the step that `step_for` gives for each request."""

    def __init__(self, name: str, profile: ModelProfile | None) -> None:
        self._name = name
        self._profile = profile if profile is not None else ModelProfile()
        self.in_flight = 0
        self.peak = 0

    @property
    def name(self) -> str:
        """The name it was given."""
        return self._name

    @property
    def profile(self) -> ModelProfile:
        """The profile it was given."""
        return self._profile

    def step_for(self, request: ModelRequest) -> Step:
        raise NotImplementedError

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Open one reply."""
        return _PlayedStream(self, request)


class ScriptedModel(_Played):
    """Plays `steps` in order, each once.

    Args:
        name: its name.
        steps: replies, errors to raise, `hang()`, or functions of the request that return one of these; an `async` one
            may wait for what it wants first.
        profile: what it claims to be.
        scripts: steps by task: used for a request whose key is (or else contains) the name of a script.
        key: gives the key of a request; by default the text of its first user entry.
        check: whether requests have to extend each other.
    """

    def __init__(
        self,
        name: str = "scripted",
        steps: Sequence[Step] = (),
        profile: ModelProfile | None = None,
        *,
        scripts: Mapping[str, Sequence[Step]] | None = None,
        key: Callable[[ModelRequest], str] = first_user_text,
        check: bool = True,
    ) -> None:
        super().__init__(name, profile)
        self.requests: list[ModelRequest] = []
        self.problems: list[str] = []
        self._steps = deque(steps)
        self._scripts = {word: deque(script) for word, script in (scripts or {}).items()}
        self._key = key
        self._check = check
        self._segments: dict[tuple[str, Entry], list[ModelRequest]] = {}

    def step_for(self, request: ModelRequest) -> Step:
        """Take the next step for `request`. Raises UnexpectedCall."""
        self.requests.append(request)
        if self._check:
            self._extends(request)
        key = self._key(request)
        script = self._scripts.get(key)
        if script is None:
            script = next((steps for word, steps in self._scripts.items() if word in key), self._steps)
        if not script:
            raise self._problem(f"request {len(self.requests)} ({key[:80]!r}): no step is left for it")
        return script.popleft()

    def _problem(self, text: str) -> UnexpectedCall:
        self.problems.append(text)
        return UnexpectedCall(f"{self.name}: {text}")

    def _extends(self, request: ModelRequest) -> None:
        """Check that a request goes on where an earlier one of its conversation stood."""
        if not request.entries:
            return
        segment = self._segments.setdefault((request.affinity, _Identity(request.entries[0])), [])  # type: ignore[arg-type]
        if not any(isinstance(entry, Assistant) for entry in request.entries):
            segment.append(request)
            return
        reasons = []
        for place, before in enumerate(segment):
            reason = _difference(before, request)
            if not reason:
                segment[place] = request
                return
            reasons.append(reason)
        if not segment:  # taken up from a journal: its beginning was asked elsewhere
            segment.append(request)
            return
        raise self._problem(f"request {len(self.requests)} does not extend the one before: {reasons[-1]}")

    def assert_complete(self) -> None:
        """Raise AssertionError if a request was wrong or a step was never asked for."""
        left = len(self._steps) + sum(len(script) for script in self._scripts.values())
        if self.problems:
            raise AssertionError(f"{self.name}: {'; '.join(self.problems)}")
        if left:
            raise AssertionError(f"{self.name}: {left} steps were never asked for")


class _Identity:
    """Makes an entry a dictionary key by its value, since entries hold unhashable parts."""

    def __init__(self, entry: Entry) -> None:
        self._bytes = msgspec.json.encode(entry)

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other._bytes == self._bytes


def _difference(before: ModelRequest, after: ModelRequest) -> str:
    """Say in what `after` does not extend `before`; empty if it does."""
    if after.system != before.system:
        return "the system prompt changed"
    if after.tools != before.tools:
        return "the tools changed"
    if len(after.entries) < len(before.entries):
        return "entries are gone"
    for place, (old, new) in enumerate(zip(before.entries, after.entries, strict=False)):
        if old is not new and old != new:
            return f"entry {place} changed"
    return ""


class EndlessModel(_Played):
    """Answers every request with what `answer` returns for it: a step as in `ScriptedModel`. For simulations."""

    def __init__(
        self, answer: Callable[[ModelRequest], Any], name: str = "endless", profile: ModelProfile | None = None
    ) -> None:
        super().__init__(name, profile)
        self._answer = answer
        self.count = 0

    def step_for(self, request: ModelRequest) -> Step:
        """Ask the function."""
        self.count += 1
        step: Step = self._answer(request)
        return step


class _PlayedStream:
    def __init__(self, model: _Played, request: ModelRequest) -> None:
        self._model = model
        self._request = request
        self._ready: deque[Delta] | None = None
        self._gap = 0.0
        self._error: Exception | None = None

    async def __aenter__(self) -> Self:
        self._model.in_flight += 1
        self._model.peak = max(self._model.peak, self._model.in_flight)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._model.in_flight -= 1

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        if self._ready is None:
            self._ready = await self._begin()
        elif self._gap and self._ready:
            await anyio.sleep(self._gap)
        if self._ready:
            return self._ready.popleft()
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration

    async def _begin(self) -> deque[Delta]:
        step: Any = self._model.step_for(self._request)
        while callable(step) and not isinstance(step, type):
            step = step(self._request)
            if inspect.isawaitable(step):
                step = await step
        if isinstance(step, Hang):
            await anyio.sleep_forever()
        if isinstance(step, Exception):
            raise step
        made = step.reply if isinstance(step, Broken) else step
        if not isinstance(made, Reply):
            raise UnexpectedCall(f"{self._model.name}: {made!r} is no step; use reply(), hang() or an exception")
        # Gives other tasks a turn even without a delay, as a network would.
        await anyio.sleep(made.delay)
        self._gap = made.gap
        deltas = deltas_of(made, self._model.name)
        if isinstance(step, Broken):
            self._error = step.error
            deltas = [delta for delta in deltas if not isinstance(delta, (Stop, UsageReport))]
        return deque(deltas)
