"""Looking after living runs: whose process is gone, which has to end, and what each end counts as.

A run is released only with a proof: on this machine its process is looked for and whatever it started is ended first;
another machine's is believed lost only once its lease has run out. Every wait here is bounded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, MutableMapping
from pathlib import Path

from hermes.config.kanban import KanbanSettings
from hermes.core.errors import OperatorError
from hermes.kanban.board import Board
from hermes.kanban.card import Proof, Run
from hermes.kanban.ending import Authority
from hermes.kanban.errors import MoveRefused, StillRunning
from hermes.kanban.launching import Started, bound_log
from hermes.kanban.moves import Outcome
from hermes.kanban.placing import work_state, worktree_of
from hermes.kanban.releasing import Released
from hermes.kanban.run_process import ExitNote, RunFiles, end_run_processes

__all__ = ["GRACE", "RATE_LIMIT_REST", "SILENT", "Tending", "verdict"]

#: Seconds a worker gets to write down where it stands before it is killed.
GRACE = 5.0
#: Seconds a card rests after its provider refused for the rate.
RATE_LIMIT_REST = 300.0
#: Seconds of silence after which a long run counts as stuck.
STUCK = 3600.0
#: How the errors begin that this side found, where the worker itself said nothing.
SILENT = ("the worker", "protocol:", "workspace missing", "its machine", "no sign of life", "it ran longer")
#: Exit code of a worker for which waiting helps, and those of one that was asked to end.
LATER, ASKED = 75, (130, 143, -2, -15)


class Tending:
    """Looks after the runs of a board on this machine; `started` are the processes this one started, by run."""

    def __init__(
        self,
        board: Board,
        files: RunFiles,
        started: MutableMapping[str, Started],
        *,
        folder: Path,
        settings: KanbanSettings,
        say: Callable[[str], None] = lambda line: None,
        grace: float = GRACE,
        rest: float = RATE_LIMIT_REST,
    ) -> None:
        self._board = board
        self._files = files
        self._started = started
        self._folder = folder
        self._settings = settings
        self._say = say
        self._grace = grace
        self._rest = rest

    def look(self, run: Run) -> Released | None:
        """Look at one run; what became of its card where it is over."""
        if run.manual:
            return self._overdue(run)
        process = self._started.get(run.id)
        code = process.poll() if process is not None else None
        state = "gone" if code is not None else self._files.state(run, self._board.here)
        if state == "elsewhere":
            return self._lost(run)
        if state == "gone":
            return self._gone(run, code)
        if state == "unknown":
            return None
        bound_log(self._folder / "logs" / f"{run.card_id}.log", self._settings.worker_log_rotate_bytes)
        wanted = self._has_to_end(run)
        return self.end(run, *wanted) if wanted is not None else None

    def _overdue(self, run: Run) -> Released | None:
        """A person's claim holds until it is given back, or until the time it was taken for has run out."""
        if run.expires is None or run.expires >= self._board.clock():
            return None
        detail = f"{run.profile or 'a person'} took it until then and gave no sign of life since"
        try:
            proof = Proof(kind="lease", host_id=self._board.here.host_id, detail=detail)
            released = self._board.release(run.id, "reclaimed", proof)
        except StillRunning:
            return None  # a sign of life came just now
        self._say(f"{run.card_id}: {detail}; the card is {released.card.status} again")
        return released

    def _lost(self, run: Run) -> Released | None:
        """Another machine's: only its lease proves anything."""
        try:
            released = self._board.release(
                run.id,
                "stale",
                Proof(kind="lease", host_id=self._board.here.host_id, detail="its machine sent no sign of life"),
                failure_limit=self._settings.failure_limit,
            )
        except StillRunning:
            return None
        self._settle(run)
        self._say(f"{run.card_id}: the machine {run.host_id[:8]} is silent; the card is {released.card.status} again")
        return released

    def _has_to_end(self, run: Run) -> tuple[Outcome, str] | None:
        card = self._board.find(run.card_id)
        now = self._board.clock()
        if card.current_run_id != run.id:
            return None  # it has ended its run and is about to leave
        if card.stop_requested is not None:
            return "reclaimed", card.stop_reason or f"it is wanted {card.stop_requested}"
        if card.max_runtime_seconds is not None and now - run.started_at > card.max_runtime_seconds:
            return "timed_out", f"it ran longer than {card.max_runtime_seconds} s"
        if run.workspace and not os.path.isdir(run.workspace):
            return "crashed", f"workspace missing: {run.workspace} was deleted while the worker was in it"
        stale = self._settings.dispatch_stale_timeout_seconds
        if stale and now - run.started_at > stale and now - (run.heartbeat_at or run.started_at) > STUCK:
            return "stale", f"no sign of life for {now - (run.heartbeat_at or run.started_at):.0f} s"
        return None

    def end(self, run: Run, outcome: Outcome, why: str) -> Released | None:
        """End a living worker of this machine and free its card; None when it does not end."""
        if not end_run_processes(run, self._board.here, grace=self._grace):
            self._board.note("reclaim_deferred", author="dispatcher", card=run.card_id, run_id=run.id, reason=why)
            return None
        process = self._started.get(run.id)
        if process is not None:
            process.poll()
        return self._release(run, outcome, why)

    def _gone(self, run: Run, code: int | None) -> Released:
        end_run_processes(run, self._board.here, grace=0.0)  # what it left running
        note = self._files.note(run.id)
        card = self._board.find(run.card_id)
        held = card.current_run_id == run.id
        if held and card.stop_requested is not None:
            return self._release(run, "reclaimed", card.stop_reason or "")
        outcome, error = verdict(note, code)
        if held and note is not None and note.code == 0 and note.outcome is None:
            self._board.note("protocol_violation", author="dispatcher", card=run.card_id, run_id=run.id, error=error)
        return self._release(run, outcome, error)

    def _release(self, run: Run, outcome: Outcome, error: str) -> Released:
        released = self._board.release(
            run.id,
            outcome,
            Proof(kind="ended", host_id=run.host_id),
            error=error if outcome not in ("rate_limited", "reclaimed") else "",
            failure_limit=self._settings.failure_limit,
            cooldown=self._rest if outcome == "rate_limited" else 0.0,
        )
        self._started.pop(run.id, None)
        self._files.forget(run.id)
        self._settle(run)
        self._note_work(run)
        ended = self._board.run(run.id).outcome or outcome
        why = f" ({error[:200]})" if error and ended == outcome else ""
        status = released.card.status
        self._say(f"{run.card_id}: {ended}{why}{'' if ended == status else f', now {status}'}")
        if error.startswith("workspace missing") and released.card.status in ("ready", "review"):
            self._set_aside(run.card_id, error)
        return released

    def _note_work(self, run: Run) -> None:
        """Keep where the branch of a worktree stands, and what is not committed there: the next run begins with it."""
        top = worktree_of(run)
        if not top or not run.branch_name:
            return
        try:
            state = work_state(top, run.branch_name)
        except OperatorError as error:
            self._say(f"{run.card_id}: {error}")
            return
        if state is not None and state.commit:  # git may find no record of it any more
            self._board.note_work(run.id, state.commit, state.dirty)

    def _settle(self, run: Run) -> None:
        """Give back what was set aside and not spent."""
        spent = self._board.spent(run.id)
        if spent is not None:
            self._board.spend(run.id, usd=spent[0], tokens=spent[1], final=True)

    def _set_aside(self, card_id: str, error: str) -> None:
        try:
            self._board.block(card_id, error, Authority(author="dispatcher"))
        except MoveRefused:
            return  # somebody moved it meanwhile


def verdict(note: ExitNote | None, code: int | None) -> tuple[Outcome, str]:
    """What the end of a worker's process counts as, and why, by its last word and its exit code (None: not known)."""
    if note is not None:
        code = note.code
    if note is not None and note.outcome is not None:
        return note.outcome, note.error
    said = note.error if note is not None else ""
    if code == LATER:
        return "rate_limited", said
    if code in ASKED:
        return "reclaimed", said
    if code == 0:
        return "crashed", "protocol: the worker ended without completing or blocking its card"
    if code is None:
        return "crashed", "the worker's process is gone without a last word: it was killed, or the machine went down"
    if code < 0:
        return "crashed", f"the worker was killed by signal {-code}"
    return "crashed", said or f"the worker ended with exit code {code}"
