"""Which tables of PostgreSQL are queue tables, their refusals, and when they are unavailable."""

import time
from contextlib import suppress

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from duesweep.core.errors import (
    DestinationError,
    MessageError,
    NotAQueueError,
    QueueNotFoundError,
    RefusedMessageError,
    StoreError,
)
from duesweep.core.policy import SessionWaits
from support.contract import queue_tables
from support.contract.queue_tables import LOCK_WAIT_SECONDS
from support.endpoint import Endpoint
from support.proxy import Way, proxied

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
    messages = queue_tables.with_bodies(b"1", b"2")

    assert queue_tables.deliver(endpoint, *messages, address="Odd") == {}

    assert queue_tables.lying_in(endpoint, "Odd") == queue_tables.expected(*messages)


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
        queue_tables.batch(endpoint) as (_, queue),
        pytest.raises(NotAQueueError, match="is not a queue table"),
    ):
        queue.resolve("Other")


def test_delayed_table_is_no_queue_table(endpoint: Endpoint) -> None:
    with (
        queue_tables.batch(endpoint) as (_, queue),
        pytest.raises(NotAQueueError, match="expires, seq"),
    ):
        queue.resolve('"Sales.Orders.Delayed"')


def test_names_are_case_sensitive(endpoint: Endpoint) -> None:
    with queue_tables.batch(endpoint) as (_, queue), pytest.raises(QueueNotFoundError):
        queue.resolve("billing")


def test_delivered_rows_have_ids_of_their_own_and_never_expire(endpoint: Endpoint) -> None:
    messages = queue_tables.with_bodies(*[b"x"] * 500)

    queue_tables.deliver(endpoint, *messages)

    (row,) = endpoint.fetch(
        'SELECT count(DISTINCT id) AS ids, count(expires) AS kept FROM "Billing"'
    )
    assert row == (500, 0)
    (version,) = endpoint.fetch('SELECT DISTINCT substr(id::text, 15, 1) AS v FROM "Billing"')
    assert version.v == "7"
    keys = {one.key for one in messages}
    assert not keys & {r.id for r in endpoint.fetch('SELECT id::text AS id FROM "Billing"')}


def _blocked(text: str) -> pytest.RaisesExc[DestinationError]:
    return pytest.raises(DestinationError, match=text)


_DROP = "BEGIN IF NEW.body = 'bad' THEN RETURN NULL; END IF; RETURN NEW; END"


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
        pytest.param(
            f"CREATE FUNCTION drop() RETURNS trigger LANGUAGE plpgsql AS $${_DROP}$$;"
            ' CREATE TRIGGER drop BEFORE INSERT ON "Billing" FOR EACH ROW EXECUTE FUNCTION drop()',
            id="a trigger that drops it without an error",
        ),
    ],
)
def test_row_that_a_rule_of_the_table_refuses_costs_only_itself(
    endpoint: Endpoint, rule: str
) -> None:
    queue_tables.deliver(endpoint, *queue_tables.with_bodies(b"bad"))
    if "CHECK" in rule:
        endpoint.execute('TRUNCATE "Billing"')
    endpoint.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RAISE EXCEPTION 'we take no such thing'; END$$"
    )
    endpoint.execute(rule)
    messages = queue_tables.with_bodies(b"1", b"2", b"bad", b"3", b"4")

    refused = queue_tables.deliver(endpoint, *messages)

    assert list(refused) == [messages[2].key]
    assert isinstance(refused[messages[2].key], RefusedMessageError)
    taken = [row for row in queue_tables.lying_in(endpoint) if row[1] != b"bad"]
    assert taken == queue_tables.expected(*messages[:2], *messages[3:])


def test_headers_that_no_text_column_holds_cost_only_their_message(endpoint: Endpoint) -> None:
    messages = queue_tables.with_bodies(b"1", b"2", b"3")
    messages[1] = messages[1]._replace(headers_text='{"a":"\0"}')

    refused = queue_tables.deliver(endpoint, *messages)

    assert list(refused) == [messages[1].key]
    assert queue_tables.lying_in(endpoint) == queue_tables.expected(messages[0], messages[2])


def test_group_with_a_bad_row_is_not_delivered_in_part_when_the_table_then_takes_nothing(
    endpoint: Endpoint,
) -> None:
    endpoint.execute("ALTER TABLE \"Billing\" ADD CHECK (body <> 'bad')")
    endpoint.execute('CREATE UNIQUE INDEX ON "Billing" (body)')
    messages = queue_tables.with_bodies(b"1", b"bad", b"held", b"2")

    with psycopg.connect(endpoint.dsn) as other:
        # Not committed: an insert of the same key waits for it.
        other.execute("INSERT INTO \"Billing\" VALUES (gen_random_uuid(), NULL, '{}', 'held')")
        with queue_tables.batch(endpoint) as (_, queue), pytest.raises(DestinationError):
            queue.deliver(queue.resolve("Billing"), messages)
        other.rollback()

    assert queue_tables.lying_in(endpoint) == []


def test_locked_queue_table_is_given_up_after_the_lock_time_out(endpoint: Endpoint) -> None:
    with psycopg.connect(endpoint.dsn) as other, queue_tables.batch(endpoint) as (_, queue):
        destination = queue.resolve("Billing")
        other.execute('LOCK TABLE "Billing"')

        began = time.monotonic()
        with _blocked("55P03") as failure:
            queue.deliver(destination, queue_tables.with_bodies(b"x"))

    assert not failure.value.transient, "each try would take as long again"
    assert LOCK_WAIT_SECONDS <= time.monotonic() - began < LOCK_WAIT_SECONDS + 60


def test_role_without_the_right_to_insert_gets_nothing_delivered_and_charges_no_message(
    endpoint: Endpoint,
) -> None:
    dsn = endpoint.server.role("reader", "SELECT ON ALL TABLES IN SCHEMA public")

    with (
        queue_tables.batch(endpoint, dsn) as (_, queue),
        _blocked("grant INSERT") as failure,
    ):
        queue.deliver(queue.resolve("Billing"), queue_tables.with_bodies(b"x"))

    assert not failure.value.transient, "it is tried again, in vain"


def test_queue_whose_seq_is_used_up_takes_nothing_and_says_what_to_do(endpoint: Endpoint) -> None:
    endpoint.execute('ALTER SEQUENCE "Billing_seq_seq" RESTART WITH 2147483647')
    messages = queue_tables.with_bodies(b"1", b"2")

    with queue_tables.batch(endpoint) as (_, queue), _blocked("bigint"):
        queue.deliver(queue.resolve("Billing"), messages)

    assert queue_tables.lying_in(endpoint) == []


def test_statement_that_takes_too_long_stops_the_queue_and_not_the_message(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SessionWaits, "statement_seconds", 3.0)
    linger = "PERFORM pg_sleep(30); RETURN NEW;"
    endpoint.server.add_trigger("BEFORE INSERT", '"Billing"', linger)

    with (
        queue_tables.batch(endpoint) as (_, queue),
        _blocked("took too long"),
    ):
        queue.deliver(queue.resolve("Billing"), queue_tables.with_bodies(b"x"))


_CALLS = """
    CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN {body}; RETURN new; END $$;
    CREATE TRIGGER follow AFTER INSERT ON "Billing" FOR EACH ROW EXECUTE FUNCTION follow();
"""


@pytest.mark.parametrize(
    "body", ["INSERT INTO audit VALUES (1)", "PERFORM no_such_function()", "new.nothing := 1"]
)
def test_trigger_that_is_broken_stops_the_queue_and_charges_no_message(
    body: str, endpoint: Endpoint
) -> None:
    endpoint.execute(_CALLS.format(body=body))

    with (
        queue_tables.batch(endpoint) as (_, queue),
        pytest.raises(DestinationError, match="trigger"),
    ):
        queue.deliver(queue.resolve("Billing"), queue_tables.with_bodies(b"1", b"2"))

    assert queue_tables.lying_in(endpoint) == []


def test_row_security_stops_the_queue_and_the_others_go_on(endpoint: Endpoint) -> None:
    endpoint.create_queue("Shipping")
    sweeper = endpoint.server.role(
        "sweeper", "ALL ON ALL TABLES IN SCHEMA public", "ALL ON ALL SEQUENCES IN SCHEMA public"
    )
    endpoint.execute('ALTER TABLE "Billing" ENABLE ROW LEVEL SECURITY')
    messages = queue_tables.with_bodies(b"1")

    with queue_tables.batch(endpoint, dsn=sweeper) as (_, queue):
        with pytest.raises(DestinationError):
            queue.deliver(queue.resolve("Billing"), messages)
        assert queue.deliver(queue.resolve("Shipping"), messages) == {}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ('DROP TABLE "Billing"', QueueNotFoundError),
        ('ALTER TABLE "Billing" RENAME COLUMN body TO content', NotAQueueError),
    ],
)
def test_table_that_is_no_queue_since_it_was_found_is_the_messages_fault(
    endpoint: Endpoint, change: str, error: type[MessageError]
) -> None:
    messages = queue_tables.with_bodies(b"1", b"2")
    with queue_tables.batch(endpoint) as (_, queue):
        destination = queue.resolve("Billing")
        endpoint.execute(change)

        refused = queue.deliver(destination, messages)

        assert {key: type(one) for key, one in refused.items()} == {
            message.key: error for message in messages
        }
        with pytest.raises(error):
            queue.resolve("Billing")


def test_connection_that_breaks_off_within_a_message_is_a_passing_fault_of_the_service(
    endpoint: Endpoint,
) -> None:
    with proxied(endpoint.server.admin.info.port) as proxy:
        dsn = make_conninfo(endpoint.dsn, host="127.0.0.1", port=proxy.port)
        proxy.cut_after(500_000, Way.TO_SERVER)
        # Nothing can be committed afterwards.
        with suppress(StoreError), queue_tables.batch(endpoint, dsn) as (_, queue):
            destination = queue.resolve("Billing")
            with pytest.raises(StoreError) as failure:
                queue.deliver(destination, queue_tables.with_bodies(b"x" * 1_000_000))

    assert failure.value.transient
    assert not isinstance(failure.value, DestinationError)


_REAL = "id, headers, body) VALUES (NEW.id, NEW.headers, NEW.body)"
_UNUSUAL = '{"NServiceBus.SqlServer.ForwardDestination":"Billing","Colour":"blue"}'


@pytest.mark.parametrize(
    ("rule", "billed", "moved"),
    [
        (f"DO INSTEAD INSERT INTO public.real ({_REAL}", 0, 6),
        (f"DO ALSO INSERT INTO public.real ({_REAL}", 6, 6),
    ],
    ids=["instead", "also"],
)
def test_rule_of_a_queue_table_applies_as_for_an_insert_of_nservicebus(
    rule: str, billed: int, moved: int, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing", "real")
    endpoint.execute(f'CREATE RULE elsewhere AS ON INSERT TO "Billing" {rule}')
    for number in range(5):
        endpoint.delay(body=f"{number}".encode())
    endpoint.delay(body=b"5", headers=_UNUSUAL)

    assert endpoint.document("sweep")["dispatched"] == 6

    assert (len(endpoint.queue_rows("Billing")), len(endpoint.queue_rows("real"))) == (
        billed,
        moved,
    )
    assert endpoint.document("audit")["findings"] == []


@pytest.mark.parametrize(
    "rule",
    [
        "DO INSTEAD NOTHING",
        # The server counts no rows that a rule with a condition puts elsewhere.
        f"WHERE true DO INSTEAD INSERT INTO public.real ({_REAL}",
    ],
    ids=["nothing", "elsewhere"],
)
def test_messages_that_a_rule_may_have_dropped_stay_in_the_store(
    rule: str, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing", "Shipping", "real")
    endpoint.execute(f'CREATE RULE nothing AS ON INSERT TO "Billing" {rule}')
    endpoint.delay_many(4, ["Billing", "Shipping"])

    swept = endpoint.document("sweep", code=3)

    assert (swept["dispatched"], swept["failed"]) == (2, 2)
    assert endpoint.queue_rows("real") == []
    assert all(
        "rule on it that drops rows" in row.error_text for row in endpoint.attempts().values()
    )


def test_policy_of_rows_on_a_queue_lets_unusual_messages_arrive_too(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    rights = ("ALL ON ALL TABLES IN SCHEMA public", "ALL ON ALL SEQUENCES IN SCHEMA public")
    dsn = endpoint.server.role("swept", *rights)
    endpoint.execute('ALTER TABLE "Billing" ENABLE ROW LEVEL SECURITY')
    endpoint.execute('CREATE POLICY every ON "Billing" USING (true) WITH CHECK (true)')
    endpoint.delay_many(5)
    endpoint.delay(headers=_UNUSUAL)

    assert endpoint.document("sweep", store__dsn=dsn)["dispatched"] == 6

    assert len(endpoint.queue_rows("Billing")) == 6
