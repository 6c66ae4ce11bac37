"""The other processes of a home while the program is exchanged: who they are, having them stop so that nothing is lost,
and letting what they did go on afterwards. Exchanges nothing itself and ends nothing that it does not know."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from hermes.batch.announcing import Announced, announced_runs
from hermes.batch.steering import change_wish, is_held, read_status
from hermes.batch.summary import resume_command
from hermes.cli.options import GlobalOptions, Sources, open_sources
from hermes.cli.reaching import reach, stop_host
from hermes.config.home import DEFAULT_PROFILE, Home, find_home, profile_names
from hermes.core.codec import decode_entry
from hermes.core.errors import OperatorError
from hermes.core.messages import Assistant
from hermes.environments.process import parent_of
from hermes.kanban.board_lock import BoardLock
from hermes.kanban.boards import DEFAULT_BOARD, shared_root
from hermes.runtime.moving import ANSWERS, have_let_go
from hermes.runtime.rows import stored_spec
from hermes.store.living import Living, holds, is_ours, living_processes
from hermes.store.ops import Store

__all__ = [
    "Aside",
    "describe",
    "go_on",
    "homes",
    "living",
    "running",
    "serving",
    "stand_aside",
    "stop_runs",
    "stop_serving",
    "wait_for_all",
]

#: Seconds that a process has to end after it let its work go, and again after it was sent a signal.
LEAVES = 10.0
#: Seconds in which a batch run that was told to stop has to write everything down and end.
RUN_ENDS = 120.0
REASON = "hermes is being updated; hermes attach brings it back here"
Say = Callable[[str], None]


class Aside(msgspec.Struct):
    """What was stopped and is to go on: sessions and batch runs by profile, and boards that were served.

    `served_with` are the arguments before the command that served a board, by board.
    """

    sessions: list[tuple[str, str]] = msgspec.field(default_factory=list)
    boards: list[str] = msgspec.field(default_factory=list)
    served_with: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    runs: list[tuple[str, Announced]] = msgspec.field(default_factory=list)


def homes(home: Home) -> list[Home]:
    """The homes that share a root: that of each profile."""
    return [find_home({"HERMES_HOME": str(home.root)}, name) for name in profile_names(home.root)]


def living(home: Home) -> list[tuple[Home, Living]]:
    """Every living process of these homes but this one."""
    found = [(each, one) for each in homes(home) for one in living_processes(each.path, each.database)]
    return [(each, one) for each, one in found if one.pid != os.getpid()]


def serving(home: Home) -> list[tuple[str, BoardLock]]:
    """The boards of this root that a dispatcher serves on this machine."""
    base = shared_root(home.root, os.environ) / "kanban"
    places = [(DEFAULT_BOARD, base), *((each.name, each) for each in sorted(base.glob("boards/*")))]
    locks = [(name, BoardLock(place / "dispatcher.lock")) for name, place in places]
    return [(name, lock) for name, lock in locks if lock.holder() is not None]


def running(home: Home) -> list[str]:
    """Every process of these homes but this one, in a line each; a batch run is one, however many it has started."""
    lines = _working(home)
    for name, lock in serving(home):
        holder = lock.holder()
        lines.append(f"process {holder.pid if holder is not None else '?'}: serves the board {name}")
    return lines


def _working(home: Home) -> list[str]:
    """Every process of these homes that has work of its own, in a line each."""
    runs = _runs(home)
    mine = {run.pid for _, run in runs}
    lines = [
        describe(each, one) for each, one in living(home) if one.pid not in mine and parent_of(one.pid) not in mine
    ]
    return lines + [_describe_run(profile, run) for profile, run in runs]


def _runs(home: Home) -> list[tuple[str, Announced]]:
    """The batch runs of these homes that are worked on, each with its profile."""
    return [(each.profile, run) for each in homes(home) for run in announced_runs(each.run_dir)]


def _describe_run(profile: str, run: Announced) -> str:
    said = read_status(run.folder)
    done = f", {said.total - said.pending} of {said.total} rows done" if said is not None else ""
    where = f", profile {profile}" if profile != DEFAULT_PROFILE else ""
    return f"process {run.pid}: batch run {run.run_name} in {run.data_dir}{done}{where}"


def stop_runs(home: Home, aside: Aside, say: Say, ends: float = RUN_ENDS) -> None:
    """Have the batch runs save what they have and end; each is added to `aside`, but one that somebody had paused. A
    run gets `ends` seconds.

    Raises:
        OperatorError: one does not end.
    """
    for profile, run in _runs(home):
        wish = change_wish(run.folder, lambda before: msgspec.structs.replace(before, stop=True))
        more = (f"--num_workers={wish.workers}",) if wish.workers is not None else ()
        if wish.paused:
            say(f"the batch run {run.run_name} was paused and stays as it is: {_again(run)}")
        else:  # before it has ended: whoever loses patience is told of it too
            aside.runs.append((profile, msgspec.structs.replace(run, after=(*run.after, *more))))
        until = time.monotonic() + ends
        while is_held(run.folder):
            if time.monotonic() >= until:
                raise OperatorError(f"the batch run {run.run_name} in {run.data_dir} has not ended within {ends:g} s.")
            time.sleep(0.1)


def _again(run: Announced) -> str:
    return f"cd {shlex.quote(str(Path(run.data_dir).parent))} && {resume_command(run.run_name, *run.after)}"


def stop_serving(home: Home, aside: Aside) -> None:
    """End the dispatchers, so that no new worker starts; each is added to `aside`.

    Raises:
        OperatorError: one does not end.
    """
    for name, lock in serving(home):
        holder = lock.holder()
        if not lock.end_holder():
            raise OperatorError(
                f"the dispatcher of the board {name} does not end; hermes kanban --board {name} daemon --stop"
            )
        aside.boards.append(name)
        aside.served_with[name] = holder.arguments if holder is not None else ()


def describe(home: Home, one: Living) -> str:
    """A process in one line."""
    what = "work in the background" if one.host else f"session {one.sessions[0]}" if one.sessions else "no session"
    more = f" and {len(one.sessions) - 1} more" if len(one.sessions) > 1 and not one.host else ""
    title = f" ({' '.join(one.title.split())[:50]})" if one.title else ""
    tasks = f", {one.unfinished} unfinished task{'s' * (one.unfinished != 1)}" if one.unfinished else ""
    profile = f", profile {home.profile}" if home.profile != DEFAULT_PROFILE else ""
    return f"process {one.pid or '?'}: {what}{more}{title}{tasks}{profile}"


async def stand_aside(
    options: GlobalOptions,
    home: Home,
    aside: Aside,
    say: Say,
    answers: float = ANSWERS,
    leaves: float = LEAVES,
    ends: float = LEAVES,
) -> None:
    """Have every process finish the call that it is in, stop with its work resumable, and end. What has to go on is
    added to `aside` as soon as it stands. A process gets `answers` seconds to let its work go, beside those for
    commands that run, `leaves` to end then, and `ends` after it was sent a signal.

    Raises:
        OperatorError: a process does not answer; what stopped before is in `aside`.
    """
    for each in homes(home):
        found = living_processes(each.path, each.database)
        if not found:
            continue
        sources = open_sources(msgspec.structs.replace(options, profile=each.profile))
        wait = sources.loaded.settings.runtime.handover_wait_seconds
        for one in found:
            if one.pid != os.getpid():
                await _one(sources, one, wait, answers, aside)
        await _ended(each, leaves, ends, say)


async def _one(sources: Sources, one: Living, wait: float, answers: float, aside: Aside) -> None:
    home = sources.loaded.home
    if one.host:
        await anyio.to_thread.run_sync(partial(stop_host, home.path, wait))
    if not one.sessions:
        return
    async with reach(sources) as remote:
        for session in one.sessions:
            if any(row.kind == "card" for row in await remote.store.tasks(session)):
                _ask_to_end(home, one)  # the card goes back to its board, which starts a worker for it again
                continue
            await have_let_go(remote, session, patience=answers + wait, reason=REASON)
            if await _has_work(remote.store, session):
                aside.sessions.append((home.profile, session))


async def _has_work(store: Store, session: str) -> bool:
    """Whether a session has something to do, and does not only wait for its person."""
    rows = [row for row in await store.tasks(session) if row.ended_at is None]
    for row in rows:
        if row.parent_id is not None or not stored_spec(row).interactive:
            return True
        entries = await store.entries(row.task_id)
        last = decode_entry(entries[-1][1]) if entries else None
        if not isinstance(last, Assistant) or last.calls or await store.deliveries(row.task_id):
            return True
        if any(message.state == "queued" for message in await store.inbox(row.task_id)):
            return True
    return False


async def _ended(home: Home, leaves: float, ends: float, say: Say) -> None:
    """Wait until no process of the home holds its lock; one of this program that stays is asked by a signal."""
    left = await _wait(home, leaves, frozenset())
    signalled = set()
    for one in left:
        if _ask_to_end(home, one):
            signalled.add(one.owner)
    others = frozenset(one.owner for one in left if one.owner not in signalled)
    stay = [*await _wait(home, ends, others), *(one for one in left if one.owner in others)]
    for one in stay:
        say(
            f"note: {describe(home, one)} stays: it is another program that uses hermes, or does not react. Nothing "
            "it had goes on in it; start it again."
        )


def _ask_to_end(home: Home, one: Living) -> bool:
    """Send TERM to a process that is proven to be the one that is meant, and this program; False for any other."""
    if one.pid and is_ours(one.pid) and holds(home.path, one):
        os.kill(one.pid, signal.SIGTERM)
        return True
    return False


async def _wait(home: Home, leaves: float, besides: frozenset[str]) -> list[Living]:
    until = anyio.current_time() + leaves
    while True:
        found = await anyio.to_thread.run_sync(living_processes, home.path, home.database)
        left = [one for one in found if one.pid != os.getpid() and one.owner not in besides]
        if not left or anyio.current_time() >= until:
            return left
        await anyio.sleep(0.1)


def go_on(python: Path, home: Home, aside: Aside, say: Say) -> bool:
    """Let what was stopped go on in the background, under the program that is installed now; False if some does not."""
    fine = True
    for profile, session in aside.sessions:
        wrong = _started(python, home, "-p", profile, "tasks", "resume", session)
        fine = fine and not wrong
        if wrong:
            say(f"session {session} waits: {wrong}  Go on: hermes tasks resume {session}")
        else:
            say(f"session {session} goes on in the background: hermes attach {session}")
    for name in aside.boards:
        options = aside.served_with.get(name, ())
        wrong = _started(python, home, *options, "kanban", "--board", name, "daemon", "--detach")
        fine = fine and not wrong
        say(f"the board {name} is not served: {wrong}" if wrong else f"the board {name} is served again")
    for profile, run in aside.runs:
        command = (*run.before, "batch", "run", f"--run_name={run.run_name}", "--resume", "--detach", *run.after)
        wrong = _started(python, home, "-p", profile, *command, directory=Path(run.data_dir).parent)
        fine = fine and not wrong
        say(
            f"the batch run {run.run_name} waits: {wrong}  Go on: {_again(run)}"
            if wrong
            else f"the batch run {run.run_name} goes on in the background; its words go to {run.folder.log_path}"
        )
    return fine


def _started(python: Path, home: Home, *arguments: str, directory: Path | None = None) -> str:
    """Run a command of the program that is installed now; returns what went wrong, empty for nothing."""
    done = subprocess.run(
        [str(python), "-P", "-m", "hermes.cli.main", *arguments],
        cwd=directory,
        env={**os.environ, "HERMES_HOME": str(home.root)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
        encoding="utf-8",
        errors="replace",
    )
    return (done.stderr.strip() or f"exit code {done.returncode}") if done.returncode else ""


def wait_for_all(home: Home, say: Say) -> None:
    """Wait until every other process of the homes has ended by itself."""
    before = -1
    while found := _working(home):
        if len(found) != before:
            say(f"waiting for {len(found)} processes to end (Ctrl+C leaves all as it is)")
            before = len(found)
        time.sleep(0.5)
