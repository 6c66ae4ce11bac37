"""The system calls that a sandboxed command is refused, as the program that the kernel runs at each of its calls.

Namespaces and dropped capabilities already fail most of them; this keeps the code behind them out of reach, where the
faults of kernels are found. It is a list of what no build, test or debugger needs, not one of what may be called:
tracing one's own processes, for instance, stays possible. It sees numbers and no memory, so paths and addresses are not
its business. On a machine that has no column in the table there is no program.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["filter_program"]


class _Machine(NamedTuple):
    column: int
    arch: int  # AUDIT_ARCH_*
    foreign: int  # call numbers from here on belong to another ABI of the same machine


#: By the name that uname gives.
_MACHINES = {"x86_64": _Machine(0, 0xC000003E, 0x40000000), "aarch64": _Machine(1, 0xC00000B7, 0x40000000)}

#: Refused whatever their arguments are: numbers on x86_64 and on aarch64 (None: there is no such call).
_REFUSED: dict[str, tuple[int, int | None]] = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
    # Key rings are those of the user's login and have no namespace.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "lookup_dcookie": (212, 18),
    "iopl": (172, None),
    "ioperm": (173, None),
}
#: Answered as by a kernel that has none, so that programs take their older way: their arguments are in memory, where
#: nobody can look at them.
_ABSENT: dict[str, tuple[int, int | None]] = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
#: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; NEWTIME has no meaning to clone.
_NAMESPACES = 0x7E020000
_NEWTIME = 0x80
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # type into a terminal
_AF_ALG, _AF_VSOCK = 38, 40  # ciphers of the kernel; the way to a hypervisor, which no network namespace closes

# Instructions of classic BPF (linux/bpf_common.h), and where the kernel puts a call (struct seccomp_data)
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def _line(code: int, value: int, jump: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, jump, otherwise, value)


def _refuse(test: int, value: int, error: int) -> bytes:
    return _line(test, value, 0, 1) + _line(_RETURN, _ERROR | error)


def _by_argument(number: int, argument: int, test: int, values: Iterable[int], error: int) -> bytes:
    """Look at the lower half of one argument, which is all that the kernel looks at in these calls."""
    body = _line(_LOAD, _ARGUMENTS + 8 * argument)
    body += b"".join(_refuse(test, value, error) for value in values) + _line(_RETURN, _ALLOW)
    return _line(_EQUAL, number, 0, len(body) // 8) + body


def filter_program(machine: str) -> bytes:
    """The program for a kernel of `machine` (as `platform.machine()` names it) in that machine's own byte order, a
    multiple of 8 bytes; empty where there is none. Programs of 32 bits find no system calls at all."""
    found = _MACHINES.get(machine)
    if found is None:
        return b""
    column, arch, foreign = found
    clone, unshare, ioctl, socket = ((56, 272, 16, 41), (220, 97, 29, 198))[column]
    parts = [
        _line(_LOAD, _ARCH) + _line(_EQUAL, arch, 1, 0) + _line(_RETURN, _ERROR | errno.ENOSYS),
        _line(_LOAD, _NUMBER) + _refuse(_AT_LEAST, foreign, errno.ENOSYS),
        _by_argument(ioctl, 1, _EQUAL, (_TIOCSTI, _TIOCLINUX), errno.EPERM),
        _by_argument(socket, 0, _EQUAL, (_AF_ALG, _AF_VSOCK), errno.EAFNOSUPPORT),
        _by_argument(clone, 0, _ANY_BIT, (_NAMESPACES,), errno.EPERM),
        _by_argument(unshare, 0, _ANY_BIT, (_NAMESPACES | _NEWTIME,), errno.EPERM),
    ]
    for calls, error in ((_REFUSED, errno.EPERM), (_ABSENT, errno.ENOSYS)):
        for numbers in calls.values():
            number = numbers[column]
            if number is not None:
                parts.append(_refuse(_EQUAL, number, error))
    return b"".join(parts) + _line(_RETURN, _ALLOW)
