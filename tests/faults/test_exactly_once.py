"""Two sweeps at once, the endpoint's own mover beside them, and tasks that die and are retried."""

import pytest

from support.endpoint import Endpoint
from support.faults.failing_store import GATE, Moment
from support.faults.mover import Mover
from support.faults.processes import SweepProcess
from support.ledger_reader import LedgerReader
from support.recordings import QueueRow
from support.waiting import until

_TASKS_AT_THE_GATE = """
    SELECT FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND NOT granted
"""
ROWS = 20_000
NOWHERE = 40


@pytest.mark.long
@pytest.mark.parametrize(
    ("on_cluster", "on_threads"),
    [("between COPY and COMMIT", "after COMMIT"), ("after COMMIT", "between COPY and COMMIT")],
)
def test_every_message_is_delivered_once_and_accounted_for_once(
    on_cluster: Moment, on_threads: Moment, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    queues = ["Billing", "Shipping"]
    endpoint.set_up(*queues)
    endpoint.delay_many(ROWS - NOWHERE, queues)
    endpoint.delay_many(NOWHERE, ["Nowhere"])
    config = endpoint.config_file(sweep__batch_rows=100, sweep__slices=2)
    sweeps = [
        SweepProcess.start("local-cluster[2,1,1024]", on_cluster, 3, config),
        SweepProcess.start("local[2,4]", on_threads, 5, config, "sweep.slices=1"),
    ]
    for process in sweeps:
        process.await_ready()

    endpoint.fetch("SELECT pg_advisory_lock($1)", GATE)
    for process in sweeps:
        process.go()
    until(lambda: len(endpoint.fetch(_TASKS_AT_THE_GATE)) == 3)

    with Mover(endpoint.dsn, endpoint.delayed, endpoint.addresses.own_queue) as mover:
        endpoint.fetch("SELECT pg_advisory_unlock($1)", GATE)
        summaries = [process.summary() for process in sweeps]

    ours = [row.message_id for queue in queues for row in endpoint.queue_rows(queue)]
    movers = [row.message_id for row in endpoint.queue_rows(endpoint.name)]
    delayed = endpoint.fetch(f"SELECT headers, body FROM {endpoint.delayed}")
    left = [QueueRow(*row).message_id for row in delayed]
    everything = ours + movers + left
    assert len(everything) == len(set(everything)) == ROWS
    assert mover.moved == len(movers) > 0
    assert all(summary["dispatched"] > 0 for summary in summaries)

    tombstones = ledger.rows("tombstones")
    assert sorted(row.message_id for row in tombstones) == sorted(ours)
    assert sum(summary["dispatched"] for summary in summaries) == len(ours)
    failed = sum(summary["failed"] for summary in summaries)
    assert {counter.attempts for counter in endpoint.attempts().values()} <= {1}
    # The mover may take a message after it failed, and its counter is then dropped.
    assert len(left) <= failed <= NOWHERE
    for summary in summaries:
        parts = ("claimed", "skipped", "gone", "eligible_later", "held", "left")
        assert summary["found"] == sum(summary[part] for part in parts)
        assert summary["claimed"] == summary["dispatched"] + summary["failed"]
        assert summary["left"] == 0
    assert {row.sweep_id: row.dispatched for row in ledger.rows("sweeps")} == {
        summary["sweep_id"]: summary["dispatched"] for summary in summaries
    }
