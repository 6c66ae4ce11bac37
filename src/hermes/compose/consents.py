"""The gate of a runtime, and where the consents of a person are kept: those of a conversation in its journal, those for
good in `config.yaml`."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio.to_thread
import msgspec

from hermes.compose.parts import Parts
from hermes.compose.taping import TapedGate
from hermes.config import Home
from hermes.config.approvals import ApprovalRule
from hermes.config.edit import set_value
from hermes.config.load import read_document
from hermes.core.clock import Hold, held
from hermes.core.codec import decode_event
from hermes.core.errors import OperatorError
from hermes.core.events import ApprovalAnswered
from hermes.core.scope import TaskScope
from hermes.credentials.redact import Redactor
from hermes.runtime.approval import Gate
from hermes.runtime.taping import Tape
from hermes.runtime.task import Task
from hermes.store.ops import Store
from hermes.tools.clarify import AskPerson

__all__ = ["asking", "gate_of", "granted_in", "saved_to"]


def gate_of(parts: Parts, redactor: Redactor, store: Store, tape: Tape | None = None) -> Gate:
    """The gate that the settings ask for."""
    settings, home = parts.loaded.settings, parts.loaded.home
    terminal = settings.terminal
    gate = TapedGate(
        mode=settings.approvals.mode,
        yolo=parts.yolo,
        children_yes=settings.delegation.subagent_auto_approve,
        host_commands=settings.approvals.host_commands,
        timeout=settings.approvals.timeout,
        rules=settings.approvals.rules,
        private=(str(home.config_file), *parts.loaded.private),
        home=(parts.environ or os.environ).get("HOME", ""),
        networked=[
            kind
            for kind, there in (("sandbox", terminal.sandbox_network), ("docker", terminal.docker_network))
            if there
        ],
        granted=granted_in(store),
        save=saved_to(home, parts.hold),
        redact=redactor.text,
        hold=parts.hold,
    )
    gate.tape = tape
    return gate


def asking(gate: Gate, tasks: Mapping[str, Task], timeout: float) -> AskPerson:
    """What puts questions of models to the person; each waits `timeout` seconds."""

    async def ask(scope: TaskScope, question: str, choices: Sequence[str]) -> tuple[str, str]:
        reply = await gate.person.ask(tasks[scope.task_id], "clarify", question, choices, timeout)
        return reply.text, reply.silence

    return ask


def granted_in(store: Store) -> Callable[[str], Awaitable[Sequence[ApprovalRule]]]:
    """What reads the rules that a person granted in a session, `always` included where it could not be saved."""

    async def granted(session_id: str) -> Sequence[ApprovalRule]:
        found: list[ApprovalRule] = []
        for row in await store.events_of_type("approval.answered", session_id=session_id):
            event = decode_event(row.body)
            if isinstance(event, ApprovalAnswered) and event.allowed and event.scope == "session":
                found.extend(msgspec.convert(grant, ApprovalRule) for grant in event.grants)
        return found

    return granted


def saved_to(home: Home, hold: Hold) -> Callable[[ApprovalRule], Awaitable[None]]:
    """What adds a rule to `approvals.rules` of the home. It raises OperatorError or ConfigError if it cannot."""

    def add(rule: ApprovalRule) -> None:
        document = read_document(home.config_file)
        section: Any = document.data.get("approvals") if document is not None else None
        known = section.get("rules") if isinstance(section, dict) else None
        rules = list(known) if isinstance(known, list) else []
        entry = msgspec.to_builtins(rule)
        if entry not in rules:
            home.prepare(home.run_dir)
            set_value(home.config_file, ("approvals", "rules"), [*rules, entry], lock=home.run_dir / "config.lock")

    async def save(rule: ApprovalRule) -> None:
        try:
            with held(hold):
                await anyio.to_thread.run_sync(add, rule)
        except OSError as error:
            raise OperatorError(f"{home.config_file} cannot be written: {error}") from error

    return save
