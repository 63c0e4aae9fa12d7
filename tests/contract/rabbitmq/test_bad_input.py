"""The corpus of bad input against a broker: bad messages fail, and good ones arrive beside them."""

import pytest

from duesweep.core.errors import UnreadableHeadersError
from duesweep.core.headers import FORWARD_DESTINATION, read_json, write_json
from duesweep.queues.rabbitmq.topology import Style
from duesweep_testing.builders import DelayedRow
from support.bad_input import corpus
from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import arrived, bodies, numbered, queue_of, world_on

# What a broker itself has under a name that no endpoint has.
_BROKERS_OWN = ["amq.fanout", "amq.direct", "amq.topic", "amq.headers", "amq.rabbitmq.reply-to"]


@pytest.mark.parametrize("style", list(Style))
def test_bad_addresses_fail_alone(billing: Broker, style: Style) -> None:
    addresses = [one.text for one in corpus("addresses") if "\ud800" not in one.text]
    bad = [
        DelayedRow(headers=write_json({FORWARD_DESTINATION: address}))
        for address in [*addresses, *_BROKERS_OWN]
    ]
    good = numbered(3)
    world = world_on(queue_of(billing.url, style=style), *bad, *good)

    run = world.sweep()

    assert arrived(billing, "Billing", 3) == dict.fromkeys(bodies(good), 1)
    assert set(world.store.attempts) == {row.key for row in bad}
    assert [end.reason for end in world.ends(run)] == [None]


def test_unusual_headers_arrive_or_are_refused_by_amqp(billing: Broker) -> None:
    rows = [
        DelayedRow(headers=one.text, body=str(number).encode())
        for number, one in enumerate(corpus("headers_json"))
    ]
    world = world_on(queue_of(billing.url), *rows)

    world.sweep()

    good = [row for row in rows if _fits_amqp(row)]
    assert len(good) == 10
    assert set(world.store.attempts) == {row.key for row in rows} - {row.key for row in good}
    assert arrived(billing, "Billing", len(good)) == dict.fromkeys(bodies(good), 1)


def _fits_amqp(row: DelayedRow) -> bool:
    """Whether its headers can be read, and have less than 128 kB."""
    try:
        headers = read_json(row.headers)
    except UnreadableHeadersError:
        return False
    return sum(len(f"{name}{value}") for name, value in headers.items()) < 128_000
