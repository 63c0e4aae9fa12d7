"""A broker that is short of memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import arrived, bodies, connections, numbered, queue_of, world_on
from support.waiting import until


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
        patch.setattr("duesweep.sweep.delivery.CLAIM_SECONDS", 5.0)
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
        replace(queue_of(billing.url), holds_own_queue=False).check("Billing")
