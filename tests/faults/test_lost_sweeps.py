"""A sweep that another process closed or settled is still reported by its own process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from duesweep.core.account import SweepReport, SweepSummary
from duesweep.core.errors import StoreError, SweepClosedError
from duesweep.core.result import exit_code_of
from duesweep.ledger.ledger import Ledger
from duesweep.operations.watch import Ticker
from duesweep.stores.journal import Journal
from duesweep.stores.sweeps import SweepRun
from duesweep.sweep.open_sweep import Shown
from duesweep.sweep.stop import Stop
from support.endpoint import Endpoint
from support.sweeps import end_leases, run_sweep

_RETRY = {"retry__max_attempts": 2, "retry__initial_seconds": 3_600}
_BY_DESTINATION = {("Billing", "dispatched"): 7, ("Nowhere", "failed"): 2}


@pytest.fixture
def due(endpoint: Endpoint) -> Endpoint:
    """7 messages to deliver, and 2 that fail."""
    endpoint.set_up("Billing").delay_many(7)
    endpoint.delay_many(2, ["Nowhere"])
    return endpoint.having(**_RETRY)


def _after_dispatch(do: Callable[[], object]) -> Shown:
    @contextmanager
    def watch(_: SweepRun, __: int) -> Iterator[None]:
        yield
        do()

    return watch


def _outcomes(report: SweepReport) -> tuple[int, int, int]:
    return report.dispatched, report.failed, report.exhausted


def _lose(due: Endpoint) -> None:
    """End the driver's session, and let another process take its sweep for dead."""
    due.server.kill_sessions()
    end_leases(due)
    other = run_sweep(due)
    assert _outcomes(other) == (0, 0, 0)


def test_sweep_that_another_process_settled_reports_what_it_delivered(due: Endpoint) -> None:
    try:
        report = run_sweep(due, shown=_after_dispatch(lambda: _lose(due)))
    except SweepClosedError as error:
        pytest.fail(f"It reports nothing: {error}")

    assert _outcomes(report) == (7, 2, 0)
    assert report.by_destination == _BY_DESTINATION
    assert report.lateness_max_ms is not None
    assert report.lateness_max_ms > timedelta(seconds=50) / timedelta(milliseconds=1)
    assert (report.outcome, exit_code_of(report)) == ("abandoned", 4)
    assert len(due.queue_rows("Billing")) == 7


def test_sweep_is_settled_after_the_dead_ones_that_it_finds_at_its_end(
    due: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen settler of an older one may write older retry counters when it thaws."""
    settled, write = [], Ledger.write_sweep

    def written(
        ledger: Ledger, journal: Journal, summary: SweepSummary, *more: Any, **rest: Any
    ) -> None:
        settled.append(summary.sweep_id)
        write(ledger, journal, summary, *more, **rest)

    def leave_one() -> None:
        with due.context().store.open_driver() as dead:
            left.append(str(dead.sweeps.open(dead.due.horizon()).sweep_id))

    left: list[str] = []
    monkeypatch.setattr(Ledger, "write_sweep", written)

    report = run_sweep(due, shown=_after_dispatch(leave_one))

    assert settled == [*left, report.sweep_id]


def test_sweep_whose_store_went_away_is_counted_with_the_next_one(due: Endpoint) -> None:
    def go_away() -> None:
        raise StoreError("The store is away", transient=True)

    stop = Stop()
    with suppress(StoreError):
        run_sweep(due, stop=stop, shown=_after_dispatch(go_away))
    # Another process has settled it. Nothing more is due.
    assert _outcomes(run_sweep(due)) == (0, 0, 0)

    ticker = Ticker(due.context(), stop, has_spark=False)
    first, second = ticker.tick(), ticker.tick()
    ticker.close()

    assert first.report is not None
    assert _outcomes(first.report) == (7, 2, 0)
    assert first.report.by_destination == _BY_DESTINATION
    assert (first.report.left, first.report.outcome) == (0, "failures")
    assert (second.outcome, second.report) == ("idle", None)
