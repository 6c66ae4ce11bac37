"""The way from a task to the person at the terminal: one question at a time, each with the path of who asks.

What is asked about calls is decided by the gate (`approval.py`). Here a task's model asks in its own words, and where
nobody answers it gets none; nothing ever waits without an end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import anyio
import msgspec

from hermes.core.events import ApprovalAnswered, ApprovalAsked
from hermes.runtime.task import Task

__all__ = ["Answer", "Asker", "Person", "Question", "Reply"]

#: What may be answered to the question whether a call may run.
Answer = Literal["once", "session", "always", "no"]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is asked. `path` leads from the conversation to the task that asks; `timeout` are the seconds that
    the question waits.

    It is about a call (`lasting` is what the answers `session` and `always` would allow from now on), or `open`: `what`
    is a question of the model, any text answers it, and `choices` are offered.
    """

    request: str
    tool: str
    what: str
    reason: str
    path: tuple[str, ...]
    timeout: float
    lasting: str = ""
    open: bool = False
    choices: tuple[str, ...] = ()


class Reply(msgspec.Struct, frozen=True):
    """What became of an open question: the person's words, or why there are none."""

    text: str
    silence: str = ""


#: Puts a question to a person. The answer to one about a call is an `Answer`; an empty text answers none.
Asker = Callable[[Question], Awaitable[str]]


class Person:
    """Whoever can be asked in this process. `asker` is None while nobody is there; `returns`: whoever left this work
    may come back to it, so that what a model asks meanwhile waits, and is asked where they take the work up again."""

    def __init__(self) -> None:
        self.asker: Asker | None = None
        self.returns = False
        self._number = 0
        self._asking = anyio.Lock()

    def there_for(self, task: Task) -> bool:
        """Whether somebody can answer this task."""
        return self.asker is not None and not task.spec.unattended

    def next_request(self) -> str:
        """A name for a question, not given before in this process."""
        self._number += 1
        return f"ask-{self._number}"

    async def answer(self, question: Question, known: Callable[[], str] = str) -> str | None:
        """The person's answer, empty where they went, None where there was none in time. `known` says what answers the
        question by the time its turn comes, also where nobody is there any more, or nothing."""
        answer: str | None = None
        with anyio.move_on_after(question.timeout):
            async with self._asking:  # one question at a time on one screen
                asker = self.asker
                answer = known() or (await asker(question) if asker is not None else "")
        return answer

    async def ask(self, task: Task, tool: str, text: str, choices: Sequence[str], timeout: float) -> Reply:
        """Put a question of a task's model to the person; `timeout` are seconds."""
        there = self.there_for(task)
        if not there and (not self.returns or task.spec.unattended):
            return Reply("", "nobody is here to be asked")
        question = Question(
            request=self.next_request(),
            tool=tool,
            what=text,
            reason="",
            path=task.scope.path,
            timeout=timeout,
            open=True,
            choices=tuple(choices),
        )
        task.emit(
            ApprovalAsked(
                request=question.request,
                tool=tool,
                what=text,
                reason="",
                path=question.path,
                choices=question.choices,
            )
        )
        answer = await (self.answer(question) if there else _silence(timeout))
        task.emit(
            ApprovalAnswered(
                request=question.request,
                tool=tool,
                allowed=True,
                by="user" if answer else "timeout",
                reason="" if answer else "nobody answered",
                answer=answer or "",
            )
        )
        if answer is None:
            return Reply("", f"nobody answered within {timeout:g} s")
        return Reply(answer, "" if answer else "nobody is here any more to be asked")


async def _silence(seconds: float) -> None:
    """Wait for somebody who is not there; one who comes back stops the task here, and it asks anew where they are."""
    await anyio.sleep(seconds)
