"""The row of `sweeps` from what the database counted."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from duesweep.stores.values import SweepSummary


@dataclass(frozen=True, slots=True)
class Lateness:
    """Milliseconds from Due to dispatch; None where nothing was dispatched."""

    p50: int | None = None
    p95: int | None = None
    longest: int | None = None


def lateness_of(batches: Iterable[bytes]) -> Lateness:
    """The lateness of batches that `packed` has packed.

    Percentiles are values that occur: the first that at least so many in a hundred do not exceed.
    """
    late: array[int] = array("q")
    for batch in batches:
        late.frombytes(batch)
    if not late:
        return Lateness()
    ordered = sorted(late)
    return Lateness(_percentile(ordered, 50), _percentile(ordered, 95), ordered[-1])


def packed(late_ms: Iterable[int]) -> bytes:
    """Lateness of one batch: eight bytes each, in the order of this machine's."""
    return array("q", late_ms).tobytes()


def summary_of(row: Any, lateness: Lateness) -> SweepSummary:
    """The summary of a sweep that the statement `summarise` has counted."""
    start, end = aware(row.started_at), aware(row.closed_at)
    seconds = max((end - start).total_seconds(), 0.001)
    return SweepSummary(
        sweep_id=str(row.sweep_id),
        source=row.source,
        start=start,
        end=end,
        horizon=aware(row.horizon),
        found=row.found,
        claimed=row.claimed,
        dispatched=row.dispatched,
        failed=row.failed,
        exhausted=row.exhausted,
        skipped=row.skipped,
        left=row.cut,
        held_back=row.held_back,
        bytes=row.bytes,
        lateness_p50_ms=lateness.p50,
        lateness_p95_ms=lateness.p95,
        lateness_max_ms=lateness.longest,
        rows_per_second=round((row.dispatched + row.exhausted) / seconds, 1),
        outcome=_outcome(row),
        reason=row.reason,
    )


def aware(moment: datetime) -> datetime:
    """`moment` with its zone; SQL Server's types have none, and what is kept there is UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _percentile(ordered: list[int], percent: int) -> int:
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]


def _outcome(row: Any) -> str:
    if row.abandoned:
        return "abandoned"
    if not row.is_complete and row.remaining:
        return "incomplete"
    return "failures" if row.failed or row.exhausted else "done"
