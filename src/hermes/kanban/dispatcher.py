"""The dispatcher of a board on one machine: sees which workers are gone, and starts workers for what is ready.

One pass looks at every living run, moves on what nothing holds back, and takes cards in the order of the queue until
no worker more may run; of each card that it leaves alone it notes why. One dispatcher serves a board on a machine (a
file lock, dropped by the kernel with the process); those of several machines share a board in PostgreSQL, each
looking after its own workers, and take over another's only when its lease has run out. Calls block: it runs in a
process or on a thread of its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from hermes.config.kanban import KanbanSettings
from hermes.core.errors import OperatorError
from hermes.kanban.board import CLAIM_SECONDS, Board
from hermes.kanban.board_lock import BoardLock
from hermes.kanban.budgets import Reserve, share_of
from hermes.kanban.card import Card, Proof, Run
from hermes.kanban.claiming import Claimed
from hermes.kanban.cleaning import clean
from hermes.kanban.errors import BudgetSpent, ClaimLost
from hermes.kanban.launching import Launcher, Started
from hermes.kanban.leading import Queued, Reason
from hermes.kanban.moves import Step
from hermes.kanban.outages import Outages
from hermes.kanban.planning import Planning
from hermes.kanban.reasons import SERVED_BY, noted
from hermes.kanban.run_process import RunFiles
from hermes.kanban.telling import Tiding, tidings
from hermes.kanban.tending import Tending

__all__ = ["Dispatcher", "Passed", "Spawned"]

#: Seconds between two looks at whether anything happened, and between two signs of life of the dispatcher.
LOOK, SIGN = 0.5, 20.0
#: Seconds for which a dispatcher counts as there after its last sign of life.
SERVES = 60.0
#: Seconds between two looks for what is left of old work.
SWEEP = 3600.0


class Spawned(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that was started."""

    card: str
    profile: str
    run: str
    pid: int


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass did: ids of cards, and why cards were left alone."""

    spawned: list[Spawned] = []
    promoted: list[str] = []
    released: dict[str, str] = {}
    gave_up: list[str] = []
    failed: dict[str, str] = {}
    planned: list[str] = []
    left: list[Reason] = []
    running: int = 0


class Dispatcher:
    """Serves one board on this machine.

    `folder` is the board's, `profiles` says which there are now, `ttl` is how many seconds a claim holds without a
    sign of life. `memory` returns the share of memory that is free (None: not known). `started_with` are the arguments
    of a command that serves the board likewise. `tell` brings to a person what the board has to tell, and never waits.
    `plan` begins the process that plans a card in triage (None: nothing is planned here).
    """

    def __init__(
        self,
        board: Board,
        launcher: Launcher,
        *,
        folder: Path,
        settings: KanbanSettings,
        profiles: Callable[[], Sequence[str]],
        ttl: float = CLAIM_SECONDS,
        memory: Callable[[], float | None] | None = None,
        say: Callable[[str], None] = lambda line: None,
        started_with: Sequence[str] = (),
        tell: Callable[[Sequence[Tiding]], None] | None = None,
        plan: Callable[[Card], Started] | None = None,
    ) -> None:
        self.board = board
        self._launcher = launcher
        self._folder = folder
        self._settings = settings
        self._profiles = profiles
        self._ttl = ttl
        self._memory = memory or free_memory
        self._say = say
        self._tell = tell
        self._planning = Planning(board, plan, settings, say) if plan is not None and settings.auto_decompose else None
        self.files = RunFiles(folder / "runs")
        self.lock = BoardLock(folder / "dispatcher.lock", started_with)
        self.started: dict[str, Started] = {}
        self._tending = Tending(board, self.files, self.started, folder=folder, settings=settings, say=say)
        self._outages = Outages(board, say)
        self._lease: str | None = None
        self._signed = 0.0
        self._swept = 0.0

    # -- serving ------------------------------------------------------------------------------------------------------

    def serve(self, stop: threading.Event, heard: Callable[[Passed], None] = lambda passed: None) -> None:
        """Pass over the board whenever something happened, until `stop` is set; the lock has to be held.

        Raises:
            StoreError: the board cannot be used any more.
        """
        try:
            while not stop.is_set():
                heard(self.pass_once())
                self._rest(stop)
        finally:
            self.leave()

    def _rest(self, stop: threading.Event) -> None:
        seen = self.board.last_event()
        until = time.monotonic() + self._settings.dispatch_interval_seconds
        while not stop.wait(LOOK):
            self._sign()
            if any(process.poll() is not None for process in self.started.values()):
                return
            if self._planning is not None and self._planning.ended():
                return
            if time.monotonic() >= until or self.board.last_event() != seen:
                return

    def _sign(self) -> None:
        """Say on the board that it is served."""
        now = time.monotonic()
        if self._lease is not None and now - self._signed < SIGN:
            return
        here = self.board.here
        holder = f"process {os.getpid()} on {here.host_id[:8]}"
        taken, lease = self.board.lead(f"{SERVED_BY}{here.host_id}", holder, token=self._lease, ttl=SERVES)
        self._lease = lease.token if taken else None
        self._signed = now

    def leave(self) -> None:
        """Say that the board is no longer served; workers go on."""
        if self._lease is not None:
            self.board.let_go(f"{SERVED_BY}{self.board.here.host_id}", self._lease)
            self._lease = None

    # -- one pass -----------------------------------------------------------------------------------------------------

    def pass_once(self, *, most: int | None = None, dry_run: bool = False, sign: bool = True) -> Passed:
        """Look at everything once. `most` limits how many workers and plans are started together; with `dry_run`
        nothing is started or changed.

        Raises:
            StoreError: the board cannot be used.
        """
        if sign and not dry_run:
            self._sign()
        living = self.board.live_runs()
        released: dict[str, str] = {}
        gave_up: list[str] = []
        if not dry_run:
            for run in living:
                found = self._tending.look(run)
                if found is not None:
                    released[found.card.id] = found.card.status
                    if found.gave_up:
                        gave_up.append(found.card.id)
            if released:
                living = self.board.live_runs()
        promoted = [] if dry_run else self.board.promote(author="dispatcher")
        planned: list[str] = []
        spawned, failed, left = self._start_ready(living, most, dry_run)
        if not dry_run:
            if self._planning is not None:
                rest = bool(self._slots(living)[1]) or self._outages.paused() is not None
                planned, ideas = self._planning.look(rest=rest, most=None if most is None else most - len(spawned))
                left = [*left, *ideas]
            self.board.note_reasons(left)
            self._sweep()
            self._tell_news(left)
        return Passed(
            spawned=spawned, promoted=promoted, released=released, gave_up=gave_up, failed=failed, planned=planned,
            left=left,
            running=len(self._own(living)) + len(spawned),
        )  # fmt: skip

    def _own(self, living: Sequence[Run]) -> list[Run]:
        here = self.board.here
        return [run for run in living if not run.manual and run.host_id == here.host_id]

    def _slots(self, living: Sequence[Run]) -> tuple[int, str]:
        """How many workers more may run here, and what to say when memory is why there are no more."""
        most = self._settings.workers_at_once
        running = len(self._own(living))
        free = self._memory()
        if free is not None and free < 0.05:
            return 0, f"only {free:.0%} of this machine's memory is free"
        if free is not None and free < 0.10:
            return max(0, 1 - running), f"only {free:.0%} of this machine's memory is free"
        return max(0, most - running), ""

    def _start_ready(
        self, living: Sequence[Run], most: int | None, dry_run: bool
    ) -> tuple[list[Spawned], dict[str, str], list[Reason]]:
        spawned: list[Spawned] = []
        failed: dict[str, str] = {}
        left: list[Reason] = []
        slots, pressed = self._slots(living)
        full = ("memory", pressed) if pressed else (
            "cap", f"{self._settings.workers_at_once} workers run, as many as may at once"
        )  # fmt: skip
        if most is not None and most < slots:
            slots, full = most, ("pass", f"the last pass was to start at most {most}")
        known = {name.lower() for name in self._profiles()}
        of_profile: dict[str, int] = {}
        for run in self._own(living):
            of_profile[run.profile or ""] = of_profile.get(run.profile or "", 0) + 1
        paused = self._outages.paused(dry_run)
        now = self.board.clock()
        for card in self.board.queue():
            profile, reason = self._profile_of(card, known)
            reason = reason or self._obstacle(card, now, paused)
            if reason is None and self._at_cap(profile, of_profile):
                reason = noted(card, "profile_cap", f"{profile} has {of_profile[profile]} workers, as many as it may")
            if reason is None and slots <= 0:
                reason = noted(card, *full)
            if reason is not None:
                left.append(reason)
                continue
            if dry_run:
                spawned.append(Spawned(card=card.id, profile=profile, run="", pid=0))
            else:
                began = self._start(card, profile)
                if isinstance(began, Reason):
                    left.append(began)
                    continue
                if isinstance(began, str):
                    failed[card.id] = began
                    continue
                spawned.append(began)
            slots -= 1
            of_profile[profile] = of_profile.get(profile, 0) + 1
        return spawned, failed, left

    def _at_cap(self, profile: str, of_profile: dict[str, int]) -> bool:
        most = self._settings.max_in_progress_per_profile
        return most is not None and of_profile.get(profile, 0) >= most

    def _profile_of(self, card: Queued, known: set[str]) -> tuple[str, Reason | None]:
        """Who works on a card, or why nobody does."""
        if card.status == "review":
            profile = card.reviewer or self._settings.reviewer_profile.lower()
            if not profile:
                return "", noted(card, "review", "it waits for a person's judgement: it names no reviewer")
        else:
            profile = card.assignee or self._settings.default_assignee.lower()
            if not profile:
                return "", noted(card, "unassigned", "nobody is named for it")
        if profile not in known:
            return "", noted(card, "no_profile", f"there is no profile {profile!r} here")
        return profile, None

    def _obstacle(self, card: Queued, now: float, paused: tuple[str, str] | None) -> Reason | None:
        here = self.board.here
        if card.busy:
            return noted(card, "still_running", "the process of an earlier run is not proven to be gone")
        if card.not_before is not None and card.not_before > now:
            return noted(card, "cooldown", f"it rests for {card.not_before - now:.0f} s more")
        if card.host_id is not None and card.host_id != here.host_id:
            return noted(card, "other_host", f"its files are on the machine {card.host_id[:8]}")
        if card.home_id is not None and card.home_id != here.home_id:
            return noted(card, "other_home", f"the profile it is for is another home's ({card.home_id[:8]})")
        if paused is not None:
            return noted(card, *paused)
        return None

    # -- starting -----------------------------------------------------------------------------------------------------

    def money(self) -> Reserve:
        """What a run may take: a share of the day's limit, so that all workers together stay within it."""
        return share_of(self._settings)

    def _start(self, card: Queued, profile: str) -> Spawned | Reason | str:
        """Take a card and start its worker: what was started, why it was left alone, or what failed."""
        step: Step = "review" if card.status == "review" else "work"
        if card.assignee is None and step == "work":
            self.board.assign(card.id, profile, author="dispatcher")
        try:
            claimed = self.board.claim(
                profiles=[profile], card=card.id, step=step, profile=profile, money=self.money(), ttl=self._ttl
            )
        except BudgetSpent as error:
            return noted(card, "budget", str(error))
        if claimed is None:
            return noted(card, "taken", "another dispatcher took it, or it changed during the pass")
        return self._launch(claimed, profile)

    def _launch(self, claimed: Claimed, profile: str) -> Spawned | str:
        claim, here = claimed.claim, self.board.here
        try:
            process = self._launcher.start(claimed, profile, self.files)
        except OperatorError as error:
            proof = Proof(kind="never_started", host_id=here.host_id)
            self.board.spend(claim.run_id, usd=0.0, tokens=0, final=True)
            self.board.release(
                claim.run_id, "spawn_failed", proof, error=str(error), failure_limit=self._settings.failure_limit
            )
            return str(error)
        self.started[claim.run_id] = process
        try:
            self.board.note_process(
                claim, author="dispatcher", pid=process.pid, process_started=process.started, boot_id=here.boot_id
            )
        except ClaimLost:
            pass  # it was quick, or a person took the card: the next pass sees which
        self._say(f"{claim.card_id}: {profile} works on it (attempt {claimed.card.attempts}, process {process.pid})")
        return Spawned(card=claim.card_id, profile=profile, run=claim.run_id, pid=process.pid)

    def _tell_news(self, left: Sequence[Reason]) -> None:
        news = tidings(self.board, left, reviewer=self._settings.reviewer_profile) if self._tell is not None else []
        if news and self._tell is not None:
            self._tell(news)

    def _sweep(self) -> None:
        """Remove what is left of work that ended long ago, once an hour."""
        now = time.monotonic()
        if self._swept and now - self._swept < SWEEP:
            return
        self._swept = now
        days = self._settings.keep_days or None
        clean(self.board, self._folder, event_days=days, log_days=days)


def free_memory() -> float | None:
    """The share of the machine's memory that is free, None where that cannot be known."""
    found: dict[str, int] = {}
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name in ("MemTotal", "MemAvailable"):
                    found[name] = int(value.split()[0])
    except (OSError, ValueError):
        return None
    total = found.get("MemTotal")
    return found["MemAvailable"] / total if total and "MemAvailable" in found else None
