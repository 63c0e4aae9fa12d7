"""Databases that are not in UTF-8: a row that the server cannot convert is that row's fault."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from duesweep.operations.demo.server import EmbeddedServer
from support.endpoint import Endpoint
from support.postgresql_server import (
    PostgreSqlServer,
    create_database,
    drop_database,
    endpoint_in_postgresql,
)

# 0x81 is no character of WIN1252: \x7b2261223a2281227d is {"a":"?"} with it.
_HEADERS = "convert_from('\\x7b2261223a2281227d', 'WIN1252')"
_ONCE = {"retry__max_attempts": 1}


@pytest.fixture
def western(server: EmbeddedServer, tmp_path: Path) -> Iterator[Endpoint[PostgreSqlServer]]:
    """An endpoint with a good message and one that has no equivalent in UTF-8."""
    name = f"western_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        options = "ENCODING 'WIN1252' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        create_database(admin, name, options)
    dsn = server.dsn_of(name)
    with psycopg.connect(dsn, autocommit=True) as own:
        endpoint = endpoint_in_postgresql(dsn, tmp_path, own).set_up("Billing")
        endpoint.delay_many(20)
        endpoint.execute(
            f"INSERT INTO {endpoint.delayed} (headers, body, due)"
            f" VALUES ({_HEADERS}, 'x', now() - interval '1 hour')"
        )
        yield endpoint
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        drop_database(admin, name)


def test_row_without_an_equivalent_in_utf_8_stops_no_other_and_is_kept(
    western: Endpoint[PostgreSqlServer],
) -> None:
    swept = western.document("sweep", code=3, **_ONCE)

    assert (swept["dispatched"], swept["exhausted"]) == (20, 1)
    assert (western.waiting(), len(western.queue_rows("Billing"))) == ([], 20)
    (error,) = western.ledger.rows("errors")
    assert error.error_class == "duesweep.errors.UnreadableHeadersError"
    assert error.headers_text == '{"a":"\\x81"}'
    assert western.document("audit")["findings"] == []


@pytest.mark.xdist_group("spark")
@pytest.mark.usefixtures("spark")
def test_spark_sweeps_such_a_row_too(western: Endpoint[PostgreSqlServer]) -> None:
    settings = {"sweep__spark_from": 0, "ledger__writer": "spark"}
    swept = western.document("sweep", code=3, **_ONCE, **settings)

    assert (swept["engine"], swept["dispatched"], swept["exhausted"]) == ("spark", 20, 1)


def test_such_a_row_is_counted_shown_paused_and_cancelled(
    western: Endpoint[PostgreSqlServer],
) -> None:
    western.document("pause", "*", "--reason", "test")
    assert western.document("sweep", code=0)["dispatched"] == 0
    western.document("resume", "*")
    assert western.document("sweep", code=3)["failed"] == 1
    (key,) = western.waiting()

    listed = western.run("list", "--failing", "--json").out
    shown = western.run("show", key)
    cancelled = western.document("cancel", "--all", "--reason", "test", "--yes")
    command = ("--command", cancelled["command_id"])
    restored = western.run("restore", *command, "--reason", "test", "--yes")

    assert key in listed
    assert (shown.code, "\\x81" in shown.out) == (0, True)
    assert (cancelled["changed"], cancelled["failures"]) == (1, [])
    assert restored.code == 0, restored
    assert len(western.waiting()) == 1
