"""Real processes of one home make room for an update: what they did goes on afterwards, and what is not ours stays."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from hermes.batch.announcing import announced, announced_runs
from hermes.batch.folder import RunFolder
from hermes.batch.listing import run_state
from hermes.batch.steering import change_wish, is_held
from hermes.chat.options import GlobalOptions
from hermes.cli.standing_aside import (
    Aside,
    describe,
    go_on,
    living,
    running,
    serving,
    stand_aside,
    stop_runs,
    stop_serving,
    wait_for_all,
)
from hermes.config import find_home
from hermes.core.errors import OperatorError
from hermes.store.hosting import host_alive
from tests.cli.test_outliving import PATIENCE, Place, finished, place, session_in

__all__ = ["place"]  # the fixture

#: A program of somebody else that uses this one as a library, and has nothing going on.
_OTHER = """
import sys
import hermes
with hermes.open(model="test-model"):
    print("open", flush=True)
    sys.stdin.read()
"""


def make_room(place: Place, answers: float = PATIENCE, leaves: float = 10.0) -> tuple[Aside, list[str]]:
    aside, said = Aside(), list[str]()
    home = find_home({"HERMES_HOME": str(place.home)})
    anyio.run(stand_aside, GlobalOptions(), home, aside, said.append, answers, leaves, PATIENCE)
    return aside, said


def with_keys(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever updates has the keys, like whoever resumes."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, place.environ[name])


@contextmanager
def started(place: Place, *command: str, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command, cwd=place.folder, env=place.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, **more,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_what_runs_in_front_and_behind_stops_and_goes_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with_keys(place, monkeypatch)
    place.run("-m", "test-model", "chat", "--detach", "-q", "root")
    place.in_the_middle()
    behind = session_in(place)
    home = find_home({"HERMES_HOME": str(place.home)})
    ask = [*place.command, "-m", "test-model", "chat", "-q"]
    with started(place, *ask, "part two, alone") as front, started(place, sys.executable, "-c", _OTHER) as other:
        assert other.stdout is not None and other.stdout.readline() == b"open\n"
        place.until(lambda: place.asked("part two, alone"), "the second request")
        ours = [describe(each, one) for each, one in living(home)]
        assert len(ours) == 3 and "work in the background" in ours[-1] and "2 unfinished tasks" in ours[-1]
        assert any(f"process {front.pid}: session " in line and "(part two, alone)" in line for line in ours)
        aside, said = make_room(place, leaves=2.0)
        left = finished(front)
        assert "hermes is being updated" in left.err + left.out, left
        assert not host_alive(place.home)
        assert [session for _, session in aside.sessions if session == behind] == [behind] and len(aside.sessions) == 2
        assert len(said) == 1 and f"process {other.pid}" in said[0] and "another program that uses hermes" in said[0]
        assert other.poll() is None
    place.model.held = False
    said.clear()
    assert go_on(Path(sys.executable), home, aside, said.append), said
    assert f"hermes attach {behind}" in "".join(said)
    root = place.tasks()["root"]["task_id"]
    assert place.json("collect", root, "--timeout", "60")["summary"] == "all is done"
    assert place.verb("collect", place.tasks()["part two, alone"]["task_id"], "--timeout", "60").out == "TWO\n"
    assert place.asked("part one") == 1


def test_a_conversation_that_waits_for_its_person_is_left_resumable_and_not_taken_up(place: Place) -> None:
    command = [*place.command, "-m", "test-model", "chat", "--cli"]
    with started(place, *command) as empty, started(place, *command) as idle:
        assert idle.stdin is not None and idle.stdout is not None
        idle.stdin.write(b"part one\n")
        idle.stdin.flush()
        seen = b""
        while b"ONE" not in seen:
            seen += idle.stdout.read1(4096)
        home = find_home({"HERMES_HOME": str(place.home)})
        place.until(lambda: len(living(home)) == 2, "both")
        aside, said = make_room(place, leaves=2.0)
        assert (aside.sessions, said) == ([], [])
        assert b"hermes is being updated" in idle.communicate(timeout=PATIENCE)[0]
        assert empty.wait(PATIENCE) == 143
        wait_for_all(home, said.append)
        assert said == []


def test_a_board_is_not_served_meanwhile_and_then_is_again(place: Place) -> None:
    began = place.run("-m", "test-model", "--yolo", "kanban", "daemon", "--detach")
    assert began.code == 0, began.err
    home, aside, said = find_home({"HERMES_HOME": str(place.home)}), Aside(), list[str]()
    try:
        (line,) = running(home)
        assert line.endswith("serves the board default")
        stop_serving(home, aside)
        assert running(home) == [] and aside.boards == ["default"]
        assert go_on(Path(sys.executable), home, aside, said.append), said
        assert said == ["the board default is served again"] and len(running(home)) == 1
        ((_, lock),) = serving(home)
        holder = lock.holder()
        assert holder is not None and holder.arguments == ("-p", "default", "-m", "test-model", "--yolo")
    finally:
        place.run("kanban", "daemon", "--stop")


def test_a_worker_stops_and_its_card_goes_back_to_the_board(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.configure("model: test-model\n")
    with_keys(place, monkeypatch)
    card = place.run("kanban", "create", "dig", "--assignee", "default").out.split()[0]
    assert place.run("-m", "test-model", "kanban", "daemon", "--detach").code == 0
    home, aside = find_home({"HERMES_HOME": str(place.home)}), Aside()
    try:
        place.until(lambda: place.asked("part two"), "the worker's child")
        place.until(lambda: any("session" in line for line in running(home)), "the worker's session")
        stop_serving(home, aside)
        made, said = make_room(place)
        assert (made.sessions, said, running(home)) == ([], [], [])  # nobody but its board goes on with a card
        log = place.home / "kanban" / "logs"
        assert any("signal 15" in file.read_text() for file in log.rglob("*.log")), list(log.rglob("*"))
        assert go_on(Path(sys.executable), home, aside, said.append), said
        place.until(lambda: place.asked("part two") == 2, "the same work under the next worker")
        assert card in place.server.requests[0].first_user
    finally:
        place.run("kanban", "daemon", "--stop")
        make_room(place, leaves=5.0)


def test_a_stopped_process_keeps_what_it_has_and_the_update_does_not_come(place: Place) -> None:
    place.configure("runtime: {handover_wait_seconds: 0}\n")
    with started(place, *place.command, "-m", "test-model", "chat", "-q", "root") as process:
        place.in_the_middle()
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(OperatorError, match="does not answer"):
            make_room(place, answers=0.2)
        assert place.tasks()["part two"]["status"] == "running"
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        assert finished(process).code == 143


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_batch_run_saves_what_it_has_and_goes_on(place: Place, processes: str) -> None:
    rows = b'{"prompt": "part one"}\n{"prompt": "part two a"}\n{"prompt": "part two b"}\n'
    command = [*place.command, "batch", "run", f"--dataset_file={place.dataset(rows)}", "--run_name=first"]
    home, aside, said = find_home({"HERMES_HOME": str(place.home)}), Aside(), list[str]()
    folder = RunFolder(place.folder / "data", "first")
    with started(place, *command, "--model=test-model", "--allow_host_commands", f"--processes={processes}") as run:
        place.until(lambda: place.asked("part two") == 2, "both rows that stay")
        place.until(lambda: any(", 1 of 3 rows done" in line for line in running(home)), "the row that ends")
        (line,) = running(home)
        assert line.startswith(f"process {run.pid}: batch run first in {folder.path.parent}")
        stop_runs(home, aside, said.append)
        assert make_room(place)[1] == [] and said == []
        assert (finished(run).code, running(home), announced_runs(home.run_dir)) == (130, [], [])
    place.model.held = False
    python = Path(place.command[0]).with_name("python")
    assert go_on(python, home, aside, said.append) is False  # whoever updates has no key here
    assert "the batch run first waits: " in said[0] and "--run_name=first --resume --allow_host_commands" in said[0]
    said.clear()
    with pytest.MonkeyPatch.context() as patch:
        with_keys(place, patch)
        assert go_on(python, home, aside, said.append), said
    assert said == [f"the batch run first goes on in the background; its words go to {folder.log_path}"]
    place.until(lambda: not is_held(folder), "the end of the run")
    assert run_state(folder).state == "finished" and len(place.rows("first", "records.jsonl")) == 3
    assert place.asked("part one") == 1


def test_a_paused_batch_run_stays_paused_and_a_killed_one_is_forgotten(place: Place) -> None:
    rows = b'{"prompt": "part two a"}\n{"prompt": "part two b"}\n'
    command = [*place.command, "batch", "run", f"--dataset_file={place.dataset(rows)}", "--run_name=first"]
    home, aside, said = find_home({"HERMES_HOME": str(place.home)}), Aside(), list[str]()
    folder = RunFolder(place.folder / "data", "first")
    with started(place, *command, "--model=test-model", "--num_workers=1") as run:
        place.until(lambda: place.asked("part two"), "the first row")
        change_wish(folder, lambda wish: type(wish)(number=wish.number, paused=True))
        place.until(lambda: run_state(folder).state == "paused", "the pause")
        stop_runs(home, aside, said.append)
        finished(run)
    assert aside.runs == [] and "was paused and stays as it is: cd " in said[0]
    with started(place, *command, "--resume", "--model=test-model") as run:
        place.until(lambda: announced_runs(home.run_dir), "the run")
        run.kill()
        run.wait()
        assert list(home.run_dir.glob("batch-*.json")) and announced_runs(home.run_dir) == []
        assert not list(home.run_dir.glob("batch-*.json"))


def test_a_batch_run_that_does_not_end_in_time_is_told_of_all_the_same(tmp_path: Path) -> None:
    home, folder, aside = (
        find_home({"HERMES_HOME": str(tmp_path / "h")}),
        RunFolder(tmp_path / "data", "first"),
        Aside(),
    )
    home.prepare(home.run_dir)
    with folder.locked(), announced(home.run_dir, folder, [], []):
        with pytest.raises(OperatorError, match=r"batch run first .* has not ended within 0 s"):
            stop_runs(home, aside, lambda line: None, ends=0.0)
    assert [run.run_name for _, run in aside.runs] == ["first"]
