"""The last words of a run: its counts, its exit code, and the command that deals with what is left; and what to say of
a run that is there already."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from hermes.batch.accounts import NO_FAILURE, Allowed
from hermes.batch.folder import RunFolder, RunMeta
from hermes.batch.index import open_index
from hermes.batch.plan import total_rollouts
from hermes.batch.progress import Progress, duration_text
from hermes.batch.record import LASTING_FAILURES
from hermes.batch.settings import differences
from hermes.runtime.denials import denied_note

__all__ = ["StopCause", "describe_existing", "exit_code", "last_lines", "resume_command"]


class StopCause(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run stopped before its end. `kind`: interrupted, endpoint, rejections, failures, storage. `remedy` says
    how to go on where going on with the run as it is would not help."""

    kind: str
    message: str
    exit_code: int = 1
    remedy: str = ""


def resume_command(run_name: str, *more: str) -> str:
    """Return the command that goes on with a run."""
    return " ".join(["hermes batch run", f"--run_name={shlex.quote(run_name)}", "--resume", *more])


def exit_code(progress: Progress, cause: StopCause | None, allowed: Allowed = NO_FAILURE) -> int:
    """0 only if nothing is pending and no more failed than is allowed; else the cause's code, or 1."""
    failed = progress.failed.total()
    left = bool(progress.pending) or not allowed.covers(failed, progress.total)
    if cause is not None and (cause.kind == "interrupted" or left):
        return cause.exit_code
    return 1 if left else 0


def last_lines(run_name: str, progress: Progress, cause: StopCause | None, seconds: float) -> list[str]:
    """Return the closing lines: why rows were rejected or failed (what one row of each kind said), why the run stopped,
    then the counts with the command for the rest."""
    lines = [
        f"{what} {count}: {reason} ({' '.join(progress.examples.get(reason, '').split())[:200]})"
        for what, counts in (("rejected", progress.rejected), ("failed", progress.failed))
        for reason, count in sorted(counts.items())
        if count
    ]
    if cause is not None:
        lines.append(cause.message)
    denied = denied_note(progress.calls, progress.denied)
    if denied:
        lines.append(denied)
    failed = progress.failed.total()
    lines.append(
        f"kept {progress.kept} rejected {progress.rejected.total()} failed {failed} pending {progress.pending} "
        f"of {progress.total}, {duration_text(seconds)}"
    )
    command = (cause.remedy if cause is not None else "") or _command(run_name, progress, cause)
    if command:
        lines[-1] += f" · go on: {command}"
    return lines


def _command(run_name: str, progress: Progress, cause: StopCause | None) -> str:
    lasting = sorted(kind for kind, count in progress.failed.items() if count and kind in LASTING_FAILURES)
    passing = progress.failed.total() - sum(progress.failed[kind] for kind in lasting)
    if progress.pending or passing:
        more = ["--yes"] if cause is not None and cause.kind == "rejections" else []
        return resume_command(run_name, *more)
    if lasting:
        return resume_command(run_name, f"--retry={','.join(lasting)}")
    return ""


def describe_existing(folder: RunFolder, meta: RunMeta | None, given: Mapping[str, Any]) -> str:
    """Say what is in the folder of a run that was named without `--resume`, and what can be done."""
    if meta is None:
        names = sorted(path.name for path in folder.path.iterdir())
        what = f"{folder.path} is not empty ({', '.join(names[:5])}) and holds no run that could be resumed."
        offers = "Take another --run_name, or --overwrite, which moves the folder aside."
        return f"{what} Nothing was touched.\n{offers}"
    rows, rollouts = folder.read_rows(), meta.settings.rollouts_per_prompt
    index = open_index(folder.records_path, rows, rollouts)
    progress = Progress(total=total_rollouts(rows, rollouts, index), started=0.0)
    progress.take(index.counts)
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(meta.created_at))
    lines = [
        f"{folder.path} holds a run already, started {started} with {meta.settings.model or 'the default model'}: "
        f"kept {progress.kept} rejected {progress.rejected.total()} failed {progress.failed.total()} "
        f"pending {progress.pending} of {progress.total}. Nothing was touched."
    ]
    different = differences(given, meta.settings)
    if different:
        lines.append("Different from what was given now: " + ", ".join(different))
    lines.append(f"Go on with it: {resume_command(folder.run_name)}")
    lines.append("Or take another --run_name, or --overwrite, which moves the folder aside.")
    return "\n".join(lines)
