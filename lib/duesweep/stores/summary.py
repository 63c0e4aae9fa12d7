"""The row of `sweeps` from the journal."""

import json
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from duesweep.core.account import SliceEnd, SweepSummary, close_slices, end_of, most_important


@dataclass(frozen=True, slots=True)
class Lateness:
    """Milliseconds from Due to dispatch; None if nothing was dispatched."""

    p50: int | None = None
    p95: int | None = None
    longest: int | None = None


def lateness_of(batches: Iterable[bytes]) -> Lateness:
    """The lateness of batches that `packed` has packed.

    Percentiles are values that occur: the first that at least this many in a hundred do not exceed.
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


def summary_of(
    row: Any, totals: Sequence[Any], ends: Sequence[Any], lateness: Lateness
) -> SweepSummary:
    """The summary of a sweep: its row, the work of its batches (a row a slice), and the ends of its
    slices as their tasks journalled them, oldest first.
    """
    claimed = {t.slice: t.dispatched + t.failed + t.exhausted for t in totals}
    ended: dict[int, list[SliceEnd]] = {}
    for each in ends:
        ended.setdefault(each.slice, []).append(end_of(each))
    closed = close_slices([int(wanted) for wanted in planned_slices(row)], claimed, ended)
    account = closed.account
    start, end = aware(row.started_at), aware(row.closed_at)
    seconds = max((end - start).total_seconds(), 0.001)
    dispatched, exhausted = _sum(totals, "dispatched"), _sum(totals, "exhausted")
    return SweepSummary(
        sweep_id=str(row.sweep_id),
        source=row.source,
        start=start,
        end=end,
        horizon=aware(row.horizon),
        found=account.given,
        claimed=account.claimed,
        dispatched=dispatched,
        failed=_sum(totals, "failed"),
        exhausted=exhausted,
        skipped=account.skipped,
        gone=account.gone,
        eligible_later=account.later,
        held=account.held,
        left=account.left + account.unexplained,
        over_limit=row.over_limit,
        bytes=_sum(totals, "bytes"),
        lateness_p50_ms=lateness.p50,
        lateness_p95_ms=lateness.p95,
        lateness_max_ms=lateness.longest,
        rows_per_second=round((dispatched + exhausted) / seconds, 1),
        outcome=_outcome(row, closed, has_failures=dispatched < account.claimed),
        reason=_reason(row, closed),
        engine=row.engine,
        breakers=most_important(closed.breakers),
        careful_batches=closed.careful_batches,
    )


def planned_slices(row: Any) -> Sequence[int]:
    """How many messages each slice of a sweep was planned with, from its row of `read_sweep`."""
    return row.planned if isinstance(row.planned, list) else list(json.loads(row.planned))


def _sum(totals: Sequence[Any], name: str) -> int:
    return sum(int(getattr(row, name)) for row in totals)


def aware(moment: datetime) -> datetime:
    """`moment` with its zone; SQL Server's types have none, and times there are in UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _percentile(ordered: list[int], percent: int) -> int:
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]


def _outcome(row: Any, closed: SliceEnd, *, has_failures: bool) -> str:
    if row.abandoned:
        return "abandoned"
    account, is_complete = closed.account, closed.reason is None
    is_cut = not is_complete and row.remaining
    if is_cut or row.reason is not None or account.unexplained:
        return "incomplete"
    was_stopped = row.stop_at is not None and row.stop_at <= row.closed_at
    # Messages that were not even planned are not in the account, but remain.
    if was_stopped and (account.left or row.remaining):
        return "stopped"
    if account.left and is_complete:
        return "incomplete"
    return "failures" if has_failures else "done"


def _reason(row: Any, closed: SliceEnd) -> str | None:
    account = closed.account
    if row.reason is None and closed.reason is None and account.unexplained:
        return (
            f"{account.unexplained} of {account.given} messages that were planned are not "
            "accounted for; please report this, with the journal's rows and the logs"
        )
    return row.reason or closed.reason
