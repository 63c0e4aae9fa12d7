"""The check of a PostgreSQL store before a sweep."""

from typing import Any

import pytest

from duesweep.core.timeouts import DEFAULT_TIMEOUTS
from duesweep.drivers.postgresql.session import PostgreSqlSession, connect
from duesweep.errors import ConfigError, StoreError
from duesweep.stores.postgresql.check import check_tables
from support.endpoint import Endpoint


def test_time_zone_that_postgresql_does_not_know_is_a_wrong_setting(database: str) -> None:
    with (
        connect(database, DEFAULT_TIMEOUTS.driver) as connection,
        pytest.raises(ConfigError, match=r"store\.writer_time_zone is 'Mars/Olympus'"),
    ):
        check_tables(connection, {}, "Mars/Olympus")


@pytest.mark.parametrize("zone", ["UTC", "europe/berlin", "<+03>-03"])
def test_time_zone_that_postgresql_knows_is_only_tried(database: str, zone: str) -> None:
    with connect(database, DEFAULT_TIMEOUTS.driver) as connection:
        check_tables(connection, {}, zone)

        assert connection.row("session_zone").zone == "UTC"


def test_session_that_is_lost_meanwhile_is_no_wrong_time_zone(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = PostgreSqlSession.row

    def killed(self: PostgreSqlSession, name: str, *arguments: Any, **values: object) -> object:
        if name == "set_zone":
            endpoint.server.kill_sessions()
        return row(self, name, *arguments, **values)

    monkeypatch.setattr(PostgreSqlSession, "row", killed)
    with (
        connect(endpoint.dsn, DEFAULT_TIMEOUTS.driver) as connection,
        pytest.raises(StoreError) as failure,
    ):
        check_tables(connection, {}, "UTC")

    assert failure.value.transient
