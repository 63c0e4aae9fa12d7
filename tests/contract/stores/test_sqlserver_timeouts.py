"""The store of SQL persistence's timeouts in SQL Server, beyond the contract."""

from datetime import timedelta

import pytest

from duesweep.config.adapters.context import store_of
from duesweep.core.errors import ConfigError
from duesweep.stores.messages import NewMessage
from duesweep_testing.contract.stores import steps
from duesweep_transport.messages import one_message_at_a_time
from support.contract.store_subjects import DelayedTableUnderTest
from support.sqlserver_server import SqlServerEndpoint


@pytest.fixture
def endpoint(sqlserver_endpoint: SqlServerEndpoint) -> SqlServerEndpoint:
    return sqlserver_endpoint.of_kind("sql-persistence").set_up("Billing")


def test_missing_table_is_refused_with_the_settings_to_look_at_and_not_created(
    endpoint: SqlServerEndpoint,
) -> None:
    endpoint.execute(f"DROP TABLE {endpoint.delayed}")
    store = store_of(endpoint.config())
    store.set_up_infrastructure()

    with store.open_driver() as session, pytest.raises(ConfigError) as refusal:
        session.check()

    assert str(refusal.value) == (
        f"There is no delayed table {endpoint.delayed}, or this user has no rights on it; "
        "check store.endpoint, store.table_prefix and store.schema; `setup` does not create it"
    )


def test_counters_of_another_kind_of_store_in_the_schema_do_no_harm(
    endpoint: SqlServerEndpoint,
) -> None:
    subject = DelayedTableUnderTest(endpoint)
    transport = DelayedTableUnderTest(endpoint.of_kind("sqlserver").set_up())
    for each in (subject, transport):
        run, [failing] = steps.load(each, steps.row(each, "Nowhere"))
        steps.fail(each, run, failing)

    for each in (subject, transport):
        with each.store.open_driver() as session:
            session.check()
            assert session.due.count_pending(session.due.horizon()) == 0
            session.sweeps.open(session.due.horizon())

    assert len(subject.attempts()) == 2


def test_stored_message_is_a_timeout_of_no_saga(endpoint: SqlServerEndpoint) -> None:
    store = store_of(endpoint.config())
    with one_message_at_a_time(store) as session:
        due = endpoint.due_in(0) + timedelta(hours=1)
        key = session.store(NewMessage(None, {"a": "b"}, b"{}", due))

    (row,) = endpoint.fetch(
        "SELECT Destination, LOWER(CONVERT(varchar(36), SagaId)) AS saga, PersistenceVersion"
        f" FROM {endpoint.delayed}"
    )
    assert endpoint.waiting() == [key]
    assert (row.Destination, set(row.saga)) == ("Sales.Orders", {"0", "-"})
    assert row.PersistenceVersion.startswith("duesweep ")
