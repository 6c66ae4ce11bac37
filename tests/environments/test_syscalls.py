"""The filter of system calls: the program itself, run as a kernel would run it, and what a sandbox does behind it."""

from __future__ import annotations

import errno
import os
import platform
import re
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hermes.core.environment import CommandResult
from hermes.core.scope import CallKey
from hermes.environments.bwrap import find_bwrap
from hermes.environments.local import LocalEnvironment
from hermes.environments.syscalls import filter_program

ONE = f"sa-{os.getpid():x}"
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
HEADERS = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}
REFUSED = """
    mount umount2 pivot_root open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr setns open_by_handle_at
    add_key request_key keyctl bpf perf_event_open userfaultfd kexec_load kexec_file_load init_module finit_module
    delete_module reboot swapon swapoff acct quotactl quotactl_fd syslog lookup_dcookie iopl ioperm
""".split()
ABSENT = "clone3 io_uring_setup io_uring_enter io_uring_register".split()
ORDINARY = """
    read write openat close mmap mprotect execve wait4 kill fork vfork futex socketpair connect ptrace process_vm_readv
    name_to_handle_at seccomp prctl fanotify_init inotify_init1 memfd_create pidfd_open statx openat2 chmod fchmodat
""".split()
EPERM, ENOSYS, EAFNOSUPPORT = errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT


def judged(machine: str, number: int, *arguments: int, arch: int | None = None) -> int:
    """What the program answers to one call: 0 it may, else the error."""
    program = filter_program(machine)
    given = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=iIQ6Q", number, ARCH[machine] if arch is None else arch, 0, *given)
    at = held = 0
    while True:
        code, jump, otherwise, value = struct.unpack_from("=HBBI", program, 8 * at)
        at += 1
        if code == 0x20:
            (held,) = struct.unpack_from("=I", data, value)
        elif code == 0x06:
            return value & 0xFFFF if value != 0x7FFF0000 else 0
        else:
            at += jump if {0x15: held == value, 0x35: held >= value, 0x45: held & value}[code] else otherwise


def numbers(machine: str, needs_tool: Callable[[str], Path]) -> dict[str, int]:
    """The kernel's own list, as its headers have it."""
    if machine != platform.machine() and not Path(HEADERS[machine]).exists():
        pytest.skip("headers of another machine")
    header = needs_tool(HEADERS[machine])
    found = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", header.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: int(number) for name, number in found}


@pytest.mark.parametrize("machine", ARCH)
def test_its_numbers_are_those_of_the_kernel(needs_tool: Callable[[str], Path], machine: str) -> None:
    known = numbers(machine, needs_tool)
    assert len(known) > 200
    for name in REFUSED:
        assert name not in known or judged(machine, known[name]) == EPERM, name
    for name in ABSENT:
        assert judged(machine, known[name]) == ENOSYS, name
    refused = {number for number in range(600) if judged(machine, number) != 0}
    assert {name for name, number in known.items() if number in refused} <= {*REFUSED, *ABSENT}
    for name in ORDINARY:
        assert name not in known or judged(machine, known[name]) == 0, name
    plain, inside = 0x01200011, 0x10000011  # a fork as the C library makes it; one with a user namespace
    assert [judged(machine, known["clone"], flags) for flags in (plain, 0x003D0F00, inside)] == [0, 0, EPERM]
    assert [judged(machine, known["unshare"], flags) for flags in (0x400, 0x10000000, 0x80)] == [0, EPERM, EPERM]
    ioctls = (0x5401, 0x5412, 0x541C, 0x7_0000_5412)  # the upper half is not looked at by the kernel either
    assert [judged(machine, known["ioctl"], 0, asked) for asked in ioctls] == [0, EPERM, EPERM, EPERM]
    families = [judged(machine, known["socket"], family) for family in (1, 2, 10, 16, 38, 40)]
    assert families == [0, 0, 0, 0, EAFNOSUPPORT, EAFNOSUPPORT]


@pytest.mark.parametrize("machine", ARCH)
def test_another_abi_of_the_machine_is_no_way_around(machine: str) -> None:
    assert judged(machine, 20, arch=0x40000003) == ENOSYS, "programs of 32 bits"
    assert judged(machine, 0x40000000 + 101) == ENOSYS
    assert judged(machine, 0xFFFFFFFF - (1 << 32)) == ENOSYS


def test_a_machine_without_a_table_has_none_and_is_told(needs_tool: Any) -> None:
    needs_tool("bwrap")
    assert filter_program("riscv64") == b""
    found = find_bwrap(os.environ["PATH"], "riscv64")
    assert (found.reason, found.calls, found.unfiltered) == ("", b"", "there is no list of them for riscv64")
    here = find_bwrap(os.environ["PATH"], "x86_64")
    assert bool(here.calls) != bool(here.unfiltered)


def test_a_kernel_that_takes_no_filter_still_makes_a_sandbox(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    refuse = 'echo "bwrap: prctl(PR_SET_SECCOMP): Invalid argument" >&2; exit 1'
    program.write_text(f'#!/bin/sh\ncase "$*" in *--seccomp*) {refuse};; esac\n')
    program.chmod(0o755)
    found = find_bwrap(str(tmp_path), "x86_64")
    assert (found.program, found.reason, found.calls) == (str(program), "", b"")
    assert found.unfiltered.startswith("the kernel does not take it") and "PR_SET_SECCOMP" in found.unfiltered


def test_nothing_else_that_goes_wrong_costs_the_filter(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text('#!/bin/sh\ncase "$*" in *--seccomp*) echo "bwrap: out of memory" >&2; exit 1;; esac\n')
    program.chmod(0o755)
    found = find_bwrap(str(tmp_path), "x86_64")
    assert found.program == "" and found.reason.startswith("bwrap said: bwrap: out of memory. ")


@pytest.fixture
def run(sandboxed: Callable[..., LocalEnvironment]) -> Callable[[str], Awaitable[CommandResult]]:
    env = sandboxed()

    async def command(text: str) -> CommandResult:
        return await env.run(text, key=CallKey(ONE, 1, 0), timeout=300)

    return command


PROBE = """
import ctypes, errno, fcntl, os, pty, socket
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *arguments):
    got = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return errno.errorcode[ctypes.get_errno()] if got < 0 else "done"
print("ring", call(KEYCTL, 0, -3, 1))
print("faults", call(USERFAULTFD, 1))
print("rings", call(425, 1, ctypes.addressof(ctypes.create_string_buffer(256))))
for family in (38, 40):
    try:
        socket.socket(family, socket.SOCK_SEQPACKET if family == 38 else socket.SOCK_STREAM)
    except OSError as error:
        print("socket", errno.errorcode[error.errno])
pid, master = pty.fork()
if not pid:
    try:
        fcntl.ioctl(0, 0x5412, b"x")
    except OSError as error:
        os._exit(error.errno)
    os._exit(0)
print("typing", errno.errorcode[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])])
"""


@pytest.mark.anyio
@pytest.mark.may_block
async def test_calls_that_need_no_right_are_refused_in_the_sandbox(
    run: Callable[[str], Awaitable[CommandResult]], tmp_path: Path
) -> None:
    machine = platform.machine()
    if machine not in ARCH:
        pytest.skip(f"there is no filter for {machine}")
    calls = {"x86_64": ("250", "323"), "aarch64": ("219", "282")}[machine]
    text = PROBE.replace("KEYCTL", calls[0]).replace("USERFAULTFD", calls[1])
    (tmp_path / "project" / "probe.py").write_text(text, encoding="utf-8")
    result = await run("python3 probe.py; grep '^Seccomp:' /proc/self/status")
    assert result.output.split("\n") == [
        "ring EPERM", "faults EPERM", "rings ENOSYS", "socket EAFNOSUPPORT", "socket EAFNOSUPPORT", "typing EPERM",
        "Seccomp:\t2", "",
    ], result.output  # fmt: skip


WORK = {
    "python3": 'python3 -c "import concurrent.futures as c, multiprocessing as m, subprocess as s, threading as t; '
    "print(list(c.ThreadPoolExecutor(4).map(abs, [-1])), m.get_context('spawn').Queue is not None, "
    "s.run(['true']).returncode); p = m.get_context('fork').Process(target=print, args=('child',)); p.start(); p.join()"
    '" && python3 -m venv --without-pip v && v/bin/python -c "print(1)"',
    "git": "git init -q r && cd r && echo a > a && git add a && git -c user.name=a -c user.email=b commit -qm a "
    "&& git clone -q . ../s && git -C ../s log --oneline && git gc -q",
    "gcc": "printf '#include <pthread.h>\\nvoid *f(void *x) { return x; }\\nint main(void) { pthread_t t; "
    "return pthread_create(&t, 0, f, 0) || pthread_join(t, 0); }\\n' > a.c && gcc -pthread -o a a.c && ./a",
    "node": """cat > a.js << 'END'
const { Worker } = require("worker_threads")
const fs = require("fs/promises")
new Worker('require("fs").readFileSync("/etc/passwd")', { eval: true }).on("exit", async (code) => {
  await fs.writeFile("out", "x")
  require("child_process").execFileSync("true")
  process.exit(code)
})
END
node a.js && cat out""",
    # The shell of whoever runs this may be one that lets nobody in.
    "tmux": "export SHELL=/bin/sh; "
    "tmux -S /tmp/socket -f /dev/null new-session -d 'echo inside > out; tmux -S /tmp/socket wait-for -S over; "
    "exec sleep 600' ';' wait-for over && grep inside out; code=$?; tmux -S /tmp/socket kill-server; exit $code",
    "make": "printf 'all: a b\\na b:\\n\\ttouch $@\\n' > Makefile && make -s -j4 && ls a b",
    "strace": "strace -f -o trace sh -c 'true | cat' && grep -q execve trace",
}


@pytest.mark.anyio
@pytest.mark.may_block
@pytest.mark.parametrize("program", WORK)
async def test_ordinary_work_goes_on_behind_it(
    run: Callable[[str], Awaitable[CommandResult]], needs_tool: Callable[[str], Path], program: str
) -> None:
    needs_tool(program)
    result = await run(WORK[program])
    assert result.exit_code == 0, result.output
