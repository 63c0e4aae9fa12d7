"""What a PostgreSQL queue has to stand beyond the contract."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
import recordings
from endpoint import Endpoint

from duesweep import wiring
from duesweep.drivers.postgresql import TimeLimits
from duesweep.errors import (
    DestinationError,
    MessageError,
    NotAQueueError,
    QueueNotFoundError,
    RefusedMessageError,
    StoreError,
)
from duesweep.message import Message
from duesweep.queues import postgresql as postgresql_queue
from duesweep.queues.base import QueueSession
from duesweep.stores import postgresql as postgresql_store
from duesweep.stores.base import TaskSession
from duesweep.testing.builders import delayed_row, message

LOCK_WAIT_SECONDS = 0.3
QUEUE_COLUMNS = "id uuid, expires timestamp, headers text, body bytea"


@pytest.fixture(autouse=True)
def _short_lock_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = TimeLimits(
        int(LOCK_WAIT_SECONDS * 1_000), statement_ms=10_000, idle_in_transaction_ms=0
    )
    for module in (postgresql_queue, postgresql_store):
        monkeypatch.setattr(module, "TASK_LIMITS", limits)


@pytest.fixture
def endpoint(endpoint: Endpoint) -> Endpoint:
    """With its tables and queue `Billing`."""
    return endpoint.set_up("Billing")


@contextmanager
def _batch(
    endpoint: Endpoint, dsn: str | None = None
) -> Iterator[tuple[TaskSession, QueueSession]]:
    """A store's and a queue's session with a transaction under way."""
    parts = wiring.parts(endpoint.config(**{"store__dsn": dsn} if dsn else {}))
    with parts.store.open_task() as store, parts.queue.open(store) as queue, store.transaction():
        yield store, queue


def _deliver(
    endpoint: Endpoint, *messages: Message, address: str = "Billing"
) -> dict[str, MessageError]:
    with _batch(endpoint) as (_, queue):
        return queue.deliver(queue.resolve(address), messages)


def _letters(endpoint: Endpoint, address: str = "Billing") -> list[tuple[str, bytes | None]]:
    return [(row.headers, row.body) for row in endpoint.queue_rows(address)]


def _expected(*messages: Message) -> list[tuple[str, bytes | None]]:
    return [(m.headers_text, m.body) for m in messages]


def _bodies(*bodies: bytes) -> list[Message]:
    return [message(delayed_row(body=body)) for body in bodies]


# --- what a queue table is -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param(f"{QUEUE_COLUMNS}, seq serial", id="as the transport makes it"),
        pytest.param(f"{QUEUE_COLUMNS}, seq bigserial", id="seq widened to bigint"),
        pytest.param(
            f"{QUEUE_COLUMNS}, seq serial, "
            "bodystring text GENERATED ALWAYS AS (encode(body, 'escape')) STORED",
            id="with a computed bodystring",
        ),
        pytest.param(
            f"seq serial, {QUEUE_COLUMNS}, note text DEFAULT 'x'", id="other order, one more column"
        ),
        pytest.param(
            "id uuid, expires timestamptz, headers text, body bytea, seq serial",
            id="expires with a time zone",
        ),
    ],
)
def test_queue_table_in_one_of_its_shapes_takes_messages(endpoint: Endpoint, columns: str) -> None:
    endpoint.execute(f'CREATE TABLE "Odd" ({columns})')
    letters = _bodies(b"1", b"2")

    assert _deliver(endpoint, *letters, address="Odd") == {}

    assert _letters(endpoint, "Odd") == _expected(*letters)


@pytest.mark.parametrize(
    "definition",
    [
        pytest.param('TABLE "Other" (id integer, name text)', id="another table"),
        pytest.param(f'TABLE "Other" ({QUEUE_COLUMNS})', id="no seq"),
        pytest.param(
            'TABLE "Other" (id text, expires timestamp, headers text, body bytea, seq serial)',
            id="a text id",
        ),
        pytest.param(
            'TABLE "Other" (id uuid, expires timestamp, headers jsonb, body bytea, seq serial)',
            id="JSON headers",
        ),
        pytest.param(
            'TABLE "Other" (id uuid, expires timestamp, headers text, body text, seq serial)',
            id="a text body",
        ),
        pytest.param('VIEW "Other" AS SELECT * FROM "Billing"', id="a view of a queue"),
        pytest.param(
            'MATERIALIZED VIEW "Other" AS SELECT * FROM "Billing"', id="a materialised view"
        ),
        pytest.param('INDEX "Other" ON "Billing" (expires)', id="an index"),
        pytest.param('SEQUENCE "Other"', id="a sequence"),
    ],
)
def test_destination_that_is_no_queue_table_is_the_messages_fault(
    endpoint: Endpoint, definition: str
) -> None:
    endpoint.execute(f"CREATE {definition}")

    with (
        _batch(endpoint) as (_, queue),
        pytest.raises(NotAQueueError, match="is not a queue table"),
    ):
        queue.resolve("Other")


def test_delayed_table_is_no_queue_table(endpoint: Endpoint) -> None:
    with _batch(endpoint) as (_, queue), pytest.raises(NotAQueueError, match="expires, seq"):
        queue.resolve('"Sales.Orders.Delayed"')


@pytest.mark.parametrize(
    "address",
    ["Ship.ping", '"Ship"."ping"', '"my ""odd"" schema: 100%"."%s.{x}"', '"' + "q" * 63 + '"'],
)
def test_queue_with_an_odd_name_takes_messages(endpoint: Endpoint, address: str) -> None:
    table = endpoint.create_queue(address)
    (letter,) = _bodies(b"x")

    with _batch(endpoint) as (_, queue):
        destination = queue.resolve(address)
        queue.deliver(destination, [letter])

    assert str(destination) == str(table)
    assert _letters(endpoint, address) == _expected(letter)


def test_names_are_case_sensitive(endpoint: Endpoint) -> None:
    with _batch(endpoint) as (_, queue), pytest.raises(QueueNotFoundError):
        queue.resolve("billing")


def test_delivered_rows_have_ids_of_their_own_and_never_expire(endpoint: Endpoint) -> None:
    letters = _bodies(*[b"x"] * 500)

    _deliver(endpoint, *letters)

    (row,) = endpoint.fetch(
        'SELECT count(DISTINCT id) AS ids, count(expires) AS kept FROM "Billing"'
    )
    assert row == (500, 0)
    (version,) = endpoint.fetch('SELECT DISTINCT substr(id::text, 15, 1) AS v FROM "Billing"')
    assert version.v == "4"
    keys = {letter.key for letter in letters}
    assert not keys & {r.id for r in endpoint.fetch('SELECT id::text AS id FROM "Billing"')}


def test_recorded_messages_are_delivered_as_they_were_recorded(endpoint: Endpoint) -> None:
    endpoint.create_queue("Ship.ping")
    rows = [row for row in recordings.delayed_rows() if row.due.year == 2026]  # type: ignore[union-attr]
    unknown = []

    with _batch(endpoint) as (_, queue):
        for letter in map(message, rows):
            try:
                queue.deliver(queue.resolve(letter.destination), [letter])
            except QueueNotFoundError:
                unknown.append(letter.destination)

    assert unknown == ["Nowhere"]
    for address, recorded in recordings.delivered_rows().items():
        delivered = {row.message_id: row for row in endpoint.queue_rows(address)}
        assert delivered == {row.message_id: row for row in recorded}


# --- one bad row ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("ALTER TABLE \"Billing\" ADD CHECK (body <> 'bad')", id="a check constraint"),
        pytest.param(
            "CREATE UNIQUE INDEX ON \"Billing\" (body) WHERE body = 'bad'", id="a unique index"
        ),
        pytest.param(
            'CREATE TRIGGER refuse BEFORE INSERT ON "Billing" FOR EACH ROW'
            " WHEN (NEW.body = 'bad') EXECUTE FUNCTION refuse()",
            id="a trigger before",
        ),
        pytest.param(
            'CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON "Billing" FOR EACH ROW'
            " WHEN (NEW.body = 'bad') EXECUTE FUNCTION refuse()",
            id="a constraint trigger",
        ),
        pytest.param(
            'CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON "Billing"'
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
            " WHEN (NEW.body = 'bad') EXECUTE FUNCTION refuse()",
            id="a deferred constraint trigger",
        ),
    ],
)
def test_row_that_a_rule_of_the_table_refuses_costs_only_itself(
    endpoint: Endpoint, rule: str
) -> None:
    _deliver(endpoint, *_bodies(b"bad"))
    if "CHECK" in rule:
        endpoint.execute('TRUNCATE "Billing"')
    endpoint.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RAISE EXCEPTION 'we take no such thing'; END$$"
    )
    endpoint.execute(rule)
    letters = _bodies(b"1", b"2", b"bad", b"3", b"4")

    refused = _deliver(endpoint, *letters)

    assert list(refused) == [letters[2].key]
    assert isinstance(refused[letters[2].key], RefusedMessageError)
    taken = [row for row in _letters(endpoint) if row[1] != b"bad"]
    assert taken == _expected(*letters[:2], *letters[3:])


def test_headers_that_no_text_column_holds_cost_only_their_message(endpoint: Endpoint) -> None:
    letters = _bodies(b"1", b"2", b"3")
    letters[1] = letters[1]._replace(headers_text='{"a":"\0"}')

    refused = _deliver(endpoint, *letters)

    assert list(refused) == [letters[1].key]
    assert _letters(endpoint) == _expected(letters[0], letters[2])


def test_group_with_a_bad_row_is_not_delivered_in_part_when_the_table_then_takes_nothing(
    endpoint: Endpoint,
) -> None:
    endpoint.execute("ALTER TABLE \"Billing\" ADD CHECK (body <> 'bad')")
    endpoint.execute('CREATE UNIQUE INDEX ON "Billing" (body)')
    letters = _bodies(b"1", b"bad", b"held", b"2")

    with psycopg.connect(endpoint.dsn) as other:
        # Not committed: whoever inserts the same waits for it.
        other.execute("INSERT INTO \"Billing\" VALUES (gen_random_uuid(), NULL, '{}', 'held')")
        with _batch(endpoint) as (_, queue), pytest.raises(DestinationError):
            queue.deliver(queue.resolve("Billing"), letters)
        other.rollback()

    assert _letters(endpoint) == []


# --- a queue that takes nothing now --------------------------------------------------------------


def test_locked_queue_table_is_given_up_after_the_lock_time_out(endpoint: Endpoint) -> None:
    with psycopg.connect(endpoint.dsn) as other, _batch(endpoint) as (_, queue):
        destination = queue.resolve("Billing")
        other.execute('LOCK TABLE "Billing"')

        began = time.monotonic()
        with pytest.raises(DestinationError, match="55P03"):
            queue.deliver(destination, _bodies(b"x"))

    assert LOCK_WAIT_SECONDS <= time.monotonic() - began < LOCK_WAIT_SECONDS + 5


def test_role_without_the_right_to_insert_gets_nothing_delivered_and_charges_no_message(
    endpoint: Endpoint,
) -> None:
    dsn = endpoint.role("reader", "SELECT ON ALL TABLES IN SCHEMA public")

    with _batch(endpoint, dsn) as (_, queue), pytest.raises(DestinationError, match="grant INSERT"):
        queue.deliver(queue.resolve("Billing"), _bodies(b"x"))


def test_role_without_the_right_to_the_sequence_gets_nothing_delivered(endpoint: Endpoint) -> None:
    dsn = endpoint.role("inserter", 'INSERT ON TABLE "Billing"')

    with _batch(endpoint, dsn) as (_, queue), pytest.raises(DestinationError, match="sequence"):
        queue.deliver(queue.resolve("Billing"), _bodies(b"x"))


def test_role_without_the_right_to_the_schema_gets_nothing_delivered(endpoint: Endpoint) -> None:
    endpoint.create_queue("Ship.ping")
    dsn = endpoint.role("outsider")

    with _batch(endpoint, dsn) as (_, queue), pytest.raises(DestinationError):
        queue.deliver(queue.resolve("Ship.ping"), _bodies(b"x"))


def test_queue_whose_seq_is_used_up_takes_nothing_and_says_what_to_do(endpoint: Endpoint) -> None:
    endpoint.execute('ALTER SEQUENCE "Billing_seq_seq" RESTART WITH 2147483647')
    letters = _bodies(b"1", b"2")

    with _batch(endpoint) as (_, queue), pytest.raises(DestinationError, match="bigint"):
        queue.deliver(queue.resolve("Billing"), letters)

    assert _letters(endpoint) == []


def test_statement_that_takes_too_long_stops_the_queue_and_not_the_message(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql_store, "TASK_LIMITS", TimeLimits(1_000, 300, 0))
    endpoint.execute(
        "CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN PERFORM pg_sleep(30); RETURN NEW; END$$"
    )
    endpoint.execute(
        'CREATE TRIGGER linger BEFORE INSERT ON "Billing" FOR EACH ROW EXECUTE FUNCTION linger()'
    )

    with _batch(endpoint) as (_, queue), pytest.raises(DestinationError, match="took too long"):
        queue.deliver(queue.resolve("Billing"), _bodies(b"x"))


# --- a queue table that changes in between -------------------------------------------------------


def test_table_that_was_dropped_since_is_the_messages_fault(endpoint: Endpoint) -> None:
    letters = _bodies(b"1", b"2")
    with _batch(endpoint) as (_, queue):
        destination = queue.resolve("Billing")
        endpoint.execute('DROP TABLE "Billing"')

        refused = queue.deliver(destination, letters)

    assert {key: type(error) for key, error in refused.items()} == {
        letter.key: QueueNotFoundError for letter in letters
    }


def test_table_that_lost_a_column_since_is_the_messages_fault(endpoint: Endpoint) -> None:
    letters = _bodies(b"1", b"2")
    with _batch(endpoint) as (_, queue):
        destination = queue.resolve("Billing")
        endpoint.execute('ALTER TABLE "Billing" RENAME COLUMN body TO content')

        refused = queue.deliver(destination, letters)

    assert {type(error) for error in refused.values()} == {NotAQueueError}
    assert len(refused) == 2


def test_connection_that_is_killed_is_a_passing_fault_of_the_service(endpoint: Endpoint) -> None:
    def deliver_over_a_killed_connection() -> None:
        with _batch(endpoint) as (_, queue):
            destination = queue.resolve("Billing")
            endpoint.kill_sessions()
            queue.deliver(destination, _bodies(b"x"))

    with pytest.raises(StoreError) as failure:
        deliver_over_a_killed_connection()

    assert failure.value.transient
    assert not isinstance(failure.value, DestinationError)
