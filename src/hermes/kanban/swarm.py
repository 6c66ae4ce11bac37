"""One goal given to several workers at once, their results checked, then brought together: the cards for that.

Nobody is asked for a plan: the shape is always the same. The goal's own card is the last of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from hermes.core.errors import HermesError, UsageError
from hermes.kanban.board import Board
from hermes.kanban.card import Card, NewCard
from hermes.kanban.creating import Part
from hermes.kanban.ending import Authority

__all__ = ["Swarm", "put_swarm"]

#: Workers that one goal may be given to.
MOST = 20

_WORK = (
    "Others work on the same goal at the same time, each alone. Reach it in your own way and by what you are good at, "
    "and give your whole result: it is compared with theirs."
)
_CHECK = (
    "Several workers tried to reach the goal, each alone; their results stand below. Check them: what holds, what "
    "contradicts, what is missing, and which is best in what. Do not do the work yourself. Your verdict is read by the "
    "one who brings the results together."
)
_JOIN = "Bring the results below together into one, the best of each{checked}. Say what you left out and why."


class Swarm(msgspec.Struct, frozen=True, kw_only=True):
    """The cards of a goal: `goal` waits for `check` (None without one), which waits for `workers`."""

    goal: Card
    workers: list[Card]
    check: Card | None = None


def put_swarm(
    board: Board, goal: NewCard, *, workers: Sequence[str], verifier: str | None, synthesizer: str, author: str
) -> Swarm:
    """Make the cards; a profile named twice works twice. All of them are made, or none stays open.

    Raises:
        UsageError: no workers, too many, or no such profile.
    """
    if not 1 <= len(workers) <= MOST:
        raise UsageError(f"a goal is given to 1 to {MOST} workers, not to {len(workers)}.")
    said = goal.body or "(nothing more was said)"
    order = msgspec.structs.replace(goal, assignee=None, check_command=None, reviewer=None)
    seen: Counter[str] = Counter()
    parts = []
    for name in workers:
        seen[name] += 1
        which = f"{name} {seen[name]}" if workers.count(name) > 1 else name
        own = msgspec.structs.replace(
            order, title=f"{goal.title} ({which})", body=f"{said}\n\n{_WORK}", assignee=name,
            check_command=goal.check_command,
        )  # fmt: skip
        parts.append(Part(order=own))
    if verifier is not None:
        check = msgspec.structs.replace(
            order, title=f"Check: {goal.title}", body=f"{said}\n\n{_CHECK}", assignee=verifier
        )
        parts.append(Part(order=check, needs=tuple(range(len(workers)))))
    root = board.create(msgspec.structs.replace(order, triage=True), author=author).card
    try:
        joined = _JOIN.format(checked=" as the check found them" if verifier is not None else "")
        made = board.split(root.id, parts, author=author, assignee=synthesizer, body=f"{said}\n\n{joined}")
    except HermesError:
        board.archive(root.id, Authority(author=author))
        raise
    checked = made[len(workers)] if verifier is not None else None
    return Swarm(goal=board.find(root.id), workers=made[: len(workers)], check=checked)
