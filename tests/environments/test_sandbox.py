"""The sandbox: what is seen inside, what is not, what ends, and what it says where it cannot be had."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from hermes.core.errors import OperatorError
from hermes.core.scope import CallKey
from hermes.environments.cgroup import ControlGroups
from hermes.environments.local import LocalEnvironment
from hermes.environments.process import processes_of_call
from hermes.environments.sandbox import Bubblewrap, SandboxSettings
from hermes.environments.scrub import command_environment

pytestmark = [pytest.mark.anyio, pytest.mark.may_block]
ONE = f"sa-{os.getpid():x}"  # of this run alone
KEY = CallKey(ONE, 1, 0)
KILLED = f"killed-{os.getpid():x}:"
MIB = 1024 * 1024
Make = Callable[..., LocalEnvironment]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


@pytest.fixture
def make(sandboxed: Make) -> Make:
    return sandboxed


async def test_a_session_lasts_as_on_the_host(make: Make, work: Path) -> None:
    env = make()
    (work / "a").write_text("A")
    await env.run("cat a; export X=1; f() { echo f$X; }; mkdir sub; cd sub; echo t > /tmp/t; echo h > ~/h", key=KEY)
    result = await env.run("pwd; f; cat /tmp/t ~/h; exit 7", key=KEY)
    assert (result.output, result.exit_code, result.notes) == (f"{work}/sub\nf1\nt\nh\n", 7, ())
    assert not Path("/tmp/t").exists(), "its /tmp is its own"
    assert env.resolve("~/h") == os.environ["HOME"] + "/h"
    with open(env.files.open(env.resolve("~/h")), encoding="utf-8") as file:
        assert file.read() == "h\n", "file tools see what commands see"
    env.files.replace("/tmp/from-a-tool", b"tool")
    assert (await env.run("cat /tmp/from-a-tool", key=KEY)).output == "tool"


async def test_nothing_of_the_user_and_of_other_tasks_is_seen(
    make: Make, tmp_path: Path, work: Path, home: Path
) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("SECRET")
    other = make(f"{ONE}-2")
    await other.run("echo SECRET > /tmp/x; export TOKEN=SECRET", key=CallKey(f"{ONE}-2", 1, 0))
    env = make()
    result = await env.run(
        f"cat {home}/.ssh/id ~/.ssh/id {tmp_path}/state/sa-2/tmp/x {tmp_path}/state/sa-2/shell/* /etc/shadow /tmp/x; "
        "ls /root /home /var /srv /mnt /sys /run; cat /proc/1/environ | tr '\\0' '\\n' | grep -c TOKEN; env",
        key=KEY,
    )
    assert "SECRET" not in result.output and "root:x" not in result.output
    listed = await env.run("ls /proc | grep -c '^[0-9]'; ls /", key=KEY)
    assert int(listed.output.split()[0]) <= 5, "other processes are not seen"


async def test_what_reaches_into_the_machine_fails(make: Make) -> None:
    attempts = (
        "touch /usr/x", "touch /etc/x", "touch /x", "mkdir /opt/x", "echo x > /proc/sys/kernel/hostname",
        "echo c > /proc/sysrq-trigger",
        "cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern", "echo 1 > /proc/sys/vm/drop_caches",
        "mount -t tmpfs none /tmp", "umount /proc", "unshare -U true", "mknod /tmp/d b 8 0", "hostname evil",
        "chroot / true", "ulimit -Hd unlimited", "dd if=/dev/sda count=1", "cat /dev/mem", "kill -9 1",
        "nsenter -t 1 -m true", "python3 -c 'import os; os.setns(os.open(\"/proc/1/ns/user\", 0), 0)'",
    )  # fmt: skip
    env = make()
    through = [attempt for attempt in attempts if (await env.run(attempt, key=KEY)).exit_code == 0]
    assert through == ["kill -9 1"], "that signal is sent and ignored"
    assert not Path("/usr/x").exists() and not Path("/etc/x").exists()


async def test_there_is_no_network_unless_it_is_allowed(make: Make) -> None:
    code = "import socket; s = socket.socket(); s.settimeout(60); s.connect(('127.0.0.1', PORT))"
    with await anyio.to_thread.run_sync(lambda: __import__("socket").create_server(("127.0.0.1", 0))) as server:
        command = f'python3 -c "{code.replace("PORT", str(server.getsockname()[1]))}"'
        closed = await make().run(command, key=KEY)
        opened = await make(f"{ONE}-2", network=True).run(command, key=CallKey(f"{ONE}-2", 1, 0))
    assert "refused" in closed.output and closed.exit_code == 1
    assert opened.exit_code == 0, opened.output


async def test_the_settings_and_hooks_of_a_repository_are_not_its_to_change(make: Make, work: Path) -> None:
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    before = (work / ".git" / "config").read_text()
    attempts = (
        "echo x > .git/hooks/pre-commit", "git config core.fsmonitor evil", "mv .git .old", "rm -rf .git/hooks",
        "mv .git/config .git/c2", "ln -sf /tmp/evil .git/config",
    )  # fmt: skip
    env = make()
    assert [attempt for attempt in attempts if (await env.run(attempt, key=KEY)).exit_code == 0] == []
    assert (work / ".git" / "config").read_text() == before and not (work / ".git" / "hooks" / "pre-commit").exists()
    identity = "git -c user.name=a -c user.email=b"
    result = await env.run(f"echo 1 > f && git add f && {identity} commit -qm one && git log --format=%s", key=KEY)
    assert result.output == "one\n", "ordinary work goes on"
    with pytest.raises(OSError):
        env.files.replace(f"{work}/.git/config", b"evil")


async def test_settings_of_git_that_a_tool_wrote_before_the_first_command_stay(make: Make, home: Path) -> None:
    (home / ".gitconfig").write_text("[user]\n\tname = The user\n")
    settings = "/tmp/home/.gitconfig"  # where the home of a task is unless it lies below /tmp
    env = make()
    env.files.replace(settings, b"[user]\n\tname = The task\n")
    assert (await env.run(f"git config -f {settings} user.name", key=KEY)).output == "The task\n"
    other = make(f"{ONE}-2")
    assert (await other.run(f"git config -f {settings} user.name", key=KEY)).output == "The user\n"


async def test_git_is_not_led_to_settings_elsewhere(make: Make, work: Path) -> None:
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    env = make()
    result = await env.run("cp -r .git evil && echo ../evil > .git/commondir", key=KEY)
    assert result.exit_code == 0 and "settings and hooks from elsewhere" in str(result.notes)
    assert not (work / ".git" / "commondir").exists()
    env.files.replace(f"{work}/.git/commondir", b"../evil")
    await env.close()
    assert not (work / ".git" / "commondir").exists()
    quiet = make(f"{ONE}-2")
    quiet.files.replace(f"{work}/.git/commondir", b"../evil")
    await quiet.close()
    assert not (work / ".git" / "commondir").exists(), "file tools alone leave nothing either"


async def test_memory_processes_file_size_and_output_are_limited(make: Make) -> None:
    env = make(memory=128 * MIB, processes=40, file_size=MIB)
    result = await env.run("python3 -c 'x = bytearray(300 << 20)'", key=KEY)
    assert result.exit_code != 0 and "MemoryError" in result.output
    result = await env.run("head -c 3000000 /dev/zero > big; stat -c %s big", key=KEY)
    assert int(result.output.split()[-1]) <= MIB
    result = await env.run("yes", key=KEY)
    assert result.stopped == "output"
    result = await env.run("sleep 30", key=KEY, timeout=0.2)
    assert result.stopped == "timeout" and result.exit_code is None


async def test_files_in_memory_are_limited_without_control_groups(make: Make) -> None:
    env = make(groups=ControlGroups(reason="none"), memory=64 * MIB)
    result = await env.run(
        "head -c 80000000 /dev/zero > /dev/shm/a; stat -c %s /dev/shm/a; rm /dev/shm/a; echo x > /dev/b; "
        "echo x > /dev/null && python3 -c 'import pty; pty.openpty()' && echo fine",
        key=KEY,
    )
    said = result.output.split("\n")
    assert f"{64 * MIB}" in said and "fine" in said
    assert "Read-only file system" in result.output


async def test_a_fork_bomb_stays_inside(make: Make) -> None:
    groups = ControlGroups.find()
    if not groups.version and os.getuid() == 0:
        pytest.skip(f"root without control groups has no limit of processes: {groups.reason}")
    env = make(processes=60)
    result = await env.run("f() { f | f & }; f 2>/dev/null; sleep 0.5; echo over", key=KEY, timeout=10)
    assert "over" in result.output or result.stopped
    assert processes_of_call(f"{ONE}:") == []
    assert (await env.run("echo fine", key=KEY)).output == "fine\n"


async def test_memory_of_all_processes_together_is_limited(make: Make) -> None:
    if not ControlGroups.find().version:
        pytest.skip("no control groups can be made here")
    code = "import os,time\nfor _ in range(4):\n  if not os.fork(): x = bytearray(60 << 20); time.sleep(1); os._exit(0)"
    env = make(memory=128 * MIB)
    result = await env.run(f"python3 -c '{code}\nprint([os.wait()[1] for _ in range(4)])'", key=KEY)
    assert "9" in result.output and any("128 MB" in note for note in result.notes)
    assert (await env.run("true", key=KEY)).notes == (), "that is said once"


async def test_everything_ends_with_its_command_and_at_close(make: Make) -> None:
    env = make()
    result = await env.run("setsid sleep 300 & nohup sleep 300 & disown; echo started", key=KEY)
    assert result.output == "started\n" and "ends with the command" in result.notes[0]
    info = await env.start("setsid sleep 300 & sleep 300", key=KEY)
    assert info.state == "running"
    await env.close()
    assert processes_of_call(f"{ONE}:") == []


async def test_state_is_taken_up_by_another_process(make: Make) -> None:
    await make().run("cd /tmp; export KEPT=1; echo x > kept", key=KEY)
    assert (await make().run("echo $KEPT; pwd; cat kept", key=KEY)).output == "1\n/tmp\nx\n"


async def test_long_output_can_be_read_inside_and_by_the_file_tools(make: Make) -> None:
    env = make()
    result = await env.run("seq 20000", key=KEY)
    assert result.truncated
    assert (await env.run(f"tail -1 {result.output_path}", key=KEY)).output == "20000\n"
    assert env.files.stat(result.output_path).st_size == result.total_bytes


async def test_reports_of_children_can_be_read_as_soon_as_they_are_there(make: Make, tmp_path: Path) -> None:
    reports: list[str] = []
    env = make(readable=lambda: reports)
    await env.run("true", key=KEY)
    path = tmp_path / "hidden" / "report.md"
    path.parent.mkdir()
    (path.parent / "other").write_text("SECRET")
    path.write_text("the whole report")
    assert "No such file" in (await env.run(f"cat {path}", key=KEY)).output
    reports.append(str(path))
    assert (await env.run(f"cat {path}; ls {path.parent}", key=KEY)).output == "the whole reportreport.md\n"
    with open(env.files.open(str(path)), encoding="utf-8") as file:
        assert file.read() == "the whole report"
    with pytest.raises(OSError):
        env.files.replace(str(path), b"x")


async def test_what_a_command_leaves_where_its_state_is_kept_misleads_nobody(make: Make, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("SECRET\0/\0done")
    state = tmp_path / "state" / ONE / "shell"
    for trick in (
        f"ln -s {secret} {state}/NAME.state; exec true", f"mkfifo {state}/NAME.state; exec true",
        f"ln -sf {secret} {state}/shell.restore.new", f"mkdir {state}/NAME.state; exec true",
        f"ln -sf {secret} {state}/NAME.txt; seq 20000", f"rm -rf {state}/*",
    ):  # fmt: skip
        env = make()
        for number in range(1, 4):
            await env.run(trick.replace("NAME", f"1_0_{number}"), key=KEY)
        assert "SECRET" not in (await env.run("export; cat ~/../shell/*", key=KEY)).output
        await env.close()
        await make().run(f"rm -rf {state}/*; exec true", key=KEY)
    assert secret.read_text() == "SECRET\0/\0done"


async def test_a_workspace_that_is_the_home_hides_keys_and_the_home_of_this_program(make: Make, home: Path) -> None:
    for name in (".ssh", ".hermes"):
        (home / name).mkdir()
        (home / name / "key").write_text("SECRET")
    (home / "notes").write_text("notes")
    env = make(workspace=home, hidden=(str(home / ".hermes"),))
    result = await env.run("cat notes .ssh/key .hermes/key; echo new > written", key=KEY)
    assert "notes" in result.output and "SECRET" not in result.output
    assert (home / "written").exists()


async def test_without_the_program_or_the_right_it_says_what_is_missing(tmp_path: Path) -> None:
    nowhere = Bubblewrap(SandboxSettings(), tmp_path, path=str(tmp_path))
    assert "install the package bubblewrap" in nowhere.why_not()
    with pytest.raises(OperatorError, match="environment_unavailable.*bubblewrap"):
        nowhere.ready()
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    program.chmod(0o755)
    forbidden = Bubblewrap(SandboxSettings(), tmp_path, path=str(tmp_path))
    assert "No permissions to create new namespace" in forbidden.why_not() and "forbidden here" in forbidden.why_not()


async def test_tasks_that_begin_at_once_try_the_program_once(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\nmkdir '{tmp_path}/tried' || exit 1\n")
    program.chmod(0o755)
    maker = Bubblewrap(SandboxSettings(), tmp_path / "cache", path=f"{tmp_path}:{os.environ['PATH']}")
    together = threading.Barrier(4)

    def ready() -> str:
        together.wait(300)
        return maker.ready()[0]

    found: list[str] = []

    async def begin() -> None:
        found.append(await anyio.to_thread.run_sync(ready))

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(begin)
    assert found == [str(program)] * 4
    maker.close()


async def test_a_sandbox_that_could_not_be_made_once_is_made_whole_the_next_time(
    tmp_path: Path, work: Path, needs_tool: Any
) -> None:
    needs_tool("bwrap")
    maker = Bubblewrap(SandboxSettings(), tmp_path / "cache", groups=ControlGroups(reason="none"))
    program, _ = maker.ready()
    maker.identity = b"[user]\n"
    sandbox = maker.sandbox(str(work), tmp_path / "state", command_environment(os.environ))
    assert sandbox.files is not None
    home = tmp_path / "state" / "tmp" / "home"
    home.rmdir()
    with pytest.raises(FileNotFoundError):
        sandbox.open()
    home.mkdir()
    sandbox.open()
    launch = sandbox.launch(["true"], {}, "/")
    if launch.handed is not None:
        os.close(launch.handed)
    assert launch.argv.count(program) == 1
    sandbox.close()
    maker.close()


async def test_a_killed_process_leaves_no_command_behind(tmp_path: Path, work: Path, needs_tool: Any) -> None:
    needs_tool("bwrap")
    program = f"""
import os, subprocess
from pathlib import Path
from hermes.environments.sandbox import Bubblewrap, SandboxSettings
maker = Bubblewrap(SandboxSettings(), Path({str(tmp_path / "cache")!r}))
box = maker.sandbox({str(work)!r}, Path({str(tmp_path / "state")!r}), {{"PATH": os.environ["PATH"]}})
box.open()
launch = box.launch(["sh", "-c", "echo up; setsid sleep 300 & sleep 300"], {{"HERMES_CALL_KEY": "{KILLED}1:0"}}, "/tmp")
subprocess.run(launch.argv, env=launch.env, cwd=launch.cwd, pass_fds=[launch.handed] if launch.handed else [])
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    assert processes_of_call(KILLED)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with anyio.move_on_after(60):
        while processes_of_call(KILLED):
            await anyio.sleep(0.01)
    assert processes_of_call(KILLED) == []
