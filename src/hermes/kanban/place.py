"""Which machine and which home this is, as ids that do not change when the machine gets another name.

Both are random and written once under `<root>/kanban`: the home's, and one for each machine that uses the home (found
by its machine id). The boot id changes with each start of the machine and with each container. Looks at no process.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path

from hermes.core.errors import OperatorError
from hermes.core.ids import random_hex
from hermes.kanban.card import Worker

__all__ = ["this_worker"]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _boot() -> str:
    try:
        space = os.readlink("/proc/self/ns/pid")  # equal pids of two containers are two processes
    except OSError:
        space = ""
    return f"{_read('/proc/sys/kernel/random/boot_id')}/{space}"


def _written_once(path: Path) -> str:
    try:
        found = path.read_text(encoding="utf-8").strip()
        if found:
            return found
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f".{path.name}.{random_hex(8)}")
    fresh.write_text(random_hex(16) + "\n", encoding="utf-8")
    try:
        os.link(fresh, path)  # of several that write it at once the first wins
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    return path.read_text(encoding="utf-8").strip()


def this_worker(root: Path, environ: Mapping[str, str]) -> Worker:
    """Return this machine and home without a process; `root` is the base folder shared by all profiles (`~/.hermes`).

    `HERMES_KANBAN_HOST_ID` names the machine where nothing else tells two of them apart (equal images, a shared home).

    Raises:
        OperatorError: the ids cannot be written.
    """
    folder = root / "kanban"
    machine = _read("/etc/machine-id") or _read("/var/lib/dbus/machine-id") or platform.node()
    name = hashlib.sha256(machine.encode()).hexdigest()[:16]
    try:
        home_id = _written_once(folder / "home-id")
        host_id = environ.get("HERMES_KANBAN_HOST_ID", "").strip() or _written_once(folder / f"host-{name}")
    except OSError as error:
        raise OperatorError(
            f"cannot write in {folder} ({error.strerror or error}); make it writable for this user, or set HERMES_HOME "
            "to a folder that is"
        ) from error
    return Worker(host_id=host_id, home_id=home_id, boot_id=_boot())
