"""A look at a PostgreSQL store sorts nothing, and no mover waits for it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import psycopg
import pytest

from duesweep.core.change import DueSpan
from duesweep.drivers.postgresql import session as driver
from duesweep.stores.base import OperatorDriver
from duesweep_testing.builders import delayed_row
from duesweep_testing.contract.stores import steps
from support.contract.store_subjects import DelayedTableUnderTest, OpenEndpoint
from support.faults.mover import Mover
from support.postgresql_server import PostgreSqlEndpoint
from support.waiting import until

MANY = 5_000
_LOCKS = (
    "SELECT DISTINCT l.locktype, l.mode FROM pg_locks l JOIN pg_stat_activity s USING (pid)"
    " WHERE s.application_name LIKE 'duesweep,%' AND s.datname = current_database()"
    " AND l.locktype <> 'virtualxid'"
)


@pytest.fixture(params=["postgresql", "sql-persistence"])
def full(
    request: pytest.FixtureRequest, open_endpoint: OpenEndpoint
) -> Iterator[PostgreSqlEndpoint]:
    """An endpoint with many messages, which all came due at the same time."""
    with open_endpoint("UTC") as in_schema:
        endpoint = in_schema.of_kind(request.param)
        endpoint.set_up("Billing").delay_many(MANY)
        yield endpoint


def test_look_holds_no_lock_but_the_weakest_and_a_mover_moves_meanwhile(
    full: PostgreSqlEndpoint,
) -> None:
    store = DelayedTableUnderTest(full).store
    with store.open_driver() as session:
        with session.people.look(DueSpan()) as pages:
            next(pages)
            assert full.fetch(_LOCKS) == [("relation", "AccessShareLock")]

            with psycopg.connect(full.dsn, autocommit=True) as other:
                # As soon as it would wait for anything, it fails.
                other.execute("SET lock_timeout = 1")
                done = other.execute(f"DELETE FROM {full.delayed}".encode())
                assert done.rowcount == MANY

            # The cursor still reads the rows that were there when it began.
            assert sum(map(len, pages)) == MANY - 1_000
        assert session.people.count_waiting([]) == [0]


def test_nservicebus_moves_all_while_a_look_is_open(open_endpoint: OpenEndpoint) -> None:
    with open_endpoint("UTC") as endpoint:
        endpoint.set_up("Billing").delay_many(1_500)
        store = DelayedTableUnderTest(endpoint).store
        with store.open_driver() as session, session.people.look(DueSpan()) as pages:
            next(pages)
            queue = endpoint.addresses.parse("Billing")
            with Mover(endpoint.dsn, endpoint.delayed, queue, 0) as mover:
                until(lambda: mover.moved == 1_500)


def test_first_page_needs_no_sort(
    full: PostgreSqlEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Out of order in the table: then a sort would cost less than the whole index.
    due = {"postgresql": "due", "sql-persistence": '"Time"'}[full.kind]
    full.execute(f"UPDATE {full.delayed} SET {due} = {due} + random() * interval '1 hour'")
    full.execute(f"ANALYZE {full.delayed}")
    store = DelayedTableUnderTest(full).store
    original = driver.statement

    def explained(dialect: str, name: str) -> str:
        text = original(dialect, name)
        return f"EXPLAIN DECLARE look CURSOR FOR {text}" if name == "look" else text

    monkeypatch.setattr(driver, "statement", explained)
    with (
        store.open_driver() as session,
        session.people._stream(is_ordered=True) as stream,  # noqa: SLF001 - its plan is not to be seen
    ):
        now = datetime.now(UTC)
        whole = stream.rows("look", zone="UTC", first=None, end=None)
        span = stream.rows("look", zone="UTC", first=now - timedelta(days=1), end=now)

    for lines in ([line for (line,) in plan] for plan in (whole, span)):
        assert any("Index Scan" in line for line in lines), lines
        assert not any("Sort" in line or "Seq Scan" in line for line in lines), lines


@pytest.mark.parametrize(
    "change", [datetime(2027, 3, 14, 7, tzinfo=UTC), datetime(2027, 11, 7, 6, tzinfo=UTC)]
)
def test_span_is_that_of_instants_where_clocks_change_within_it(
    open_endpoint: OpenEndpoint, change: datetime
) -> None:
    """New York's clocks go forward in March; in November they show an hour twice, so that the
    order of Dues is not the order of the instants.
    """
    with open_endpoint("America/New_York") as endpoint:
        subject = DelayedTableUnderTest(endpoint.set_up())
        dues = [change + timedelta(minutes=minutes) for minutes in range(-150, 151, 30)]
        subject.load([delayed_row(due=due) for due in dues])

        with subject.store.open_driver() as look:
            instants = _dues(look, DueSpan())
            for start, end in pairwise(sorted(set(instants))):
                found = _dues(look, DueSpan(start, end))
                assert found == [start] * instants.count(start)
    assert len(instants) == len(dues)


def test_row_is_shown_whose_due_no_clock_of_python_knows(open_endpoint: OpenEndpoint) -> None:
    with open_endpoint("America/New_York") as endpoint:
        subject = DelayedTableUnderTest(endpoint.set_up())
        subject.load([steps.row(subject) for _ in range(4)])
        keys = endpoint.waiting()
        for key, due in zip(keys, ("4713-01-01 BC", "294276-12-31", "-infinity"), strict=False):
            endpoint.execute(f"UPDATE {endpoint.delayed} SET due = '{due}' WHERE id = '{key}'")

        with subject.store.open_driver() as look, look.people.look(DueSpan()) as pages:
            shown = [one for page in pages for one in page]

    assert [one.message.key for one in shown] == [keys[2], keys[0], keys[3], keys[1]]
    assert [one.due and one.due.year for one in shown] == [None, 1, shown[2].due.year, 9999]


def _dues(look: OperatorDriver, span: DueSpan) -> list[datetime]:
    with look.people.look(span) as pages:
        return [one.due for page in pages for one in page if one.due is not None]
