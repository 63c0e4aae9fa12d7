"""What a broker refuses costs the message at fault an attempt, and no other."""

import pytest

from duesweep.core.errors import QueueNotFoundError, RefusedMessageError
from duesweep.core.message import Message
from duesweep.queues.rabbitmq.topology import Style
from duesweep_testing.builders import delayed_row, message
from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import (
    arrived,
    bodies,
    connections,
    numbered,
    queue_of,
    queue_session,
    sent,
    world_on,
)


@pytest.mark.parametrize("endpoint", ["Void", "Nowhere"])
def test_message_that_no_queue_takes_fails_alone(billing: Broker, endpoint: str) -> None:
    billing.channel.exchange_declare("Void", "fanout", durable=True)
    good, lost = numbered(3), numbered(2, endpoint)
    world = world_on(queue_of(billing.url), *lost, *good)

    run = world.sweep()

    assert arrived(billing, "Billing", 3) == dict.fromkeys(bodies(good), 1)
    assert set(world.store.rows) == set(world.store.attempts) == {row.key for row in lost}
    assert world.counted(run) == (3, 2)
    assert [end.reason for end in world.ends(run)] == [None]


@pytest.mark.parametrize("name", ["Gone", "Gone." + "x" * 245])
def test_endpoint_that_goes_after_it_was_found_fails_alone(billing: Broker, name: str) -> None:
    billing.create(name, x_queue_type="classic")
    good, lost, later = sent(200), sent(2, name), sent(5, "later")

    with queue_session(billing) as session:
        found, gone = session.resolve("Billing"), session.resolve(name)
        before = connections()
        billing.delete(name)
        session.deliver(found, good[:100])
        session.deliver(gone, lost)
        session.deliver(found, good[100:])
        answer = session.confirm(60)

        assert set(answer.refused) == {m.key for m in lost}
        assert all(isinstance(e, QueueNotFoundError) for e in answer.refused.values())
        released = [m for m in good if m.key in answer.unconfirmed]
        session.deliver(session.resolve("Billing"), [*released, *later])
        again = session.confirm(60)
        with pytest.raises(QueueNotFoundError):
            session.resolve(name)
        assert connections() == before

    assert (again.refused, again.unconfirmed) == ({}, frozenset())
    assert bodies([*good, *later]) == set(arrived(billing, "Billing", 200 + len(later)))


def test_full_queue_refuses_what_is_over_and_the_others_take_theirs(billing: Broker) -> None:
    limits = {"x_max_length": 2, "x_overflow": "reject-publish"}
    billing.create("Small", x_queue_type="classic", **limits)
    good, small = numbered(3), numbered(5, "Small")
    world = world_on(queue_of(billing.url), *small, *good)

    run = world.sweep()

    assert world.counted(run) == (5, 3)
    assert billing.count("Small") == 2
    assert arrived(billing, "Billing", 3) == dict.fromkeys(bodies(good), 1)
    assert set(world.store.attempts) == set(world.store.rows) < {row.key for row in small}


@pytest.mark.parametrize("style", Style)
def test_endpoint_that_may_not_be_written_to_keeps_its_messages_uncharged(
    billing: Broker, style: Style
) -> None:
    billing.create("Shipping", x_queue_type="classic")
    billing.permit(write="^Shipping$")
    good, kept = numbered(3, "Shipping"), numbered(4)
    world = world_on(queue_of(billing.url, style=style), *kept, *good)

    run = world.sweep()

    assert world.store.attempts == {}
    (end,) = world.ends(run)
    assert end.reason is not None
    assert "ACCESS_REFUSED" in end.reason
    assert ("Billing" if style is Style.CONVENTIONAL else "amq.default") in end.reason
    assert billing.count("Billing") == 0
    if style is Style.CONVENTIONAL:
        assert set(world.store.rows) == {row.key for row in kept}
        assert bodies(good) <= set(arrived(billing, "Shipping", 3))
    else:
        # Every queue is reached by the same exchange.
        assert len(world.store.rows) == 7


def test_longer_message_than_the_broker_takes_fails_alone(billing: Broker) -> None:
    control = billing.server.control
    control("eval", "application:set_env(rabbit, max_message_size, 100000).")
    try:
        rows = [delayed_row(body=b"x" * n) for n in (100_001, 99_999, 100_000, 1)] + numbered(50)
        world = world_on(queue_of(billing.url), *rows)

        run = world.sweep()
    finally:
        control("eval", "application:set_env(rabbit, max_message_size, 134217728).")

    assert list(world.store.rows) == list(world.store.attempts) == [rows[0].key]
    assert [end.reason for end in world.ends(run)] == [None]
    assert bodies(rows[1:]) == set(arrived(billing, "Billing", 53))


def _with(name: str, value: str) -> Message:
    plain = message(delayed_row())
    assert not isinstance(plain.headers, Exception)
    return plain._replace(headers={**plain.headers, name: value})


def test_message_that_amqp_has_no_room_for_fails_alone(billing: Broker) -> None:
    misfits = [
        _with("Long", "x" * 200_000),
        _with("x" * 256, "name"),
        _with("NServiceBus.CorrelationId", "x" * 256),
        _with("NServiceBus.EnclosedMessageTypes", "\N{GRINNING FACE}" * 64),
        _with("Lone", "\ud800"),
        _with("\ud800", "lone"),
    ]
    fits = [_with("Long", "x" * 100_000), _with("x" * 255, "name"), *sent(3)]

    with queue_session(billing) as session:
        found = session.resolve("Billing")
        before = connections()
        session.deliver(found, [*misfits[:3], *fits, *misfits[3:]])
        answer = session.confirm(60)

        assert set(answer.refused) == {m.key for m in misfits}
        assert all(isinstance(e, RefusedMessageError) for e in answer.refused.values())
        assert answer.unconfirmed == frozenset()
        session.deliver(session.resolve("Billing"), sent(1))
        assert session.confirm(60).unconfirmed == frozenset()
        assert connections() == before

    assert len(billing.take_all("Billing", 6)) == 6


def test_headers_about_as_long_as_a_frame_are_sent_or_refused_and_break_nothing(
    billing: Broker,
) -> None:
    sizes = [_with("Long", "x" * n) for n in range(129_600, 131_200, 41)]

    with queue_session(billing) as session:
        session.deliver(session.resolve("Billing"), sizes)
        answer = session.confirm(60)

    taken = len(sizes) - len(answer.refused)
    assert answer.unconfirmed == frozenset()
    assert 0 < taken < len(sizes)
    assert len(billing.take_all("Billing", taken)) == taken


def test_names_that_are_odd_are_found(broker: Broker) -> None:
    for name in ("O'Brien's \"Queue\"", "ü \N{GRINNING FACE}", "#.*", "x" * 255):
        broker.create(name, x_queue_type="classic")
        world = world_on(queue_of(broker.url), *numbered(2, name))

        world.sweep()

        assert world.store.rows == {}
        assert broker.count(name) == 2


def test_what_was_rolled_back_is_not_told_to_the_next_batch(billing: Broker) -> None:
    billing.channel.exchange_declare("Void", "fanout", durable=True)

    with queue_session(billing) as session:
        session.deliver(session.resolve("Void"), sent(3))
        session.rollback()
        assert session.confirm(60).refused == {}
        session.deliver(session.resolve("Billing"), sent(3))
        answer = session.confirm(60)

    assert (answer.refused, answer.unconfirmed) == ({}, frozenset())
    assert billing.count("Billing") == 3
