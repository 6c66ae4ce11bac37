"""Every example of the README and of docs/ is executed, except where a comment before it says why not."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import Request, serve_in_thread

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(
    r"(?:<!-- not executed: (?P<why>[^>]+) -->\n|<!-- (?P<more>goes on) -->\n)?```(?P<language>\w+)\n(?P<code>.*?)```",
    re.DOTALL,
)
#: What `make run` and `make test` are is held by the release check itself; they cannot run inside the tests.
_OUTSIDE = ("make run ", "make test ")
#: What an orchestrator makes of any goal.
PLAN = {
    "fanout": True,
    "tasks": [
        {"title": "Look", "body": "Look at all three.", "assignee": "researcher", "acceptance": "A list."},
        {"title": "Sum up", "body": "Sum up.", "assignee": "coder", "acceptance": "A page.", "parents": [0]},
    ],
}


def _examples() -> list[tuple[str, str, str]]:
    found = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for number, block in enumerate(_BLOCK.finditer(path.read_text(encoding="utf-8")), 1):
            code = block["code"]
            if block["more"]:  # a tutorial: what was done before is still there
                name, language, before = found.pop()
                found.append((name, language, before + code))
                continue
            if block["why"] or block["language"] not in ("bash", "python") or code.startswith(_OUTSIDE):
                continue
            found.append((f"{path.name}-{number}", block["language"], code))
    return found


def _answer(request: Request) -> Reply:
    """A model that looks once and then answers, with reasoning, as a good one would."""
    if "Plan this goal as cards" in request.first_user:
        return reply(json.dumps(PLAN))
    if "kanban_complete" in request.tools:
        return _at_a_card(request)
    if request.turn == 0 and "terminal" in request.tools:
        return reply(thinking="I look first.", calls=[call("terminal", command="ls")])
    return reply("There are some files here.", thinking="I have seen the files.")


def _at_a_card(request: Request) -> Reply:
    """A worker that asks where its card says so, writes a file, and completes; a reviewer that is content."""
    said = " ".join(str(message.get("content")) for message in request.messages)
    called = [
        each["function"]["name"]
        for message in request.messages
        if message.get("role") == "assistant"
        for each in message.get("tool_calls") or ()
    ]
    if "kanban_complete" in called or ("kanban_block" in called and "Answer to" not in said):
        return reply("That is all.")
    if "Ask which" in request.first_user and "kanban_block" not in called:
        return reply(calls=[call("kanban_block", reason="SQLite or PostgreSQL?", kind="needs_input")])
    if "You review this card" in request.first_user:
        return reply(calls=[call("kanban_complete", summary="It is good.")])
    if "terminal" not in called:
        keep = "if [ -e .git ]; then git add greeting.txt && git commit -qm 'Say hello'; fi"
        return reply(calls=[call("terminal", command=f"echo hello > greeting.txt; {keep}")])
    return reply(calls=[call("kanban_complete", summary="It is written.", result="hello")])


@pytest.mark.parametrize(("language", "code"), [pytest.param(*rest, id=name) for name, *rest in _examples()])
def test_example_runs(language: str, code: str, tmp_path: Path, home: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "README.md").write_text("# Something\n", encoding="utf-8")
    shutil.copy(ROOT / "batch_runner.py", work / "batch_runner.py")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("hermes", "python"):
        module = "-m hermes.cli.main " if name == "hermes" else ""
        script = tools / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n', encoding="utf-8")
        script.chmod(0o755)
    (home / ".hermes").mkdir(mode=0o700)
    (home / ".hermes" / "config.yaml").write_text("model: test-model\n", encoding="utf-8")
    with serve_in_thread(_answer) as server:
        environ = {
            **os.environ,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "OPENAI_BASE_URL": server.base_url,
            "OPENAI_API_KEY": "sk-test-0123456789abcdef",
            "HERMES_HOME": str(home / ".hermes"),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        command = ["bash", "-euo", "pipefail", "-c", code] if language == "bash" else [sys.executable, "-c", code]
        try:
            done = subprocess.run(
                command, cwd=work, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
            )
        finally:
            if "daemon --detach" in code:  # of an example that failed half-way nothing may go on
                subprocess.run([tools / "hermes", "kanban", "daemon", "--stop"], env=environ, check=False, timeout=60)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_documents_name_only_files_that_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in set(re.findall(r"`((?:docs|examples)/[\w./-]+)`", text)):
        assert (ROOT / name).exists(), name
