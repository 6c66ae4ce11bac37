"""A stand-in for the `docker` command: records its arguments and runs commands on this machine.

Of an engine it knows images, containers by name with their labels, and removal. It holds nothing: what is tested with
it is what this program asks an engine for, never what an engine does with it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

__all__ = ["StandIn"]

_PROGRAM = """#!{python} -SE
import json, os, sys
root = {root!r}
args = sys.argv[1:]
with open(root + "/calls", "a") as log:
    log.write(json.dumps(args) + "\\n")
def names(): return os.listdir(root + "/containers")
verb = args[0]
if os.path.exists(root + "/down"):
    sys.exit("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.")
if verb == "version":
    print("27.0")
elif verb == "image":
    sys.exit(0 if os.path.exists(root + "/images/" + args[2].replace("/", "_")) else "Error: No such image: " + args[2])
elif verb == "pull":
    if "missing" in args[1]: sys.exit("Error response from daemon: manifest for " + args[1] + " not found")
    open(root + "/images/" + args[1].replace("/", "_"), "w").close()
elif verb == "run":
    name = args[args.index("--name") + 1]
    if name in names(): sys.exit("docker: Error response from daemon: Conflict. The container name is already in use.")
    labels = dict(value.split("=", 1) for flag, value in zip(args, args[1:]) if flag == "--label")
    json.dump(labels, open(root + "/containers/" + name, "w"))
    print("0123456789ab")
elif verb == "ps":
    wanted = args[args.index("--filter") + 1].removeprefix("label=").split("=", 1)
    for name in names():
        labels = json.load(open(root + "/containers/" + name))
        if labels.get(wanted[0]) == wanted[1]: print(name, labels["hermes.owner"])
elif verb == "rm":
    for name in args[2:]:
        if name in names(): os.unlink(root + "/containers/" + name)
elif verb == "exec":
    env, cwd, rest = {{"PATH": os.environ["PATH"]}}, root, args[1:]
    while rest[0].startswith("--"):
        flag, value, rest = rest[0], rest[1], rest[2:]
        if flag == "--workdir": cwd = value
        if flag == "--env":
            key, equals, said = value.partition("=")
            env[key] = said if equals else os.environ.get(key, "")
    if rest[0] not in names(): sys.exit("Error response from daemon: No such container: " + rest[0])
    os.chdir(cwd)
    os.setsid() if os.getpid() != os.getpgrp() else None
    os.execvpe(rest[1], rest[1:], env)
else:
    sys.exit("unknown " + verb)
"""


class StandIn:
    """The command in `folder`, which belongs on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "engine"
        for name in ("containers", "images"):
            (self.root / name).mkdir(parents=True)
        program = folder / "docker"
        program.write_text(_PROGRAM.format(python=sys.executable, root=str(self.root)))
        program.chmod(0o755)

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of every call so far."""
        try:
            return [json.loads(line) for line in (self.root / "calls").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def of(self, verb: str) -> list[list[str]]:
        """The calls of one verb."""
        return [call for call in self.calls if call[0] == verb]

    @property
    def containers(self) -> list[str]:
        """The containers that are there."""
        return sorted(path.name for path in (self.root / "containers").iterdir())

    def add(self, name: str, **labels: str) -> None:
        """A container that somebody left."""
        (self.root / "containers" / name).write_text(
            json.dumps({f"hermes.{key}": value for key, value in labels.items()})
        )
