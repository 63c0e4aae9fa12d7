"""Retry counters of messages that others took."""

from duesweep import wiring
from duesweep.engines.base import Engine
from duesweep.sweep import sweep
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader


def test_counter_of_a_message_that_is_gone_goes_with_the_next_sweep(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    taken, kept = endpoint.delay_many(2, ["Nowhere"])
    context = wiring.sweep_context(endpoint.config())
    sweep(engine, context)
    assert set(endpoint.attempts()) == {taken, kept}
    endpoint.execute(f"DELETE FROM {endpoint.delayed} WHERE id = $1", taken)

    sweep(engine, context)

    assert set(endpoint.attempts()) == {kept}
    assert {row.message_key for row in ledger.rows("retries")} == {kept}
