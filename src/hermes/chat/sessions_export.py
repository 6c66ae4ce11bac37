"""A session as a document: Markdown for people, JSON or JSON lines for programs, with its children and their files."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec

from hermes.chat.render import when
from hermes.chat.sessions_read import Whole, plain_task, said
from hermes.core.codec import scrub_surrogates
from hermes.core.errors import UsageError

__all__ = ["FORMATS", "copy_files", "files_of", "rendered", "write_document"]

FORMATS = ("md", "json", "jsonl")


def files_of(root: Path, session_id: str) -> list[dict[str, Any]]:
    """The files that the tasks of a session left: `path` under the session's folder and `bytes`, sorted."""
    folder = root / session_id
    found = []
    for where, _, names in os.walk(folder):
        for name in names:
            path = Path(where, name)
            if path.is_file() and not path.is_symlink():
                found.append({"path": path.relative_to(folder).as_posix(), "bytes": path.stat().st_size})
    return sorted(found, key=lambda file: str(file["path"]))


def copy_files(root: Path, session_id: str, target: Path, files: list[dict[str, Any]]) -> None:
    """Copy those files under `target`. Raises OSError."""
    for file in files:
        path = target / file["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / session_id / file["path"], path)


def write_document(path: Path, text: str) -> None:
    """Write a file whole or not at all, readable for its owner only: a session may hold anything.

    Raises:
        UsageError: it cannot be written there.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode("utf-8", "replace"))
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}. Name a file that can be written.") from None


def rendered(whole: Whole, files: list[dict[str, Any]], form: str) -> str:
    """The document, in a form of `FORMATS`."""
    if form == "md":
        return scrub_surrogates(_markdown(whole, files))
    session = msgspec.to_builtins(whole.row)
    tasks = [{**plain_task(task), "unseen": task.task_id in whole.unseen} for task in whole.tasks]
    entries = {task: [msgspec.to_builtins(entry) for entry in found] for task, found in whole.entries.items()}
    if form == "json":
        document = {"schema": 1, "session": session, "tasks": tasks, "entries": entries, "files": files}
        document["unfinished_answers"] = list(whole.unfinished)
        return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    lines = [{"record": "session", "schema": 1, **session}]
    for task in tasks:
        lines.append({"record": "task", **task})
        for position, entry in enumerate(entries[task["task_id"]]):
            lines.append({"record": "entry", "task_id": task["task_id"], "position": position, "entry": entry})
    lines += [{"record": "unfinished_answer", **answer} for answer in whole.unfinished]
    lines += [{"record": "file", **file} for file in files]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _markdown(whole: Whole, files: list[dict[str, Any]]) -> str:
    row = whole.row
    parts = [f"# {row.title or row.session_id}\n"]
    parts.append(f"Session `{row.session_id}`, {when(row.created_at)}, model `{row.model}`, folder `{row.cwd}`\n")
    for task in whole.tasks:
        mark = " — nobody saw this result" if task.task_id in whole.unseen else ""
        under = f", child of `{task.parent_id}`" if task.parent_id else ""
        parts.append(f"## `{task.task_id}` ({task.kind}, {task.state}{under}){mark}\n")
        for entry in whole.entries[task.task_id]:
            for who, text in said(entry, full=True):
                if text.strip():
                    parts.append(_block(who.strip(), text))
    if files:
        parts.append("## Files\n")
        parts.append("".join(f"- `{file['path']}` ({file['bytes']} bytes)\n" for file in files))
    return "\n".join(parts)


def _block(who: str, text: str) -> str:
    if who in ("model", "you", "goal", "follow_up", "summary", "notice"):
        return f"**{who}:**\n\n{text.strip()}\n"
    # Longer than any run of backticks inside, so that a tool's output cannot end the block.
    fence = "`" * max(3, 1 + max((len(run) for run in _backticks(text)), default=0))
    title = "call" if who == "→" else who
    return f"**{title}:**\n\n{fence}text\n{text.rstrip()}\n{fence}\n"


def _backticks(text: str) -> list[str]:
    return ["`" * len(run) for run in "".join(c if c == "`" else " " for c in text).split()]
