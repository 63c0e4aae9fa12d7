"""Runs, as monitoring and the observers of a watcher get them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from duesweep.core.account import BreakerReport, SweepReport
from duesweep.core.errors import StoreError
from duesweep.operations.look import NextDue, StillDue
from duesweep.operations.run import Run, failed_run

SOURCE = "nsb/public.Sales.Orders.Delayed"
AT = datetime(2026, 11, 23, 8, tzinfo=UTC)


def report(**changes: Any) -> SweepReport:
    """A sweep's report: 7 messages dispatched, 2 failed, 1 exhausted, 3 left."""
    values: dict[str, Any] = dict.fromkeys(
        ("skipped", "gone", "eligible_later", "held", "over_limit"), 0
    )
    values |= {"sweep_id": "5", "source": SOURCE, "start": AT, "end": AT, "horizon": AT}
    values |= {"found": 13, "claimed": 10, "dispatched": 7, "failed": 2, "exhausted": 1, "left": 3}
    values |= {"bytes": 91, "rows_per_second": 8.0, "outcome": "failures", "reason": None}
    values |= {"lateness_p50_ms": 250, "lateness_p95_ms": 1_500, "lateness_max_ms": 61_000}
    return SweepReport(**(values | changes))


def run(exit_code: int = 0, *, at: datetime = AT, **changes: Any) -> Run:
    """A run of the source, by default with that report."""
    values: dict[str, Any] = {"source": SOURCE, "seconds": 1.25, "report": report()}
    values |= {"outcome": "failures", "due": StillDue(messages=4, oldest_seconds=12.5)}
    return Run(ended=at, exit_code=exit_code, **(values | changes))


def open_breaker(state: str = "open") -> BreakerReport:
    """A breaker that opened in a sweep."""
    return BreakerReport("Billing", state, AT.isoformat(), 30.0, 3, "no answer")


NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
REPORT = SweepReport(
    sweep_id="00000000-0000-0000-0000-000000000001", source="nsb", start=NOW, end=NOW,
    horizon=NOW, found=3, claimed=3, dispatched=3, failed=0, exhausted=0, skipped=0, gone=0,
    eligible_later=0, held=0, left=0, over_limit=0, bytes=30, lateness_p50_ms=5,
    lateness_p95_ms=6, lateness_max_ms=7, rows_per_second=1.0, outcome="done", reason=None,
)  # fmt: skip
MOVED = Run("nsb", "done", report=REPORT)
MOVED_NOTHING = replace(MOVED, report=replace(REPORT, claimed=0, dispatched=0, held=3))
LOCKED = replace(MOVED, report=replace(REPORT, claimed=0, dispatched=0, skipped=3))
_FULL = "the disk is full"
UNWRITTEN = replace(MOVED, report=replace(REPORT, ledger_error=_FULL), error=_FULL, exit_code=4)
NOTHING = Run("nsb", "idle")
IDLE = replace(NOTHING, next_due=NextDue(NOW + timedelta(seconds=0.5), NOW))
UNREACHED = StoreError("no server answers", transient=True)
FAILED = failed_run("nsb", UNREACHED)
