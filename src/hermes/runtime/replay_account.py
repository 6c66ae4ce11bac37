"""The account of a replay: what of a cassette was given, what went otherwise, and what nobody asked for.

One process keeps it as it answers; where the trees of a run are shared out among processes, each tells the share of a
tree and they are added up. What is given when is decided in `replaying`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hermes.core.messages import opening
from hermes.runtime.cassette import CallLine, Cassette, ReplyLine
from hermes.runtime.taping import TapeShare, root_of

__all__ = ["ReplayAccount", "entries"]

#: Problems that are told one by one.
TOLD = 20


class _Tree:
    """What was given of one tree: replies by task and turn, calls by task, round and index; and the first thing that
    went otherwise, by task."""

    def __init__(self) -> None:
        self.replies: set[tuple[str, int]] = set()
        self.calls: set[tuple[str, int, int]] = set()
        self.wrong: dict[str, str] = {}


class ReplayAccount:
    """What was given of `cassette`, tree by tree."""

    def __init__(self, cassette: Cassette) -> None:
        self._cassette = cassette
        self._recorded = entries(cassette)
        self._roots = {root_of(line.task) for line in self._recorded}
        self._trees: dict[str, _Tree] = {}

    def _tree(self, name: str) -> _Tree:
        return self._trees.setdefault(root_of(name), _Tree())

    def replied(self, task: str, turn: int) -> None:
        """A reply was given."""
        self._tree(task).replies.add((task, turn))

    def called(self, key: tuple[str, int, int]) -> None:
        """The result of a call was given, or the call made again."""
        self._tree(key[0]).calls.add(key)

    def strayed(self, task: str, what: str) -> None:
        """Something went otherwise than recorded; the first thing in a task counts."""
        self._tree(task).wrong.setdefault(task, what)

    def share(self, root: str) -> TapeShare:
        """The part of one tree, by the name of its task without a parent."""
        tree = self._tree(root)
        return TapeShare(replies=tuple(tree.replies), calls=tuple(tree.calls), wrong=dict(tree.wrong))

    def add(self, share: TapeShare) -> None:
        """Add the part of one tree. One that was carried out twice, since its process died, counts once."""
        for task, turn in share.replies:
            self.replied(task, turn)
        for key in share.calls:
            self.called(key)
        for task, what in share.wrong.items():
            self.strayed(task, what)

    def shown(self, name: str) -> str:
        """A task for a person: its name, and how its goal begins."""
        line = self._cassette.tasks.get(name)
        goal = opening(line.goal, 60) if line is not None else ""
        return f'{name} ("{goal}")' if goal else name

    def problems(self) -> Sequence[str]:
        """What went otherwise than recorded, and what nobody asked for."""
        found = [what for tree in self._trees.values() for what in tree.wrong.values()]
        wrong = {root for root, tree in self._trees.items() if tree.wrong}
        if wrong <= self._roots:  # where another work was asked for, that none of this one was goes without saying
            found += [self._unused(line) for line in self._recorded if self._left(line)]
        more = len(found) - TOLD
        return [*found[:TOLD], *([f"and {more} more"] if more > 0 else [])]

    def _left(self, line: ReplyLine | CallLine) -> bool:
        """Whether nobody asked for an entry that somebody had to ask for."""
        tree = self._tree(line.task)
        if tree.wrong:
            return False
        if isinstance(line, ReplyLine):
            return not line.reply.cut and (line.task, line.turn) not in tree.replies
        return not (line.cut or line.live) and (line.task, line.round, line.index) not in tree.calls

    def _unused(self, line: ReplyLine | CallLine) -> str:
        if isinstance(line, ReplyLine):
            return f"{self.shown(line.task)}: reply {line.turn} was recorded and never asked for"
        return (
            f"{self.shown(line.task)}: call {line.index + 1} of round {line.round} ({line.tool}) was recorded and "
            "never made"
        )

    def summary(self) -> str:
        """What was given."""
        given = sum(len(tree.replies) + len(tree.calls) for tree in self._trees.values())
        return f"replayed {given} of {len(self._recorded)} entries of {self._cassette.path}"


def entries(cassette: Cassette) -> list[ReplyLine | CallLine]:
    """The replies and calls of a cassette."""
    return [*cassette.replies.values(), *cassette.calls.values()]
