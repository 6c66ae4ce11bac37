"""A program that is killed at a named place and goes on in another process: what durability is tested with.

`python -m hermes.testing.crash HOME WORK` runs a tree of 13 tasks in three levels whose tools append to a file. Started
again on the same home it takes the session up. It writes `WORK/result.json` when the tree has ended. With
`HERMES_CRASH_AT` set to the name of a place the process kills itself there with SIGKILL; with `HERMES_CRASH_LIST` set
to a path it writes the names of all places it passes. A place is `PATH|OPERATIONS|NUMBER|before` (or `after`): the
commit with that number among those of the task at PATH with the same operations; `#N` is the N-th commit of the
process, whatever it writes. One task prints so much that its history is compacted: `PATH|compaction|NUMBER|before` is
the moment when the summary is asked for, `after` the one when it has come and its segment is not written yet. What a
task does is chosen by its path, so that concurrency changes no answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import msgspec

from hermes.compose import Assembly, Parts, conversation_spec, open_runtime
from hermes.config import find_home, load
from hermes.core.codec import decode_entry
from hermes.core.events import Envelope, TurnEnded
from hermes.core.messages import Assistant, Entry, Notice, Steer, Summary, ToolResult, User, plain_text
from hermes.core.model import ModelProfile, ModelRequest
from hermes.credentials import Endpoint
from hermes.store.ops import AddEvent, AddOwner, AddTask, PutSegment, Store, Ticket, Unit
from hermes.testing.scripted import EndlessModel, Reply, call, reply

__all__ = ["CrashStore", "Places", "main", "normal_histories"]

_LEAVES = 3
#: The task whose history is compacted, the bytes it prints for that, and the window of its model: more than half of it
#: is too much, a request of these tasks has about 4,000 tokens, and the model reads about 8,000 of what was printed.
_TALKATIVE, _PRINTS, _WINDOW = "0.1", 40_000, 18_000


class Places:
    """The places of a run: those that are passed are listed, and one of them is the end of the process."""

    def __init__(self, at: str, listing: str) -> None:
        self.at = at
        self._listing = listing
        self._seen: Counter[tuple[str, str]] = Counter()

    def name(self, path: str, what: str) -> str:
        """The name of the next place of a kind at the task of a path, without its side; both sides are listed."""
        self._seen[path, what] += 1
        place = f"{path}|{what}|{self._seen[path, what]}"
        if self._listing:
            with open(self._listing, "a", encoding="utf-8") as file:
                file.write(f"{place}|before\n{place}|after\n")
        return place

    def reach(self, place: str) -> None:
        """Die here if this is the place."""
        if place == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


class CrashStore:
    """A store that passes everything on to another and dies at one place. Reads are the inner store's own."""

    def __init__(self, inner: Store, places: Places) -> None:
        self._inner = inner
        self._places = places
        self._paths: dict[str, str] = {}
        self._last: asyncio.Task[None] | None = None
        self._count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def submit(self, unit: Unit) -> Ticket:
        """Pass a unit on; die before it is written, or once it is on the disk."""
        place = self._place(unit)
        if place is None:
            return self._inner.submit(unit)
        self._count += 1
        self._places.reach(f"{place}|before")
        self._places.reach(f"#{self._count}")
        ticket = self._inner.submit(unit)
        if f"{place}|after" == self._places.at:  # nobody may be waiting for this commit
            self._last = asyncio.get_running_loop().create_task(_die_after(ticket))
        return ticket

    def _place(self, unit: Unit) -> str | None:
        kinds = []
        path = ""
        for op in unit.ops:
            if isinstance(op, (AddEvent, AddOwner)):
                continue
            if isinstance(op, AddTask):
                above = self._paths.get(op.row.parent_id or "")
                self._paths[op.row.task_id] = "0" if above is None else _path_of(op.row.goal)
                path = path or above or "0"
            task_id = getattr(op, "task_id", "") or (op.row.task_id if isinstance(op, PutSegment) else "")
            path = path or self._paths.get(task_id, "")
            kinds.append(type(op).__name__)
        if not kinds:
            return None
        return self._places.name(path or "0", "+".join(kinds))


async def _die_after(ticket: Ticket) -> None:
    """Wait until a unit is on the disk, and die."""
    await ticket.wait()
    os.kill(os.getpid(), signal.SIGKILL)


def _path_of(goal: str) -> str:
    found = re.search(r"task ([\d.]+)", goal)
    return found.group(1) if found else "0"


# -- what the tasks do ------------------------------------------------------------------------------------------------


def _last_results(request: ModelRequest) -> list[ToolResult]:
    found: list[ToolResult] = []
    for entry in reversed(request.entries):
        if isinstance(entry, ToolResult):
            found.append(entry)
        elif not isinstance(entry, Notice):  # the end of a child may arrive behind them
            break
    return found[::-1]


def _append(path: str, mark: str) -> Reply:
    much = f"; head -c {_PRINTS} /dev/zero | tr '\\0' x" if (path, mark) == (_TALKATIVE, "a") else ""
    return reply(calls=[call("terminal", command=f"echo {path}-{mark} >> effects.txt{much}")])


def _done(request: ModelRequest, name: str) -> bool:
    """Whether a call with `name` in it was made, or is told of in the summary of what was left out."""
    for entry in request.entries:
        if isinstance(entry, Assistant) and any(made.raw and name in made.raw for made in entry.calls):
            return True
        if isinstance(entry, Summary) and name in entry.text:
            return True
    return False


def _summary(transcript: str) -> Reply:
    """What a summary of this transcript says: whose it is, and the calls that were made."""
    calls = re.findall(r"[\d.]+-[ab] >>", transcript)
    return reply(f"task {_path_of(transcript)}, calls made: {', '.join(calls)}")


def _look_or(request: ModelRequest, path: str, mark: str) -> Reply | None:
    """After a call whose effect is unknown: look, and repeat it only if it did not happen."""
    last = _last_results(request)
    if not last:
        return None
    text = plain_text(last[-1].content)
    asked = [e for e in request.entries if isinstance(e, Assistant)][-1].calls[0].raw
    if "effect is unknown" in text and f"{path}-{mark} >>" in asked:
        look = f"touch effects.txt; grep -c '^{path}-{mark}$' effects.txt || true"
        return reply(calls=[call("terminal", command=look)])
    if "grep -c" in asked and f"{path}-{mark}$" in asked:
        if json.loads(text).get("output", "").strip() == "0":
            return _append(path, mark)
    return None


def act(request: ModelRequest) -> Reply:
    """The next reply of the task that asks."""
    first = request.entries[0]
    text = plain_text(first.content) if isinstance(first, User) else getattr(first, "text", "")
    if isinstance(first, User) and first.source == "summary_request":
        return _summary(text)
    path = _path_of(text)
    for mark in ("a", "b"):
        again = _look_or(request, path, mark)
        if again is not None and _done(request, f"{path}-{mark} >>"):
            return again
    depth = path.count(".")
    if not _done(request, f"{path}-a >>"):
        return _append(path, "a")
    if depth == 2:
        return _leaf(request, path)
    if not _done(request, f"task {path}.0"):
        return reply(calls=_spawns(path))
    if depth == 0 and not _done(request, "task_id"):
        results = [entry for entry in request.entries if isinstance(entry, ToolResult)]
        started = next(plain_text(r.content) for r in results if r.name == "delegate_task_async")
        return reply(calls=[call("collect_task", task_id=json.loads(started)["task_id"])])
    if not _done(request, f"{path}-b >>"):
        return _append(path, "b")
    return reply(f"report {path}: {_reports(request)}")


def _leaf(request: ModelRequest, path: str) -> Reply:
    if not _done(request, f"{path}.txt"):
        return reply(calls=[call("write_file", path=f"{path}.txt", content=f"{path}\n")])
    return reply(f"report {path}")


def _spawns(path: str) -> list[Any]:
    items = [{"prompt": f"task {path}.{index}", "role": "orchestrator"} for index in range(_LEAVES)]
    if path != "0":
        return [call("spawn_parallel", tasks=items)]
    return [
        call("spawn_parallel", tasks=items[:2]),
        call("delegate_task_async", goal=items[2]["prompt"], role="orchestrator"),
    ]


def _reports(request: ModelRequest) -> str:
    texts = " ".join(plain_text(entry.content) for entry in request.entries if isinstance(entry, ToolResult))
    return ", ".join(sorted(set(re.findall(r"report ([\d.]+)", texts))))


# -- what is compared -------------------------------------------------------------------------------------------------

_IDS = re.compile(r"\b(?:sa-|async_|main_|deleg_)[0-9a-f]{8}\b")
_NUMBERS = re.compile(r'"(?:duration_seconds|total_duration_seconds|elapsed|position)":\s*[\d.]+')


def _plain(text: str) -> str:
    return _NUMBERS.sub('"n":0', _IDS.sub("ID", text))


def _shape(entry: Entry) -> str:
    if isinstance(entry, Assistant):
        return f"assistant {entry.text} {[_plain(c.raw) for c in entry.calls]}"
    if isinstance(entry, ToolResult):
        text = plain_text(entry.content)
        if entry.name in ("spawn_parallel", "collect_task"):
            text = ", ".join(sorted(set(re.findall(r"report ([\d.]+)", text))))
        if entry.name in ("delegate_task_async", "write_file"):
            text = "ok"  # paths and places in a queue differ from run to run
        return f"result {entry.name} {_plain(text)}"
    if isinstance(entry, (Notice, Steer)):
        return f"{type(entry).__name__} {_plain(entry.text)}"
    return type(entry).__name__


async def normal_histories(store: Store, session_id: str) -> dict[str, list[str]]:
    """Each task's history by its path, without ids, times and what was only looked at after an unknown effect."""
    found: dict[str, list[str]] = {}
    for row in await store.tasks(session_id):
        entries = [decode_entry(body) for _, body in await store.entries(row.task_id)]
        lines: list[str] = []
        skip = False
        for entry in entries:
            if isinstance(entry, (Notice, Summary)):
                # Whether an end arrives by itself before it is collected is a matter of time; whether much was printed,
                # and has to be summarised, is one of whether the command came to its end.
                continue
            shape = _shape(entry)
            looks = isinstance(entry, Assistant) and bool(entry.calls) and "grep -c" in entry.calls[0].raw
            if looks:
                skip = True
            elif skip and isinstance(entry, ToolResult):
                skip = False
            elif "effect is unknown" in shape:
                lines.append("result terminal ok")
            else:
                lines.append("result terminal ok" if shape.startswith("result terminal") else shape)
        found[_path_of(row.goal) + ("" if row.parent_id else " (root)")] = _without_repeats(lines)
    return found


def _without_repeats(lines: list[str]) -> list[str]:
    """Drop a second identical command that was made because the first had not happened."""
    kept: list[str] = []
    index = 0
    while index < len(lines):
        if len(kept) >= 2 and lines[index].startswith("assistant") and lines[index] == kept[-2]:
            index += 2
            continue
        kept.append(lines[index])
        index += 1
    return kept


async def _run(home_path: str, work: Path) -> None:
    home = find_home({"HERMES_HOME": home_path})
    settings = {"delegation.max_spawn_depth": 3, "delegation.max_concurrent_children": 2, "runtime.max_running": 3}
    loaded = load(home, {}, settings)
    places = Places(os.environ.get("HERMES_CRASH_AT", ""), os.environ.get("HERMES_CRASH_LIST", ""))
    compaction = ""  # the one under way

    def answer(request: ModelRequest) -> Reply:
        nonlocal compaction
        first = request.entries[0]
        if isinstance(first, User) and first.source == "summary_request":
            compaction = places.name(_path_of(plain_text(first.content)), "compaction")
            places.reach(f"{compaction}|before")
        return msgspec.structs.replace(act(request), usage=None)  # sizes are estimated from what really stands there

    def hear(envelope: Envelope) -> None:
        if isinstance(envelope.event, TurnEnded) and envelope.event.purpose == "compaction":
            places.reach(f"{compaction}|after")

    model = EndlessModel(answer, "crash", ModelProfile(window=_WINDOW))
    parts = Parts(
        loaded=loaded,
        endpoint=Endpoint(provider="test", base_url="", api_key="", key_source="none", model=model.name),
        model=model,
        yolo=True,
        watchdog=False,
        wrap_store=lambda store: CrashStore(store, places),
    )
    async with open_runtime(parts) as assembly:
        assembly.runtime.bus.subscribe(hear, types=(TurnEnded,))
        await _to_the_end(assembly, work)


async def _to_the_end(assembly: Assembly, work: Path) -> None:
    runtime = assembly.runtime
    sessions = await runtime.store.sessions()
    if sessions:
        root = await assembly.recovery.adopt(sessions[0].session_id)
    else:
        spec, _ = conversation_spec(assembly, goal="task 0", interactive=False, workspace=str(work))
        root = await runtime.start(spec)
    result = await runtime.result(root)
    await runtime.store.flush()
    histories = await normal_histories(runtime.store, root.scope.session_id)
    answer = {"state": result.state, "summary": result.summary, "histories": histories}
    target = work / "result.json"
    temporary = target.with_suffix(".new")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(answer)))
    os.replace(temporary, target)


def main() -> None:
    """Run the tree in HOME and WORK, the two arguments."""
    home, work = sys.argv[1], Path(sys.argv[2])
    anyio.run(_run, home, work)


if __name__ == "__main__":
    main()
