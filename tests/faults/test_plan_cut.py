"""The session that reads a slice's keys ends early: keys that were not read count as left."""

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from duesweep.core.errors import ExitCode
from duesweep.stores.base import Slices, SweepRun
from duesweep.stores.due import SqlDriver
from duesweep.sweep import spark as engine_module
from duesweep.sweep.spark import SparkEngine
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import exit_code, run_sweep

# A thousand keys to a row, so four rows for each of two slices.
MESSAGES = 8_000
# Ends the session that reads this row, as an administrator or a time-out would, in so many of the
# runs of its task as the sequence has numbers left.
_END_SESSION = """
SELECT slice, claim_keys, sizes, total
FROM (SELECT q.*, row_number() OVER (PARTITION BY slice) AS number FROM ({query}) q) numbered
WHERE slice <> 0 OR number <> {row} OR nextval('kills') > {kills}
   OR pg_terminate_backend(pg_backend_pid())
"""


@pytest.fixture
def swept(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Endpoint:
    """An endpoint with due messages; each row of keys is fetched by itself."""
    monkeypatch.setattr(engine_module, "_FETCH_ROWS", 1)
    endpoint.set_up("Billing", "Shipping")
    endpoint.delay_many(MESSAGES, ("Billing", "Shipping"))
    endpoint.execute("CREATE SEQUENCE kills")
    return endpoint


def end_session(monkeypatch: pytest.MonkeyPatch, row: int, kills: int) -> None:
    plan = SqlDriver.plan

    def cut(session: SqlDriver, run: SweepRun, slices: int) -> Slices:
        planned = plan(session, run, slices)
        query = _END_SESSION.format(query=planned.claim_keys_query, row=row, kills=kills)
        return replace(planned, claim_keys_query=query)

    monkeypatch.setattr(SqlDriver, "plan", cut)


@pytest.mark.parametrize("row", [1, 3, 4], ids=["first row", "middle row", "last row"])
def test_slice_whose_keys_were_never_read_whole_is_left_and_the_sweep_is_incomplete(
    row: int,
    spark: SparkSession,
    swept: Endpoint,
    ledger: LedgerReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = swept.config(sweep__slices=2)
    with monkeypatch.context() as patch:
        end_session(patch, row, kills=1_000)
        cut = run_sweep(config, SparkEngine(spark))

    assert (cut.outcome, exit_code(cut)) == ("incomplete", ExitCode.WORK_LEFT)
    assert cut.reason is not None
    assert "Spark ended the job" in cut.reason
    assert (cut.found, cut.skipped, cut.gone, cut.eligible_later) == (MESSAGES, 0, 0, 0)
    assert cut.found == cut.dispatched + cut.left
    assert cut.left == len(swept.waiting()) > 0

    rest = run_sweep(config, SparkEngine(spark))

    assert (rest.outcome, rest.dispatched) == ("done", cut.left)
    arrived = [row for queue in ("Billing", "Shipping") for row in swept.queue_rows(queue)]
    assert len(arrived) == MESSAGES
    assert swept.waiting() == []
    assert len({row.message_key for row in ledger.rows("tombstones")}) == MESSAGES
    assert len(ledger.rows("tombstones")) == MESSAGES


def test_slice_whose_second_run_reads_all_keys_is_complete(
    spark: SparkSession, swept: Endpoint, ledger: LedgerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_session(monkeypatch, row=3, kills=1)

    summary = run_sweep(swept, SparkEngine(spark), sweep__slices=2)

    assert swept.fetch("SELECT last_value FROM kills")[0].last_value >= 1
    assert (summary.outcome, summary.dispatched, summary.left) == ("done", MESSAGES, 0)
    assert (summary.skipped, summary.found) == (0, MESSAGES)
    assert swept.waiting() == []
    assert len(ledger.rows("tombstones")) == MESSAGES
