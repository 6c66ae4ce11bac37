"""The rollouts of one row as a group for reinforcement learning and preference pairs.

Filters never thin a group: a rollout that they reject stays with the lowest score as a negative, or its whole group
goes. A group that lacks a rollout, because it failed or is pending, goes whole. All of it is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from hermes.batch.record import Record
from hermes.core.errors import UsageError

__all__ = ["Group", "GroupOptions", "Member", "scored_groups"]


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How groups are made. `filtered`: what becomes of rollouts that the filters rejected, `filtered_score` the score
    they get as negatives. `score_default` is the score of rollouts without one, None = refuse them."""

    filtered: Literal["negative", "drop_group"] = "negative"
    filtered_score: float = 0.0
    score_default: float | None = None


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout with the score it has in its group. `filtered` is the reason of its rejection, empty if it was kept."""

    record: Record
    score: float
    filtered: str = ""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """All rollouts of one row, in their order."""

    group_id: str
    index: int
    members: tuple[Member, ...]

    @property
    def no_signal(self) -> bool:
        """Whether all scores are equal, so that no rollout is better than the group."""
        return len({member.score for member in self.members}) < 2


def scored_groups(
    groups: Iterable[Sequence[Record]], size: int, options: GroupOptions, losses: Counter[str]
) -> Iterator[Group]:
    """Yield the whole groups of a run with `size` rollouts a row; what goes is added to `losses`.

    Raises:
        UsageError: a rollout has no score and `score_default` gives none.
    """
    for records in groups:
        ended = [record for record in records if record.head.outcome == "finished"]
        if len(ended) != size:
            losses["group dropped: a rollout failed or is pending"] += 1
            continue
        if options.filtered == "drop_group" and any(record.head.reason for record in ended):
            losses["group dropped: a rollout was rejected"] += 1
            continue
        members = tuple(_member(record, options, losses) for record in ended)
        head = ended[0].head
        yield Group(group_id=head.key.rpartition(":")[0], index=head.index, members=members)


def _member(record: Record, options: GroupOptions, losses: Counter[str]) -> Member:
    head = record.head
    if head.reason:
        losses["rejected rollout kept as a negative"] += 1
        return Member(record=record, score=options.filtered_score, filtered=head.reason)
    score = head.score if head.score is not None else options.score_default
    if score is None:
        raise UsageError(
            f"row {head.index} has no score: give its rows a `verifier`, or give --score-default=NUMBER for all "
            "rollouts without one."
        )
    return Member(record=record, score=score)
