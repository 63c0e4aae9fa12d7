"""Ticks of a watcher, as its loop and its observers see them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from duesweep.core.account import SweepReport
from duesweep.core.errors import StoreError
from duesweep.report.idle import NextDue
from duesweep.watch.tick import Tick

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
