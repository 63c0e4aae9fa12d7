"""The doctor on SQL persistence's timeouts in PostgreSQL: what is wrong, and that alone."""

import pytest

from support.diagnosis import diagnosed
from support.endpoint import Endpoint
from support.postgresql_server import PostgreSqlEndpoint

TIMEOUTS = '"public"."Sales_Orders_TimeoutData"'

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def healthy(endpoint: Endpoint) -> PostgreSqlEndpoint:
    return endpoint.of_kind("sql-persistence").set_up("Billing", retry__error_queue="error")


def test_what_is_well_is_0_in_whatever_zone_the_writers_are(
    capsys: Capture, healthy: PostgreSqlEndpoint
) -> None:
    database = healthy.server.admin.info.dbname
    healthy.execute(f"ALTER DATABASE {database} SET TimeZone = 'America/New_York'")

    found = diagnosed(capsys, healthy.config_file(retry__error_queue="error"))

    assert (found.code, found.to_mend()) == (0, {})
    assert found.of("sweep-start")["severity"] == "ok"
    checks = {finding["check"] for finding in found.document["findings"]}
    assert not checks & {"writer-time-zone", "server-time-zone"}


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        ("DROP TABLE {table}", ("table-exists", "fault")),
        ('ALTER TABLE {table} ALTER "Time" TYPE timestamptz', ("table-shape", "fault")),
        ('ALTER TABLE {table} DROP COLUMN "Destination"', ("table-shape", "fault")),
        ('DROP INDEX "Sales_Orders_TimeoutData_TimeIdx"', ("table-index", "warning")),
    ],
)
def test_what_is_wrong_is_said_and_nothing_else(
    capsys: Capture, healthy: PostgreSqlEndpoint, harm: str, expected: tuple[str, str]
) -> None:
    check, severity = expected
    healthy.execute(harm.format(table=TIMEOUTS))

    found = diagnosed(capsys, healthy.config_file(retry__error_queue="error"))

    assert (found.code, found.to_mend()) == (3, {(check, TIMEOUTS): severity})


def test_missing_table_is_not_duesweeps_to_create(
    capsys: Capture, healthy: PostgreSqlEndpoint
) -> None:
    healthy.execute(f"DROP TABLE {TIMEOUTS}")

    advice = diagnosed(capsys, healthy.config_file()).of("table-exists")["advice"]

    assert advice == (
        "Check store.endpoint, store.table_prefix and store.schema; `setup` does not create it"
    )


def test_advice_on_an_index_is_a_statement_that_mends_it(
    capsys: Capture, healthy: PostgreSqlEndpoint
) -> None:
    healthy.execute('DROP INDEX "Sales_Orders_TimeoutData_TimeIdx"')
    file = healthy.config_file(retry__error_queue="error")

    healthy.execute(diagnosed(capsys, file).of("table-index")["advice"])

    assert diagnosed(capsys, file).code == 0


def test_messages_without_a_time_are_counted(capsys: Capture, healthy: PostgreSqlEndpoint) -> None:
    healthy.delay()
    healthy.execute(f'UPDATE {TIMEOUTS} SET "Time" = NULL')

    found = diagnosed(capsys, healthy.config_file(retry__error_queue="error"))

    assert (found.code, found.of("store-notices")["severity"]) == (3, "warning")
    assert found.of("store-notices")["found"].startswith(f"1 messages in {TIMEOUTS}")
