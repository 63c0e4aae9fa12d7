"""A broker's refusal costs only the message at fault an attempt, also if the broker
does not say which one it was.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from duesweep.core.errors import QueueNotFoundError, RefusedMessageError
from duesweep.core.message import Message
from duesweep.queues.rabbitmq.topology import Style
from duesweep_testing.builders import DelayedRow, delayed_row, message
from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import (
    NO_STORE,
    arrived,
    bodies,
    connections,
    numbered,
    queue_of,
    queue_session,
    sent,
    world_on,
)
from support.waiting import until


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


def test_messages_reach_queues_without_exchanges(broker: Broker) -> None:
    for name in ("Billing", "Ship.ping"):
        broker.create_queue(name, x_queue_type="classic")
    rows = [*numbered(3), *numbered(2, "Ship.ping"), *numbered(1, "Nowhere")]
    world = world_on(queue_of(broker.url, style=Style.DIRECT), *rows)

    world.sweep()

    assert arrived(broker, "Billing", 3) == dict.fromkeys(bodies(rows[:3]), 1)
    assert arrived(broker, "Ship.ping", 2) == dict.fromkeys(bodies(rows[3:5]), 1)
    assert list(world.store.rows) == list(world.store.attempts) == [rows[5].key]


def test_exchange_alone_is_no_endpoint(broker: Broker) -> None:
    broker.channel.exchange_declare("Billing", "fanout")

    with queue_session(broker, Style.DIRECT) as session, pytest.raises(QueueNotFoundError):
        session.resolve("Billing")


def test_queue_that_goes_after_it_was_found_fails_alone(broker: Broker) -> None:
    for name in ("Billing", "Gone"):
        broker.create_queue(name, x_queue_type="classic")
    with queue_session(broker, Style.DIRECT) as session:
        billing, gone = session.resolve("Billing"), session.resolve("Gone")
        broker.channel.queue_delete("Gone")
        lost = sent(2)
        session.deliver(gone, lost)
        session.deliver(billing, sent(2))
        answer = session.confirm(60)

    assert set(answer.refused) == {m.key for m in lost}
    assert answer.unconfirmed == frozenset()
    assert broker.count("Billing") == 2


_LONGEST = 100_000
_CULPRITS = {
    "CC": {"CC": "a@example.com"},
    "BCC": {"BCC": "a"},
    "a reply address of the broker's": {"NServiceBus.ReplyToAddress": "amq.rabbitmq.reply-to"},
}


def _culprit(number: int = 0) -> DelayedRow:
    return delayed_row(more={"CC": "a@example.com"}, body=f"culprit {number}".encode())


@pytest.fixture
def _unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of the culprit's header before the broker closes the channel."""
    monkeypatch.setattr("duesweep.queues.rabbitmq.wire._LISTS", ())


@pytest.fixture
def _short_messages_only(billing: Broker) -> Iterator[None]:
    limit = "application:set_env(rabbit, max_message_size, {})."
    billing.server.control("eval", limit.format(_LONGEST))
    yield
    billing.server.control("eval", limit.format(134_217_728))


@pytest.mark.parametrize("more", _CULPRITS.values(), ids=_CULPRITS)
def test_culprit_is_charged_and_the_others_arrive(billing: Broker, more: dict[str, str]) -> None:
    culprit, good = delayed_row(more=more), numbered(20)
    world = world_on(queue_of(billing.url), culprit, *good)

    (end,) = world.ends(world.sweep())

    assert end.reason is None
    assert set(world.store.rows) == set(world.store.attempts) == {culprit.key}
    times = arrived(billing, "Billing", len(good))
    assert (set(times), max(times.values())) == (bodies(good), 1)


@pytest.mark.usefixtures("_unknown")
def test_many_culprits_double_each_of_the_others_once_at_the_most(billing: Broker) -> None:
    good = numbered(900)
    culprits = [_culprit(number) for number in range(6)]
    rows = [*culprits[:2], *good[:300], *culprits[2:4], *good[300:], *culprits[4:]]
    world = world_on(queue_of(billing.url), *rows)

    (end,) = world.ends(world.sweep())

    assert end.reason is None
    assert set(world.store.rows) == set(world.store.attempts) == {one.key for one in culprits}
    times = arrived(billing, "Billing", len(good))
    assert set(times) == bodies(good)
    assert max(times.values()) <= 2


@pytest.mark.usefixtures("_short_messages_only")
def test_messages_that_are_too_long_do_not_end_a_slice(billing: Broker) -> None:
    long = [delayed_row(body=b"x" * (_LONGEST + 1 + number)) for number in range(6)]
    good = [*numbered(498), *(delayed_row(body=b"x" * n) for n in (_LONGEST - 1, _LONGEST))]
    world = world_on(queue_of(billing.url), *long, *good)

    (end,) = world.ends(world.sweep())

    assert end.reason is None
    assert set(world.store.attempts) == {row.key for row in long}
    times = arrived(billing, "Billing", len(good))
    assert set(times) == bodies(good)
    assert max(times.values()) <= 2


@pytest.mark.usefixtures("_unknown")
def test_culprit_that_is_tried_again_leaves_the_others_alone(billing: Broker) -> None:
    culprit = _culprit()
    world = world_on(queue_of(billing.url), culprit)
    world.sweep()
    world.clock.advance(3_600)
    world.store.clock.advance(3_600)
    good = numbered(200)
    world.store.rows |= {row.key: row for row in good}

    world.sweep()

    assert world.store.attempts[culprit.key].attempts == 2
    times = arrived(billing, "Billing", len(good))
    assert set(times) == bodies(good)
    assert max(times.values()) == 1


@pytest.mark.usefixtures("_unknown")
def test_without_the_right_to_look_for_the_culprit_no_message_is_charged(billing: Broker) -> None:
    good = numbered(20)
    world = world_on(queue_of(billing.url), *good[:10], _culprit(), *good[10:])
    # RabbitMQ's own syntax: all but the default exchange.
    billing.server.control(
        "set_permissions", "-p", billing.vhost, "guest", ".*", r"^(?!amq\.default$).*", ".*"
    )

    (end,) = world.ends(world.sweep())

    assert end.reason is not None
    assert "CC" in end.reason
    assert world.store.attempts == {}


@contextmanager
def _memory_alarm(broker: Broker) -> Iterator[None]:
    control = broker.server.control
    control("set_vm_memory_high_watermark", "0.00001")
    try:
        yield
    finally:
        control("set_vm_memory_high_watermark", "0.4")


def test_broker_without_memory_is_left_alone_and_works_again_after(
    billing: Broker, fruitless: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = numbered(300)
    world = world_on(queue_of(billing.url), *rows)

    with _memory_alarm(billing), monkeypatch.context() as patch:
        patch.setattr("duesweep.sweep.delivery.CLAIM_SECONDS", 2.0)
        run = world.sweep()
        # Left open, it would be read later on.
        until(lambda: connections() == set())

    assert len(fruitless) <= 1, "it was waited for twice"
    assert len(world.store.rows) == 300
    assert world.store.attempts == {}
    (end,) = world.ends(run)
    assert end.reason is not None
    again = world.sweep()
    assert [end.reason for end in world.ends(again)] == [None]
    assert world.store.rows == {}
    assert arrived(billing, "Billing", 300) == dict.fromkeys(bodies(rows), 1)


def test_check_of_a_broker_without_memory_does_not_hang(billing: Broker) -> None:
    with _memory_alarm(billing):
        replace(queue_of(billing.url), holds_own_queue=False).check("Billing", NO_STORE)
