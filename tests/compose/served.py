"""The parts of a runtime whose models are asked at a server of the test's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes.compose import Parts
from hermes.config import find_home, load
from hermes.credentials import EndpointFlags, find_endpoint, find_keys


def parts_for(base_url: str, folder: Path, **more: Any) -> Parts:
    """Parts on memory with two keys for the server at `base_url`; `more` are fields of them."""
    environ = {
        "HERMES_HOME": str(folder / "hermes"),
        "OPENAI_API_KEY": "sk-aaaa-0123456789",
        "OPENAI_API_KEY_2": "sk-bbbb-0123456789",
        "OPENAI_BASE_URL": base_url,
        "PATH": "/usr/bin:/bin",
    }
    home = find_home(environ)
    loaded = load(home, environ, {})
    keys = find_keys(environ, {})
    endpoint = find_endpoint(loaded.require(), EndpointFlags(model="m"), keys, environ)
    return Parts(
        loaded=loaded, endpoint=endpoint, keys=keys, variables=environ, environ=environ, memory=True,
        state_root=home.path / "tasks", **more,
    )  # fmt: skip
