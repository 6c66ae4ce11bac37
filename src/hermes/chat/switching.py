"""From one conversation to another: a running turn put aside, another session taken up, another model.

What is put aside goes on in this process, and its answer is shown when it is there. Nothing here reads a line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hermes.chat.render import one_line
from hermes.chat.reopening import reopened
from hermes.core.errors import OperatorError, UsageError
from hermes.core.events import EntryAdded, Envelope, TaskEnded, TaskPhase
from hermes.core.messages import Assistant
from hermes.runtime.session import Session
from hermes.runtime.spec import ModelChoice, TaskSpec
from hermes.runtime.task import Task

if TYPE_CHECKING:
    from hermes.chat.interactive import Chat

__all__ = ["Aside", "ModelWish", "change_model", "read_model", "take_up"]


class ModelWish(msgspec.Struct, frozen=True):
    """What was said after /model. `lasting`: new conversations get it too."""

    name: str = ""
    provider: str = ""
    lasting: bool = False


def read_model(argument: str) -> ModelWish:
    """Read the argument of /model: a name and flags, in any order.

    Raises:
        UsageError: it is something else.
    """
    usage = "usage: /model [NAME] [--provider P] [--global]; without --global it is for this conversation"
    name, provider, lasting, words = "", "", False, iter(argument.replace("--provider=", "--provider ").split())
    for word in words:
        if word == "--provider":
            provider = next(words, "")
            if not provider or provider.startswith("-"):
                raise UsageError(usage)
        elif word in ("--global", "--session"):
            lasting = word == "--global"
        elif word.startswith("-") or name:
            raise UsageError(usage)
        else:
            name = word
    if not name and (provider or lasting):
        raise UsageError(usage)
    return ModelWish(name, provider, lasting)


class Aside:
    """The conversations that go on beside the one that is shown."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.sessions: list[Session] = []
        self._answers: dict[str, str] = {}  # what each said last, by its task

    @property
    def busy(self) -> list[Session]:
        """Those with a turn or a task that runs."""
        return [one for one in self.sessions if not one.task.ended and (one.busy or one.running())]

    def put(self) -> None:
        """Let the turn that runs go on beside, and make room for a new conversation."""
        chat = self._chat
        session = chat.session
        if session is None or not chat.turn_runs:
            chat.screen.note("no turn runs that could go on in the background")
            return
        self.sessions.append(session)
        chat.screen.finish()
        chat.forget_session()
        chat.screen.note(
            f"⤵ {session.id} goes on in the background; its answer is shown here, /resume {session.id} returns to it"
        )

    def take(self, session_id: str) -> Session | None:
        """The conversation of that id, no longer beside; None where it is not."""
        found = next((one for one in self.sessions if one.id == session_id and not one.task.ended), None)
        if found is not None:
            self.sessions.remove(found)
        return found

    def hear(self, envelope: Envelope) -> None:
        """Show the answer of a conversation beside once it rests."""
        event = envelope.event
        if not self.sessions or not isinstance(event, (EntryAdded, TaskPhase, TaskEnded)):
            return
        session = next((one for one in self.sessions if one.task.id == envelope.task_id), None)
        if session is None:
            return
        chat = self._chat
        if isinstance(event, EntryAdded):
            if isinstance(event.entry, Assistant):
                self._answers[envelope.task_id] = event.entry.text
        elif isinstance(event, TaskEnded):
            self.sessions.remove(session)
            chat.screen.note(f"✗ {session.id} ended: {one_line(event.error or event.exit_reason, 300)}")
        elif event.phase == "idle":
            text = self._answers.pop(envelope.task_id, "")
            if event.detail or not text:
                chat.screen.note(f"✗ {session.id}: {one_line(event.detail, 500) or 'it rests without an answer'}")
            else:
                chat.screen.panel(f"Hermes ({session.id}) · /resume {session.id}", chat.assembly.redactor.text(text))
            chat.ring()

    async def close(self) -> list[Task]:
        """End them; returns the tasks that were stopped."""
        sessions, self.sessions = self.sessions, []
        stopped = [task for one in sessions for task in one.running()]
        for one in sessions:
            await one.close()
        return stopped


async def take_up(chat: Chat, wanted: str) -> None:
    """Go to another session of the home: the present one goes on beside if it works, else it is left.

    Raises:
        UsageError: there is no such session.
        OperatorError: another process has it open.
    """
    recovery = chat.assembly.recovery
    session_id = next((one.id for one in chat.aside.sessions if one.id.startswith(wanted)), "")
    session_id = session_id or await recovery.find(wanted)
    if chat.session is not None and chat.session.id == session_id:
        chat.screen.note(f"{session_id} is the conversation you are in")
        return
    report = await recovery.look(session_id)
    beside = chat.aside.take(session_id)
    if beside is None and report.owner_alive and report.owner != chat.runtime.supervisor.owner:
        raise OperatorError(
            f"session {session_id} is open in another process; `hermes attach {session_id}` takes it over"
        )
    if chat.turn_runs or chat.running():
        if chat.session is not None:
            chat.aside.sessions.append(chat.session)
            chat.screen.note(f"⤵ {chat.session.id} goes on in the background")
        chat.forget_session()
    else:
        await chat.end_session()
    if beside is not None:
        chat.hold(beside)
        chat.screen.note(f"back in {session_id}")
        return
    task = await reopened(chat, chat.composer, session_id)
    if task is not None:
        chat.hold(Session(task, chat.runtime.control))


async def change_model(chat: Chat, name: str, provider: str = "") -> None:
    """Have another model answer from the next turn on, for this conversation alone.

    Raises:
        UsageError: a turn or a task runs, or such a model cannot be had.
    """
    name = chat.assembly.settings.model.aliases.get(name, name)

    def revise(spec: TaskSpec) -> TaskSpec:
        same = spec.model if not provider else ModelChoice(provider=provider)
        return msgspec.structs.replace(spec, model=msgspec.structs.replace(same, name=name))

    chat.assembly.check(revise(chat.spec).model)
    if chat.session is not None:
        if chat.turn_runs or chat.running():
            raise UsageError("the model changes between turns: wait until nothing runs, or /stop first.")
        session = chat.session
        chat.forget_session()
        await session.close()
        task = await chat.assembly.recovery.adopt(session.id, interactive=True, revise=revise)
        chat.hold(Session(task, chat.runtime.control))
    chat.spec = revise(chat.spec)
    chat.screen.note(f"from here on {name} answers")
