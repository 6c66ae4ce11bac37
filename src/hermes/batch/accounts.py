"""The accounts of a run: every rollout of every row is kept, rejected, failed or pending, and nothing else.

Counted twice by different ways, the records on one side and the rows on the other, so that a rollout that was lost or
doubled is found here and not by whoever trains on the rows. Also: which failures may be overlooked, and which rejected
rollouts are to be run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from hermes.batch.folder import RunFolder
from hermes.batch.index import RecordIndex, Slots
from hermes.batch.progress import Progress
from hermes.batch.rowtable import RowTable
from hermes.core.errors import OperatorError, UsageError

__all__ = ["NO_FAILURE", "Allowed", "balance", "read_allowed", "redo_reasons", "rejected"]


def balance(progress: Progress, rows: RowTable, rollouts: int, index: RecordIndex) -> None:
    """Check that kept + rejected + failed + pending = rows × rollouts.

    Raises:
        OperatorError: they do not; the text has the numbers. It is a fault of this program.
    """
    ended = index.ended_of(rows, range(rows.present))
    pending = rows.present * rollouts - ended
    ended += index.ended_of(rows, range(rows.present, len(rows)))
    kept, rejected, failed = progress.kept, progress.rejected.total(), progress.failed.total()
    if kept + rejected + failed == ended and progress.pending == pending and ended + pending == progress.total:
        return
    raise OperatorError(
        f"the accounts do not add up: kept {kept} + rejected {rejected} + failed {failed} + pending {progress.pending} "
        f"of {progress.total}, but the rows have {ended} ended and {pending} pending rollouts. This is a fault of "
        "hermes: report it with run.json and rows.tsv. The records stand; nothing was taken out."
    )


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """How many failed rollouts do not make a run a failed one: a number, or a `share` of all (0 to 1)."""

    count: int = 0
    share: float = 0.0

    def covers(self, failed: int, total: int) -> bool:
        """Whether so many may have failed."""
        return failed <= self.count or failed <= self.share * total


#: No failure may be overlooked.
NO_FAILURE = Allowed()


def read_allowed(text: str) -> Allowed:
    """Read `N` or `N%`.

    Raises:
        UsageError: it is neither.
    """
    number = text.strip()
    try:
        if number.endswith("%"):
            share = float(number[:-1]) / 100
            if 0 <= share <= 1:
                return Allowed(share=share)
        elif int(number) >= 0:
            return Allowed(count=int(number))
    except ValueError:
        pass
    raise UsageError(f"--allow_failed={text} is neither a number of rows, as 3, nor a share of them, as 2%.")


def redo_reasons(wishes: Iterable[str]) -> frozenset[str]:
    """The reasons of `rejected:REASON,…`; `rejected` or `rejected:all` are all of them.

    Raises:
        UsageError: something else is to be done again.
    """
    reasons = set()
    for wish in wishes:
        kind, _, reason = wish.partition(":")
        if kind != "rejected":
            raise UsageError(
                f"--redo={wish} is not understood: write rejected:REASON (or rejected:all); for failures there is "
                "--retry=KINDS."
            )
        reasons.add(reason or "all")
    return frozenset(reasons)


class _Rejected(msgspec.Struct, frozen=True):
    prompt_index: int
    reason: str = ""
    rollout_index: int = 0


def rejected(folder: RunFolder, index: RecordIndex, reasons: Collection[str]) -> Slots | None:
    """The rollouts that were rejected for one of `reasons`, by what stands in rejected.jsonl; None without reasons.

    Raises:
        UsageError: none was; the reasons there are get named.
        OperatorError: the file cannot be read.
    """
    if not reasons:
        return None
    there: Counter[str] = Counter()
    chosen, last = Slots(index.rollouts), index.last_index()
    path = folder.path / "rejected.jsonl"
    decoder = msgspec.json.Decoder(_Rejected)
    try:
        with path.open("rb") as file:
            for line in file:
                row = decoder.decode(line)
                there[row.reason] += 1
                if ("all" in reasons or row.reason in reasons) and row.prompt_index <= last:
                    chosen.add(row.prompt_index, row.rollout_index)
    except FileNotFoundError:
        pass  # nothing has been merged yet, so nothing was rejected
    except (OSError, msgspec.DecodeError) as error:
        raise OperatorError(f"{path} cannot be read ({error}); `hermes batch merge` makes it anew.") from error
    if not chosen:
        known = ", ".join(f"{reason} ({count})" for reason, count in sorted(there.items()))
        raise UsageError(f"no row was rejected for {', '.join(sorted(reasons))}. Reasons there are: {known or 'none'}.")
    return chosen
