"""Fixtures for every test come from the package itself: the backend, a home of its own, the guards."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# The same examples in each run, and no bar on how long one takes: a busy machine is no fault of the code. Whoever looks
# for new ones says `--hypothesis-profile=default`.
settings.load_profile("ci")

pytest_plugins = ["hermes.testing.fixtures"]


def pytest_collection_finish() -> None:
    """What is there before the first test is never garbage."""
    gc.freeze()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """With delays on, collect the garbage of each test at once: what it left open is its own fault then."""
    yield
    if "JITTER" in os.environ:
        gc.collect()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests said of themselves (`record_property("said", …)`), also those that passed on another worker."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name == "said" and report.when == "call":
                    terminalreporter.write_line(f"{report.nodeid.partition('::')[2]}: {value}")
