"""What a parent reads of its children: answers of the tools and notices, sized to the room it has left.

A report that is too long is cut in the middle, and the file with its full text is named. `keep_report` writes that file
when the task ends; the rest of this module writes nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread
import msgspec

from hermes.core.clock import Hold, held
from hermes.core.messages import plain_text
from hermes.core.result import TaskResult, WorkspaceReport, async_status, delegate_status, tokens
from hermes.runtime.task import Task

__all__ = ["Reports", "keep_report", "workspace_line"]

#: Characters above which a report is kept in a file: below, every reader has room for it.
KEPT_ABOVE = 200

#: Characters for one token of room, on the safe side for prose in any script.
CHARS_PER_TOKEN = 2
#: Share of the room that all reports of one answer may take, and the most and the least that one gets.
SHARE, MOST, LEAST = 0.4, 24_000, 600
#: Children whose rows are full, and characters that all rows of more children may take together.
FULL_ROWS, MOST_IN_ALL = 24, 80_000
#: Characters of a short row without its summary, and the shortest summary that is worth its place.
_ROW, _WORTH_READING = 260, 60


async def keep_report(directory: Path, text: str, hold: Hold) -> str:
    """Write a report that some reader may have no room for into `directory`; the path, or "" for a short one.

    Raises:
        OSError: it cannot be written.
    """
    if len(text) <= KEPT_ABOVE:
        return ""
    path = directory / "report.md"

    def write() -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = directory / ".report.md.new"
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)

    with held(hold):
        await anyio.to_thread.run_sync(write)
    return str(path)


class Reports:
    """Formats results."""

    def __init__(self) -> None:
        self.transcript: Callable[[Task], str] | None = None  # path of a task's live transcript, where one is written

    # -- texts ------------------------------------------------------------------------------------------------------

    def summary(self, task: Task, room_chars: int) -> tuple[str, str]:
        """Return (text that fits, path of the full text or "")."""
        result = task.result
        if result is None:
            return "", ""
        text = self._headed(result)
        if len(text) <= room_chars:
            return text, ""
        half = max(100, (room_chars - 160) // 2)
        where = f"; the full report is in {result.report_path}" if result.report_path else ""
        return (
            f"{text[:half]}\n[… {len(text) - 2 * half} characters left out{where} …]\n{text[-half:]}",
            result.report_path,
        )

    @staticmethod
    def _headed(result: TaskResult) -> str:
        """The summary, with a plain notice first when the work is not whole."""
        if result.state == "exhausted":
            why = (
                "used all its turns"
                if result.exit_reason == "max_iterations"
                else f"reached its budget: {result.error}"
            )
            return f"[INCOMPLETE: this task {why}; what follows is partial]\n{result.summary}".rstrip()
        if result.state == "timed_out":
            return f"[INCOMPLETE: {result.error}; what follows is partial]\n{result.summary}".rstrip()
        if result.state == "cancelled" and result.summary:
            return f"[INCOMPLETE: stopped ({result.error}); what follows is partial]\n{result.summary}"
        return result.summary or result.note

    @staticmethod
    def room_for(count: int, room_tokens: int) -> int:
        """Characters that each of `count` reports may take when `room_tokens` are left."""
        return max(LEAST, min(MOST, int(room_tokens * SHARE * CHARS_PER_TOKEN / max(1, count))))

    # -- answers ----------------------------------------------------------------------------------------------------

    def delegated(self, tasks: Sequence[Task], room_tokens: int) -> list[dict[str, Any]]:
        """`results` of the synchronous tools, in the order of the tasks.

        Above a few dozen children the rows get short, so that the answer stays whole in any context: a result that is
        too long would be cut in the middle and lose some of them.
        """
        room = self.room_for(len(tasks), room_tokens)
        if len(tasks) <= FULL_ROWS:
            return [self.delegate_result(index, task, room) for index, task in enumerate(tasks)]
        room = min(room, MOST_IN_ALL // len(tasks) - _ROW)
        return [self._short_row(index, task, room) for index, task in enumerate(tasks)]

    def _short_row(self, index: int, task: Task, room_chars: int) -> dict[str, Any]:
        result = task.result
        if result is None:
            return {"task_index": index, "task_id": task.id, "status": "interrupted"}
        row: dict[str, Any] = {"task_index": index, "task_id": task.id, "status": delegate_status(result.state)}
        if result.state != "completed":
            row["exit_reason"] = result.exit_reason
        if room_chars < _WORTH_READING:
            return row
        found = _verdict(result, room_chars)
        if found.get("output") is not None:  # the text says the same once more
            return row | {"output": found["output"], "schema_valid": True}
        if "schema_valid" in found:
            row["schema_valid"] = found["schema_valid"]
        text = self._headed(result)
        row["summary"] = _fit(text, room_chars)
        if len(text) > room_chars and result.report_path:
            row["report_path"] = result.report_path
        if result.error:
            row["error"] = _fit(result.error, room_chars)
        return row

    def delegate_result(self, index: int, task: Task, room_chars: int) -> dict[str, Any]:
        """One entry of `results` in the answer of the synchronous tools."""
        result = task.result
        if result is None:
            return {"task_index": index, "task_id": task.id, "status": "interrupted", "error": "it did not end in time"}
        text, path = self.summary(task, room_chars)
        entry: dict[str, Any] = {
            "task_index": index,
            "task_id": task.id,
            "status": delegate_status(result.state),
            "summary": text,
            "api_calls": result.api_calls,
            "duration_seconds": round(result.elapsed, 2),
            "model": result.model,
            "exit_reason": result.exit_reason,
            "tokens": tokens(result.usage),
            "tool_trace": [msgspec.to_builtins(trace) for trace in result.tool_trace[-20:]],
        }
        if result.truncated:
            entry["truncated"] = True
        if result.error:
            entry["error"] = result.error
        if task.spec.limits.clock is not None:
            entry["timeout_seconds"] = task.spec.limits.clock
        if result.state == "timed_out":
            entry["timeout_phase"] = "after_llm_calls" if result.usage.output else "before_first_llm_call"
        if result.diagnostic_path:
            entry["diagnostic_path"] = result.diagnostic_path
        if result.missed_steer:
            entry["missed_steer"] = list(result.missed_steer)
        if result.files_written:
            entry["files_written"] = list(result.files_written)
        entry |= _place(result)
        if path:
            entry["report_path"] = path
        if result.agent:
            entry["agent"] = result.agent
        return entry | _verdict(result, room_chars)

    def collected(
        self, task: Task, room_chars: int, *, timed_out: bool, elapsed: float, lines: Sequence[str]
    ) -> dict[str, Any]:
        """The answer of `collect_task`."""
        text, path = self.summary(task, room_chars)
        answer: dict[str, Any] = {
            "task_id": task.id,
            "status": async_status(task.state),
            "elapsed": round(elapsed, 2),
            "timed_out": timed_out,
            "output": _fit("\n".join(lines), room_chars // 2),
            "summary": text,
            "output_lines": len(lines),
        }
        result = task.result
        if result is None:
            return answer
        answer |= {"exit_reason": result.exit_reason, "truncated": result.truncated, "model": result.model}
        answer |= {"api_calls": result.api_calls, "tokens": tokens(result.usage), "cost_usd": result.usage.cost_usd}
        if result.error:
            answer["error"] = result.error
        if path:
            answer["report_path"] = path
        if result.diagnostic_path:
            answer["diagnostic_path"] = result.diagnostic_path
        if result.missed_steer:
            answer["missed_steer"] = list(result.missed_steer)
        answer |= _place(result)
        if result.children:
            answer["children"] = [msgspec.to_builtins(child) for child in result.children]
        if result.agent:
            answer["agent"] = result.agent
        return answer | _verdict(result, room_chars)

    def notice(self, task: Task, room_tokens: int, dispatched_at: float | None = None) -> str:
        """What an idle or busy parent reads of a child's end: self-contained, since it may have forgotten the child."""
        result = task.result
        if result is None:
            return ""
        text, _ = self.summary(task, self.room_for(1, room_tokens))
        mark = {"completed": "✓", "exhausted": "⚠"}.get(result.state, "✗")
        cost = f", ${result.subtree_usage.cost_usd:.4f}" if result.subtree_usage.cost_usd is not None else ""
        when = f"dispatched {time.strftime('%H:%M:%S', time.localtime(dispatched_at))}, " if dispatched_at else ""
        lines = [
            f"[ASYNC DELEGATION COMPLETE — {task.id}]",
            f"Goal: {_fit(plain_text(task.spec.goal), 2_000)}",
            f"Role: {task.spec.role} · model: {result.model} · toolsets: {', '.join(task.spec.toolsets) or 'none'}",
            f"Outcome: {mark} {async_status(result.state)} ({result.exit_reason}), {when}{result.api_calls} api calls, "
            f"{result.elapsed:.1f} s{cost}",
        ]
        if result.error:
            lines.append(f"Error: {result.error}")
        if result.workspace is not None:
            lines.append(f"Workspace: {workspace_line(result.workspace)}")
        lines.extend(f"Conflict: {conflict}" for conflict in result.conflicts)
        if result.missed_steer:
            lines.append(f"Corrections that came too late: {'; '.join(result.missed_steer)}")
        if result.verdict.schema_valid is not None:
            errors = "; ".join(result.verdict.schema_errors)
            lines.append("Answer fits its schema." if not errors else f"Answer does not fit its schema: {errors}")
        if result.verdict.check is not None:
            check = result.verdict.check
            lines.append(
                f"Check `{check.command}`: {'passed' if check.passed else 'failed: ' + _fit(check.output, 2_000)}"
            )
        return "\n".join([*lines, "--- RESULT ---", text or "(no text)"])


def _place(result: TaskResult) -> dict[str, Any]:
    """What became of a workspace of the task's own, and of files that another task wrote too."""
    found: dict[str, Any] = {}
    if result.workspace is not None:
        found[result.workspace.key] = result.workspace.public()
    if result.conflicts:
        found["conflicts"] = list(result.conflicts)
    return found


def workspace_line(place: WorkspaceReport) -> str:
    """One line about what became of a workspace."""
    if place.removed:
        return f"nothing was left in its {place.mode}; it was removed"
    branch = f", branch {place.branch}, {place.commits} commits" if place.mode == "worktree" else ""
    more = f"; files outside changed: {', '.join(place.escaped)}" if place.escaped else ""
    more += f"; {place.error}" if place.error else ""
    return f"{place.path} ({place.mode}{branch}{', with uncommitted files' if place.dirty else ''}){more}"


def _verdict(result: TaskResult, room_chars: int) -> dict[str, Any]:
    """What was found of an answer, within the room of the reader."""
    found = result.verdict.public()
    size = len(msgspec.json.encode(found.get("output")))
    if size > room_chars:
        where = f"it is the text in {result.report_path}" if result.report_path else "it is the text of the answer"
        found |= {"output": None, "output_note": f"The value has {size} characters; {where}."}
    if "check" in found:
        found["check"]["output"] = _fit(found["check"]["output"], room_chars)
    return found


def _fit(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = max(20, limit // 2 - 20)
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"
