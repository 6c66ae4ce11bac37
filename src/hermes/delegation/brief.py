"""What a child is told: who it is, its task, where it works, how to finish. Names no tool that it might not have."""

from __future__ import annotations

import os

from hermes.core.scope import Role
from hermes.runtime.isolation import Isolation

__all__ = ["answer_rules", "child_system", "first_message"]

_TINY = "You are a helper with one task. Do it and report the result in one or two short sentences."

_SCHEMA = (
    "Your final answer has to be one JSON value that fits this JSON schema, without any other text around it; put what "
    "you would have reported into its fields:"
)


def first_message(goal: str, context: str) -> str:
    """The first user message of a child: the goal and, when there is one, the context."""
    return f"{goal}\n\nCONTEXT:\n{context}" if context.strip() else goal


def answer_rules(schema: str, check: str, workspace: str) -> list[str]:
    """What a task is told of the schema of its answer and the check of its work; nothing where there is neither."""
    rules = []
    if check:
        rules.append(
            f"When you report, the command `{check}` is run in {workspace}; the task is done only if it succeeds. Run "
            "it yourself first if you can."
        )
    if schema:
        rules.append(f"{_SCHEMA}\n{schema}")
    return rules


def _own_workspace(isolation: Isolation) -> str:
    kept = f"It is yours alone: nothing you do may change {isolation.origin}, which it was made from."
    if isolation.mode == "scratch":
        return f"It was empty when you began. {kept}"
    if isolation.mode == "copy":
        return f"It is a copy of {isolation.origin}. {kept}"
    return (
        f"It is a git worktree on the branch {isolation.branch}, which begins at commit {isolation.base[:12]}. {kept} "
        "Commit what shall last; do not switch to another branch."
    )


def child_system(
    goal: str,
    context: str,
    *,
    workspace: str,
    role: Role,
    depth: int,
    max_depth: int,
    tiny: bool = False,
    prompt: str = "",
    schema: str = "",
    check: str = "",
    isolation: Isolation | None = None,
) -> str:
    """The system text of a child. `depth` counts from 1 for a child of the conversation.

    `prompt` is that of its agent type, `schema` the JSON schema of its answer, `check` the command that decides.
    """
    if tiny:
        return f"{_TINY} {_SCHEMA}\n{schema}" if schema else _TINY
    parts = [
        "You are a focused subagent. Another agent delegated one task to you; you share none of its conversation, and "
        "it sees none of your work but your final report.",
        *([prompt] if prompt else []),
        f"YOUR TASK:\n{goal}",
    ]
    if context.strip():
        parts.append(f"CONTEXT:\n{context}")
    if os.path.isabs(workspace):
        parts.append(
            f"WORKSPACE: {workspace}\nWork there. Do not assume any other directory, in particular no conventional "
            "container path such as /workspace or /app, unless you have seen that it exists. What others shall read "
            "belongs there: any other directory, /tmp included, may be seen by you alone."
        )
        if isolation is not None:
            parts.append(_own_workspace(isolation))
    parts.append(
        "When you are done, answer with a concise report and no further tool call: what you did, what you found, which "
        "files you created or changed, which problems you met. State only what you have seen. The report is all that "
        "your parent gets."
    )
    parts.extend(answer_rules(schema, check, workspace))
    if role == "orchestrator":
        below = (
            "Your own children may not delegate any further."
            if depth + 1 >= max_depth
            else "Your own children may delegate in turn if you make them orchestrators."
        )
        parts.append(
            "You may delegate parts of this task to children of your own when they are independent of each other and "
            f"large enough to be worth it; do small steps yourself. You are at depth {depth} of {max_depth}. {below} "
            "Check what they report before you pass it on."
        )
    return "\n\n".join(parts)
