"""An agent as an object: one conversation a call, over the portal. Remembers nothing between calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from hermes.api.client import AsyncHermes, Run
from hermes.api.sync import Hermes, open
from hermes.core.errors import UsageError
from hermes.core.model import Model
from hermes.providers.render import render
from hermes.providers.transcript import read_messages
from hermes.runtime.portal import Portal
from hermes.runtime.task import Task

__all__ = ["AIAgent"]


class AIAgent:
    """An agent that answers conversations, one call each; nothing is remembered but what `conversation_history` brings.

    The runtime opens with the first call, on a thread of its own, and closes with `close`, at the end of a `with`
    block, or with the interpreter; pass `runtime` to let several agents share one. Calls may come from several threads.

    Args:
        model: name of the model, or a `Model`; empty takes the configured one.
        base_url, api_key, provider: the endpoint, where it is not the configured one.
        max_turns: model calls with tools for one conversation; `max_iterations` is the same.
        enabled_toolsets: the toolsets it has; None takes the configured ones.
        disabled_toolsets: toolsets taken away from these.
        tools: functions of yours that it and its children may call; the types of the parameters are the schema, the
            docstring is the description. A plain function runs on a thread, an `async def` on the loop.
        quiet_mode: accepted; nothing is ever printed.
        ephemeral_system_prompt: system text that is sent and not part of the messages.
        reasoning_effort, max_tokens: sent to the model as they are.
        workspace: directory of its commands; empty takes the current one.
        settings, environ, memory: as in `open`.
        runtime: an open `Hermes`.
    """

    def __init__(
        self,
        model: str | Model = "",
        *,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        max_turns: int | None = None,
        max_iterations: int | None = None,
        enabled_toolsets: Sequence[str] | None = None,
        disabled_toolsets: Sequence[str] | None = None,
        tools: Sequence[Callable[..., Any]] = (),
        quiet_mode: bool = True,
        ephemeral_system_prompt: str | None = None,
        reasoning_effort: str | None = None,
        max_tokens: int | None = None,
        workspace: str = "",
        settings: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        memory: bool = False,
        runtime: Hermes | None = None,
    ) -> None:
        turns = max_turns if max_turns is not None else max_iterations
        if turns is not None and turns < 1:
            raise UsageError(f"max_turns has to be at least 1, not {turns}")
        more: dict[str, Any] = dict(settings or {})
        if disabled_toolsets:
            more["agent.disabled_toolsets"] = list(disabled_toolsets)
        self._system = ephemeral_system_prompt or ""
        self._changes: dict[str, Any] = {
            "turns": turns,
            "toolsets": enabled_toolsets,
            "reasoning_effort": reasoning_effort,
            "max_tokens": max_tokens,
        }
        if runtime is not None and not isinstance(model, str):
            raise UsageError("a shared runtime has its model already; give the name of a model, or no runtime")
        if runtime is not None and tools:
            raise UsageError("a shared runtime has its tools already; give them to hermes.open(tools=[…])")
        if runtime is not None:
            self._changes["model"] = model
        self._owned = runtime is None
        self._hermes = runtime or open(
            model=model,
            provider=provider,
            base_url=base_url,
            api_key=api_key,
            settings=more,
            workspace=workspace,
            environ=environ,
            memory=memory,
            tools=tools,
            on_exit="cancel",
        )
        self._lock = threading.Lock()
        self._open = not self._owned
        self._running: dict[str, Task] = {}

    def chat(self, message: str) -> str:
        """Ask one thing and return the final answer; "" when there was none.

        Raises as `run_conversation`.
        """
        return str(self.run_conversation(message)["final_response"] or "")

    def run_conversation(
        self,
        user_message: str,
        system_message: str | None = None,
        conversation_history: Sequence[Mapping[str, Any]] | None = None,
        task_id: str | None = None,
    ) -> dict[str, Any]:
        """Answer `user_message`, after the messages of `conversation_history` (OpenAI format), and say how it went.

        `system_message` joins the system text of this call. `task_id` is a name of yours for the run. A failed model is
        an answer with `failed` and `error`, no exception.

        Returns:
            `final_response` (None without one), `messages` (history included, OpenAI format, no system text),
            `api_calls`, `completed`; `input_tokens`, `output_tokens`, `cached_tokens`, `reasoning_tokens`,
            `total_tokens`, `cost_usd` (children included, None if unknown), `model`, `exit_reason`, `task_id`,
            `session_id`; where they apply `partial`, `interrupted`, `failed` (True) and `error`.

        Raises:
            UsageError: an empty message, a history that is none, a wrong setting, no open runtime.
            OperatorError: nothing is configured, or the runtime cannot work.
            KeyboardInterrupt: Ctrl+C in the main thread; the run has been stopped.
        """
        said, history = read_messages(conversation_history or ())
        system = "\n\n".join(part for part in (system_message or "", said, self._system) if part)
        changes = {**self._changes, "system": system, "label": task_id}
        portal = self._opened()
        hermes = portal.value
        run = portal.call(lambda: hermes.run(user_message, history, self._started, changes))
        self._running.pop(run.result.task_id, None)
        return _conversation(run)

    def interrupt(self) -> bool:
        """Stop what this agent is running, from another thread; False when it runs nothing."""
        if not self._running:
            return False
        portal = self._opened()
        hermes = portal.value
        tasks = list(self._running.values())

        async def stop() -> bool:
            return bool(await hermes.assembly.runtime.control.cancel(tasks, "interrupted by the user"))

        return portal.call(stop)

    def _started(self, task: Task) -> None:
        self._running = {name: kept for name, kept in self._running.items() if not kept.ended} | {task.id: task}

    def _opened(self) -> Portal[AsyncHermes]:
        with self._lock:
            if not self._open:
                self._hermes.__enter__()
                self._open = True
        return self._hermes.portal

    def close(self) -> None:
        """Close the runtime that this agent opened; a later call opens it again."""
        with self._lock:
            if self._owned and self._open:
                self._open = False
                self._hermes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _conversation(run: Run) -> dict[str, Any]:
    result = run.result
    usage = result.subtree_usage
    answer: dict[str, Any] = {
        "final_response": result.summary or None,
        "messages": render(run.entries),
        "api_calls": result.api_calls,
        "completed": result.state == "completed",
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cached_tokens": usage.cached,
        "reasoning_tokens": usage.reasoning,
        "total_tokens": usage.total,
        "cost_usd": usage.cost_usd,
        "model": result.model,
        "exit_reason": result.exit_reason,
        "task_id": result.task_id,
        "session_id": run.session_id,
    }
    if result.partial:
        answer["partial"] = True
    if result.state == "cancelled":
        answer["interrupted"] = True
    if result.state in ("failed", "timed_out"):
        answer["failed"] = True
    if result.error:
        answer["error"] = result.error
    return answer
