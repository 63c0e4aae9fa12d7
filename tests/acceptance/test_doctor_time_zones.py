"""What the doctor says of the time zones of those who write to a PostgreSQL store."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from duesweep.core.address import quote_name
from support.diagnosis import diagnosed
from support.endpoint import Endpoint

DELAYED = '"public"."Sales.Orders.Delayed"'
STORE = "store.dsn"

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def healthy(endpoint: Endpoint) -> Endpoint:
    return endpoint.set_up("Billing", retry__error_queue="error")


def test_writers_in_a_zone_whose_clocks_change(capsys: Capture, healthy: Endpoint) -> None:
    healthy.execute(f"ALTER DATABASE {_database(healthy)} SET TimeZone = 'America/New_York'")

    found = diagnosed(capsys, healthy.config_file(retry__error_queue="error"))

    assert (found.code, found.to_mend()) == (3, {("writer-time-zone", STORE): "warning"})
    assert "America/New_York" in found.of("writer-time-zone")["found"]
    assert "240 min" in found.of("writer-time-zone")["found"]
    assert "America/New_York (from: database)" in found.of("server-time-zone")["found"]


def test_writers_in_a_zone_without_changes_are_reckoned_with(
    capsys: Capture, healthy: Endpoint
) -> None:
    healthy.execute(f"ALTER DATABASE {_database(healthy)} SET TimeZone = 'Asia/Kolkata'")

    found = diagnosed(capsys, healthy.config_file(retry__error_queue="error"))

    assert (found.code, found.of("writer-time-zone")["severity"]) == (0, "ok")
    assert "330 min" in found.of("writer-time-zone")["found"]


def test_writers_that_disagree_are_a_fault(capsys: Capture, healthy: Endpoint) -> None:
    for zone in ("Asia/Kolkata", "UTC"):
        dsn = healthy.server.role(zone[:4].lower(), f"INSERT ON {DELAYED}")
        healthy.execute(f"ALTER ROLE {_role_of(dsn)} SET TimeZone = '{zone}'")

    found = diagnosed(capsys, healthy.config_file(retry__error_queue="error"))

    assert found.to_mend() == {("writer-time-zone", STORE): "fault"}
    assert "store.writer_time_zone" in found.of("writer-time-zone")["advice"]


@pytest.mark.parametrize(
    ("override", "severity"), [("Asia/Kolkata", "warning"), ("Mars/Olympus", "fault")]
)
def test_writer_time_zone_that_is_set_otherwise(
    override: str, severity: str, capsys: Capture, healthy: Endpoint
) -> None:
    file = healthy.config_file(retry__error_queue="error", store__writer_time_zone=override)

    found = diagnosed(capsys, file)

    assert (found.code, found.to_mend()) == (3, {("writer-time-zone", STORE): severity})


def _role_of(dsn: str) -> str:
    return quote_name(str(conninfo_to_dict(dsn)["user"]))


def _database(endpoint: Endpoint) -> str:
    return quote_name(endpoint.server.admin.info.dbname)
