"""The longer notes of a conversation, as lines. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import anyio

from hermes.chat.attaching import Sight
from hermes.chat.render import cost, duration, one_line, quantity
from hermes.chat.tree_text import one_row
from hermes.compose import Assembly
from hermes.config.reference import plain
from hermes.config.schema import Settings
from hermes.core.events import TaskEnded
from hermes.core.messages import Usage
from hermes.providers.catalog import Catalog
from hermes.providers.weights import LABEL
from hermes.runtime.letting_go import mid_call
from hermes.runtime.task import Task

if TYPE_CHECKING:
    from hermes.chat.interactive import Chat

__all__ = [
    "changed",
    "commands_awaited",
    "describe_source",
    "greeting",
    "loop_delay",
    "run_ended",
    "running_lines",
    "sight_for",
    "sight_of",
    "status",
    "stopping",
    "waiting",
]


def describe_source(assembly: Assembly) -> str:
    """Which model answers, where, and where its key came from; a tiny one is labelled."""
    endpoint = assembly.endpoint
    if assembly.model.profile.tiny:
        return f"{endpoint.model} — {LABEL}"
    return f"{endpoint.model} · {endpoint.provider} · key: {endpoint.key_source}"


def sight_of(chat: Chat) -> Sight:
    """Whether the model that answers now looks at pictures."""
    session = chat.session
    return sight_for(chat.assembly, (session.task.spec if session is not None else chat.spec).model.name)


def sight_for(assembly: Assembly, name: str) -> Sight:
    """Whether the model of this name looks at pictures; an empty name is the configured one."""
    name, profile = name or assembly.endpoint.model, assembly.model.profile
    if name != assembly.endpoint.model:  # the conversation has another
        profile = Catalog(assembly.settings.models).profile(name)
    return Sight(name, profile.images)


def greeting(chat: Chat) -> list[str]:
    """What stands at the top."""
    lines = [f"Hermes · {describe_source(chat.assembly)}", f"{chat.workspace} · /help lists the commands"]
    lines += [f"note: {note}" for note in chat.notes]
    if chat.runtime.gate.yolo:
        lines.append("--yolo: dangerous commands run without a question")
    return lines


def status(chat: Chat) -> str:
    """What stands in the status bar: model, running tasks, use of the conversation with everything under it."""
    running = len(chat.running())
    usage = Usage()
    for view in chat.tree.roots():
        if view.session_id == chat.last_session:
            usage = usage + chat.tree.subtree_usage(view.task_id)
    model = chat.session.task.spec.model.name if chat.session is not None else ""
    parts = [model or chat.assembly.endpoint.model, f"▶ {running}" if running else "", f"{quantity(usage.total)} tok"]
    beside = len(chat.aside.busy)
    parts += [cost(usage), f"⤵ {beside} beside" if beside else "", "working" if chat.turn_runs else ""]
    return " · ".join(part for part in parts if part)


def changed(settings: Settings) -> list[tuple[str, str]]:
    """The settings that are not at their defaults, secrets masked."""
    rows: list[tuple[str, str]] = []

    def walk(prefix: str, now: Any, usual: Any) -> None:
        for name, value in now.items():
            before = usual.get(name) if isinstance(usual, dict) else None
            if isinstance(value, dict) and isinstance(before, dict) and before:
                walk(f"{prefix}{name}.", value, before)
            elif value != before:
                rows.append((prefix + name, one_line(str(value), 100)))

    walk("", plain(settings), plain(Settings()))
    return rows


async def loop_delay() -> float:
    """How late the event loop comes to what is due: the longest of five short waits, seconds."""
    worst = 0.0
    for _ in range(5):
        due = anyio.current_time() + 0.01
        await anyio.sleep_until(due)
        worst = max(worst, anyio.current_time() - due)
    return worst


def waiting(chat: Chat) -> list[str]:
    """How to reach the tasks that a conversation waits for; nothing where it waits for none."""
    tree, running = chat.tree, chat.running()
    if chat.session is None or not chat.session.task.lent or not running:
        return []
    lines = [f"it waits for {len(running)} running tasks until then; to reach them now:", "  /steer all TEXT"]
    return lines + [f"  /steer {task.id} TEXT   {one_line(tree.tasks[task.id].goal, 50)}" for task in running[:10]]


def running_lines(chat: Chat, width: int) -> list[str]:
    """What runs, here and beside, at most ten tasks of it."""
    running = chat.running()
    lines = ["a turn runs"] if chat.turn_runs else []
    for task in running[:10]:
        lines.append(one_row(chat.tree, chat.tree.tasks[task.id], chat.now(), width=width, brief=True))
    if len(running) > 10:
        lines.append(f"… and {len(running) - 10} more tasks")
    return [*lines, *(f"the conversation {one.id}, put aside" for one in chat.aside.busy)]


def stopping(chat: Chat, verb: str, running: Sequence[Task]) -> list[str]:
    """What a command would stop, before it is given again."""
    more = f" ({len(running)} tasks)" if len(running) > 10 else ""
    last = f"/{verb} again stops what runs{more}; what it has so far is kept. /detach lets it go on"
    if verb == "quit":
        last = f"d: detach, it goes on in the background · s or /quit again stops what runs{more}, what it has is kept"
        last += " · w: leave once it has ended · any other line: stay"
    return [*running_lines(chat, chat.screen.width), last]


def commands_awaited(chat: Chat) -> list[str]:
    """That leaving waits for commands, where some run."""
    wait = chat.assembly.settings.runtime.handover_wait_seconds
    commands = sum(mid_call(task) for task in chat.runtime.supervisor.tasks.values())
    return [f"waiting up to {wait:g} s for {commands} running command(s) to end"] if commands and wait else []


def run_ended(chat: Chat, task_id: str, event: TaskEnded) -> None:
    """Show the end of a background run."""
    task = chat.runtime.supervisor.tasks[task_id]
    number = chat.runs.index(task) + 1 if task in chat.runs else 0
    text = task.result.summary if task.result is not None else event.summary
    if event.state in ("completed", "exhausted"):
        note = "\n(incomplete: a limit was reached)" if event.truncated else ""
        title = f"Hermes (background #{number}) · {duration(event.elapsed)}"
        chat.screen.panel(title, chat.assembly.redactor.text(text) + note)
    else:
        why = one_line(event.error or event.exit_reason, 300)
        chat.screen.note(f"✗ background #{number} ({task_id}) {event.status}: {why}")
