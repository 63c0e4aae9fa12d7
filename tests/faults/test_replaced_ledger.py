"""Another ledger takes the place of a source's while a sweep is written."""

import pytest

from duesweep.core.policy import LedgerWriter
from duesweep.ledger.ledger import open_ledger
from duesweep.stores.journal import SqlJournal
from duesweep.sweep.sweep import Engine
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import exit_code, run_sweep


def test_ledger_gets_all_rows_of_the_sweep_when_it_is_back(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay()
    run_sweep(endpoint)
    root, away, other = (ledger.root.with_name(name) for name in ("ledger", "away", "other"))
    open_ledger(str(other), LedgerWriter.DELTA_RS, None).create()
    writer = "delta-rs" if engine.spark is None else "spark"
    config = endpoint.config(ledger__writer=writer)
    endpoint.delay_many(3)
    seal = SqlJournal.seal

    def seal_and_replace(journal: SqlJournal, sweep_id: object) -> None:
        seal(journal, sweep_id)  # type: ignore[arg-type]
        root.rename(away)
        other.rename(root)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlJournal, "seal", seal_and_replace)
        report = run_sweep(config, engine)
    root.rename(other)
    away.rename(root)

    assert "was replaced by" in str(report.ledger_error)
    assert (report.dispatched, exit_code(report)) == (3, 4)
    assert ledger.count("tombstones") == 1
    assert run_sweep(config, engine).found == 0
    assert ledger.count("tombstones") == len(endpoint.queue_rows("Billing")) == 4
    assert sorted(row.dispatched for row in ledger.rows("sweeps"))[-2:] == [1, 3]
    assert endpoint.fetch("SELECT FROM duesweep_journal") == []
