"""The check of a PostgreSQL store before a sweep."""

from dataclasses import replace
from typing import Any

import pytest

from duesweep.core.errors import ConfigError, StoreError
from duesweep.core.policy import DEFAULT_TIMEOUTS
from duesweep.drivers.postgresql.session import PostgreSqlSession, connect
from duesweep.stores.checks import check_tables
from support.endpoint import Endpoint


def test_time_zone_that_postgresql_does_not_know_is_a_wrong_setting(endpoint: Endpoint) -> None:
    with pytest.raises(ConfigError, match=r"store\.writer_time_zone is 'Mars/Olympus'"):
        _check(endpoint, "Mars/Olympus")


@pytest.mark.parametrize("zone", ["UTC", "europe/berlin", "<+03>-03"])
def test_time_zone_that_postgresql_knows_is_only_tried(endpoint: Endpoint, zone: str) -> None:
    assert _check(endpoint, zone) == "UTC"


def test_session_that_is_lost_meanwhile_is_no_wrong_time_zone(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = PostgreSqlSession.row

    def killed(self: PostgreSqlSession, name: str, *arguments: Any, **values: object) -> object:
        if name == "set_zone":
            endpoint.server.kill_sessions()
        return row(self, name, *arguments, **values)

    monkeypatch.setattr(PostgreSqlSession, "row", killed)
    with pytest.raises(StoreError) as failure:
        _check(endpoint, "UTC")

    assert failure.value.transient


def _check(endpoint: Endpoint, zone: str) -> str:
    """Check with the writers' zone as it is configured. The session's zone afterwards."""
    store = replace(endpoint.set_up().context().store, writer_time_zone=zone)  # type: ignore[type-var]
    with connect(endpoint.dsn, DEFAULT_TIMEOUTS.driver) as connection:
        check_tables(connection, store, store.delayed)
        return str(connection.row("session_zone").zone)
