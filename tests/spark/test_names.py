"""Names that PostgreSQL allows, through plan, dispatch, settle and the ledger."""

import pytest

from duesweep.sweep.sweep import Engine
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep

NAMES = {
    "a schema with a space": ("Sales.Orders", "my schema", None),
    "an endpoint with dots and quotes": ('Sales."Ord\'ers".v2', "public", None),
    "a table of 63 characters": ("Sales", "public", "D" * 63),
    "percent, backslash and braces": ("100%s\\{due}", "s%d{0}", None),
}


@pytest.mark.parametrize("case", NAMES)
def test_odd_names_are_swept_and_accounted_for(
    case: str, engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    name, schema, delayed = NAMES[case]
    odd = endpoint.named(name, schema, delayed).set_up()
    own, ugly = odd.delay(None), odd.delay('"we""ird.%s {} \'"')
    odd.create_queue('"we""ird.%s {} \'"')
    failed = odd.delay("No\\'where")

    context = odd.context()
    summary = run_sweep(context, engine)

    assert (summary.dispatched, summary.failed) == (2, 1)
    assert len(odd.queue_rows(str(odd.addresses.own_queue))) == 1
    tombstones = {row.message_key: row for row in ledger.rows("tombstones")}
    assert set(tombstones) == {own, ugly}
    assert {row.source for row in tombstones.values()} == {context.store.source}
    assert [row.message_key for row in ledger.rows("retries")] == [failed]

    # The mirror of this source, and of no other, is replaced.
    odd.create_queue("No\\'where")
    odd.execute(f"UPDATE {odd.own_table('attempts')} SET next_attempt_at = now()")
    again = run_sweep(context, engine)
    assert (again.dispatched, ledger.rows("retries")) == (1, [])
