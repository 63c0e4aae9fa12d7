"""Messages that are deferred before they are due, through the real delay ladder."""

import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from duesweep.core.message import Message
from duesweep.core.world import Clock, SettableClock, StoreClock
from duesweep.drivers.rabbitmq.connection import Brokers, Channel, RabbitMqConnection
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.topology import Style
from duesweep.queues.rabbitmq.wire import Punctuality
from duesweep_testing.builders import DelayedRow, delayed_row
from duesweep_testing.sweeps import open_sweep
from support.dispatch_world import World
from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import (
    arrived,
    queue_of,
    queue_session,
    sent,
    session_of,
    world_on,
)
from support.waiting import until

DELAYS = (1, 2, 3, 5)


@pytest.fixture
def with_ladder(billing: Broker) -> Broker:
    with RabbitMqConnection(Brokers((billing.url,), "queues.default")) as connection:
        topology.create(Channel(connection), topology.ladder())
    return billing


class _Arrivals:
    """Takes messages as they arrive, and notes when."""

    def __init__(self, broker: Broker, *queues: str) -> None:
        self.seconds: dict[bytes, float] = {}
        self.properties: dict[bytes, Any] = {}
        self._broker = broker
        for queue in queues:
            broker.channel.basic_consume(queue, self._note, auto_ack=True)

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + 180
        while len(self.seconds) < count and time.monotonic() < deadline:
            self._broker.connection.process_data_events(0.05)

    def _note(self, _: Any, __: Any, properties: Any, body: bytes) -> None:
        self.seconds[body] = time.monotonic()
        self.properties[body] = properties


def _due_in(seconds: float, body: str) -> Message:
    (plain,) = sent(1)
    due_us = int(seconds * 1_000_000)
    return plain._replace(due_us=due_us, instant_us=due_us, body=body.encode())


def test_messages_are_never_early_and_wait_no_longer_than_they_have_to(with_ladder: Broker) -> None:
    with_ladder.create_queue("Direct", x_queue_type="classic")
    arrivals = _Arrivals(with_ladder, "Billing", "Direct")

    started = time.monotonic()
    clock = StoreClock(0, SettableClock())
    for style, name in ((Style.CONVENTIONAL, "Billing"), (Style.DIRECT, "Direct")):
        with queue_session(with_ladder, style) as session:
            early = [_due_in(seconds, f"{name} {seconds}") for seconds in DELAYS]
            assert session.defer(session.resolve(name), early, clock) == {}
            answer = session.confirm(60)
            assert (answer.refused, answer.unconfirmed) == ({}, frozenset())
    arrivals.wait_for(2 * len(DELAYS))

    late = {
        body: arrivals.seconds[body.encode()] - started - seconds
        for name in ("Billing", "Direct")
        for seconds in DELAYS
        if (body := f"{name} {seconds}").encode() in arrivals.seconds
    }
    assert len(late) == 2 * len(DELAYS)
    assert min(late.values()) >= 0
    waits = {
        body.decode(): p.headers[topology.DELAY_HEADER] for body, p in arrivals.properties.items()
    }
    assert waits == {f"{name} {s}": s for name in ("Billing", "Direct") for s in DELAYS}
    assert {p.expiration for p in arrivals.properties.values()} == {None}


def test_punctual_messages_enter_when_whole_seconds_are_left(with_ladder: Broker) -> None:
    punctual = replace(queue_of(with_ladder.url), is_punctual=True)
    arrivals = _Arrivals(with_ladder, "Billing")
    # Rounded up, each would wait for a second more.
    delays = (0.1, 1.1, 2.1)

    started = time.monotonic()
    clock = StoreClock(0, SettableClock())
    with session_of(punctual) as session:
        early = [_due_in(seconds, str(seconds)) for seconds in delays]
        session.defer(session.resolve("Billing"), early, clock)
        answer = session.confirm(60)
        assert (answer.refused, answer.unconfirmed) == ({}, frozenset())
    arrivals.wait_for(len(delays))

    late = [arrivals.seconds[str(seconds).encode()] - started - seconds for seconds in delays]
    assert min(late) >= 0
    found = [arrivals.properties[str(s).encode()].headers for s in delays]
    assert [headers.get(topology.DELAY_HEADER, 0) for headers in found] == [0, 1, 2]


def test_what_is_still_held_when_time_is_up_was_not_sent(
    with_ladder: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # For longer than a fraction of a second, in which a busy machine may do nothing at all.
    monkeypatch.setattr(
        Punctuality, "seconds_and_hold", lambda _, left_us: (0, left_us / 1_000_000)
    )
    punctual = replace(queue_of(with_ladder.url), is_punctual=True)
    clock = StoreClock(0, SettableClock())
    with session_of(punctual) as session:
        early = [_due_in(8, "held"), _due_in(0.05, "sent")]
        session.defer(session.resolve("Billing"), early, clock)
        goes_out = time.monotonic() + 8
        with_ladder.wait_for("Billing", 1)
        answer = session.confirm(1)
        assert answer.unconfirmed == {early[0].key}

        session.deliver(session.resolve("Billing"), [_due_in(0, "next")])
        assert session.confirm(60).unconfirmed == frozenset()
        until(lambda: time.monotonic() > goes_out + 0.5)

    assert set(arrived(with_ladder, "Billing", 2)) == {b"sent", b"next"}


def test_what_comes_due_before_it_is_sent_goes_straight(with_ladder: Broker) -> None:
    clock = StoreClock(10_000_000, Clock())

    with queue_session(with_ladder) as session:
        session.defer(session.resolve("Billing"), [_due_in(9, "late")], clock)
        session.confirm(60)

    ((method, properties, body),) = with_ladder.take_all("Billing", 1)
    assert (method.exchange, body) == ("Billing", b"late")
    assert topology.DELAY_HEADER not in properties.headers


def _ahead(world: World, seconds: int) -> Any:
    """Sweep also messages that come due in this many seconds."""
    run = open_sweep(world.store)
    ahead = replace(run, horizon=run.horizon.looking_ahead(timedelta(seconds=seconds)))
    world.run_slice(ahead)
    return ahead


def _rows(world: World, *waits: float) -> list[DelayedRow]:
    """Rows for Billing that come due in this many seconds, in the store."""
    rows = [
        delayed_row(due=world.store.now + timedelta(seconds=wait), body=f"{wait}".encode())
        for wait in waits
    ]
    world.store.rows.update({row.key: row for row in rows})
    return rows


def test_broker_without_a_ladder_gets_what_is_due_and_no_more(billing: Broker) -> None:
    world = world_on(queue_of(billing.url))
    due, early = _rows(world, -1, 30)

    run = _ahead(world, 60)

    assert arrived(billing, "Billing", 1) == {due.body: 1}
    assert list(world.store.rows) == [early.key]
    assert world.store.attempts == {}
    (end,) = world.ends(run)
    assert end.reason is not None
    assert "rabbitmq delays create" in end.reason


@pytest.mark.parametrize("what", ["exchange", "queue"])
def test_broken_level_charges_no_message_and_due_messages_are_delivered(
    with_ladder: Broker, what: str
) -> None:
    if what == "exchange":
        with_ladder.channel.exchange_delete(topology.level_name(4))
    else:
        with_ladder.channel.queue_delete(topology.level_name(4))
    world = world_on(queue_of(with_ladder.url))
    due, below, broken, above = _rows(world, -1, 10, 20, 40)

    run = _ahead(world, 60)

    # A missing exchange closes the channel: nothing that comes after it enters a ladder that is
    # not to be trusted. Earlier messages have been confirmed by then, or not.
    rest = {broken.key} if what == "queue" else {broken.key, above.key}
    unconfirmed = {below.key} & set(world.store.rows) if what == "exchange" else set()
    assert set(world.store.rows) == rest | unconfirmed
    if not unconfirmed:
        with_ladder.wait_for(topology.level_name(3), 1)
    assert world.store.attempts == {}
    (end,) = world.ends(run)
    assert end.reason is not None
    assert "nsb.v2.delay-level-04" in end.reason
    assert "delays verify" in end.reason
    assert due.body in arrived(with_ladder, "Billing", 1)


def test_queue_that_its_exchange_lost_is_bound_again_before_anything_enters(
    with_ladder: Broker,
) -> None:
    with_ladder.create("Void", x_queue_type="classic")
    with_ladder.channel.queue_unbind("Void", "Void")

    with queue_session(with_ladder) as session:
        clock = StoreClock(0, Clock())
        session.defer(session.resolve("Void"), [_due_in(0.5, "early")], clock)
        assert session.confirm(60).unconfirmed == frozenset()

    assert arrived(with_ladder, "Void", 1) == {b"early": 1}


def test_endpoint_without_a_queue_of_its_name_is_handed_nothing_early(with_ladder: Broker) -> None:
    with_ladder.channel.exchange_declare("Billing.Only", "fanout", durable=True)
    with_ladder.channel.queue_bind("Billing", "Billing.Only")
    world = world_on(queue_of(with_ladder.url))
    row = delayed_row("Billing.Only", due=world.store.now + timedelta(seconds=30))
    world.store.rows[row.key] = row

    _ahead(world, 60)

    assert list(world.store.rows) == [row.key]
    assert world.store.attempts == {}
