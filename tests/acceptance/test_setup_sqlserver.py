"""The command `setup` on SQL Server: what it creates, completes and prints."""

import pytest

from duesweep.cli.app import main
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from support.sqlserver_server import SqlServerEndpoint

Capture = pytest.CaptureFixture[str]


def _run(*arguments: str) -> int:
    return int(main(list(arguments)))


def _delayed(endpoint: SqlServerEndpoint) -> str:
    return endpoint.within(endpoint.rows.table(endpoint.name))


@pytest.fixture(params=["sqlserver", "msmq"])
def endpoint(
    request: pytest.FixtureRequest, sqlserver_endpoint: SqlServerEndpoint
) -> SqlServerEndpoint:
    return sqlserver_endpoint.of_kind(request.param)


def test_setup_creates_the_table_of_subscriptions_once(
    capsys: Capture, sqlserver_endpoint: SqlServerEndpoint
) -> None:
    sqlserver_endpoint.server.create_schema(sqlserver_endpoint.schema)
    file = str(sqlserver_endpoint.config_file())
    table = sqlserver_endpoint.table("SubscriptionRouting")

    assert _run("setup", "--config", file) == 0
    assert "created SubscriptionRouting@" in capsys.readouterr().out
    assert _run("setup", "--config", file) == 0
    assert "Everything exists already" in capsys.readouterr().out

    assert sqlserver_endpoint.fetch(f"SELECT QueueAddress, Endpoint, Topic FROM {table}") == []


def test_setup_creates_an_index_on_due_that_a_table_lacks_and_no_second_one(
    capsys: Capture, endpoint: SqlServerEndpoint
) -> None:
    endpoint.set_up()
    index = f"Index_{endpoint.rows.due}"
    endpoint.execute(f"DROP INDEX [{index}] ON {_delayed(endpoint)}")
    file = str(endpoint.config_file())

    assert _run("setup", "--config", file) == 0
    assert capsys.readouterr().out == f"created index {index} on {endpoint.delayed}\n"
    assert _run("setup", "--config", file) == 0
    assert capsys.readouterr().out == "Everything exists already.\n"


def test_setup_leaves_an_index_of_another_name_as_it_is(
    capsys: Capture, endpoint: SqlServerEndpoint
) -> None:
    endpoint.set_up()
    delayed, column = _delayed(endpoint), endpoint.rows.due
    endpoint.execute(f"DROP INDEX [Index_{column}] ON {delayed}")
    endpoint.execute(f"CREATE INDEX [Of another name] ON {delayed} ([{column}])")

    assert _run("setup", "--config", str(endpoint.config_file())) == 0

    assert capsys.readouterr().out == "Everything exists already.\n"


def test_printed_setup_is_what_a_dba_can_run_twice_and_a_sweep_can_work_with(
    capsys: Capture, endpoint: SqlServerEndpoint
) -> None:
    endpoint.server.create_schema(endpoint.schema)
    file = str(
        endpoint.config_file(retry__error_queue="error", queues__default__readable_body=True)
    )
    assert _run("setup", "--print-sql", "--config", file) == 0
    batches = capsys.readouterr().out.split("GO\n")

    for batch in [*batches, *batches]:
        endpoint.execute(batch)

    assert _run("setup", "--config", file) == 0
    assert capsys.readouterr().out == "Everything exists already.\n"


def test_database_that_does_not_exist_is_a_wrong_setting(
    capsys: Capture, sqlserver_endpoint: SqlServerEndpoint
) -> None:
    pairs = OdbcDsn.parse(sqlserver_endpoint.dsn).pairs
    dsn = OdbcDsn(pairs | {"database": "absent"}).text()

    for command in ("sweep", "setup", "doctor"):
        extra = ["--no-spark"] if command == "doctor" else []
        file = str(sqlserver_endpoint.config_file(store__dsn=dsn))
        code = _run(command, "--config", file, *extra)

        shown = capsys.readouterr()
        if command == "doctor":
            assert code == 3
        else:
            assert code == 2
            assert "absent" in shown.err
            assert "check user, password and database in the dsn" in shown.err
