"""Fixtures for every test come from the package itself: the backend, a home of its own, the guards."""

from __future__ import annotations

pytest_plugins = ["hermes.testing.fixtures"]
