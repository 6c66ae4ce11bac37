"""Foreground commands: what they see, what they leave, how they end."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from hermes.core.errors import ToolError
from hermes.core.scope import CallKey
from hermes.environments.local import LocalSettings, default_parallel
from hermes.environments.output import OutputLimits
from hermes.environments.process import CALL_KEY, end_leftovers, group_members, processes_of_call, spawn, start_time
from tests.environments.conftest import LEFT

pytestmark = pytest.mark.anyio
# Of this run alone: what is left of a call is looked for on the whole machine, where other runs have tasks too.
ONE, NINE = f"sa-{os.getpid():x}", f"sa-{os.getpid():x}9"
KEY = CallKey(ONE, 1, 0)


async def members(pgid: int) -> list[int]:
    return await anyio.to_thread.run_sync(group_members, pgid)


async def called(prefix: str) -> list[int]:
    return await anyio.to_thread.run_sync(processes_of_call, prefix)


async def test_output_exit_code_and_directory(make: Any, tmp_path: Path) -> None:
    result = await make().run("echo out; echo err >&2; pwd; exit 3", key=KEY)
    assert (result.output, result.exit_code) == (f"out\nerr\n{tmp_path / 'work'}\n", 3)
    assert (result.stopped, result.truncated, result.notes) == ("", False, ())
    assert result.cwd == str(tmp_path / "work")


async def test_directory_variables_and_functions_last(make: Any) -> None:
    env = make()
    await env.run("cd /usr; export WORD='a b'; hello() { echo \"hello $1\"; }; LOCAL=1; unset LANG", key=KEY)
    result = await env.run('pwd; echo "$WORD"; hello you; echo "[$LOCAL$LANG]"; cd - >/dev/null; pwd', key=KEY)
    assert result.output == f"/usr\na b\nhello you\n[]\n{env.workspace}\n"
    assert env.cwd == env.workspace


async def test_state_is_kept_for_another_process(make: Any, tmp_path: Path) -> None:
    await make().run("cd /usr; export WORD=kept", key=KEY)
    second = make()
    assert (await second.run("pwd; echo $WORD", key=KEY)).output == "/usr\nkept\n"
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "state" / ONE).iterdir())


async def test_a_command_that_exits_or_fails_leaves_its_state(make: Any) -> None:
    env = make()
    await env.run("set -euo pipefail; cd /usr; export A=1; false; export A=2", key=KEY)
    assert (await env.run("pwd; echo $A; set +o | grep errexit", key=KEY)).output == "/usr\n1\nset +o errexit\n"


async def test_a_directory_given_for_one_command_does_not_stay(make: Any, tmp_path: Path) -> None:
    env = make()
    assert (await env.run("pwd; echo $PWD", key=KEY, cwd="/usr")).output == "/usr\n/usr\n"
    assert env.cwd == env.workspace
    with pytest.raises(ToolError, match="no directory /nowhere"):
        await env.run("pwd", key=KEY, cwd="/nowhere")


@pytest.mark.fault("B014")
async def test_what_a_child_sets_stays_with_the_child(make: Any, tmp_path: Path) -> None:
    parent, children = make("main_1", depth=0), [make(f"{ONE}-2"), make(f"{ONE}-3")]
    before = (await parent.run("pwd; echo $HOME $TMPDIR $PWD", key=CallKey("main_1", 1, 0))).output

    async def child(env: Any, number: int) -> None:
        key = CallKey(f"sa-{number}", 1, 0)
        await env.run(f"mkdir d{number}; cd d{number}; export HOME=$PWD TMPDIR=$PWD; rmdir $PWD", key=key)

    async with anyio.create_task_group() as group:
        for number, env in enumerate(children, start=2):
            group.start_soon(child, env, number)
    assert (await parent.run("pwd; echo $HOME $TMPDIR $PWD", key=CallKey("main_1", 2, 0))).output == before


@pytest.mark.fault("B016")
async def test_siblings_have_variables_and_directories_of_their_own(make: Any, tmp_path: Path) -> None:
    one, two = make(ONE, workspace=tmp_path / "one"), make(f"{ONE}-2", workspace=tmp_path / "two")
    async with anyio.create_task_group() as group:
        for name, env in (("a", one), ("b", two)):
            group.start_soon(lambda env=env, name=name: env.run(f"export X={name}; echo $X > out.txt", key=KEY))
    assert [(await env.run("echo $X; cat out.txt", key=KEY)).output for env in (one, two)] == ["a\na\n", "b\nb\n"]


async def test_a_directory_that_has_gone_falls_back_with_a_note(make: Any) -> None:
    env = make()
    await env.run("mkdir gone; cd gone; rmdir ../gone", key=KEY)
    result = await env.run("pwd", key=KEY)
    assert result.output == f"{env.workspace}\n"
    assert "gone no longer exists" in result.notes[0]
    await env.run("rm -rf ../work", key=KEY)
    with pytest.raises(ToolError, match="workspace .* no longer exists"):
        await env.run("pwd", key=KEY)


async def test_a_missing_home_is_said_once(make: Any) -> None:
    env = make(source={"PATH": os.environ["PATH"], "HOME": "/no/such/home"})
    assert (await env.run("true", key=KEY)).notes == ("HOME (/no/such/home) does not exist.",)
    assert (await env.run("true", key=KEY)).notes == ()


@pytest.mark.fault("B137")
@pytest.mark.fault("B141")
async def test_no_secret_variable_reaches_a_command(make: Any) -> None:
    source = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ["HOME"],
        "FOO_TOKEN": "marker-1",
        "OPENAI_API_KEY": "marker-2",
        "PLAIN": "marker-3",
        "AWS_REGION": "north",
        "AWS_SECRET": "marker-4",
        "NAMED_KEY": "wanted",
    }
    env = make(source=source, settings=LocalSettings(env_passthrough=("AWS_*", "NAMED_KEY")), depth=2)
    for _ in range(2):  # before and after the session has a state of its own
        output = (await env.run("env", key=KEY)).output
        assert "marker" not in output
        assert "AWS_REGION=north\n" in output
        assert "NAMED_KEY=wanted\n" in output
        assert "HERMES_DEPTH=2\n" in output
        assert f"HERMES_CALL_KEY={KEY}\n" in output


@pytest.mark.fault("B138")
async def test_depth_cannot_be_lowered_for_the_next_command(make: Any) -> None:
    env = make(depth=3)
    await env.run("export HERMES_DEPTH=0 HERMES_CALL_KEY=x", key=KEY)
    assert (await env.run("echo $HERMES_DEPTH $HERMES_CALL_KEY", key=KEY)).output == f"3 {KEY}\n"


@pytest.mark.fault("B003")
async def test_a_time_limit_ends_the_whole_group(make: Any, run_out_of_time: Any, virtual_clock: Any) -> None:
    seen: list[int] = []
    env = make(on_started=lambda key, pgid, started: seen.append(pgid), hold=virtual_clock)
    begun = time.monotonic()
    result = await run_out_of_time(env, "sleep 160 & echo begun; sleep 161; echo never", key=KEY, timeout=50)
    assert (result.stopped, result.timed_out, result.exit_code) == ("timeout", True, None)
    assert result.output == "begun\n"
    assert virtual_clock.elapsed == pytest.approx(50) and time.monotonic() - begun < 60
    assert await members(seen[0]) == []


async def test_a_group_that_ignores_the_signal_is_killed(make: Any, run_out_of_time: Any, virtual_clock: Any) -> None:
    seen: list[int] = []
    env = make(on_started=lambda key, pgid, started: seen.append(pgid), hold=virtual_clock)
    result = await run_out_of_time(env, "trap '' TERM; echo deaf; sleep 160", key=KEY)
    assert (result.stopped, result.output) == ("timeout", "deaf\n")
    assert await members(seen[0]) == []


@pytest.mark.fault("B003")
async def test_cancelling_ends_the_group_and_what_left_it(make: Any) -> None:
    seen: list[int] = []
    env = make(on_started=lambda key, pgid, started: seen.append(pgid))
    with anyio.CancelScope() as scope:
        await env.run(f"setsid sleep 160 & {LEFT}; echo up; sleep 161", key=KEY, progress=lambda _: scope.cancel())
    assert scope.cancelled_caught
    assert await members(seen[0]) == []
    assert await called(f"{KEY}\0") == []


async def test_a_killed_command_leaves_the_state_as_it_was(make: Any, run_out_of_time: Any, virtual_clock: Any) -> None:
    env = make(hold=virtual_clock)
    await env.run("export A=1", key=KEY)
    await run_out_of_time(env, "cd /usr; export A=2; echo changed; sleep 160", key=KEY)
    assert (await env.run("pwd; echo $A", key=KEY)).output == f"{env.workspace}\n1\n"


async def test_a_process_left_in_the_background_does_not_delay_the_answer(make: Any) -> None:
    seen: list[int] = []
    env = make(on_started=lambda key, pgid, started: seen.append(pgid))
    begun = time.monotonic()
    result = await env.run("(while true; do echo noise; sleep 0.01; done) & echo done", key=KEY)
    assert time.monotonic() - begun < 60  # the noise has no end
    assert "done\n" in result.output
    assert result.exit_code == 0
    assert "still run" in result.notes[0]
    assert await members(seen[0]) != []  # a closed pipe would have killed it
    await env.close()
    assert await members(seen[0]) == []


async def test_closing_ends_what_left_its_group(make: Any) -> None:
    env = make()
    await env.run(f"setsid sleep 160 >/dev/null 2>&1 & {LEFT}", key=KEY)
    assert len(await called(f"{ONE}:")) == 1
    await env.close()
    assert await called(f"{ONE}:") == []
    with pytest.raises(ToolError, match="has ended"):
        await env.run("true", key=KEY)


async def test_the_owner_is_told_before_any_output(make: Any) -> None:
    told: list[Any] = []
    env = make(on_started=lambda key, pgid, started: told.append((key, pgid, started)))
    await env.run("echo $$ > pid", key=KEY)
    pid = int((Path(env.workspace) / "pid").read_text())
    assert told[0][:2] == (KEY, pid)
    assert told[0][2]


async def test_an_owner_that_refuses_ends_the_command(make: Any) -> None:
    def refuse(key: CallKey, pgid: int, started: str) -> None:
        raise RuntimeError(str(pgid))

    with pytest.raises(RuntimeError) as error:
        await make(on_started=refuse).run("sleep 60", key=KEY)
    assert await members(int(str(error.value))) == []


async def test_a_signal_becomes_an_exit_code(make: Any) -> None:
    assert (await make().run("kill -9 $$", key=KEY)).exit_code == 137


async def test_standard_input_is_empty(make: Any) -> None:
    assert (await make().run("cat; read x; echo $?", key=KEY)).output == "1\n"


async def test_syntax_errors_and_strange_commands_are_answers(make: Any) -> None:
    env = make()
    result = await env.run("if then", key=KEY)
    assert (result.exit_code, "syntax error" in result.output) == (2, True)
    assert (await env.run("echo 'it'\\''s' \"$0\" $#", key=KEY)).output == "it's bash 0\n"
    assert (await env.run("cat <<'END'\na $b\nEND", key=KEY)).output == "a $b\n"
    assert (await env.run("exec echo gone", key=KEY)).output == "gone\n"
    with pytest.raises(ToolError, match="NUL"):
        await env.run("echo \0", key=KEY)


async def test_a_command_longer_than_one_argument_may_be(make: Any) -> None:
    text = "x" * 200_000
    result = await make().run(f"cat <<'END' | wc -c\n{text}\nEND", key=KEY)
    assert result.output.strip() == "200001"


@pytest.mark.fault("B127")
async def test_bytes_that_are_no_text(make: Any) -> None:
    env = make(source={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LC_ALL": "C"})
    result = await env.run("printf 'a\\377\\0b ± Привет\\n'", key=KEY)
    assert result.output == "a\ufffd\ufffdb ± Привет\n"


async def test_long_output_is_cut_and_kept_whole_on_disk(make: Any) -> None:
    settings = LocalSettings(output=OutputLimits(visible=1_000, memory=8_192))
    result = await make(settings=settings).run("seq 1 50000", key=KEY)
    assert result.truncated
    assert len(result.output) < 1_300
    assert result.output.startswith("1\n2\n")
    assert result.output.endswith("49999\n50000\n")
    assert result.output_path in result.output
    assert Path(result.output_path).read_text() == "".join(f"{number}\n" for number in range(1, 50_001))


async def test_output_without_end_stops_the_command(make: Any) -> None:
    settings = LocalSettings(output=OutputLimits(disk=3_000_000), grace=0.3)
    result = await make(settings=settings).run("yes", key=KEY, timeout=100)
    assert (result.stopped, result.exit_code) == ("output", None)
    assert Path(result.output_path).stat().st_size < 8_000_000


async def test_everything_passes_the_redactor(make: Any, tmp_path: Path) -> None:
    def redact(text: str) -> str:
        return text.replace("hunter2-secret", "[redacted]")

    settings = LocalSettings(output=OutputLimits(visible=500, memory=4_096))
    env = make(redact=redact, settings=settings)
    lines: list[str] = []
    command = 'for i in $(seq 3000); do echo "$i hunter2-secret"; done'
    result = await env.run(command, key=KEY, progress=lines.append)
    assert "hunter2" not in result.output
    assert "hunter2" not in "".join(lines)
    for path in tmp_path.rglob("*.txt"):
        assert "hunter2" not in path.read_text()
    assert result.output_path


async def test_progress_is_the_newest_line(make: Any) -> None:
    lines: list[str] = []
    await make().run("echo first; echo second", key=KEY, progress=lines.append)
    assert lines
    assert lines[0] in ("first", "second")


async def test_no_more_commands_than_permits(make: Any) -> None:
    env = make(commands=anyio.CapacityLimiter(1))
    script = "mkdir lock || echo twice; sleep 0.05; rmdir lock"
    outputs: list[str] = []

    async def one() -> None:
        outputs.append((await env.run(script, key=KEY)).output)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(one)
    assert outputs == ["", "", ""]
    assert default_parallel() >= 4


async def test_paths_are_resolved_where_the_session_stands(make: Any) -> None:
    env = make()
    assert env.resolve("a/../b") == f"{env.workspace}/b"
    assert env.resolve("~/x") == f"{os.environ['HOME']}/x"
    await env.run("cd /usr", key=KEY)
    assert env.resolve("b") == "/usr/b"


async def test_calls_side_by_side_do_not_spoil_the_state(make: Any) -> None:
    env = make()
    outputs: list[str] = []

    async def one(number: int) -> None:
        result = await env.run(f"export V{number}=x; echo {number}", key=CallKey(ONE, 1, number))
        outputs.append(result.output)

    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(one, number)
    assert sorted(outputs, key=int) == [f"{number}\n" for number in range(12)]
    assert "x" in (await env.run("echo ${!V*}; env | grep ^V", key=KEY)).output


async def test_a_missing_shell_is_said(make: Any) -> None:
    env = make(source={"PATH": "/nowhere", "HOME": os.environ["HOME"]})
    assert (await env.run("echo found", key=KEY)).output == "found\n"  # /bin/bash is looked for by its path


async def test_leftovers_of_a_lost_process_are_found_and_ended() -> None:
    env = {"PATH": os.environ["PATH"], CALL_KEY: f"{NINE}:3:1"}
    script = "setsid sleep 160 & trap '' TERM; sleep 161 & wait"
    process, read_fd, started, _ = await anyio.to_thread.run_sync(spawn, ["bash", "-c", script], env, "/")
    try:
        with anyio.fail_after(60):
            while len(await called(f"{NINE}:3:1\0")) < 3:
                await anyio.sleep(0.01)
        assert await anyio.to_thread.run_sync(end_leftovers, f"{NINE}:3:10", None, None, 0.1) == 0
        assert await anyio.to_thread.run_sync(end_leftovers, f"{NINE}:3:1", process.pid, started, 0.1) == 3
        assert await called(f"{NINE}:3:1\0") == []
    finally:
        await anyio.to_thread.run_sync(process.wait)
        os.close(read_fd)


async def test_a_reused_group_number_is_not_touched() -> None:
    process, read_fd, _, _ = await anyio.to_thread.run_sync(spawn, ["sleep", "160"], {"PATH": os.environ["PATH"]}, "/")
    try:
        assert await anyio.to_thread.run_sync(end_leftovers, f"{NINE}:1:0", process.pid, "another start", 0.1) == 0
        assert await anyio.to_thread.run_sync(process.poll) is None
        assert await anyio.to_thread.run_sync(start_time, process.pid) not in ("", "another start")
    finally:
        process.kill()
        await anyio.to_thread.run_sync(process.wait)
        os.close(read_fd)


async def test_simulated_time_stands_while_a_command_runs(make: Any, virtual_clock: Any) -> None:
    env = make(hold=virtual_clock)
    woken: list[float] = []

    async def sleeper() -> None:
        await anyio.sleep(3600)
        woken.append(anyio.current_time())

    async with anyio.create_task_group() as group:
        group.start_soon(sleeper)
        begun = anyio.current_time()
        result = await env.run("sleep 0.2; echo done", key=KEY)
        assert (result.output, woken) == ("done\n", [])
        assert anyio.current_time() - begun < 1
    assert woken
