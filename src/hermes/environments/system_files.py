"""What of the system a sandbox sees: programs and libraries, and of /etc what programs need to start.

The few files of /etc are copied into one directory, because each thing that is mounted costs a tenth of a millisecond
with every command, more on a busy machine. No file that holds a secret (shadow, keys, sudoers) is among them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path

from hermes.environments.bounded import Mount
from hermes.environments.trees import copy_tree

__all__ = ["leave_secrets_out", "system_etc", "system_links", "system_mounts"]

#: What of the system is seen, where it exists. All of it is read-only.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/snap")
_ETC = """
    alternatives bash.bashrc ca-certificates ca-certificates.conf debian_version default/locale fonts gai.conf group
    host.conf hosts inputrc java java-11-openjdk java-17-openjdk java-21-openjdk ld.so.cache ld.so.conf ld.so.conf.d
    localtime locale.alias locale.conf login.defs magic magic.mime mime.types mke2fs.conf networks nsswitch.conf
    os-release passwd perl pki/ca-trust pki/tls/certs profile profile.d protocols python3 python3.9 python3.10
    python3.11 python3.12 python3.13 resolv.conf services shells ssl/certs ssl/openssl.cnf terminfo timezone xdg
""".split()
#: Days after which a copy that nobody used is removed.
_KEPT = 7
#: A password or token in an address, a private key.
_SECRET = re.compile(rb"://(?:[^\s/:@]*:[^\s/:@$<{]+|[^\s/:@$<{]{12,})@|-----BEGIN [A-Z ]*PRIVATE KEY-----")
#: Goes up when the rules change by which files are left out.
_RULES = 2


def system_mounts() -> list[Mount]:
    """The read-only system without /etc."""
    found = []
    for path in _SYSTEM:
        if os.path.isdir(path) and not os.path.islink(path) and os.listdir(path):
            found.append(Mount(inside=path, outside=path))
    return found


def system_links() -> list[tuple[str, str]]:
    """(path, target) of what is a link in the system (`/bin` to `usr/bin`)."""
    return [(path, os.readlink(path)) for path in _SYSTEM if os.path.islink(path)]


def system_etc(cache: Path) -> Path:
    """A copy of what is seen of /etc, made below `cache` where it is new (blocking). Raises OSError."""
    found = [(name, os.path.realpath(f"/etc/{name}")) for name in _ETC]  # resolv.conf often leads out of /etc
    there = [(name, real, os.stat(real).st_mtime_ns) for name, real in found if os.path.exists(real)]
    version = hashlib.sha256(repr((_RULES, there)).encode()).hexdigest()[:16]
    target = cache / version
    if not target.is_dir():
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        building = Path(tempfile.mkdtemp(dir=cache, prefix=".new-"))
        try:
            for name, real, _ in there:
                _copy(real, building / name)
            leave_secrets_out(building)
            building.chmod(0o755)
            try:
                building.rename(target)
            except OSError:
                if not target.is_dir():  # else another task or process was faster
                    raise
        finally:
            shutil.rmtree(building, ignore_errors=True)
    os.utime(target)
    for other in cache.iterdir():
        with contextlib.suppress(OSError):  # of another process, or just removed by one
            if other != target and other.stat().st_mtime < time.time() - _KEPT * 86_400:
                shutil.rmtree(other, ignore_errors=True)
    return target


def leave_secrets_out(folder: Path) -> None:
    """Remove files that are not for everybody's eyes, which root may read as well, and settings that hold a key: pip's
    may name an index with its password (blocking). Raises OSError."""
    for path in folder.rglob("*"):
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            continue
        if not status.st_mode & stat.S_IROTH or _SECRET.search(path.read_bytes()):
            path.unlink()


def _copy(source: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(PermissionError, shutil.Error):  # what this user may not read is not seen inside either
        if os.path.isdir(source):
            copy_tree(source, str(target))
        else:
            shutil.copy(source, target)
