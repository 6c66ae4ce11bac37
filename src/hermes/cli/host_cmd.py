"""`hermes host`: the process of a home in which detached work goes on. Started by the program itself when there is
something for it; it ends by itself after a minute without work."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import click

import hermes
from hermes.chat.render import when
from hermes.cli.opening import parts_of
from hermes.cli.options import Sources, home_of, open_sources, options_of
from hermes.cli.reaching import host_log, stop_host
from hermes.compose import Parts, bell_of, open_runtime, rung
from hermes.runtime.host import Host
from hermes.runtime.runtime import tune_interpreter
from hermes.store.hosting import HOST, HostInfo, HostLock, host_alive, host_info, stop_requested

__all__ = ["host"]


@click.command(hidden=True, epilog="\b\nExamples:\n  hermes host --status\n  hermes host --stop")
@click.option("--status", is_flag=True, help="Say whether it runs.")
@click.option("--stop", is_flag=True, help="End it; its work stays resumable.")
@click.pass_context
def host(context: click.Context, /, status: bool, stop: bool) -> int:
    """Run detached work of this home without a terminal. Started by --detach and /detach, not by hand."""
    home = home_of(context).path
    if status:
        return _status(home)
    if stop:
        return _stop(home, open_sources(options_of(context)).loaded.settings.runtime.handover_wait_seconds)
    with HostLock(home) as lock:
        until = time.monotonic() + 0.5
        while not lock.take():  # who looks whether one lives holds the lock for a moment
            if time.monotonic() >= until:
                click.echo("another process is the host of this home")
                return 0
            time.sleep(0.02)
        return anyio.run(_serve, open_sources(options_of(context)), lock)


def _status(home: Path) -> int:
    info = host_info(home)
    if info is None:
        click.echo("starting" if host_alive(home) else "not running; it is started when work is detached")
        return 0
    click.echo(f"running since {when(info.started_at)}, process {info.pid}, owner {info.owner}, log {host_log(home)}")
    return 0


def _stop(home: Path, wait: float) -> int:
    if not host_alive(home):
        click.echo("not running")
        return 0
    stop_host(home, wait)
    click.echo("stopped; its work goes on with hermes chat --resume")
    return 0


async def _serve(sources: Sources, lock: HostLock) -> int:
    parts = parts_of(sources)
    home = parts.loaded.home.path
    async with anyio.create_task_group() as group:
        group.start_soon(_signals, group.cancel_scope.cancel)
        await _work(parts, home, lock)
        group.cancel_scope.cancel()
    _say("ended")
    return 0


async def _work(parts: Parts, home: Path, lock: HostLock) -> None:
    async with open_runtime(parts) as assembly, bell_of(parts, HOST) as bell:
        tune_interpreter()
        supervisor = assembly.runtime.supervisor
        assembly.runtime.gate.person.returns = True
        info = HostInfo(pid=os.getpid(), owner=supervisor.owner, started_at=time.time())
        await anyio.to_thread.run_sync(lock.say, info)
        _say(f"started as owner {supervisor.owner}, process {os.getpid()}, hermes {hermes.__version__}")

        async def asked_to_stop() -> bool:
            return await anyio.to_thread.run_sync(stop_requested, home)

        working = Host(
            supervisor,
            assembly.recovery,
            check=assembly.check,
            asked_to_stop=asked_to_stop,
            say=lambda line: _say(assembly.redactor.text(line)),
            rung=rung(bell) if bell is not None else None,
        )
        _say(f"ends: {await working.run()}")
        await supervisor.shutdown(assembly.settings.runtime.handover_wait_seconds)


async def _signals(cancel: Callable[[], None]) -> None:
    """SIGTERM leaves everything resumable; there is no terminal that could be lost."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as received:
        async for number in received:
            if number != signal.SIGHUP:
                _say(f"ends: signal {number}")
                cancel()
                return


def _say(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")
    sys.stderr.flush()
