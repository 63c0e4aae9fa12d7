"""Limits on a real server: the messages of each second, from many slices and from two sweeps."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from duesweep.core.policy import BatchSize, RateLimit, RateLimits, slicing
from duesweep.stores.due import Due, Horizon, Slices
from duesweep.sweep.claim_keys import read_claim_keys
from duesweep.sweep.job import Dispatched, Job, SweepContext
from duesweep.sweep.limits import dispatch_slice
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep

PER_SECOND, SLICES = 500, 4


@dataclass(frozen=True, slots=True)
class _ThreadsEngine:
    """Runs all slices at once, each in a thread; a sweep begins when all have planned."""

    planned: threading.Barrier
    name: str = "in-process"
    spark: None = None

    def plan(self, due: Due, horizon: Horizon, context: SweepContext) -> Slices:
        return due.plan(horizon, slicing(context.slices, context.batch_size.rows))

    def dispatch(self, due: Due, plan: Slices, job: Job) -> Dispatched:
        slices = [read_claim_keys(due.claim_keys(plan, i)) for i in range(len(plan.planned))]
        assert len(slices) == SLICES
        self.planned.wait(60)
        with ThreadPoolExecutor(SLICES) as pool:
            list(pool.map(lambda i: dispatch_slice(job, i, slices[i]), range(SLICES)))
        return Dispatched()

    def close(self) -> None:
        """Each slice has its own sessions."""


@pytest.mark.parametrize("sweeps", [1, 2])
@pytest.mark.parametrize(
    "seconds", [3, pytest.param(11, marks=pytest.mark.long)], ids=lambda s: f"{s}s"
)
def test_no_second_gets_more_than_the_limit_nor_on_a_quiet_machine_much_less(
    endpoint: Endpoint, ledger: LedgerReader, sweeps: int, seconds: int
) -> None:
    endpoint.set_up("Billing", "Shipping")
    messages = PER_SECOND * seconds
    endpoint.delay_many(messages)
    endpoint.delay_many(100, ["Shipping"])
    context = replace(
        endpoint.context(),
        slices=SLICES,
        batch_size=BatchSize(rows=100),
        rate_limits=RateLimits((RateLimit("Billing", PER_SECOND),), endpoint.name),
    )

    with _arrivals(endpoint) as arrivals:
        engine = _ThreadsEngine(threading.Barrier(sweeps))
        with ThreadPoolExecutor(sweeps) as pool:
            done = list(pool.map(lambda _: run_sweep(context, engine), range(sweeps)))

    assert {each.outcome for each in done} == {"done"}
    assert sum(each.dispatched for each in done) == messages + 100
    assert len(ledger.rows("tombstones")) == messages + 100
    # The first second begins with the first message, and the last one is not full.
    by_second = [count for _, count in sorted(arrivals.items())]
    whole = by_second[: seconds - 1]
    assert len(whole) == seconds - 1
    # While other tests keep the machine busy, slices miss their turns, and the server stands still.
    is_quiet = seconds > 10
    assert all(count <= PER_SECOND * (1 if is_quiet else 1.1) for count in whole), by_second
    if is_quiet:
        assert all(count >= 450 for count in whole), by_second
    assert endpoint.waiting() == []


@contextmanager
def _arrivals(endpoint: Endpoint) -> Iterator[Counter[int]]:
    """How many messages arrive in Billing in each second from the first on, known at the end."""
    queue = endpoint.server.sql(endpoint.schema, "Billing")
    endpoint.execute(f"ALTER TABLE {queue} ADD arrived timestamptz DEFAULT clock_timestamp()")
    found: Counter[int] = Counter()
    yield found
    rows = endpoint.server.fetch(f"SELECT extract(epoch FROM arrived)::float8 AS at FROM {queue}")
    times = [row.at for row in rows]
    found.update(int(at - min(times)) for at in times)
