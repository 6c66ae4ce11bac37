"""Which model is asked where none was named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hermes.testing.scripted import reply
from hermes.testing.server import serve_in_thread


def ask(base_url: str, home: Path) -> subprocess.CompletedProcess[str]:
    environ = {
        **os.environ,
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_KEY": "sk-test-0123456789",
        "HERMES_HOME": str(home / ".hermes"),
    }
    command = [sys.executable, "-m", "hermes.cli.main", "chat", "-q", "hi"]
    return subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, cwd=home
    )


def test_the_only_model_of_a_server_is_meant(home: Path) -> None:
    with serve_in_thread(lambda request: reply("hello"), models=["qwen-local"]) as server:
        done = ask(server.base_url, home)
        asked = [request.model for request in server.requests if request.body]
    assert done.stdout.strip() == "hello", done.stderr
    assert asked == ["qwen-local"]


def test_of_several_one_has_to_be_named(home: Path) -> None:
    with serve_in_thread(lambda request: reply("hello"), models=["a-model", "b-model"]) as server:
        done = ask(server.base_url, home)
    assert done.returncode == 2
    assert "a-model, b-model" in done.stderr and "-m MODEL" in done.stderr
