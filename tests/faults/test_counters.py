"""Retry counters of messages that others took."""

from duesweep.sweep.sweep import Engine
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep


def test_counter_of_a_message_that_is_gone_goes_with_the_next_sweep(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    taken, kept = endpoint.delay_many(2, ["Nowhere"])
    run_sweep(endpoint, engine)
    assert set(endpoint.attempts()) == {taken, kept}
    endpoint.execute(f"DELETE FROM {endpoint.delayed} WHERE id = $1", taken)

    run_sweep(endpoint, engine)

    assert set(endpoint.attempts()) == {kept}
    assert {row.message_key for row in ledger.rows("retries")} == {kept}
