"""Reports of sweeps, and ticks of a watcher, as monitoring and observers are told of them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from duesweep.api.look import NextDue
from duesweep.core.account import BreakerReport, SweepReport
from duesweep.core.errors import StoreError
from duesweep.telemetry.run import Due, Run
from duesweep.watch.tick import Tick

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
    values["due"] = Due(messages=4, oldest_seconds=12.5)
    return Run(at=at, exit_code=exit_code, **(values | changes))


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
MOVED = Tick(REPORT)
MOVED_NOTHING = Tick(replace(REPORT, claimed=0, dispatched=0, held=3))
LOCKED = Tick(replace(REPORT, claimed=0, dispatched=0, skipped=3))
UNWRITTEN = Tick(replace(REPORT, ledger_error="the disk is full"), ledger_error="the disk is full")
IDLE = Tick(next_due=NextDue(NOW + timedelta(seconds=0.5), NOW))
UNREACHED = StoreError("no server answers", transient=True)
