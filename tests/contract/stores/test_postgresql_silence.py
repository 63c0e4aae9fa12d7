"""A PostgreSQL server, or a pooler before it, that accepts what it is sent and never answers."""

from collections.abc import Callable, Iterator
from time import monotonic

import pytest
from psycopg.conninfo import make_conninfo

from duesweep.core.address import TableName
from duesweep.core.timeouts import Limits
from duesweep.drivers.postgresql import (
    PostgreSqlConnection,
    bounded,
    connect,
    connect_as_server,
    server_time_zone,
)
from duesweep.errors import SilentServiceError, StoreError
from support.endpoint import Endpoint
from support.proxy import Moment, Proxy, proxied
from support.waiting import until

LIMITS = Limits(connect_seconds=5, answer_seconds=3, lock_seconds=0.5)
SAYS_NOTHING = "has not answered for 3 s.*timeouts.silence_seconds"


@pytest.fixture
def proxy(endpoint: Endpoint) -> Iterator[Proxy]:
    with proxied(endpoint.server.admin.info.port) as proxy:
        yield proxy


@pytest.fixture
def dsn(endpoint: Endpoint, proxy: Proxy) -> str:
    return make_conninfo(endpoint.dsn, host="127.0.0.1", port=proxy.port)


@pytest.mark.parametrize("opened", [connect, connect_as_server])
def test_server_that_takes_a_connection_and_says_nothing_is_a_passing_fault(
    opened: Callable[[str, Limits], PostgreSqlConnection], dsn: str, proxy: Proxy
) -> None:
    proxy.fall_silent(hides_ends=True)

    with pytest.raises(StoreError, match=f":{proxy.port}/") as failure:
        opened(dsn, LIMITS)

    assert failure.value.transient


def test_server_that_falls_silent_as_its_session_is_set_up_is_a_passing_fault(
    dsn: str, proxy: Proxy
) -> None:
    proxy.fall_silent_at(b"set_config")

    with pytest.raises(StoreError, match="has not answered for 5 s") as failure:
        connect(dsn, LIMITS)

    assert failure.value.transient


def test_server_that_falls_silent_as_it_is_asked_for_its_time_zone_hides_it(
    dsn: str, proxy: Proxy
) -> None:
    assert server_time_zone(dsn, LIMITS) == "UTC"
    proxy.fall_silent_at(b"SHOW TimeZone")

    assert server_time_zone(dsn, LIMITS) is None


def _ask(connection: PostgreSqlConnection) -> None:
    connection.row("session_zone")


def _ask_within_a_transaction(connection: PostgreSqlConnection) -> None:
    with connection.transaction(), connection.transaction():
        connection.row("session_zone")


def _run_a_script(connection: PostgreSqlConnection) -> None:
    connection.script("SELECT 'session_zone'")


@pytest.mark.parametrize("ask", [_ask, _ask_within_a_transaction, _run_a_script])
def test_statement_that_is_not_answered_ends_its_session(
    ask: Callable[[PostgreSqlConnection], None], dsn: str, proxy: Proxy
) -> None:
    with connect(dsn, LIMITS) as connection:
        ask(connection)
        proxy.fall_silent(hides_ends=True)

        with pytest.raises(SilentServiceError, match=SAYS_NOTHING) as failure:
            ask(connection)
        # There is no second wait.
        with pytest.raises(StoreError, match="closed"):
            ask(connection)

    assert failure.value.transient


@pytest.mark.parametrize(
    ("megabytes", "is_frozen"),
    [(0, False), (40, False), (40, True)],
    ids=["small", "large", "full"],
)
def test_copy_that_is_not_answered_ends_its_session(
    megabytes: int, *, is_frozen: bool, endpoint: Endpoint, dsn: str, proxy: Proxy
) -> None:
    endpoint.set_up("Billing")
    rows = [("{}", b"x" * 1_000_000)] * megabytes or [("{}", b"")]
    with connect(dsn, LIMITS) as connection:
        proxy.fall_silent_at(b"PGCOPY", freezes=is_frozen)

        with pytest.raises(StoreError, match=SAYS_NOTHING), connection.transaction():
            connection.copy_messages(TableName("public", "Billing"), rows)

    proxy.heal()
    assert endpoint.queue_rows("Billing") == []


@pytest.mark.parametrize(("moment", "arrived"), [(Moment.BEFORE, 0), (Moment.AFTER, 1)])
def test_commit_that_is_not_answered_ends_its_session(
    moment: Moment, arrived: int, endpoint: Endpoint, dsn: str, proxy: Proxy
) -> None:
    endpoint.set_up("Billing")
    with connect(dsn, LIMITS) as connection:
        proxy.fall_silent_at(b"COMMIT", moment=moment)

        with pytest.raises(StoreError, match=SAYS_NOTHING), connection.transaction():
            connection.copy_messages(TableName("public", "Billing"), [("{}", b"")])

    until(lambda: len(endpoint.queue_rows("Billing")) == arrived)


def test_slow_server_is_not_silent(dsn: str) -> None:
    with connect(dsn, LIMITS) as connection:
        with pytest.raises(StoreError, match="57014"):
            connection.script("SELECT pg_sleep(30)")
        # It is still there.
        _ask(connection)


def test_answer_that_comes_in_pieces_may_take_longer_than_one_of_them(dsn: str) -> None:
    with connect(dsn, LIMITS) as connection:
        connection.script("SET statement_timeout = 0")

        connection.script(
            "DO $$ BEGIN FOR i IN 1..8 LOOP RAISE NOTICE 'x'; PERFORM pg_sleep(0.25);"
            " END LOOP; END $$"
        )


def test_session_that_was_not_used_for_long_is_asked_for_a_sign_of_life_first(
    dsn: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(connect_seconds=5, answer_seconds=600, lock_seconds=1)
    with connect(dsn, limits) as connection:
        # As if it had waited for its tasks.
        monkeypatch.setattr(bounded, "monotonic", lambda: monotonic() + 30)
        _ask(connection)
        monkeypatch.setattr(bounded, "monotonic", lambda: monotonic() + 60)
        proxy.fall_silent(hides_ends=True)

        with pytest.raises(StoreError, match="has not answered for 5 s"):
            _ask(connection)


def test_statement_about_many_messages_may_take_longer(dsn: str) -> None:
    with connect(dsn, LIMITS) as connection:
        with connection.wait_longer(30):
            connection.script("SELECT pg_sleep(2)")

        with pytest.raises(StoreError, match="57014"):
            connection.script("SELECT pg_sleep(30)")
