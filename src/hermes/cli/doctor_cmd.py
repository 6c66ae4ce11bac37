"""`hermes doctor`: what is installed, configured and reachable on this machine, and what is wrong with it.

Only looks: nothing is written, no database is opened, and nothing is sent unless `--test` asks for one tiny request.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import click
import msgspec

import hermes
from hermes.cli.options import GlobalOptions, Sources, open_sources, options_of
from hermes.cli.screens import print_json
from hermes.config import Home, find_home
from hermes.core.errors import HermesError
from hermes.credentials import NotConfigured, is_embedded, mask
from hermes.credentials.keys import PROVIDERS
from hermes.environments.availability import available
from hermes.providers.weights import LABEL, availability

__all__ = ["Check", "doctor", "examine"]

#: Only what this program never makes itself.
_FOREIGN = ("state.db", "kanban.db", "skills", "memories")
_LITTLE_DISK = 1 << 30


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. `broken` means something will not work until a person acts."""

    name: str
    status: Literal["ok", "note", "warning", "broken"]
    detail: str


def examine(options: GlobalOptions, environ: Mapping[str, str]) -> list[Check]:
    """Make all checks, in the order of the report. Never raises for what it finds."""
    found = [_python(), _platform(), _on_path(environ)]
    try:
        home = find_home(environ, options.profile)
    except HermesError as error:
        return [*found, Check(name="home", status="broken", detail=str(error))]
    found += [_home(home), *_foreign(home)]
    try:
        sources = open_sources(options, environ)
    except HermesError as error:
        found.append(Check(name="config", status="broken", detail=str(error)))
    else:
        found += [*_config(sources), *_keys(sources), _endpoint(sources)]
        found += _environments(sources.loaded.settings.terminal.backend, environ)
    return [*found, _embedded(availability), _descriptors(), _disk(home), _telemetry()]


def _python() -> Check:
    version = platform.python_version()
    fits = sys.version_info >= (3, 11)
    detail = f"{version} at {sys.executable}" if fits else f"{version} is too old: hermes needs 3.11 or newer"
    return Check(name="python", status="ok" if fits else "broken", detail=detail)


def _platform() -> Check:
    system, machine = platform.system(), platform.machine()
    fits = system == "Darwin" or (system == "Linux" and machine in ("x86_64", "amd64", "aarch64", "arm64"))
    said = "" if fits else ". Supported: Linux on x86-64 and arm64, macOS, Windows through WSL"
    return Check(name="platform", status="ok" if fits else "warning", detail=f"{system} {machine}{said}")


def _kind(script: Path) -> str:
    """Whose program a script named hermes is."""
    try:
        text = script.read_bytes()[:4096].decode("utf-8", "replace")
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if "hermes.cli.main" not in text:
        return "another program"
    here = Path(sys.prefix).resolve()
    own = here in script.resolve().parents or str(here) in text.splitlines()[0]
    return f"this program, {hermes.__version__}" if own else "this program, in another environment"


def _on_path(environ: Mapping[str, str]) -> Check:
    found: dict[Path, str] = {}
    for folder in environ.get("PATH", "").split(os.pathsep):
        script = Path(folder or ".") / "hermes"
        if script.is_file() and os.access(script, os.X_OK):
            found.setdefault(script, _kind(script))
    if not found:
        run = Path(sys.prefix) / "bin" / "hermes"
        return Check(name="hermes on PATH", status="note", detail=f"none; this one is {run}")
    listed = "; ".join(f"{script} is {kind}" for script, kind in found.items())
    first = next(iter(found.values()))
    ours = first.startswith(f"this program, {hermes.__version__}")
    said = "" if ours else f". The shell runs the first; this one is {Path(sys.prefix) / 'bin' / 'hermes'}"
    return Check(name="hermes on PATH", status="ok" if ours else "warning", detail=listed + said)


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _home(home: Home) -> Check:
    there = _existing(home.path)
    if not there.is_dir():
        return Check(name="home", status="broken", detail=f"{there} is a file. Move it or set HERMES_HOME.")
    if not os.access(there, os.W_OK | os.X_OK):
        return Check(
            name="home", status="broken", detail=f"{there} cannot be written. Fix its mode or set HERMES_HOME."
        )
    new = "" if home.path.exists() else " (made when first needed)"
    return Check(name="home", status="ok", detail=f"{home.path}{new}, profile {home.profile}")


def _foreign(home: Home) -> list[Check]:
    names = [name for name in _FOREIGN if (home.path / name).exists()]
    if not names:
        return []
    detail = f"{', '.join(names)}: another program's, never written here; ours is runtime.db"
    return [Check(name="other files", status="note", detail=detail)]


def _config(sources: Sources) -> list[Check]:
    path = sources.loaded.home.config_file
    if not path.exists():
        return [Check(name="config", status="ok", detail=f"no {path}: the defaults are used")]
    problems = sources.loaded.problems
    levels: dict[str, Literal["broken", "warning", "note"]] = {"error": "broken", "warning": "warning", "note": "note"}
    found = [Check(name="config", status=levels[problem.level], detail=problem.message) for problem in problems]
    return found or [Check(name="config", status="ok", detail=f"{path} is fine")]


def _keys(sources: Sources) -> list[Check]:
    found = [
        Check(
            name="key",
            status="ok",
            detail=f"{key.source} {mask(key.secret) if key.secret else ''} for {key.base_url}".replace("  ", " "),
        )
        for key in sources.keys
    ] or [Check(name="key", status="note", detail="none in the environment, .env or auth.json")]
    places = (sources.environ, sources.loaded.dotenv)
    for _, prefix, address in PROVIDERS:
        given = [place[f"{prefix}_BASE_URL"].strip() for place in places if f"{prefix}_BASE_URL" in place]
        if given and not any(given) and any(place.get(f"{prefix}_API_KEY") for place in places):
            empty = f"{prefix}_BASE_URL is empty, so the key goes to {address}. Unset it, or give it an address"
            found.append(Check(name="address", status="warning", detail=empty))
    return found


def _endpoint(sources: Sources) -> Check:
    try:
        endpoint = sources.endpoint()
    except NotConfigured as error:
        return Check(name="endpoint", status="warning", detail=str(error))
    except HermesError as error:
        return Check(name="endpoint", status="broken", detail=str(error))
    if is_embedded(endpoint.model):
        return Check(name="endpoint", status="ok", detail=f"{endpoint.model} on this machine ({LABEL})")
    where = f"{endpoint.base_url}, key: {endpoint.key_source}"
    if not endpoint.model:
        cure = "where the server has exactly one it is used, else give -m, or `hermes config set model NAME`"
        return Check(name="endpoint", status="warning", detail=f"{where}; no model named: {cure}")
    return Check(name="endpoint", status="ok", detail=f"{endpoint.model} at {where}")


def ask(options: GlobalOptions, environ: Mapping[str, str]) -> list[Check]:
    """One tiny request of the default model. Never raises for what it finds."""
    # edge: the HTTP client takes a third of a second to import, and a look sends nothing
    from hermes.cli.probing import try_model

    try:
        sources = open_sources(options, environ)
        endpoint = sources.endpoint()
    except HermesError:
        return []  # the report says it already
    if not endpoint.model:
        return [Check(name="answer", status="warning", detail="not tested: no model is named")]
    try:
        return [Check(name="answer", status="ok", detail=try_model(endpoint, sources.loaded.settings.models))]
    except HermesError as error:
        return [Check(name="answer", status="broken", detail=str(error))]


def _environments(backend: str, environ: Mapping[str, str]) -> list[Check]:
    """What can hold commands; only what is configured has to."""
    found = []
    for kind, (reason, lacks) in available(environ).items():
        status: Literal["ok", "note", "broken"] = "broken" if reason and backend == kind else "note"
        if not reason and not lacks:
            status = "ok"
        if kind != "local":
            usable = f"commands can run in it; {lacks}" if lacks else "commands can run in it"
            found.append(Check(name=kind, status=status, detail=reason or usable))
    return found


def _embedded(available: Callable[[], str | None]) -> Check:
    reason = available()
    return Check(name="embedded model", status="note" if reason else "ok", detail=reason or f"can run ({LABEL})")


def _descriptors() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    low = hard != resource.RLIM_INFINITY and hard < 1024
    said = ". Few tasks can run at once; raise it with ulimit -n" if low else ""
    return Check(name="open files", status="warning" if low else "ok", detail=f"{soft}, at most {limit}{said}")


def _disk(home: Home) -> Check:
    there = _existing(home.path)
    free = shutil.disk_usage(there).free
    low = free < _LITTLE_DISK
    detail = f"{free / (1 << 30):.1f} GB free at {there}" + (". Make room: runs stop when it is full" if low else "")
    return Check(name="disk", status="warning" if low else "ok", detail=detail)


def _telemetry() -> Check:
    return Check(name="telemetry", status="ok", detail="none: requests go to the model's server only")


_MARKS = {"ok": "✓", "note": "·", "warning": "!", "broken": "✗"}


@click.command(epilog="\b\nExamples:\n  hermes doctor\n  hermes doctor --test\n  hermes -p work doctor --json")
@click.option("--test", is_flag=True, help="Also make one tiny request, to see whether key and address are right.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(context: click.Context, /, test: bool, as_json: bool) -> int:
    """Check this installation and say what is wrong. Exit code 1 if something is broken."""
    found = examine(options_of(context), os.environ)
    if test:
        found += ask(options_of(context), os.environ)
    broken = [check for check in found if check.status == "broken"]
    if as_json:
        print_json({"version": hermes.__version__, "ok": not broken, "checks": found})
    else:
        click.echo(f"hermes {hermes.__version__}")
        for check in found:
            head, *rest = check.detail.splitlines() or [""]
            click.echo(f"{_MARKS[check.status]} {check.name}: {head}")
            for line in rest:
                click.echo(f"  {line}")
    return 1 if broken else 0
