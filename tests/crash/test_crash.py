"""The process is killed with SIGKILL at a commit, another takes the session up, and the end is as if nothing had been.

`make test` kills at 24 places spread over the run, one of them inside a compaction, `make crash` at every one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

#: Places in the ordinary run of the tests.
SPREAD = 24
#: Commits that a process gets to make before it is killed once more.
STEP = 12
#: Seconds in which all places have to be tried: less than a test may take, so that it can say how far it came.
PATIENCE = 800.0


def run(base: Path, **environ: str) -> int:
    work = base / "work"
    work.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "hermes.testing.crash", str(base / "home"), str(work)]
    given = {**os.environ, **environ}
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=200, stdin=subprocess.DEVNULL)
    assert done.returncode in (0, -9), done.stderr
    return done.returncode


def outcome(base: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((base / "work" / "result.json").read_text(encoding="utf-8"))
    return found


def effects(base: Path) -> Counter[str]:
    return Counter((base / "work" / "effects.txt").read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    base = tmp_path_factory.mktemp("undisturbed")
    places = base / "places"
    assert run(base, HERMES_CRASH_LIST=str(places)) == 0
    return base, sorted(set(places.read_text(encoding="utf-8").split("\n")) - {""})


def killed_at(base: Path, place: str, good: Path) -> str:
    """Kill once at `place`, go on, and return what differs from the undisturbed run."""
    code = run(base, HERMES_CRASH_AT=place)
    if code == 0:
        return f"{place}: the place was not reached"
    assert run(base) == 0
    expected, found = outcome(good), outcome(base)
    differs = [key for key in ("state", "summary") if expected[key] != found[key]]
    differs += [path for path in expected["histories"] if expected["histories"][path] != found["histories"].get(path)]
    differs += [path for path in found["histories"] if path not in expected["histories"]]
    twice = [mark for mark, count in effects(base).items() if count > 1]
    missing = set(effects(good)) - set(effects(base))
    if differs or twice or missing:
        return f"{place}: differs {differs}, twice {twice}, missing {sorted(missing)}"
    return ""


def kill_everywhere(places: list[str], good: Path, tmp_path: Path, say: Callable[[str, object], None]) -> None:
    end = time.monotonic() + PATIENCE

    def one(number: int) -> str | None:
        return killed_at(tmp_path / str(number), places[number], good) if time.monotonic() < end else None

    with ThreadPoolExecutor(max_workers=2) as pool:
        tried = list(pool.map(one, range(len(places))))
    found = [text for text in tried if text is not None]
    reached = [text for text in found if "not reached" not in text]
    late = f": after {PATIENCE:g} s the time had run out" if len(found) < len(places) else ""
    say("said", f"killed at {len(reached)} of {len(places)} places{late}")
    assert [text for text in reached if text] == []
    assert not late, "this machine is too slow or too busy for all places; those that were tried ended as they should"
    assert len(reached) >= len(places) * 0.9, [text for text in found if "not reached" in text]


@pytest.mark.fault("B013")
@pytest.mark.timeout(900)
def test_killed_at_places_spread_over_the_run(
    undisturbed: tuple[Path, list[str]], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    good, places = undisturbed
    inside = next(place for place in places if "|compaction|1|after" in place)
    # Names of both sides of a commit stand beside each other: take one side and the other in turn.
    rest = [place for place in places if place != inside]
    spread = [rest[number * (len(rest) - 2) // (SPREAD - 1) // 2 * 2 + number % 2] for number in range(SPREAD - 1)]
    kill_everywhere([*spread, inside], good, tmp_path, record_property)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_at_every_place(
    undisturbed: tuple[Path, list[str]], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    good, places = undisturbed
    assert sum("|compaction|" in place for place in places) >= 2
    kill_everywhere(places, good, tmp_path, record_property)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_again_and_again_in_one_run(
    undisturbed: tuple[Path, list[str]], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    good, places = undisturbed
    kills = 0
    while run(tmp_path, HERMES_CRASH_AT=f"#{STEP}") == -9:
        kills += 1
        assert kills < len(places), "a process that is killed again and again never comes to an end"
    record_property("said", f"killed {kills} times in one run, at every {STEP}th commit")
    assert kills >= 5
    assert outcome(tmp_path)["summary"] == outcome(good)["summary"]
    assert max(effects(tmp_path).values()) == 1
