"""The program bubblewrap: whether it can make a sandbox here, and the arguments that all its sandboxes share.

It is tried out and not guessed: what is asked of it depends on the kernel, its settings and what this process may do.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from hermes.environments.bounded import Mount
from hermes.environments.syscalls import filter_program
from hermes.environments.system_files import system_links, system_mounts

__all__ = ["NAMESPACES", "Found", "every_sandbox", "find_bwrap", "handed_over", "mounting"]

NAMESPACES = (
    "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try", "--disable-userns",
    "--die-with-parent", "--cap-drop", "ALL", "--hostname", "sandbox",
)  # fmt: skip
_MIB = 1024 * 1024


class Found(NamedTuple):
    """What is there: the path of the program, or the `reason` why it makes no sandbox.

    `calls` is the filter of system calls that the kernel takes, empty where there is none, which `unfiltered` explains.
    """

    program: str = ""
    reason: str = ""
    calls: bytes = b""
    unfiltered: str = ""


def find_bwrap(path: str, machine: str = "") -> Found:
    """Start the smallest sandbox, which needs all that a real one needs (blocking).

    `path` is where the program is looked for, `machine` what the kernel runs on; empty: this one.
    """
    program = shutil.which("bwrap", path=path)
    if program is None:
        return Found(reason="the program bwrap is not on PATH; install the package bubblewrap")
    machine = machine or platform.machine()
    calls = filter_program(machine)
    said = _start(program, calls)
    if not said:
        return Found(program, calls=calls, unfiltered="" if calls else f"there is no list of them for {machine}")
    # Nothing else that goes wrong, such as a machine too busy to start it in time, may cost the filter.
    if calls and "seccomp" in said.lower():
        taken, said = said, _start(program, b"")
        if not said:
            return Found(program, unfiltered=f"the kernel does not take it ({taken})")
    return Found(reason=f"{said}. {_advice()}")


def _start(program: str, calls: bytes) -> str:
    """What went wrong, empty if nothing did."""
    seen = [part for mount in system_mounts() for part in mounting(mount)]
    argv = [program, *NAMESPACES, "--unshare-net", *seen, *every_sandbox(system_links())]
    given = handed_over(calls) if calls else None
    try:
        done = subprocess.run(
            [*argv, *(() if given is None else ("--seccomp", str(given))), "--", "/bin/sh", "-c", ":"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=False,
            pass_fds=() if given is None else (given,),
        )
    except subprocess.TimeoutExpired as error:
        return f"{program} has made no sandbox within {error.timeout:g} s"
    except OSError as error:
        return f"{program} could not be run: {error}"
    finally:
        if given is not None:
            os.close(given)
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"bwrap said: {lines[-1].rstrip('.') if lines else f'exit code {done.returncode}'}"


def handed_over(content: bytes) -> int:
    """A descriptor from which a program that is started reads `content`, which has to fit into a pipe, and then its
    end. The caller closes it. Each start needs one of its own: what was read is gone. Raises OSError."""
    read_fd, write_fd = os.pipe()
    try:
        os.write(write_fd, content)
    except BaseException:
        os.close(read_fd)
        raise
    finally:
        os.close(write_fd)
    return read_fd


def _advice() -> str:
    """What to do where namespaces are forbidden."""
    for name, wanted, told in (
        ("kernel/unprivileged_userns_clone", "1", "sysctl -w kernel.unprivileged_userns_clone=1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "0", "install the AppArmor profile of bwrap, or sysctl -w "
         "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("user/max_user_namespaces", "", "sysctl -w user.max_user_namespaces=10000"),
    ):  # fmt: skip
        try:
            value = Path("/proc/sys", name).read_text().strip()
        except OSError:
            continue
        if value != wanted if wanted else value == "0":
            return f"User namespaces are forbidden here (/proc/sys/{name} is {value}): {told}."
    return (
        "User namespaces, or mounting /proc in one, are forbidden here; inside a container it has to be started with "
        "--security-opt seccomp=unconfined --security-opt systempaths=unconfined."
    )


def every_sandbox(links: Iterable[tuple[str, str]]) -> list[str]:
    """What every sandbox has beside its namespaces and mounts."""
    made = [part for path, target in links for part in ("--symlink", target, path)]
    # Settings of the kernel in /proc are written by the rights of root's files alone, without a capability.
    return [*made, "--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]


def mounting(mount: Mount) -> Sequence[str]:
    """The arguments for one mount; what is only covered gets an empty place."""
    if mount.outside is not None:
        return ["--bind" if mount.writable else "--ro-bind", mount.outside, mount.inside]
    if os.path.isdir(mount.inside):
        return ["--size", str(_MIB), "--tmpfs", mount.inside]
    return ["--ro-bind", "/dev/null", mount.inside]
