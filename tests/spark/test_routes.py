"""From one kind of server to the other, by routes: at least once."""

from collections import Counter
from typing import TYPE_CHECKING

from duesweep import config as configuration
from duesweep.sweep.job import Engine
from support.config_files import add_routes
from support.endpoint import Endpoint
from support.sweeps import run_sweep

if TYPE_CHECKING:
    from support.sqlserver_server import SqlServerEndpoint


def test_postgresql_messages_go_to_two_databases_by_their_routes(
    engine: Engine, endpoint: Endpoint
) -> None:
    other = endpoint.named("Elsewhere", "elsewhere").set_up("Billing")
    endpoint.set_up("Billing")
    endpoint.delay_many(300, ["Billing", "Billing@FAR", "Nowhere@FAR"])
    file = endpoint.config_file(
        queues__near__kind="postgresql", queues__far__dsn=other.dsn, queues__far__schema="elsewhere"
    )
    add_routes(file, ("*@FAR", "far", "{queue}"), ("*", "near", "{destination}"))

    summary = run_sweep(configuration.load(file), engine)

    assert (summary.dispatched, summary.failed) == (200, 100)
    near, far = endpoint.queue_rows("Billing"), other.queue_rows("Billing")
    assert (len(near), len(far)) == (100, 100)
    assert set(Counter(row.message_id for row in near + far).values()) == {1}


def test_postgresql_store_fills_queue_tables_of_sql_server(
    engine: Engine, endpoint: Endpoint, sqlserver_endpoint: "SqlServerEndpoint"
) -> None:
    endpoint.set_up()
    sqlserver_endpoint.set_up("Billing")
    endpoint.delay_many(300, ["Billing@X"])
    file = endpoint.config_file(
        queues__main__kind="sqlserver",
        queues__main__dsn=sqlserver_endpoint.server.database.dsn,
        queues__main__schema=sqlserver_endpoint.schema,
    )
    add_routes(file, ("*@*", "main", "{queue}"))

    summary = run_sweep(configuration.load(file), engine)

    rows = sqlserver_endpoint.queue_rows("Billing")
    assert summary.dispatched == len(rows) == len({row.message_id for row in rows}) == 300
    assert endpoint.waiting() == []


def test_sql_server_store_fills_queue_tables_of_postgresql(
    engine: Engine, endpoint: Endpoint, sqlserver_endpoint: "SqlServerEndpoint"
) -> None:
    endpoint.set_up("Billing")
    sqlserver_endpoint.set_up()
    sqlserver_endpoint.delay_many(300, ["Billing@X"])
    file = sqlserver_endpoint.config_file(
        queues__default__kind="postgresql", queues__default__dsn=endpoint.dsn, sweep__slices=1
    )
    add_routes(file, ("*@*", "default", "{queue}"))

    summary = run_sweep(configuration.load(file), engine)

    rows = endpoint.queue_rows("Billing")
    assert summary.dispatched == len(rows) == len({row.message_id for row in rows}) == 300
    assert sqlserver_endpoint.waiting() == []
