"""Every benchmark in turn, and one table of their figures. `benchmarks/run [--quick] [--runs N]` calls it."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
from figures import Figure, options, show
from stage import HERE

NAMES = ("cli", "spawn", "children", "tree", "batch", "store", "board", "limits", "sandbox", "tui", "screen")


def main() -> None:
    """Run what is there; one that fails is named, and the others run all the same."""
    given = options(__doc__)
    found: list[Figure] = []
    failed: list[str] = []
    arguments = ["--json", "--runs", str(given.runs), *(["--quick"] if given.quick else [])]
    for name in NAMES:
        print(f"{name} …", end=" ", file=sys.stderr, flush=True)
        program = str(HERE / f"bench_{name}.py")
        done = subprocess.run([sys.executable, program, *arguments], stdout=subprocess.PIPE, check=False)
        if done.returncode:
            failed.append(f"{name} (exit {done.returncode})")
            continue
        found += [msgspec.json.decode(line, type=Figure) for line in done.stdout.splitlines() if line]
    print(file=sys.stderr)
    show(found, sys.stdout, as_json=given.json)
    if given.json:
        return
    one, five, fifteen = os.getloadavg()
    print(
        f"\n{os.cpu_count()} processors, load {one:.1f} {five:.1f} {fifteen:.1f} (above the processors: measure again)"
    )
    if failed:
        print(f"could not be measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
