"""One attempt at one row: give it a workspace, let the engine work, judge what came back, write it up as a record.

Whatever goes wrong with one row becomes its result; only cancellation passes through. When to run which row is decided
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hermes.batch.distribution import Draw
from hermes.batch.filters import judge
from hermes.batch.folder import RunFolder
from hermes.batch.plan import Item
from hermes.batch.reasoning import split_reasoning
from hermes.batch.record import Head, Outcome, Record
from hermes.batch.rollout import Engine, RolloutError, RolloutRequest, RolloutResult, RolloutState
from hermes.batch.row_tape import Twins
from hermes.batch.settings import LOCAL, BatchSettings, routing
from hermes.batch.verifiers import mean_score
from hermes.batch.workplace import Workplace
from hermes.batch.workspace import WorkspaceError
from hermes.core.clock import NO_HOLD, Hold
from hermes.core.errors import OperatorError
from hermes.core.messages import Assistant
from hermes.core.names import did_you_mean

__all__ = ["Attempts", "failure", "outcome", "write_up"]


def failure(kind: str, message: str) -> RolloutResult:
    """Return the result of a rollout that failed with `kind`."""
    state: RolloutState = "timed_out" if kind == "timeout" else "failed"
    return RolloutResult(state=state, exit_reason=kind, error=RolloutError(kind=kind, message=message))


class Attempts:
    """Runs items through an engine. `system` is the batch's system text, `prefill` its few-shot messages, `note` is
    told what of the rows' folders is left out."""

    def __init__(
        self,
        engine: Engine,
        folder: RunFolder,
        settings: BatchSettings,
        *,
        system: str = "",
        prefill: tuple[Mapping[str, str], ...] = (),
        hold: Hold = NO_HOLD,
        note: Callable[[str], object] | None = None,
    ) -> None:
        self._engine = engine
        self._settings = settings
        #: None: those who carry rollouts out are on other machines, and have workplaces of their own.
        self._workplace = None if settings.executor != LOCAL else Workplace(folder, settings, hold, note)
        self._system = system
        self._prefill = prefill
        wishes = routing(settings)
        self._extra = {"provider": wishes} if wishes else {}
        self._twins = Twins() if engine.taped else None

    def make_ready(self, items: Sequence[Item]) -> None:
        """Make what these will need and what can be made for many at once (blocking)."""
        if self._workplace is not None:
            self._workplace.make_ready([(item.index, item.rollout) for item in items if item.row.cwd is None])

    async def run(self, item: Item, draw: Draw, report: Callable[[str], None]) -> RolloutResult:
        """Run one item; failures come back as results."""
        if draw.missing and not draw.toolsets:
            near = did_you_mean(draw.missing[0], self._engine.toolsets)
            missing = f"no such toolset here: {', '.join(draw.missing)}"
            return failure("environment_unavailable", f"{missing}.{near}" if near else missing)
        request = RolloutRequest(
            key=item.key,
            index=item.index,
            rollout=item.rollout,
            attempt=item.attempt,
            prompt=item.row.prompt,
            cwd=None if item.row.cwd is None else str(Path(item.row.cwd).expanduser().absolute()),
            image=item.row.image or "",
            system="\n\n".join(part for part in (item.row.system, self._system) if part),
            before=item.row.before,
            toolsets=draw.toolsets,
            max_turns=self._settings.max_turns,
            max_tokens=self._settings.max_tokens,
            temperature=self._settings.temperature,
            top_p=self._settings.top_p,
            seed=None if self._settings.seed is None else self._settings.seed + item.rollout,
            extra=self._extra,
            reasoning_effort=self._settings.reasoning_effort,
            prefill=self._prefill,
            verifiers=item.row.verifiers,
            row=item.row.source,
            timeout=self._settings.row_timeout,
            twin=self._twins.number(item.row.prompt) if self._twins is not None else 0,
            report=report,
        )
        try:
            if self._workplace is not None:
                report("workspace")
                request = await self._workplace.enter(request, self._engine.begun())
            return await self._engine.run(request)
        except WorkspaceError as error:
            return failure("environment_unavailable", str(error))
        except OperatorError:
            raise  # no row can be carried out any more
        except Exception as error:  # a fault of one row must not end the others; it is recorded and shown
            return failure("crashed", f"{type(error).__name__}: {error}")

    async def clear(self, heads: Sequence[Head]) -> None:
        """The records of these rollouts are synced: what they would have gone on with goes."""
        for head in heads:
            self._engine.settled(head.key, head.attempt)
        if self._workplace is not None:
            left = self._workplace.left_by
            gone = [path for head in heads for path in left(head.key, head.attempt, head.index, head.rollout)]
            await self._workplace.clear(gone)

    def spent(self) -> tuple[int, float]:
        """Tokens and US dollars used by this process so far, what is set aside for calls under way included."""
        return self._engine.spent()


def outcome(result: RolloutResult) -> tuple[Outcome, str, str]:
    """Return (outcome, reason, detail): a rollout that ended by itself or at its turns is finished, and kept (empty
    reason) or rejected; anything else failed, its kind being the reason."""
    if result.state not in ("completed", "exhausted"):
        error = result.error
        kind = error.kind if error is not None else ("timeout" if result.state == "timed_out" else result.state)
        return "failed", kind, error.message if error is not None else result.exit_reason
    if _is_empty(result):
        return "failed", "empty_answer", "the model ended without an answer"
    rejection = judge(result)
    return ("finished", "", "") if rejection is None else ("finished", rejection.reason, rejection.detail)


def _is_empty(result: RolloutResult) -> bool:
    replies = [entry for entry in result.entries if isinstance(entry, Assistant)]
    if not replies:
        return True
    last = replies[-1]
    return result.state == "completed" and not last.calls and not split_reasoning(last)[1]


def write_up(item: Item, draw: Draw, result: RolloutResult, now: float) -> Record:
    """Return the record of an attempt that ended at `now` (seconds since the epoch)."""
    kind, reason, detail = outcome(result)
    usage = sum((child.usage for child in result.children), result.usage)
    return Record(
        head=Head(
            key=item.key,
            index=item.index,
            rollout=item.rollout,
            attempt=item.attempt,
            outcome=kind,
            reason=reason,
            detail=detail,
            offered=tuple(tool.name for tool in result.tools),
            tokens=usage.total,
            cost_usd=usage.cost_usd,
            at=now,
            score=mean_score(result.scores) if kind == "finished" else None,
            calls=result.calls,
            denied=sum(result.denied.values()),
        ),
        source=item.row.source,
        toolsets=draw.toolsets,
        result=result,
    )
