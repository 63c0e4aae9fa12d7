"""A dispatch whose connection is cut while it runs: the account is what left the store."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from duesweep.core.policy import BatchLimits
from duesweep.queues.base import Confirmation
from duesweep.queues.rabbitmq.session import RabbitMqQueueSession
from duesweep.stores import tombstone
from duesweep_testing.builders import DelayedRow
from duesweep_testing.journal import BatchEntry
from support.proxy import Proxy
from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import arrived, numbered, queue_of, world_on

ENDPOINTS = ("Billing", "Shipping", "Ship.ping")
COUNT = 1_000
_CUT_IN_BATCHES = (3, 8, 15)


@dataclass
class _Witness:
    """Cuts the connection in the middle of some batches, and notes what was left unconfirmed."""

    proxy: Proxy
    batches: int = 0
    unconfirmed: Counter[str] = field(default_factory=Counter)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        deliver, confirm = RabbitMqQueueSession.deliver, RabbitMqQueueSession.confirm

        def delivered(session: RabbitMqQueueSession, *arguments: Any) -> Any:
            refused = deliver(session, *arguments)
            self.batches += 1
            if self.batches in _CUT_IN_BATCHES:
                self.proxy.cut()
            return refused

        def confirmed(session: RabbitMqQueueSession, seconds: float) -> Confirmation:
            answer = confirm(session, seconds)
            self.unconfirmed.update(answer.unconfirmed)
            return answer

        monkeypatch.setattr(RabbitMqQueueSession, "deliver", delivered)
        monkeypatch.setattr(RabbitMqQueueSession, "confirm", confirmed)


def _rows() -> list[DelayedRow]:
    """Of every endpoint in turns."""
    by_endpoint = [numbered(COUNT, name, size=500) for name in ENDPOINTS]
    return [row for rows in zip(*by_endpoint, strict=True) for row in rows]


def _accounted(entries: list[Any]) -> Counter[str]:
    batches = [e for e in entries if isinstance(e, BatchEntry) and e.outcomes is not None]
    return Counter(
        row["message_key"] for e in batches for row in tombstone.decode(e.outcomes).to_pylist()
    )


def test_all_arrive_and_only_what_was_unconfirmed_arrives_twice(
    broker: Broker, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ENDPOINTS:
        broker.create(name, x_queue_type="classic")
    rows = _rows()
    world = world_on(queue_of(broker.server.url(broker.vhost, proxy.port)), *rows)
    witness = _Witness(proxy)
    witness.watch(monkeypatch)

    run = world.sweep(limits=BatchLimits(rows=300))

    assert proxy.cuts == len(_CUT_IN_BATCHES)
    assert witness.unconfirmed, "no cut was in the middle of a batch"
    assert world.store.rows == {}
    assert world.store.attempts == {}
    assert _accounted(world.store.journal[run.sweep_id]) == {row.key: 1 for row in rows}
    assert [end.reason for end in world.ends(run)] == [None]
    sendings = {row.key: 1 + witness.unconfirmed[row.key] for row in rows}
    for place, name in enumerate(ENDPOINTS):
        found = arrived(broker, name, COUNT)
        own = {row.body: sendings[row.key] for row in rows[place :: len(ENDPOINTS)]}
        assert set(found) == set(own)
        assert all(found[body] <= own[body] for body in own if body is not None)


def test_messages_of_a_batch_arrive_in_order(broker: Broker) -> None:
    broker.create("Billing", x_queue_type="classic")
    rows = numbered(1_500)
    # Fewer at a time than a batch has: order must not depend on what fits.
    world = world_on(queue_of(broker.url, max_in_flight=7), *rows)

    world.sweep(limits=BatchLimits(rows=500))

    bodies = [body for _, _, body in broker.take_all("Billing", 1_500)]
    assert len(bodies) == 1_500
    assert all(one < next_one for one, next_one in pairwise(bodies))
