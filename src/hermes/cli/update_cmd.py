"""`hermes update`: another version of this program, by the tool that installed it, without losing what runs.

What is exchanged are files under a running program, so everything needed afterwards is imported before. It asks no
server of its own: only git, uv, pipx or pip are asked, where they were told to look.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import click
import msgspec

from hermes.chat.render import printable
from hermes.cli.installation import (
    Installation,
    Version,
    branch_of,
    change_commands,
    find_installation,
    following,
    newest,
    run,
)
from hermes.cli.options import GlobalOptions, home_of, options_of, refused
from hermes.cli.standing_aside import Aside, go_on, homes, running, stand_aside, stop_runs, stop_serving, wait_for_all
from hermes.config import Home
from hermes.core.errors import OperatorError, TryLater, UsageError
from hermes.environments.process import DEPTH
from hermes.kanban.boards import FILE, shared_root
from hermes.store.copying import copies, copy_aside, layout_of, put_back

__all__ = ["update"]


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """The last update. `layouts` are the numbers of the journals' layouts before it, by profile; `branch` is the one
    that a checkout was on, HEAD for none."""

    kind: str
    place: str
    before: Version
    after: Version
    at: float
    layouts: dict[str, int]
    branch: str = ""


@click.command(
    epilog="\b\nExamples:\n  hermes update --check\n  hermes update --plan --branch next\n  hermes update --restart\n"
    "  hermes update --rollback"
)
@click.option("--check", is_flag=True, help="Say whether there is a newer version; nothing is changed.")
@click.option("--plan", is_flag=True, help="Say what would be done; nothing is changed.")
@click.option("--rollback", is_flag=True, help="Return to the version before the last update.")
@click.option("--wait", is_flag=True, help="Wait until the running processes have ended by themselves.")
@click.option("--restart", is_flag=True, help="Have them finish their step and stop; their work goes on afterwards.")
@click.option("-y", "--yes", is_flag=True, help="As --restart, and agree to what --rollback asks.")
@click.option("--branch", metavar="NAME", help="Follow this branch of the repository from now on.")
@click.option("--backup", is_flag=True, help="Copy journals and boards also where their layout stays as it is.")
@refused(
    channel=("--channel", "is not known: versions come in one line. --branch follows another branch."),
    choose=("--set-channel", "is not known: versions come in one line. --branch follows another branch."),
    identity=("--install-id", "is not known: installations have no number, and nothing is reported."),
    gateway=("--gateway", "is not needed: --restart stops everything of the home that runs, and lets it go on."),
    unsafe=(
        "--no-backup",
        "is refused: a journal is copied only before its layout changes, and --rollback needs that.",
    ),
)
@click.pass_context
def update(
    context: click.Context,
    /,
    check: bool,
    plan: bool,
    rollback: bool,
    wait: bool,
    restart: bool,
    yes: bool,
    branch: str | None,
    backup: bool,
) -> int:
    """Bring the newest version, by whatever installed this one: git, uv, pipx or pip.

    The processes of the home are listed first: they can be waited for, or stop after their step and go on under the new
    version. The journal is copied before its layout changes. Exit code 2 where a checkout has changes of its own, 75
    where something runs and nobody said what becomes of it.
    """
    if sum((check, plan, rollback)) > 1 or (wait and (restart or yes)):
        raise UsageError("--check, --plan and --rollback exclude each other, and so do --wait and --restart.")
    if rollback and (branch is not None or backup):
        raise UsageError("--branch and --backup go with an update, not with --rollback.")
    if os.environ.get(DEPTH):
        raise UsageError("a command of a task cannot update the program that runs it. Do it in a terminal.")
    home = home_of(context)
    installation = find_installation()
    work = _Work(options_of(context), home, installation)
    if rollback:
        return work.return_to(_read(home, installation), wait=wait, restart=restart, yes=yes)
    if branch is not None:
        work.installation = installation = following(installation, branch)
    target = newest(installation)
    if check:
        return work.say_whether(target)
    if target == installation.version and (branch is None or work.branch in ("", branch)):
        click.echo(f"{installation}: that is the newest")
        return 0
    if plan:
        return work.say_plan(target)
    return work.bring(target, wait=wait, restart=restart or yes, backup=backup)


class _Work:
    """One update of one installation."""

    def __init__(self, options: GlobalOptions, home: Home, installation: Installation) -> None:
        self.options = options
        self.home = home
        self.installation = installation
        self.branch = branch_of(installation)

    def say_whether(self, target: Version | None) -> int:
        """`--check`."""
        now = self.installation.version
        if target is None:
            click.echo(f"{self.installation}: where it came from has no list of versions; hermes update asks again")
        elif target == now:
            click.echo(f"{self.installation}: that is the newest")
        else:
            click.echo(f"{self.installation}: {target} is there; hermes update brings it")
        return 0

    def say_plan(self, target: Version | None) -> int:
        """`--plan`."""
        click.echo(f"{self.installation}\nwould become {target or 'what is there now'}:")
        for command in change_commands(self.installation, target):
            click.echo(f"  {shlex.join(command)}")
        found = running(self.home)
        if found:
            click.echo(
                "running now; --wait waits for them, --restart stops them after their step and goes on afterwards:"
            )
            for line in found:
                click.echo(printable(f"  {line}"))
        else:
            click.echo("no process of this home runs")
        click.echo(f"{self.home.database} is copied beside itself if the new version changes its layout")
        click.echo("hermes update --rollback returns")
        return 0

    def bring(self, target: Version | None, *, wait: bool, restart: bool, backup: bool) -> int:
        """Update, and let what ran go on."""
        commands = change_commands(self.installation, target)
        click.echo(f"{self.installation}: {target or 'what is there now'} is brought")
        layouts = self._layouts()
        with _lock(self.home), self._nobody_else(wait=wait, restart=restart) as outcome:
            if backup:
                self._copy()
            what = "the new version could not be brought"
            try:
                self._run(commands)
                what = "the new version did not start"
                number = self._starts()
            except (OperatorError, KeyboardInterrupt) as error:
                _say(f"hermes: {error or 'interrupted.'} Returning to {self.installation.version}.")
                self._run(self._back(self.installation.version, self.branch))
                self._restore(layouts)
                said = f"{what}; hermes {self._starts()} is back."
                if isinstance(error, KeyboardInterrupt):
                    _say(f"hermes: {said}")
                    raise
                raise OperatorError(said) from error
            if target is not None and number != target.number:
                raise OperatorError(
                    f"the commands succeeded, and yet hermes {number} is what starts, not {target.number}; see what "
                    "they said."
                )
            after = Version(number, target.commit if target is not None else "")
            record = _Record(
                kind=self.installation.kind,
                place=str(self.installation.place),
                before=self.installation.version,
                after=after,
                at=time.time(),
                layouts=layouts,
                branch=self.branch,
            )
            self.home.prepare(self.home.root / "run")
            _record_file(self.home).write_bytes(msgspec.json.encode(record))
            same = " (the same number)" if number == self.installation.version.number and not after.commit else ""
            click.echo(f"hermes {after} is installed{same}; hermes update --rollback returns to {record.before}")
        return outcome.code

    def return_to(self, record: _Record, *, wait: bool, restart: bool, yes: bool) -> int:
        """`--rollback`."""
        older = [name for name, layout in self._layouts().items() if layout > record.layouts.get(name, layout)]
        click.echo(f"{self.installation}: returning to {record.before}")
        if older:
            missing = [
                each.profile for each in homes(self.home) if each.profile in older and not self._kept(each, record)
            ]
            if missing:
                raise OperatorError(
                    f"{record.before} cannot read the journal of today, and of profile {', '.join(missing)} no copy "
                    "from before is left. Nothing was changed."
                )
            _say(
                f"{record.before} cannot read the journal of today: the copy from before is put in its place. "
                "What was done since is kept beside it, and that version does not see it."
            )
            if not yes:
                if not sys.stdin.isatty():
                    raise TryLater("--yes agrees to that.")
                click.confirm("Go on?", abort=True)
        with _lock(self.home), self._nobody_else(wait=wait, restart=restart or yes, back=bool(older)) as outcome:
            self._run(self._back(record.before, record.branch))
            self._restore(record.layouts)
            number = self._starts()
            if number != record.before.number:
                raise OperatorError(f"the commands succeeded, and yet hermes {number} is what starts.")
            _record_file(self.home).unlink(missing_ok=True)
            click.echo(f"hermes {Version(number, record.before.commit)} is installed again")
        return outcome.code

    def _back(self, version: Version, branch: str) -> list[tuple[str, ...]]:
        named = msgspec.structs.replace(self.installation, branch=branch)
        return change_commands(named, version, back=True)

    def _copy(self) -> None:
        """`--backup`: while nobody writes."""
        boards = shared_root(self.home.root, os.environ)
        files = [*(each.database for each in homes(self.home)), boards / FILE, *boards.glob(f"kanban/boards/*/{FILE}")]
        for path in files:
            layout = layout_of(path)
            if layout is not None:
                _say(f"{path} is copied to {copy_aside(path, layout)}")

    def _layouts(self) -> dict[str, int]:
        found = {each.profile: layout_of(each.database) for each in homes(self.home)}
        return {name: layout for name, layout in found.items() if layout is not None}

    def _kept(self, home: Home, record: _Record) -> bool:
        return any(kept.layout == record.layouts[home.profile] for kept in copies(home.database))

    def _restore(self, layouts: dict[str, int]) -> None:
        """Put the copies of older layouts in the place of journals that have a newer one now."""
        for each in homes(self.home):
            before, now = layouts.get(each.profile), layout_of(each.database)
            if before is None or now is None or now <= before:
                continue
            kept = next((one for one in copies(each.database) if one.layout == before), None)
            if kept is None:
                raise OperatorError(f"there is no copy of {each.database} with layout {before}; it was left as it is")
            aside = put_back(each.database, kept)
            _say(f"{each.database} is the copy from before; that of today is kept as {aside}")

    def _run(self, commands: list[tuple[str, ...]]) -> None:
        for command in commands:
            _say(f"$ {shlex.join(command)}")
            run(command, self.installation, shown=True)

    def _starts(self) -> str:
        """Have the installed program start, and open the journals of all profiles; returns its version.

        Raises:
            OperatorError: it does not.
        """
        for each in homes(self.home):
            self._ask("-p", each.profile, "host", "--status")
            if each.database.exists():
                self._ask("-p", each.profile, "sessions", "stats", "--json")
        return self._ask("--version").split()[-1]

    def _ask(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(self.installation.python), "-P", "-m", "hermes.cli.main", *arguments],
            env={**os.environ, "HERMES_HOME": str(self.home.root)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=600,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise OperatorError(f"`hermes {' '.join(arguments)}` fails: {printable(last)[:500]}")
        return done.stdout

    @contextmanager
    def _nobody_else(self, *, wait: bool, restart: bool, back: bool = False) -> Iterator[_Outcome]:
        """Within the block no other process of the homes works; afterwards their work goes on.

        `back`: that of sessions cannot, their journal is another one.
        """
        outcome, aside = _Outcome(), Aside()
        found = running(self.home)
        if found:
            _say("running now:")
            for line in found:
                _say(printable(f"  {line}"))
            if not (wait or restart):
                wait = _asked()
        try:
            stop_serving(self.home, aside)
            if found and wait:
                wait_for_all(self.home, _say)
            elif found:
                stop_runs(self.home, aside, _say)
                anyio.run(stand_aside, self.options, self.home, aside, _say)
            yield outcome
        finally:
            if back:
                for _, session in aside.sessions:
                    _say(f"session {session} is in the journal that was put aside")
                aside.sessions.clear()
            if not go_on(self.installation.python, self.home, aside, _say):
                outcome.code = 1


class _Outcome:
    """The exit code that a block is to have."""

    code = 0


def _asked() -> bool:
    """Ask what becomes of what runs: True to wait, False to stop it."""
    if not sys.stdin.isatty():
        raise TryLater(
            "nothing was changed: --wait waits until they have ended, --restart stops them after their step and lets "
            "their work go on under the new version."
        )
    answer = click.prompt(
        "w: wait until they have ended · r: stop them after their step, their work goes on afterwards · q: leave all",
        type=click.Choice(["w", "r", "q"]),
        show_choices=False,
        err=True,
    )
    if answer == "q":
        raise click.exceptions.Exit(0)
    return bool(answer == "w")


@contextmanager
def _lock(home: Home) -> Iterator[None]:
    """One update at a time."""
    home.prepare(home.root / "run")
    with open(home.root / "run" / "update.lock", "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TryLater("another update of this home is under way; nothing was changed.") from None
        yield


def _record_file(home: Home) -> Path:
    return home.root / "run" / "update.json"


def _read(home: Home, installation: Installation) -> _Record:
    try:
        record = msgspec.json.decode(_record_file(home).read_bytes(), type=_Record)
    except FileNotFoundError:
        raise OperatorError("there is nothing to return to: no update of this home is recorded.") from None
    except msgspec.DecodeError as error:
        raise OperatorError(f"{_record_file(home)} cannot be read ({error}); nothing was changed.") from None
    if (record.kind, record.place) != (installation.kind, str(installation.place)):
        raise OperatorError(
            f"the last update was of another installation ({record.kind} in {record.place}); start that one's hermes."
        )
    return record


def _say(line: str) -> None:
    click.echo(line, err=True)
