"""Two sweeps at once, the endpoint's own mover at the same time, and tasks that die and are
retried.
"""

from pathlib import Path

import pytest

from support.endpoint import Endpoint
from support.faults.mover import Mover
from support.ledger_reader import LedgerReader
from support.recordings import QueueRow
from support.trials.points import RAISE, Plan
from support.trials.processes import SparkDriver
from support.waiting import until

ROWS = 20_000
NOWHERE = 40
_CLUSTER, _THREADS = "local-cluster[2,1,1024]", "local[2,4]"
_COMMIT = "COMMIT of TaskSession.transaction"


@pytest.mark.long
@pytest.mark.parametrize(
    "points",
    [
        {_CLUSTER: f"before {_COMMIT}", _THREADS: f"after {_COMMIT}"},
        {_CLUSTER: f"after {_COMMIT}", _THREADS: f"before {_COMMIT}"},
    ],
    ids=["before COMMIT on a cluster", "after COMMIT on a cluster"],
)
def test_every_message_is_delivered_once_and_accounted_for_once(
    points: dict[str, str], endpoint: Endpoint, ledger: LedgerReader, tmp_path: Path
) -> None:
    queues = ["Billing", "Shipping"]
    endpoint.set_up(*queues)
    endpoint.delay_many(ROWS - NOWHERE, queues)
    endpoint.delay_many(NOWHERE, ["Nowhere"])
    # A batch is slow, so the later sweep also finds some messages.
    slow = "PERFORM pg_sleep(0.05); RETURN NULL;"
    endpoint.server.add_trigger("BEFORE INSERT", '"Billing"', slow, each="STATEMENT")
    file = endpoint.config_file(sweep__batch_rows=100, sweep__slices=2, sweep__spark_from=0)
    plans: list[Plan] = []
    drivers = []
    for master, point in points.items():
        folder = tmp_path / master.partition("[")[0]
        folder.mkdir()
        plans.append(Plan(str(folder), point, occurrence=3, action=RAISE))
        drivers.append(SparkDriver(folder, master))
    try:
        for driver in drivers:
            driver.await_warm()
        commands = []
        # A cluster takes its time to begin.
        for driver, plan in zip(drivers, plans, strict=True):
            commands.append(driver.start(plan, ["sweep", "--json", "--config", str(file)]))
            until(lambda: len(_batches_by_sweep(endpoint)) == len(commands))
        with Mover(endpoint.dsn, endpoint.delayed, endpoint.addresses.own_queue) as mover:
            ended = [command.wait(600) for command in commands]
    finally:
        for driver in drivers:
            driver.end()

    assert [plan.fired_point for plan in plans] == list(points.values())
    summaries = [each.document for each in ended]
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
        parts = ("claimed", "skipped", "gone", "eligible_later", "left")
        assert summary["found"] == sum(summary[part] for part in parts)
        assert summary["claimed"] == summary["dispatched"] + summary["failed"]
        assert summary["left"] == 0
    assert {row.sweep_id: row.dispatched for row in ledger.rows("sweeps")} == {
        summary["sweep_id"]: summary["dispatched"] for summary in summaries
    }


def _batches_by_sweep(endpoint: Endpoint) -> list[object]:
    return endpoint.fetch("SELECT DISTINCT sweep_id FROM duesweep_journal WHERE kind = 'batch'")
