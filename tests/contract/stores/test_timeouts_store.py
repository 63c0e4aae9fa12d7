"""The store of SQL persistence's timeouts in PostgreSQL, beyond the contract."""

from collections.abc import Iterator
from datetime import UTC, timedelta
from typing import Any

import psycopg
import pytest

from duesweep import Duesweep
from duesweep.config.adapters.context import store_of
from duesweep.core.errors import ConfigError, UnreadableAddressError, UnusualBatchError
from duesweep.core.headers import FORWARD_DESTINATION, write_json
from duesweep.core.message import MESSAGE_ID
from duesweep.core.policy import Slicing
from duesweep.drivers.postgresql import session as driver
from duesweep.stores.dialect import JOURNAL_TABLES
from duesweep.stores.messages import NewMessage
from duesweep.stores.task import Forwarded
from duesweep_testing.builders import delayed_row
from duesweep_testing.contract.stores import steps
from duesweep_testing.sweeps import move_into, open_sweep
from duesweep_transport.messages import one_message_at_a_time
from support.contract.store_subjects import DelayedTableUnderTest, OpenEndpoint
from support.postgresql_server import PostgreSqlEndpoint


@pytest.fixture(params=["UTC", "America/New_York"])
def endpoint(
    request: pytest.FixtureRequest, open_endpoint: OpenEndpoint
) -> Iterator[PostgreSqlEndpoint]:
    """An endpoint without tables as yet, in databases of these time zones."""
    with open_endpoint(request.param) as endpoint:
        yield endpoint.of_kind("sql-persistence")


@pytest.fixture
def subject(endpoint: PostgreSqlEndpoint) -> DelayedTableUnderTest:
    return DelayedTableUnderTest(endpoint.set_up("Billing"))


def test_setup_creates_the_journal_and_never_the_table_of_timeouts(
    endpoint: PostgreSqlEndpoint,
) -> None:
    endpoint.execute(f'CREATE SCHEMA "{endpoint.schema}"')

    done: Any = Duesweep(endpoint.config()).setup()

    tables = "SELECT tablename FROM pg_tables WHERE schemaname = $1"
    found = {row.tablename for row in endpoint.fetch(tables, endpoint.schema)}
    assert found == {f"duesweep_{name}" for name in JOURNAL_TABLES}
    assert len(done.done) == len(found)


@pytest.mark.parametrize("method", ["installer", "store"])
def test_missing_table_is_refused_with_the_settings_to_look_at(
    endpoint: PostgreSqlEndpoint, method: str
) -> None:
    endpoint.execute(f'CREATE SCHEMA "{endpoint.schema}"')
    if method == "installer":
        Duesweep(endpoint.config()).setup()
    else:
        store_of(endpoint.config()).set_up_infrastructure()

    with (
        store_of(endpoint.config()).open_driver() as session,
        pytest.raises(ConfigError) as refusal,
    ):
        session.check()

    # Between the two it may name similar tables, which other tests have made.
    said = str(refusal.value)
    assert said.startswith(f"There is no delayed table {endpoint.delayed}, or this ")
    assert said.endswith(
        "check store.endpoint, store.table_prefix and store.schema; `setup` does not create it"
    )


def test_horizon_is_the_servers_clock_whatever_zone_the_database_has(
    subject: DelayedTableUnderTest,
) -> None:
    with subject.store.open_driver() as session:
        session.check()
        horizon = session.due.horizon()

    assert horizon.before == horizon.server_time
    assert abs(horizon.before - subject.server_time()) < timedelta(seconds=60)


def test_plan_is_the_same_in_a_session_of_any_zone(subject: DelayedTableUnderTest) -> None:
    endpoint = subject.endpoint
    due = {endpoint.delay(due_in_seconds=-seconds) for seconds in (1, 1_800, 86_400)}
    for seconds in (1_800, 3_600 * 13):
        endpoint.delay(due_in_seconds=seconds)

    with subject.store.open_driver() as session:
        assert session.due.count_pending(session.due.horizon()) == len(due)
        plan = session.due.plan(session.due.horizon(), Slicing(2))

    assert sorted(plan.planned) == [1, 2]
    for zone in ("UTC", "Asia/Kolkata", "America/New_York"):
        with psycopg.connect(endpoint.dsn) as other:
            other.execute(f"SET TimeZone = '{zone}'".encode())
            rows = other.execute(plan.claim_keys_query.encode()).fetchall()
        assert {key[:36] for row in rows for key in row[1].split(",")} == due


def test_index_on_time_is_used(
    subject: DelayedTableUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = subject.endpoint
    endpoint.delay_many(2_000, due_in_seconds=3_600)
    endpoint.delay()
    endpoint.execute(f"ANALYZE {endpoint.delayed}")
    original = driver.statement
    monkeypatch.setattr(driver, "statement", lambda *of: f"EXPLAIN {original(*of)}")

    with subject.store.open_task() as session:
        statements = session.connection.named(subject.store.names())
        plan = statements.rows(
            "find_pending", source="any", horizon=subject.server_time(), since=None, paused="[]"
        )

    assert "_TimeIdx" in "".join(line for (line,) in plan)


def test_message_without_a_time_is_never_due_and_noticed(subject: DelayedTableUnderTest) -> None:
    endpoint = subject.endpoint
    with subject.store.open_driver() as session:
        assert session.notices() == ()
    key = endpoint.delay()
    endpoint.execute(f'UPDATE {endpoint.delayed} SET "Time" = NULL')

    with subject.store.open_driver() as session:
        assert session.due.find_work(session.due.horizon()) is None
        (notice,) = session.notices()

    assert notice.text.startswith(f"1 messages in {endpoint.delayed} have no Time")
    with one_message_at_a_time(subject.store) as messages:
        assert messages.next_due() is None
    assert subject.waiting() == {key}


def test_message_without_a_destination_names_no_queue(subject: DelayedTableUnderTest) -> None:
    run, [row] = steps.load(subject, delayed_row(None))

    with steps.batch(subject) as session, subject.queue.open(session) as queue:
        (message,) = steps.claim(subject, session, run, row).messages
        with pytest.raises(UnreadableAddressError, match="names no table"):
            queue.resolve(message.destination)


def test_forward_destination_among_the_headers_travels_as_it_is(
    subject: DelayedTableUnderTest,
) -> None:
    endpoint = subject.endpoint
    key = endpoint.delay()
    text = write_json({FORWARD_DESTINATION: "Other", MESSAGE_ID: "m-1"})
    endpoint.execute(f'UPDATE {endpoint.delayed} SET "Headers" = $1', text)
    run = open_sweep(subject.store)

    with steps.batch(subject) as session:
        (message,) = session.claim(run, [key]).messages

    assert (message.headers_text, message.destination) == (text, "Billing")
    assert message.message_id == "m-1"


def test_message_without_headers_is_poison_that_fails_alone(
    subject: DelayedTableUnderTest,
) -> None:
    endpoint = subject.endpoint
    key = endpoint.delay()
    endpoint.execute(f'UPDATE {endpoint.delayed} SET "Headers" = NULL')
    run = open_sweep(subject.store)

    with steps.batch(subject) as session:
        claim = session.claim(run, [key])
        session.finish(run, 0, steps.failed(*claim.messages), claim.server_us)

    assert subject.attempts() == {key: 1}


def test_stored_message_is_a_timeout_of_no_saga(subject: DelayedTableUnderTest) -> None:
    due = subject.server_time() + timedelta(hours=1)
    with one_message_at_a_time(subject.store) as session:
        key = session.store(NewMessage(None, {"a": "b"}, b"{}", due))

    (row,) = subject.endpoint.fetch(
        'SELECT "Id"::text AS id, "Destination" AS destination, "SagaId" AS saga, "Time" AS time,'
        f' "PersistenceVersion" AS version FROM {subject.endpoint.delayed}'
    )
    assert (row.id, row.destination, row.saga.int) == (key, "Sales.Orders", 0)
    assert row.version.startswith("duesweep ")
    assert row.time == due.astimezone(UTC).replace(tzinfo=None)


def test_timeout_whose_destination_has_changed_since_the_plan_is_not_moved(
    subject: DelayedTableUnderTest,
) -> None:
    endpoint = subject.endpoint
    key = endpoint.delay()
    endpoint.execute(f'UPDATE {endpoint.delayed} SET "Destination" = $1', "Shipping")
    run = open_sweep(subject.store)

    with (
        steps.batch(subject) as session,
        pytest.raises(UnusualBatchError, match="locked, or changed"),
    ):
        move_into(session, run, [Forwarded("Billing", [key])], endpoint.addresses.parse)

    assert subject.waiting() == {key}
