"""Taking a conversation up again at a terminal: the report, the question, the adoption, and where one was."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from hermes.chat.attaching import without_files
from hermes.chat.composer import Composer
from hermes.chat.returning import Recover, describe, recover_mode, unfinished
from hermes.chat.revising import model_lines, revision
from hermes.core.codec import decode_entry
from hermes.core.errors import OperatorError
from hermes.core.messages import Assistant, User, plain_text
from hermes.runtime.rows import stored_spec
from hermes.runtime.task import Task

if TYPE_CHECKING:
    from hermes.chat.interactive import Chat

__all__ = ["reopened"]

#: Exchanges that are shown again.
RECALLED = 5
_YES, _STOP, _NO = ("", "y", "yes", "да"), ("s", "stop"), ("n", "no", "нет")


async def reopened(chat: Chat, composer: Composer, session_id: str) -> Task | None:
    """Take a session up, after telling what became of it; None when the person leaves it as it is.

    Raises:
        OperatorError: another process has it open.
        UsageError: there is nothing to go on with.
    """
    recovery = chat.assembly.recovery
    report = await recovery.look(session_id)
    if report.owner_alive:
        raise OperatorError(
            f"session {session_id} is open in another process (owner {report.owner}); hermes attach {session_id} takes "
            "it over"
        )
    moved = session_id == chat.went_on  # it was going on a moment ago: whether it shall go on is no question
    mode = recover_mode(chat.assembly.settings.delegation.recover, chat.terminal and not moved)
    if report.main is not None:  # above what became of it, which must not scroll away
        await _recall(chat, report.main.task_id)
    for line in describe(report, mode=mode, moved=moved):
        chat.screen.note(line)
    if mode == "ask" and unfinished(report):
        answer = await _ask(chat, composer)
        if answer is None:
            return None
        mode = answer
    before = stored_spec(report.main).model.name if report.main is not None else ""
    revise = revision(chat.assembly, chat.options)
    task = await recovery.adopt(session_id, interactive=True, children=mode != "never", revise=revise)
    for line in model_lines(chat.assembly, before, task):
        chat.screen.note(line)
    if task.spec.workspace != chat.workspace:
        chat.screen.note(f"it works in {task.spec.workspace}")
    return task


async def _ask(chat: Chat, composer: Composer) -> Recover | None:
    while True:
        chat.screen.note("Go on? y: yes · s: without them, stopped with what they have · n: leave all as it is")
        composer.refresh("y/s/n> ", "")
        line = await composer.read()
        word = line.strip().lower() if isinstance(line, str) else "n"
        if word in _YES:
            return "auto"
        if word in _STOP:
            return "never"
        if word in _NO:
            return None


async def _recall(chat: Chat, task_id: str) -> None:
    """Show the newest exchanges."""
    exchanges: deque[tuple[str, str]] = deque(maxlen=RECALLED)
    for _, body in await chat.runtime.store.entries(task_id):
        entry = decode_entry(body)
        if isinstance(entry, User) and entry.source in ("user", "goal"):
            exchanges.append((without_files(plain_text(entry.content)), ""))
        elif isinstance(entry, Assistant) and entry.text.strip():
            asked = exchanges.pop()[0] if exchanges else ""
            exchanges.append((asked, entry.text))
    for asked, answered in exchanges:
        chat.screen.recall(asked, answered)
