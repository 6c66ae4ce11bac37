"""The `clarify` tool: the model asks its person in its own words, and goes on without an answer where there is none.

Whom it reaches is passed in. It never fails for want of a person: the model reads what to do instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from hermes.core.errors import ToolError
from hermes.core.scope import TaskScope
from hermes.core.tools import CallContext, Tool, ToolEnv, ToolOutput, json_output

__all__ = ["AskPerson", "ClarifyArguments", "ClarifyToolset"]

#: Choices that are offered, characters of one, and of a question.
MOST_CHOICES, MOST_CHOICE, MOST_QUESTION = 6, 200, 4_000

_DESCRIPTION = (
    "Ask the user a question and wait for the answer. Use it when a decision is theirs and guessing would be costly: "
    "an ambiguous request, a choice between ways that differ, a preference. Give the likely answers as `choices`; the "
    "user may write another one. Do not use it to have a command allowed, nor for what you can find out yourself."
)
_ALONE = (
    "No answer: {why}. Do not ask again now. Go on with the most sensible assumption, and say in your answer what you "
    "assumed and what you would have asked; where no assumption is safe, leave that part undone and say so."
)

#: Puts a question with choices to the person of a task: the answer, or an empty one and why there is none.
AskPerson = Callable[[TaskScope, str, Sequence[str]], Awaitable[tuple[str, str]]]


class ClarifyArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of `clarify`."""

    question: Annotated[str, Meta(description="What you want to know, in one or a few sentences.")]
    choices: Annotated[
        list[str] | None,
        Meta(description=f"Likely answers, at most {MOST_CHOICES}, best first; left out for an open question."),
    ] = None


class ClarifyToolset:
    """`clarify`."""

    name = "clarify"
    label = "Ask the user a question"
    opt_in = False
    tool_names = ("clarify",)

    def __init__(self, ask: AskPerson) -> None:
        self._ask = ask

    def build(self, env: ToolEnv) -> Sequence[Tool]:
        """Build the tool for one task."""
        if env.tiny:
            return ()  # it would ask what it was just told

        async def run(arguments: ClarifyArguments, _context: CallContext) -> ToolOutput:
            question, choices = _checked(arguments)
            answer, silence = await self._ask(env.scope, question, choices)
            found = {"question": question, "choices_offered": choices or None, "user_response": answer or None}
            if not answer:
                found["note"] = _ALONE.format(why=silence)
            return json_output(found, preview=answer or silence)

        return (
            Tool(
                name="clarify",
                description=_DESCRIPTION,
                arguments=ClarifyArguments,
                run=run,
                safe_to_repeat=True,
                interactive=True,
                describe=lambda arguments: str(arguments.get("question", "")),
            ),
        )


def _checked(arguments: ClarifyArguments) -> tuple[str, list[str]]:
    question = arguments.question.strip()
    if not question:
        raise ToolError("clarify: the question is empty. Say what you want to know.")
    if len(question) > MOST_QUESTION:
        raise ToolError(f"clarify: the question has {len(question)} characters; {MOST_QUESTION} are the most.")
    choices = list(dict.fromkeys(choice.strip() for choice in arguments.choices or () if choice.strip()))
    if len(choices) > MOST_CHOICES:
        raise ToolError(f"clarify: {len(choices)} choices are too many; offer the {MOST_CHOICES} likeliest.")
    long = next((choice for choice in choices if len(choice) > MOST_CHOICE), None)
    if long is not None:
        raise ToolError(f"clarify: the choice {long[:40]!r} has over {MOST_CHOICE} characters; put it shortly.")
    return question, choices
