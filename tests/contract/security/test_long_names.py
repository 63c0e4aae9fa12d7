"""Names that PostgreSQL would cut: it would mean another table, and say nothing."""

from collections.abc import Mapping

import pytest
from psycopg.conninfo import make_conninfo

from support.commands import run
from support.config_files import add_routes
from support.endpoint import ON_BOTH_SERVERS, Endpoint

# 62 bytes; `é` has two.
LONG = "é" * 31
STRANGER = f"{LONG}A"


@pytest.fixture
def beside(endpoint: Endpoint) -> Endpoint:
    """An endpoint next to the queue of another one, which has the longest possible name."""
    return endpoint.set_up(STRANGER, "Billing")


def test_message_for_a_longer_name_reaches_no_other_queue(beside: Endpoint) -> None:
    beside.delay_many(2, [f"{LONG}A1"])
    beside.delay_many(3, [STRANGER])

    swept = beside.document("sweep", code=3)

    assert (swept["dispatched"], swept["failed"]) == (3, 2)
    assert len(beside.queue_rows(STRANGER)) == 3
    assert {row.error_class for row in beside.attempts().values()} == {
        "duesweep.errors.UnreadableAddressError"
    }
    assert all(
        row.error_text.endswith("has 64 bytes, and names in PostgreSQL have 63 at most")
        for row in beside.attempts().values()
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("purge", f"{LONG}A1", "--yes"),
        ("peek", f"{LONG}A1"),
        ("receive", f"{LONG}A1"),
        ("send", f"{LONG}A1", "--body", "x"),
        ("create", f"{LONG}A1"),
        ("peek", f"{LONG}A1.Billing"),
    ],
    ids=" ".join,
)
def test_command_for_a_longer_name_is_refused(arguments: tuple[str, ...], beside: Endpoint) -> None:
    beside.delay_many(1, [STRANGER])
    beside.document("sweep")

    ran = beside.run("queue", *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert "has 64 bytes" in ran.err
    assert len(beside.queue_rows(STRANGER)) == 1


@ON_BOTH_SERVERS
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"store__endpoint": "{55}x"}, "store.endpoint"),
        ({"store__endpoint": "{64}", "store__delayed_table": "Delayed"}, "store.endpoint"),
        ({"store__delayed_table": "{64}"}, "store.delayed_table"),
        ({"store__schema": "{64}"}, "store.schema"),
        ({"queues__default__schema": "{64}"}, "queues.default.schema"),
        ({"retry__error_queue": "{64}"}, "retry.error_queue"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_setting_with_a_longer_name_is_refused(
    settings: Mapping[str, str], named: str, endpoint: Endpoint
) -> None:
    is_postgresql = endpoint.kind == "postgresql"
    lengths = {"{55}x": 56, "{64}": 64} if is_postgresql else {"{55}x": 121, "{64}": 129}
    unit, most = ("bytes", 63) if is_postgresql else ("characters", 128)
    values = {key: "x" * lengths.get(value, 0) or value for key, value in settings.items()}
    long = endpoint.set_up().having(**values)
    # Commands that only look at messages send no errors.
    is_of_errors = named == "retry.error_queue"

    for command in ("sweep", "setup", "doctor", *(() if is_of_errors else ("plan", "list"))):
        ran = long.run(command, *(["--no-spark"] if command == "doctor" else []))

        assert ran.code == (3 if command == "doctor" and is_of_errors else 2), ran
        assert named in ran.told
        assert f" {unit}, and names in " in ran.told.replace("\n", " ")
        assert f"have {most} at most" in " ".join(ran.told.split())


def test_route_to_a_longer_name_is_refused(beside: Endpoint) -> None:
    file = beside.having(queues__here__schema="public").config_file()
    add_routes(file, ("Bill*", "here", f"{LONG}A1"), ("*", "here", "{destination}"))
    ran = run("sweep", "--config", str(file))

    assert ran.code == 2
    assert "queue of the [[route]] for Bill*: The name" in ran.err


def test_grant_to_a_longer_role_is_refused(beside: Endpoint) -> None:
    ran = beside.run("setup", "--print-sql", "--grant-to", f"{LONG}A1")

    assert (ran.code, ran.out) == (2, "")
    assert "--grant-to: The name" in ran.err


def test_setup_names_a_table_only_if_it_is_there(endpoint: Endpoint) -> None:
    endpoint.execute(
        "CREATE FUNCTION dropped() RETURNS event_trigger LANGUAGE plpgsql AS "
        "$$BEGIN DROP TABLE IF EXISTS public.error; END$$"
    )
    endpoint.execute(
        "CREATE EVENT TRIGGER dropping ON ddl_command_end WHEN TAG IN ('CREATE TABLE')"
        " EXECUTE FUNCTION dropped()"
    )

    ran = endpoint.run("setup", retry__error_queue="error")

    assert (ran.code, ran.out) == (2, "")
    assert 'it created "public"."error", but there is no such table' in ran.err


@pytest.mark.parametrize("keyword", ["dbname", "user"])
def test_longer_database_or_user_of_a_dsn_is_refused(keyword: str, beside: Endpoint) -> None:
    dsn = make_conninfo(beside.dsn, **{keyword: f"{LONG}A1"})

    ran = beside.run("sweep", store__dsn=dsn)

    assert (ran.code, ran.out) == (2, "")
    named = "database" if keyword == "dbname" else "user"
    assert f"its {named} has a name over 63 bytes" in ran.err
