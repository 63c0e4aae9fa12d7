"""Runs and reports of sweeps, as monitoring is told of them."""

from datetime import UTC, datetime
from typing import Any

from duesweep.core.account import BreakerReport, SweepReport
from duesweep.telemetry.run import Due, Run

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
