"""A tree that was recorded is replayed without its models and tools: same answers, same order, whatever the timing."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from hermes.core.clock import held
from hermes.core.errors import ModelError, UsageError
from hermes.core.events import EntryAdded
from hermes.core.messages import Assistant, Notice, ToolResult, User, plain_text
from hermes.core.model import Model, ModelRequest
from hermes.core.result import TaskResult
from hermes.runtime.cassette import Cassette, read_cassette
from hermes.runtime.replaying import PATIENCE
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import EndlessModel, ScriptedModel, Step, call, first_user_text, hang, reply
from tests.delegation.family import answers, asked_by, family, until

NOBODY = ScriptedModel("nobody", [])
SETTINGS = {"delegation.max_spawn_depth": 3}


async def record(
    model: Model, goal: str, tmp_path: Path, clock: VirtualClock, **options: Any
) -> tuple[TaskResult, list[str]]:
    """Record a single request to `tape.jsonl`; returns its result and what its tasks' histories say."""
    async with open_lab(
        model, workspace=tmp_path, clock=clock, record=tmp_path / "tape.jsonl", settings=SETTINGS, **options
    ) as lab:
        result = await lab.ask(goal)
        return result, story(lab)


async def replay(
    goal: str, tmp_path: Path, clock: VirtualClock, *, workspace: Path | None = None, **options: Any
) -> tuple[TaskResult, list[str], Sequence[str]]:
    """Replay `tape.jsonl`; the third value is what went otherwise."""
    cassette = await loaded(tmp_path, clock)
    async with open_lab(
        NOBODY, workspace=workspace or tmp_path, clock=clock, replay=cassette, settings=SETTINGS, **options
    ) as lab:
        result = await lab.ask(goal)
        assert lab.assembly.tape is not None
        return result, story(lab), lab.assembly.tape.problems()


async def loaded(tmp_path: Path, clock: VirtualClock) -> Cassette:
    """Read `tape.jsonl` as a program would: on a thread."""
    with held(clock):
        return await anyio.to_thread.run_sync(read_cassette, tmp_path / "tape.jsonl")


def story(lab: Lab) -> list[str]:
    """What stands in the histories of all tasks, by task, without ids."""
    ids = {task.id: f"<{task.scope.path[-1]}>" for task in lab.runtime.supervisor.tasks.values()}
    lines: dict[str, list[str]] = {}
    for item in lab.events:
        if not isinstance(item.event, EntryAdded):
            continue
        entry = item.event.entry
        if isinstance(entry, Assistant):
            said = f"{entry.text}|{entry.thinking}|{[(one.name, one.raw) for one in entry.calls]}|{entry.usage}"
        elif isinstance(entry, ToolResult):
            said = f"{entry.name} {'' if 'task' in entry.name or 'spawn' in entry.name else plain_text(entry.content)}"
        elif isinstance(entry, Notice):
            said = f"notice {entry.kind} {[ids[task] for task in entry.tasks]}"
        else:
            said = plain_text(entry.content) if isinstance(entry, User) else type(entry).__name__
        for old, new in ids.items():
            said = said.replace(old, new)
        lines.setdefault(ids[item.task_id], []).append(said)
    return [f"{task}: {line}" for task in sorted(lines) for line in lines[task]]


def tape_lines(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "tape.jsonl").read_text().splitlines()]


@pytest.mark.anyio
async def test_commands_and_files_of_a_replay_are_those_of_the_recording(
    virtual_clock: VirtualClock, tmp_path: Path
) -> None:
    model = ScriptedModel(
        "m",
        [
            reply("", thinking="look first", calls=[call("terminal", command="touch made; echo hello")]),
            reply(calls=[call("read_file", path="missing.txt"), call("write_file", path="out.txt", content="x")]),
            reply("done"),
        ],
    )
    result, told = await record(model, "work", tmp_path, virtual_clock)
    assert result.summary == "done" and (tmp_path / "out.txt").exists()
    other = tmp_path / "elsewhere"
    other.mkdir()
    again, same, problems = await replay("work", tmp_path, virtual_clock, workspace=other)
    assert (again.summary, again.state, again.usage) == ("done", "completed", result.usage)
    assert [line.replace(str(other), str(tmp_path)) for line in same] == told and problems == []
    assert not (other / "made").exists() and not (other / "out.txt").exists()


def spawning(tmp_path: Path) -> ScriptedModel:
    """A parent with three parallel children, of which the last ends first, and one of which has children too."""
    return family(
        parent=[
            reply(
                calls=[
                    call(
                        "spawn_parallel",
                        tasks=[
                            {"prompt": "alpha", "role": "orchestrator"},
                            {"prompt": "beta"},
                            {"prompt": "gamma"},
                        ],
                    )
                ]
            ),
            reply("all three are done"),
        ],
        alpha=[reply(calls=[call("delegate_task", goal="delta")], delay=9), reply("alpha says", delay=3)],
        beta=[reply(calls=[call("terminal", command="echo beta; sleep 0")], delay=5), reply("beta says", delay=5)],
        gamma=[reply("gamma says", delay=1)],
        delta=[reply("delta says", delay=1)],
    )


@pytest.mark.anyio
async def test_a_tree_is_built_again_and_its_children_replay(virtual_clock: VirtualClock, tmp_path: Path) -> None:
    result, told = await record(spawning(tmp_path), "parent", tmp_path, virtual_clock)
    assert result.summary == "all three are done"
    names = [line["task"] for line in tape_lines(tmp_path) if line["type"] == "task"]
    root = names[0]
    assert sorted(names[1:]) == [f"{root}/1.0.0", f"{root}/1.0.0/1.0", f"{root}/1.0.1", f"{root}/1.0.2"]
    began = virtual_clock.now()
    again, same, problems = await replay("parent", tmp_path, virtual_clock)
    assert same == told and again.subtree_usage == result.subtree_usage and problems == []
    assert virtual_clock.now() - began < 1, "the waits of the models are not lived through again"


@pytest.mark.anyio
async def test_equal_goals_at_once_get_the_answers_of_their_places(virtual_clock: VirtualClock, tmp_path: Path) -> None:
    waits = iter([3.0, 2.0, 1.0])
    numbers = iter("123")

    def child(request: ModelRequest) -> Any:
        return reply(f"twin {next(numbers)}", delay=next(waits))

    model = family(
        parent=[reply(calls=[call("spawn_parallel", tasks=[{"prompt": "twin"}] * 3)]), reply("done")],
        twin=[child, child, child],
    )
    _, told = await record(model, "parent", tmp_path, virtual_clock)
    _, same, problems = await replay("parent", tmp_path, virtual_clock)
    assert same == told and problems == []


def dispatching() -> ScriptedModel:
    """A parent that steers and asks after background children by their ids, and hears of their ends one by one."""

    def steer(request: ModelRequest) -> Step:
        first = next(one for one in answers(request) if "task_id" in one)["task_id"]
        return reply(calls=[call("steer_task", task_id=first, message="faster"), call("check_task", task_id=first)])

    return family(
        parent=[
            reply(calls=[call("delegate_task_async", goal="slow"), call("delegate_task_async", goal="quick")]),
            steer,
            reply("both are on their way", delay=5),
            reply("quick has answered", delay=1),
            reply("slow has answered"),
        ],
        slow=[reply(calls=[call("todo", todos=[])], delay=3), reply("slow says", delay=20)],
        quick=[reply("quick says", delay=2)],
    )


@pytest.mark.anyio
async def test_ends_of_background_children_arrive_where_they_arrived(
    virtual_clock: VirtualClock, tmp_path: Path
) -> None:
    result, told = await record(dispatching(), "parent", tmp_path, virtual_clock)
    assert result.summary == "slow has answered"
    assert [line for line in told if "notice children" in line] == [
        "<parent>: notice children ['<quick>']",
        "<parent>: notice children ['<slow>']",
    ]
    again, same, problems = await replay("parent", tmp_path, virtual_clock)
    assert same == told and again.summary == "slow has answered" and problems == []


def busy(chance: random.Random) -> EndlessModel:
    """A parent that starts children of both kinds over some turns while ends come in, everything after random waits."""

    def script(request: ModelRequest) -> Step:
        goal, turn = first_user_text(request), sum(isinstance(entry, Assistant) for entry in request.entries)
        wait = chance.choice([0.0, 0.0, 0.5, 3.0, 20.0])
        if "leaf" in goal:
            if turn < chance.randint(0, 2):
                return reply(calls=[call("terminal", command=f"echo {goal} {turn}")], delay=wait)
            return reply(f"{goal} after {turn}", delay=wait)
        if turn < 3:
            calls = [call("delegate_task_async", goal=f"leaf {turn} {n}") for n in range(chance.randint(0, 3))]
            calls += [call("delegate_task", goal=f"leaf {turn} sync")] * chance.randint(0, 1)
            return reply(f"turn {turn}", calls=calls, delay=wait)
        return reply(f"answer {turn}", delay=wait)

    return EndlessModel(script, "m")


@pytest.mark.anyio
@pytest.mark.parametrize("seed", range(10))
async def test_whatever_the_timing_was_the_histories_are_the_same(
    virtual_clock: VirtualClock, tmp_path: Path, seed: int
) -> None:
    _, told = await record(busy(random.Random(seed)), "parent", tmp_path, virtual_clock)
    began = virtual_clock.now()
    _, same, problems = await replay("parent", tmp_path, virtual_clock)
    assert problems == [] and same == told
    assert virtual_clock.now() - began < PATIENCE, "nothing had to be given up"


@pytest.mark.anyio
async def test_an_error_and_a_reply_that_was_cut_replay_too(virtual_clock: VirtualClock, tmp_path: Path) -> None:
    model = family(
        parent=[
            reply(calls=[call("spawn_parallel", tasks=[{"prompt": "broken"}, {"prompt": "stuck"}])]),
            reply("one failed, one was stopped"),
        ],
        broken=[ModelError("no such model", reason="model_not_found", permanent=True)],
        stuck=[hang()],
    )
    settings = {**SETTINGS, "delegation.child_timeout_seconds": 60}
    async with open_lab(
        model, workspace=tmp_path, clock=virtual_clock, record=tmp_path / "tape.jsonl", settings=settings
    ) as lab:
        await lab.ask("parent")
        told = story(lab)
        states = sorted(task.state for task in lab.runtime.supervisor.tasks.values())
    assert states == ["completed", "failed", "timed_out"]
    async with open_lab(
        NOBODY,
        workspace=tmp_path,
        clock=virtual_clock,
        replay=await loaded(tmp_path, virtual_clock),
        settings=settings,
    ) as lab:
        await lab.ask("parent")
        assert story(lab) == told
        assert sorted(task.state for task in lab.runtime.supervisor.tasks.values()) == states
        assert lab.assembly.tape is not None and lab.assembly.tape.problems() == []


@pytest.mark.anyio
async def test_a_check_of_the_answer_is_replayed_and_not_run(virtual_clock: VirtualClock, tmp_path: Path) -> None:
    checked = call("delegate_task", goal="child", check="echo checked >> trace; test $(wc -l < trace) -gt 1")
    model = family(parent=[reply(calls=[checked]), reply("ok")], child=[reply("first"), reply("second")])
    _, told = await record(model, "parent", tmp_path, virtual_clock)
    assert (tmp_path / "trace").read_text() == "checked\nchecked\n"
    other = tmp_path / "other"
    other.mkdir()
    _, same, problems = await replay("parent", tmp_path, virtual_clock, workspace=other)
    assert problems == [] and not (other / "trace").exists()
    assert [line.replace(str(other), str(tmp_path)) for line in same] == told


@pytest.mark.anyio
async def test_what_a_background_command_told_is_told_again_and_nothing_runs(tmp_path: Path) -> None:
    command = "touch made; until test -e go; do sleep 0.01; done; echo built"
    job = call("terminal", command=command, background=True, notify_on_complete=True)
    model = family(
        [reply(calls=[call("delegate_task", goal="child")]), reply("read")],
        child=[reply(calls=[job]), reply("it builds"), reply("it is built")],
    )
    async with open_lab(model, workspace=tmp_path, record=tmp_path / "tape.jsonl") as lab:
        task = await lab.start("parent")
        await until(lambda: len(asked_by(model, "child")) == 2 and model.in_flight == 0, 100)
        (tmp_path / "go").touch()
        await lab.runtime.result(task)
        told = story(lab)
    model.assert_complete()
    assert any("notice process" in line for line in told)
    (tmp_path / "made").unlink()
    cassette = await anyio.to_thread.run_sync(read_cassette, tmp_path / "tape.jsonl")
    async with open_lab(NOBODY, workspace=tmp_path, replay=cassette) as lab:
        await lab.ask("parent")
        assert lab.assembly.tape is not None and lab.assembly.tape.problems() == []
        assert story(lab) == told
    assert not (tmp_path / "made").exists()


@pytest.mark.anyio
async def test_secrets_do_not_reach_the_file(virtual_clock: VirtualClock, tmp_path: Path) -> None:
    secret = "sk-" + "live-0123456789abcdef0123456789"
    model = ScriptedModel(
        "m", [reply(calls=[call("terminal", command=f"echo {secret}")], thinking=secret), reply(f"it is {secret}")]
    )
    _, _ = await record(model, f"say {secret}", tmp_path, virtual_clock)
    text = (tmp_path / "tape.jsonl").read_text()
    assert secret not in text and "[redacted:api_key]" in text
    assert (tmp_path / "tape.jsonl").stat().st_mode & 0o777 == 0o600
    again, _, problems = await replay(f"say {secret}", tmp_path, virtual_clock)
    assert again.summary == "it is [redacted:api_key]" and problems == []


@pytest.mark.anyio
async def test_another_question_is_refused_with_what_was_recorded(virtual_clock: VirtualClock, tmp_path: Path) -> None:
    await record(ScriptedModel("m", [reply("four")]), "two and two?", tmp_path, virtual_clock)
    result, _, problems = await replay("three and three?", tmp_path, virtual_clock)
    assert result.state == "failed" and 'What was: "two and two?"' in result.error
    assert len(problems) == 1


@pytest.mark.anyio
async def test_what_differs_of_a_request_is_named(virtual_clock: VirtualClock, tmp_path: Path) -> None:
    await record(ScriptedModel("m", [reply("four")]), "hi", tmp_path, virtual_clock)
    cassette = await loaded(tmp_path, virtual_clock)
    async with open_lab(NOBODY, workspace=tmp_path, clock=virtual_clock, replay=cassette) as lab:
        result = await lab.ask("hi", toolsets=("file",))
    assert "request 1 is not the recorded one" in result.error
    assert "the system text is another one" in result.error
    assert "the tools are without terminal, process, " in result.error


@pytest.mark.anyio
async def test_a_recording_that_is_used_up_and_one_that_is_not_are_errors(
    virtual_clock: VirtualClock, tmp_path: Path
) -> None:
    model = ScriptedModel("m", [reply(calls=[call("todo", todos=[])]), reply("done")])
    await record(model, "work", tmp_path, virtual_clock)
    tape = tmp_path / "tape.jsonl"
    whole = tape.read_text().splitlines()
    tape.write_text("\n".join(line for line in whole if '"turn":2' not in line) + "\n")
    result, _, problems = await replay("work", tmp_path, virtual_clock)
    assert result.state == "failed" and "request 2 was not recorded; the recording is used up" in result.error
    assert len(problems) == 1 and "main:" in problems[0] and '("work")' in problems[0]

    reply_line = next(line for line in whole if '"turn":2' in line)
    extra = reply_line.replace('"turn":2', '"turn":3')
    tape.write_text("\n".join([*whole, extra]) + "\n")
    result, _, problems = await replay("work", tmp_path, virtual_clock)
    assert result.state == "completed"
    assert [problem.partition(": ")[2] for problem in problems] == ["reply 3 was recorded and never asked for"]


@pytest.mark.anyio
async def test_a_child_that_fails_to_match_shows_although_the_parent_answers(
    virtual_clock: VirtualClock, tmp_path: Path
) -> None:
    model = family(parent=[reply(calls=[call("delegate_task", goal="child")]), reply("fine")], child=[reply("a")])
    await record(model, "parent", tmp_path, virtual_clock)
    tape = tmp_path / "tape.jsonl"
    tape.write_text(tape.read_text().replace('"choice":"m"', '"choice":"other"', 2).replace('"other"', '"m"', 1))
    result, _, problems = await replay("parent", tmp_path, virtual_clock)
    assert result.state == "completed" and result.summary == "fine"
    assert len(problems) == 1 and "/1.0" in problems[0] and "the model asked for is m, not other" in problems[0]


@pytest.mark.anyio
async def test_a_conversation_of_several_inputs_replays(virtual_clock: VirtualClock, tmp_path: Path) -> None:
    model = ScriptedModel("m", [reply("one"), reply("two")])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, record=tmp_path / "tape.jsonl") as lab:
        session = await lab.converse()
        assert [(await session.exchange(text)).text for text in ("a", "b")] == ["one", "two"]
    cassette = await loaded(tmp_path, virtual_clock)
    async with open_lab(NOBODY, workspace=tmp_path, clock=virtual_clock, replay=cassette) as lab:
        session = await lab.converse()
        assert (await session.exchange("a")).text == "one"
        outcome = await session.exchange("c")
        assert "message 3 is `user" in outcome.error and ": c`, not `user" in outcome.error


@pytest.mark.anyio
async def test_a_task_that_goes_on_after_its_end_replays(virtual_clock: VirtualClock, tmp_path: Path) -> None:
    def go_on(request: ModelRequest) -> Step:
        (given,) = answers(request)
        return reply(calls=[call("continue_task", task_id=given["results"][0]["task_id"], message="more")])

    def collect(request: ModelRequest) -> Step:
        (given,) = answers(request)
        return reply(calls=[call("collect_task", task_id=given["task_id"])])

    model = family(
        parent=[reply(calls=[call("delegate_task", goal="child")]), go_on, collect, reply("done")],
        child=[reply("first"), reply("second", delay=2)],
    )
    result, told = await record(model, "parent", tmp_path, virtual_clock)
    assert result.summary == "done" and any("~2" in line.get("task", "") for line in tape_lines(tmp_path))
    _, same, problems = await replay("parent", tmp_path, virtual_clock)
    assert same == told and problems == []


@pytest.mark.anyio
async def test_an_older_recording_stands_until_the_new_one_is_whole(
    virtual_clock: VirtualClock, tmp_path: Path
) -> None:
    tape = tmp_path / "tape.jsonl"
    tape.write_text("older\n")
    async with open_lab(ScriptedModel("m", [reply("a")]), workspace=tmp_path, clock=virtual_clock, record=tape) as lab:
        await lab.ask("x")
        assert tape.read_text() == "older\n"
        with pytest.raises(UsageError, match="another process is recording to"):
            async with open_lab(NOBODY, workspace=tmp_path, clock=virtual_clock, record=tape):
                pytest.fail("two recordings in one file")
    assert (await loaded(tmp_path, virtual_clock)).header.model == "m" and not tape.with_name(
        "tape.jsonl.part"
    ).exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no recording"),
        ("hello\n", "is no recording"),
        ('{"type":"end","task":"a","seq":1}\n', "is no recording"),
        ('{"type":"cassette","format":"hermes-cassette","version":9}\n', "format version 9, this Hermes reads 1"),
        ('{"type":"cassette"}\n{"type":"end","task":"a","seq":1}\n{"type":"re', ":3: the last line is cut off"),
        ('{"type":"cassette"}\n{"type":"re\n{"type":"end","task":"a","seq":1}\n', ":2: this line is not one of"),
        (
            '{"type":"cassette"}\n{"type":"end","task":"a","seq":1}\n{"type":"end","task":"a","seq":2}\n',
            ":3: this entry",
        ),
        ('{"type":"cassette"}\n{"type":"cassette"}\n', ":2: a second head"),
        ('{"type":"cassette"}\n{"type":"end","task":"\xff","seq":1}\n{}\n', ":2: this line is not one of"),
    ],
)
def test_a_file_that_is_no_whole_recording_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "tape.jsonl"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError) as refused:
        read_cassette(path)
    assert says in str(refused.value) and str(path) in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_cassette(tmp_path / "none.jsonl")


@pytest.mark.anyio
async def test_what_replies_and_calls_brought_stays_in_the_file(virtual_clock: VirtualClock, tmp_path: Path) -> None:
    """All processes of a replay share it; one that changes meanwhile is told as that, one that is replaced is not."""
    answer = "a long answer, " * 1_000 + "."
    model = ScriptedModel("m", [reply(calls=[call("terminal", command="echo ran")]), reply(answer)])
    first, _ = await record(model, "go", tmp_path, virtual_clock)
    cassette = await loaded(tmp_path, virtual_clock)
    assert answer not in repr(cassette)
    tape = tmp_path / "tape.jsonl"
    aside = tmp_path / "aside.jsonl"
    aside.write_bytes(b"another\n")
    tape.rename(tmp_path / "old.jsonl")
    aside.rename(tape)
    for whole in (True, False):
        async with open_lab(NOBODY, workspace=tmp_path, clock=virtual_clock, replay=cassette, settings=SETTINGS) as lab:
            again = await lab.ask("go")
        if whole:
            assert again.summary == first.summary == answer
        else:
            assert again.state == "failed" and "was changed while it was replayed" in again.error
        with (tmp_path / "old.jsonl").open("r+b") as file:
            file.truncate(1_000)


@pytest.mark.anyio
async def test_a_recording_may_come_through_a_pipe(virtual_clock: VirtualClock, tmp_path: Path) -> None:
    """As from `<(zcat tape.jsonl.gz)` of a shell."""
    first, _ = await record(ScriptedModel("m", [reply("an answer")]), "go", tmp_path, virtual_clock)
    tape, kept = tmp_path / "tape.jsonl", tmp_path / "kept.jsonl"
    tape.rename(kept)
    os.mkfifo(tape)

    def feed() -> None:
        tape.write_bytes(kept.read_bytes())

    feeding = threading.Thread(target=feed, daemon=True)
    feeding.start()
    cassette = await loaded(tmp_path, virtual_clock)
    feeding.join(60)
    async with open_lab(NOBODY, workspace=tmp_path, clock=virtual_clock, replay=cassette, settings=SETTINGS) as lab:
        assert (await lab.ask("go")).summary == first.summary == "an answer"
