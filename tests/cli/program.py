"""The installed command as a process, with a home, a folder and an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from hermes.testing.faults import Fault
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import ProviderServer, Request
from tests.cli.conftest import Ran

KEY = "sk-test-0123456789abcdef0123456789"
#: The command that an installation puts beside its Python.
HERMES = str(Path(sys.executable).with_name("hermes"))
#: Passed on where whoever runs the tests has set it: which sources are tested, and how busy the machine shall seem.
PASSED_ON = {
    name: os.environ[name] for name in ("PYTHONPATH", "JITTER", "JITTER_RATE", "JITTER_MOST") if name in os.environ
}


def worker(request: Request) -> Reply | Fault:
    """A model that thinks, runs one command, and answers."""
    if request.turn == 0 and "terminal" in request.tools:
        return reply(thinking="I look first.", calls=[call("terminal", command="echo out")])
    return reply("done", thinking="I have seen it.")


async def once(true: Callable[[], Any], step: Reply) -> Reply:
    """A step that is given once something is so: what a script returns in place of a guess at how long that takes."""
    while not true():
        await anyio.sleep(0.01)
    return step


class Program:
    """Runs `hermes` in `folder` with nothing in its environment but what is said here. `patience` is how many seconds a
    command may take."""

    patience = 300.0

    def __init__(self, base: Path) -> None:
        self.folder = base / "work"
        self.home = base / "user" / ".hermes"
        self.folder.mkdir()
        self.home.parent.mkdir()
        self.command = [HERMES]
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(self.home.parent), **PASSED_ON}

    def use(self, server: ProviderServer) -> Program:
        """Ask this server from now on."""
        self.environ |= {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": KEY}
        return self

    def configure(self, text: str) -> None:
        """Write `config.yaml`."""
        self.home.mkdir(exist_ok=True)
        (self.home / "config.yaml").write_text(text, encoding="utf-8")

    def dataset(self, data: bytes | int, name: str = "prompts.jsonl") -> str:
        """Write a dataset (of so many prompts) and return its name."""
        if isinstance(data, int):
            data = b"".join(b'{"prompt": "prompt %d"}\n' % number for number in range(data))
        (self.folder / name).write_bytes(data)
        return name

    def run(self, *args: str, folder: Path | None = None, before: Callable[[], None] | None = None) -> Ran:
        """Run to the end; `before` is called in the new process first."""
        done = subprocess.run(
            [*self.command, *args],
            cwd=folder or self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=self.patience,
            check=False,
            preexec_fn=before,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def batch(self, *args: str, model: str = "--model=test-model", **more: Any) -> Ran:
        """Run `hermes batch run`."""
        return self.run("batch", "run", *([model] if model else []), *args, **more)

    def ask(self, *args: str, **more: Any) -> Ran:
        """Run `hermes chat -q` with a model named."""
        return self.run("-m", "test-model", "chat", "-q", "hello", *args, **more)

    def rows(self, run: str, name: str = "trajectories.jsonl") -> list[dict[str, Any]]:
        """The rows in a file of a run."""
        lines = (self.folder / "data" / run / name).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def runs(self) -> list[str]:
        """The runs that have been begun here."""
        return sorted(path.parent.name for path in self.folder.glob("data/*/run.json"))
