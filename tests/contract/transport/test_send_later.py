"""A message for later waits in the delayed table, as the transport would have stored it."""

import json
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from duesweep.core.errors import ConfigError
from duesweep.core.headers import FORWARD_DESTINATION
from duesweep_testing.builders import BODY, ENDPOINT
from duesweep_transport.configured import transport_of
from duesweep_transport.tables import TransportSession
from duesweep_transport.values import OutgoingMessage
from support.endpoint import Endpoint
from support.transport import BILLING, Subject, fill, message, receive_all

DELAY = timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)
# What NServiceBus's PostgreSQL transport would store, in a session of the writers' zone.
_STORED = "SELECT timestamptz(now() AT TIME ZONE 'UTC') + interval '1 day 2:03:04.005'"


def test_message_for_another_says_where_it_goes_in_its_last_header(
    subject: Subject, session: TransportSession
) -> None:
    queue = session.queue(BILLING)

    queue.send(OutgoingMessage({FORWARD_DESTINATION: "Stale", "a": None}, BODY, delay=DELAY))

    (row,) = subject.fetch(f"SELECT headers, body FROM {subject.delayed}")
    assert list(json.loads(row[0]).items()) == [
        ("a", None),
        (FORWARD_DESTINATION, str(queue.destination)),
    ]
    assert bytes(row[1]) == BODY


def test_message_for_the_endpoint_itself_says_nothing(
    subject: Subject, session: TransportSession
) -> None:
    session.queue(ENDPOINT).send(OutgoingMessage({"a": "b"}, None, delay=DELAY))
    session.queue(None).send(OutgoingMessage({"a": "b"}, None, delay=DELAY))

    rows = subject.fetch(f"SELECT headers, body FROM {subject.delayed}")
    assert [tuple(row) for row in rows] == [('{"a":"b"}', None)] * 2


def test_message_comes_due_after_its_delay_by_the_servers_clock(
    subject: Subject, session: TransportSession
) -> None:
    session.queue(BILLING).send(message(1, delay=DELAY))

    (row,) = subject.fetch(f"SELECT due FROM {subject.delayed}")
    # The server is in UTC.
    late = row.due.replace(tzinfo=UTC) - subject.server.time() - DELAY
    assert abs(late) < timedelta(minutes=1)


def test_message_is_not_sent_where_the_transaction_is_rolled_back(
    subject: Subject, session: TransportSession
) -> None:
    queue = fill(session.queue(BILLING), 0)

    def send_and_fail() -> None:
        with session.transaction():
            queue.send(message(1, delay=DELAY))
            queue.send(message(2))
            raise KeyError

    with pytest.raises(KeyError):
        send_and_fail()

    assert subject.fetch(f"SELECT 1 FROM {subject.delayed}") == []
    assert list(receive_all(queue)) == []


def test_without_a_delayed_table_nothing_is_stored(
    subject: Subject, session: TransportSession
) -> None:
    subject.execute(f"DROP TABLE {subject.delayed}")

    with pytest.raises(ConfigError, match="no delayed table"):
        session.queue(BILLING).send(message(1, delay=DELAY))


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
@pytest.mark.parametrize("how", ["found", "set"])
def test_postgresql_stores_due_in_the_writers_zone(endpoint: Endpoint, zone: str, how: str) -> None:
    endpoint.set_up(BILLING)
    name = endpoint.server.admin.info.dbname
    if how == "found":
        endpoint.execute(f"ALTER DATABASE {name} SET TimeZone = '{zone}'")
    settings = {"store__writer_time_zone": zone} if how == "set" else {}

    with transport_of(endpoint.config(**settings)).connect() as session:
        with session.transaction():
            session.queue(BILLING).send(message(1, delay=DELAY))
            # The zone applies to the stored message only.
            session.queue(BILLING).send(message(2, time_to_be_received=timedelta(hours=1)))
        assert list(receive_all(session.queue(BILLING))) == [2]

    with psycopg.connect(endpoint.dsn, options=f"-c TimeZone={zone}") as writer:
        ((expected,),) = writer.execute(_STORED).fetchall()
    (row,) = endpoint.fetch(f"SELECT due FROM {endpoint.delayed}")
    due: datetime = row.due
    assert abs(due - expected) < timedelta(minutes=1)


def test_queues_in_another_database_have_no_delayed_table_beside_them(endpoint: Endpoint) -> None:
    endpoint.set_up(BILLING)
    config = endpoint.config(queues__default__dsn=endpoint.dsn)

    with (
        transport_of(config).connect() as session,
        pytest.raises(ConfigError, match="in another database"),
    ):
        session.queue(BILLING).send(message(1, delay=DELAY))
