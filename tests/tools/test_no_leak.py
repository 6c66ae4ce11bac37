"""Keys stay out of every file of a run: a model that goes looking for them, on the real parts."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from hermes.core.scope import CallKey, TaskScope
from hermes.credentials.redact import Redactor
from hermes.environments.local import LocalEnvironment, LocalSettings
from hermes.environments.output import OutputLimits
from hermes.tools.toolsets import TerminalToolset
from tests.tools.place import call, tools_of

pytestmark = pytest.mark.anyio
KEY = "zq-live-0f9e8d7c6b5a4938"

COMMANDS = (
    "env; cat ~/.hermes/.env",
    "set -a; . ~/.hermes/.env; set +a; export COPY=$FOO_API_KEY; echo $COPY",
    "echo $COPY; env",
    "base64 -w0 ~/.hermes/.env; xxd -p ~/.hermes/.env 2>/dev/null; true",
    "for i in $(seq 400); do cat ~/.hermes/.env; done",
)
CUT_OFF = "export FOO=$(cat ~/.hermes/.env); sleep 160"


@pytest.mark.fault("B137")
async def test_no_file_of_the_run_holds_a_key(tmp_path: Path, home: Path) -> None:
    (home / ".hermes").mkdir()
    (home / ".hermes" / ".env").write_text(f"FOO_API_KEY={KEY}\n")
    scope = TaskScope(task_id="t", session_id="s", root_id="t", workspace=str(tmp_path / "work"))
    Path(scope.workspace).mkdir()
    environment = LocalEnvironment(
        scope,
        tmp_path / "state",
        source={**os.environ, "FOO_API_KEY": KEY},
        commands=anyio.CapacityLimiter(2),
        settings=LocalSettings(grace=0.2, output=OutputLimits(visible=2_000, memory=4_000)),
        redact=Redactor({"FOO_API_KEY": KEY}).text,
    )
    terminal = tools_of(TerminalToolset(lambda _: environment), "t", environment)["terminal"]
    answers = [str((await call(terminal, command=command, timeout=100)).details) for command in COMMANDS]
    answers.append(str((await call(terminal, command=CUT_OFF, timeout=2)).details))
    with anyio.CancelScope() as scope:
        command = "set -a; . ~/.hermes/.env; echo begun; sleep 160"
        await environment.run(command, key=CallKey("t", 2, 0), progress=lambda _: scope.cancel())
    assert scope.cancelled_caught
    assert "[redacted:FOO_API_KEY]" in answers[0]
    for text in [*answers, *await anyio.to_thread.run_sync(contents, tmp_path)]:
        assert KEY not in text
        assert KEY[-9:] not in text
    await environment.close()


def contents(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".env"]
    assert len(files) > 2
    return [path.read_text(errors="replace") for path in files]
