"""How soon `hermes --version` and `hermes --help` answer, as a ratio to `python -c pass` of the same interpreter.

The program is started as it is installed. Neither may load what it does not need for its answer.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from figures import Figure, Options, options, show

#: What a quick answer must not load.
HEAVY = ("aiohttp", "click", "anyio", "msgspec", "textual", "sqlite3", "hermes.providers", "hermes.store", "hermes.tui")

_LOADED = """
import sys
from hermes.cli.main import main
main([sys.argv[1]])
print("\\n".join(sys.modules), file=sys.stderr)
"""


def loaded(flag: str) -> list[str]:
    """Modules of `HEAVY` that the answer to `flag` loads."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADED, flag], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True
    )
    modules = done.stderr.split()
    return [name for name in HEAVY if any(module == name or module.startswith(f"{name}.") for module in modules)]


def seconds(command: list[str]) -> float:
    """Wall seconds of one run."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def figures(given: Options) -> list[Figure]:
    """Median of the ratios of runs that follow each other."""
    rounds = 5 if given.quick else 25
    program = str(Path(sys.executable).with_name("hermes"))
    found = []
    for flag in ("--version", "--help"):
        heavy = loaded(flag)
        if heavy:
            raise SystemExit(f"hermes {flag} loads {', '.join(heavy)}")
        pairs = [(seconds([sys.executable, "-c", "pass"]), seconds([program, flag])) for _ in range(rounds)]
        plain = statistics.median(pair[0] for pair in pairs)
        mine = statistics.median(pair[1] for pair in pairs)
        found.append(
            Figure(
                name=f"hermes {flag}: to python -c pass",
                bar=2,
                measured=statistics.median(pair[1] / pair[0] for pair in pairs),
                unit="x",
                note=f"{mine * 1e3:.1f} / {plain * 1e3:.1f} ms; loads none of {', '.join(HEAVY[:5])}, …",
            )
        )
    return found


if __name__ == "__main__":
    asked = options(__doc__)
    show(figures(asked), sys.stdout, as_json=asked.json)
