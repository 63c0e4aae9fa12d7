"""The time-outs of a role and of a database do no harm to our sessions."""

from collections.abc import Callable, Iterator
from urllib.parse import parse_qsl, urlsplit

import psycopg
import pytest

from duesweep.core.policy import Limits, Timeouts
from duesweep.drivers.postgresql.session import PostgreSqlSession, connect, connect_as_server
from support.endpoint import Endpoint

# By the name that PostgreSQL has for each; the last two are not known to all of its versions.
NAMES = (
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
)
LIMITS = Timeouts().task
WANTED = {
    "statement_timeout": "15s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "2min",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
}


@pytest.fixture
def hurried(endpoint: Endpoint) -> Iterator[str]:
    """The dsn of a role whose sessions end as soon as may be."""
    dsn = endpoint.server.role("hurried")
    role = psycopg.conninfo.conninfo_to_dict(dsn)["user"]
    for name in _known(endpoint):
        endpoint.execute(f"ALTER ROLE {role} SET {name} = '1s'")
    yield dsn
    endpoint.execute(f"DROP ROLE {role}")


def _known(endpoint: Endpoint) -> set[str]:
    rows = endpoint.fetch("SELECT name FROM pg_settings WHERE name = ANY($1)", list(NAMES))
    return {row.name for row in rows}


@pytest.mark.parametrize("opened", [connect, connect_as_server])
def test_session_has_its_own_time_outs(
    opened: Callable[[str, Limits], PostgreSqlSession], endpoint: Endpoint, hurried: str
) -> None:
    with opened(hurried, LIMITS) as connection:
        for name in _known(endpoint):
            connection.script(
                f"DO $$ BEGIN ASSERT current_setting('{name}') = '{WANTED[name]}',"
                f" current_setting('{name}'); END $$"
            )


def test_session_over_jdbc_has_its_own_time_outs(endpoint: Endpoint, hurried: str) -> None:
    with connect(hurried, LIMITS) as connection:
        url, properties = connection.jdbc_address(80)
    with psycopg.connect(hurried) as other:
        other.execute(properties["sessionInitStatement"].encode())
        found = {
            name: other.execute("SELECT current_setting(%s)", [name]).fetchone()
            for name in _known(endpoint)
        }

    assert found == {
        name: (value,)
        for name, value in (WANTED | {"statement_timeout": "1min"}).items()
        if name in found
    }
    assert len(found) >= 3
    told = dict(parse_qsl(urlsplit(url.removeprefix("jdbc:")).query))
    assert (told["socketTimeout"], told["connectTimeout"]) == ("80", "10")
    assert told["loginTimeout"] == told["cancelSignalTimeout"] == "10"
