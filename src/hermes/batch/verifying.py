"""Judges a rollout that has come to its end, while its workspace and its environment still stand.

Commands run where those of the rollout ran, behind the same gate, in a shell that knows nothing of what the rollout
defined or exported. A check that crashes, may not run or takes too long has the score 0, and its error is kept.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from hermes.batch.reasoning import split_reasoning
from hermes.batch.scoring import Found
from hermes.batch.verifiers import Command, Contains, Exact, File, Json, Regex, Verifier
from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.codec import encode_json
from hermes.core.errors import OperatorError, ToolError
from hermes.core.messages import Assistant
from hermes.core.result import CheckScore
from hermes.environments.scrub import command_environment
from hermes.runtime.approval import Gate
from hermes.runtime.checking import run_check
from hermes.runtime.task import Task

__all__ = ["Verifying"]

#: Bytes of a file that a check reads.
FILE_BYTES = 16 * 1024 * 1024
#: Processes for patterns, schemas and functions.
PROCESSES = 4
#: Seconds in which a command whose time is up has to be ended.
ENDING = 30.0
#: Characters of what a check says that are kept.
DETAIL = 500


class Verifying:
    """Judges rollouts of one run. `gate` decides whether a command may run."""

    def __init__(self, gate: Gate, hold: Hold = NO_HOLD) -> None:
        self._gate = gate
        self._hold = hold
        self._processes = anyio.CapacityLimiter(PROCESSES)
        self._threads = anyio.CapacityLimiter(PROCESSES)

    async def scores(
        self, task: Task, verifiers: Sequence[Verifier], text: str, row: Mapping[str, Any]
    ) -> tuple[CheckScore, ...]:
        """Judge the work of `task`, whose final text is `text`: one score for each verifier, in their order."""
        _, answer = split_reasoning(Assistant(text=text))
        if any(isinstance(each, (Command, File)) for each in verifiers) and task.environment is not None:
            task.environment.forget()
        return tuple([await self._score(task, verifier, answer, row) for verifier in verifiers])

    async def _score(self, task: Task, verifier: Verifier, answer: str, row: Mapping[str, Any]) -> CheckScore:
        began = anyio.current_time()
        score, detail, broken = 0.0, f"took longer than {verifier.timeout:g} s", True
        # The environment ends a command in time by itself, and says what it printed until then.
        limit = verifier.timeout + (ENDING if isinstance(verifier, Command) else 0)
        with anyio.move_on_after(limit):
            try:
                score, detail, broken = await self._found(task, verifier, answer, row)
            except (OperatorError, ToolError, OSError, anyio.BrokenResourceError) as error:
                detail = str(error) or type(error).__name__
        return CheckScore(
            check=type(verifier).__struct_config__.tag,  # type: ignore[arg-type]  # each kind has its word as its tag
            score=score,
            weight=verifier.weight,
            seconds=round(anyio.current_time() - began, 3),
            detail="" if broken else detail[:DETAIL],
            error=detail[:DETAIL] if broken else "",
        )

    async def _found(self, task: Task, verifier: Verifier, answer: str, row: Mapping[str, Any]) -> Found:
        if isinstance(verifier, Exact):
            return _same(verifier.value, answer, verifier.ignore_case)
        if isinstance(verifier, Contains):
            return _holds(verifier.value, answer, verifier.ignore_case)
        if isinstance(verifier, Regex):
            return await self._apart(verifier, "matches", verifier.pattern, answer)
        if isinstance(verifier, Json):
            return await self._apart(verifier, "fits_schema", verifier.schema, answer)
        if isinstance(verifier, File):
            return await self._file(task, verifier)
        if isinstance(verifier, Command):
            return await self._command(task, verifier)
        rollout = {
            "prompt": row.get("prompt", ""),
            "answer": answer,
            "row": dict(row),
            "workspace": task.scope.workspace,
        }
        return await self._apart(verifier, "call_function", verifier.function, rollout)

    async def _apart(self, verifier: Verifier, check: str, *given: Any) -> Found:
        """Run a check in a process of its own, which is ended with all that it started when time is up.

        Raises:
            OperatorError: it ended without an answer.
        """
        argv = [sys.executable, "-c", "from hermes.batch.scoring import main; main()"]
        async with self._processes:
            with held(self._hold):
                # A group of its own: Ctrl+C at the terminal says nothing of the rollout.
                process = await anyio.open_process(
                    argv, stderr=subprocess.DEVNULL, env=_variables(), start_new_session=True
                )
                try:
                    assert process.stdin is not None and process.stdout is not None
                    await process.stdin.send(encode_json([check, given, verifier.timeout]))
                    await process.stdin.aclose()
                    answer = b"".join([part async for part in process.stdout])
                    code = await process.wait()
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    with anyio.CancelScope(shield=True):
                        await process.aclose()
        if not answer:
            raise OperatorError(f"the process of the check ended with exit code {code} and no score")
        return msgspec.json.decode(answer, type=Found)

    async def _file(self, task: Task, verifier: File) -> Found:
        environment = task.environment
        if environment is None:
            return 0.0, "the rollout has no files", True
        path = os.path.join(environment.workspace, verifier.path)

        def read() -> bytes:
            with open(environment.files.open(path), "rb") as file:
                return file.read(FILE_BYTES)

        try:
            with held(self._hold):
                content = await anyio.to_thread.run_sync(read, limiter=self._threads, abandon_on_cancel=True)
        except FileNotFoundError:
            return 0.0, f"{verifier.path} is not there", False
        text = content.decode("utf-8", "replace")
        if verifier.value is not None:
            found = _same(verifier.value, text, False)
            if not found[0]:
                return found
        found = _holds(verifier.contains, text, False)
        return (
            found
            if not found[0] or not verifier.pattern
            else await self._apart(verifier, "matches", verifier.pattern, text)
        )

    async def _command(self, task: Task, verifier: Command) -> Found:
        result = await run_check(self._gate, task, verifier.run, timeout=verifier.timeout)
        last = next((line.strip() for line in reversed(result.output.splitlines()) if line.strip()), "")
        if result.exit_code is None:
            return 0.0, last or "it was stopped", True
        return float(result.passed), f"exit code {result.exit_code}{f': {last}' if last else ''}", False


def _variables() -> dict[str, str]:
    """What commands get of the environment, and where this process finds its modules."""
    path = os.pathsep.join(os.path.abspath(entry) for entry in ("", *sys.path))
    return {**command_environment(os.environ), "PYTHONPATH": path}


def _same(wanted: str, text: str, ignore_case: bool) -> Found:
    left, right = wanted.strip(), text.strip()
    same = left.casefold() == right.casefold() if ignore_case else left == right
    return (1.0, "", False) if same else (0.0, f"it is {right[:100]!r}", False)


def _holds(wanted: str | tuple[str, ...], text: str, ignore_case: bool) -> Found:
    values = (wanted,) if isinstance(wanted, str) else wanted
    where = text.casefold() if ignore_case else text
    missing = [value for value in values if (value.casefold() if ignore_case else value) not in where]
    return (0.0, f"{missing[0][:100]!r} is not in it", False) if missing else (1.0, "", False)
