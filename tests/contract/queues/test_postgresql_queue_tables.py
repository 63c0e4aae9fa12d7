"""Which tables of PostgreSQL are queue tables, and what they accept."""

import pytest

from duesweep.core.errors import (
    NotAQueueError,
    QueueNotFoundError,
)
from duesweep_testing.builders import message
from support import recordings
from support.contract import queue_steps
from support.endpoint import Endpoint

QUEUE_COLUMNS = "id uuid, expires timestamp, headers text, body bytea"


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
    messages = queue_steps.with_bodies(b"1", b"2")

    assert queue_steps.deliver(endpoint, *messages, address="Odd") == {}

    assert queue_steps.lying_in(endpoint, "Odd") == queue_steps.expected(*messages)


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
        queue_steps.batch(endpoint) as (_, queue),
        pytest.raises(NotAQueueError, match="is not a queue table"),
    ):
        queue.resolve("Other")


def test_delayed_table_is_no_queue_table(endpoint: Endpoint) -> None:
    with (
        queue_steps.batch(endpoint) as (_, queue),
        pytest.raises(NotAQueueError, match="expires, seq"),
    ):
        queue.resolve('"Sales.Orders.Delayed"')


@pytest.mark.parametrize(
    "address",
    ["Ship.ping", '"Ship"."ping"', '"my ""odd"" schema: 100%"."%s.{x}"', '"' + "q" * 63 + '"'],
)
def test_queue_with_an_odd_name_takes_messages(endpoint: Endpoint, address: str) -> None:
    table = endpoint.create_queue(address)
    (one,) = queue_steps.with_bodies(b"x")

    with queue_steps.batch(endpoint) as (_, queue):
        destination = queue.resolve(address)
        queue.deliver(destination, [one])

    assert str(destination) == str(table)
    assert queue_steps.lying_in(endpoint, address) == queue_steps.expected(one)


def test_names_are_case_sensitive(endpoint: Endpoint) -> None:
    with queue_steps.batch(endpoint) as (_, queue), pytest.raises(QueueNotFoundError):
        queue.resolve("billing")


def test_delivered_rows_have_ids_of_their_own_and_never_expire(endpoint: Endpoint) -> None:
    messages = queue_steps.with_bodies(*[b"x"] * 500)

    queue_steps.deliver(endpoint, *messages)

    (row,) = endpoint.fetch(
        'SELECT count(DISTINCT id) AS ids, count(expires) AS kept FROM "Billing"'
    )
    assert row == (500, 0)
    (version,) = endpoint.fetch('SELECT DISTINCT substr(id::text, 15, 1) AS v FROM "Billing"')
    assert version.v == "7"
    keys = {one.key for one in messages}
    assert not keys & {r.id for r in endpoint.fetch('SELECT id::text AS id FROM "Billing"')}


def test_recorded_messages_are_delivered_as_they_were_recorded(endpoint: Endpoint) -> None:
    endpoint.create_queue("Ship.ping")
    rows = [row for row in recordings.delayed_rows() if row.due.year == 2026]  # type: ignore[union-attr]
    unknown = []

    with queue_steps.batch(endpoint) as (_, queue):
        for one in map(message, rows):
            try:
                queue.deliver(queue.resolve(one.destination), [one])
            except QueueNotFoundError:
                unknown.append(one.destination)

    assert unknown == ["Nowhere"]
    for address, recorded in recordings.delivered_rows().items():
        delivered = {row.message_id: row for row in endpoint.queue_rows(address)}
        assert delivered == {row.message_id: row for row in recorded}
