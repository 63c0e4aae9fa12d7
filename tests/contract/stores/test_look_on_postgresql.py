"""A look at a PostgreSQL store sorts nothing, and no mover waits for it."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import psycopg
import pytest

from duesweep.core.waiting import DueSpan
from duesweep.drivers.postgresql import statements as driver
from duesweep.stores.steering import LooksAtMessages
from duesweep.testing.builders import delayed_row
from duesweep.testing.contract.stores import steps
from support.contract.store_subjects import DelayedTableUnderTest, OpenEndpoint
from support.faults.mover import Mover
from support.postgresql_server import PostgreSqlEndpoint
from support.waiting import until

MANY = 5_000
_LOCKS = (
    "SELECT DISTINCT l.locktype, l.mode FROM pg_locks l JOIN pg_stat_activity s USING (pid)"
    " WHERE s.application_name = 'duesweep' AND s.datname = current_database()"
    " AND l.locktype <> 'virtualxid'"
)


@pytest.fixture(params=["postgresql", "sql-persistence"])
def full(
    request: pytest.FixtureRequest, open_endpoint: OpenEndpoint
) -> Iterator[PostgreSqlEndpoint]:
    """An endpoint with many messages, which all came due at the same time."""
    with open_endpoint("UTC", f"s{uuid.uuid4().hex[:12]}") as in_schema:
        endpoint = in_schema.of_kind(request.param)
        endpoint.set_up("Billing").delay_many(MANY)
        yield endpoint


def test_look_holds_no_lock_but_the_weakest_and_a_mover_moves_meanwhile(
    full: PostgreSqlEndpoint,
) -> None:
    store = DelayedTableUnderTest(full).store
    with store.open_driver() as session:
        assert isinstance(session, LooksAtMessages)
        with session.look(DueSpan()) as pages:
            next(pages)
            assert full.fetch(_LOCKS) == [("relation", "AccessShareLock")]

            with psycopg.connect(full.dsn, autocommit=True) as other:
                # As soon as it would wait for anything, it fails.
                other.execute("SET lock_timeout = 1")
                done = other.execute(f"DELETE FROM {full.delayed}".encode())
                assert done.rowcount == MANY

            # The cursor still reads what was there when it began.
            assert sum(map(len, pages)) == MANY - 1_000
        assert session.count_waiting([]) == [0]


def test_nservicebus_moves_all_while_a_look_is_open(open_endpoint: OpenEndpoint) -> None:
    with open_endpoint("UTC", f"s{uuid.uuid4().hex[:12]}") as endpoint:
        endpoint.set_up("Billing").delay_many(1_500)
        with DelayedTableUnderTest(endpoint).store.open_driver() as session:
            assert isinstance(session, LooksAtMessages)
            with session.look(DueSpan()) as pages:
                next(pages)
                queue = endpoint.addresses.parse("Billing")
                with Mover(endpoint.dsn, endpoint.delayed, queue, 0) as mover:
                    until(lambda: mover.moved == 1_500)


def test_first_page_needs_no_sort(
    full: PostgreSqlEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    full.execute(f"ANALYZE {full.delayed}")
    store = DelayedTableUnderTest(full).store
    original = driver.statement

    def explained(dialect: str, name: str) -> str:
        text = original(dialect, name)
        return f"EXPLAIN DECLARE look CURSOR FOR {text}" if name == "look" else text

    monkeypatch.setattr(driver, "statement", explained)
    with store.open_driver() as session:
        statements = session._look().statements  # noqa: SLF001 - its plan is not to be seen
        with session._looking_at_all():  # noqa: SLF001
            statements.row("set_first_rows_fast")
            now = datetime.now(UTC)
            whole = statements.rows("look", zone="UTC", first=None, last=None)
            span = statements.rows("look", zone="UTC", first=now - timedelta(days=1), last=now)

    for lines in ([line for (line,) in plan] for plan in (whole, span)):
        assert any("Index Scan" in line for line in lines), lines
        assert not any("Sort" in line or "Seq Scan" in line for line in lines), lines


@pytest.mark.parametrize("month", [3, 11])
def test_span_is_that_of_instants_where_clocks_change_within_it(
    open_endpoint: OpenEndpoint, month: int
) -> None:
    """In New York clocks go forward in March and back in November, on these days."""
    day = {3: 14, 11: 7}[month]
    with open_endpoint("America/New_York", f"s{uuid.uuid4().hex[:12]}") as endpoint:
        subject = DelayedTableUnderTest(endpoint.set_up())
        # As NServiceBus stores them: UTC's clock, read in the writers' zone.
        noon = datetime(2027, month, day, tzinfo=UTC)
        times = [noon + timedelta(minutes=30 * number) for number in range(12)]
        dues = [
            endpoint.fetch(
                f"SELECT '{t:%Y-%m-%d %H:%M}'::timestamp AT TIME ZONE 'America/New_York'"
            )
            for t in times
        ]
        subject.load([delayed_row(due=due) for ((due,),) in dues])

        with subject.open_look() as look:
            with look.look(DueSpan()) as pages:
                instants = sorted(one.due for page in pages for one in page if one.due)
            for start, end in pairwise(sorted(set(instants))):
                with look.look(DueSpan(start, end)) as pages:
                    found = {one.due for page in pages for one in page}
                assert found == {start}
    assert len(instants) == len(times)


def test_row_is_shown_whose_due_no_clock_of_python_knows(open_endpoint: OpenEndpoint) -> None:
    with open_endpoint("America/New_York", f"s{uuid.uuid4().hex[:12]}") as endpoint:
        subject = DelayedTableUnderTest(endpoint.set_up())
        subject.load([steps.row(subject) for _ in range(4)])
        keys = endpoint.waiting()
        for key, due in zip(keys, ("4713-01-01 BC", "294276-12-31", "-infinity"), strict=False):
            endpoint.execute(f"UPDATE {endpoint.delayed} SET due = '{due}' WHERE id = '{key}'")

        with subject.open_look() as look, look.look(DueSpan()) as pages:
            shown = [one for page in pages for one in page]

    assert [one.message.key for one in shown] == [keys[2], keys[0], keys[3], keys[1]]
    assert [one.due and one.due.year for one in shown] == [None, 1, shown[2].due.year, 9999]
