"""A destination that is unavailable for some time: its messages wait in the slice."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from duesweep.core.errors import DestinationError, DuesweepError
from duesweep.core.message import Message
from duesweep.core.policy import BatchSize, BreakerTimes, RateLimits, Retry
from duesweep.core.world import SettableClock
from duesweep.stores.task import Claim
from duesweep.sweep.destinations import Destinations, KeptMessage, Turn
from duesweep_testing.builders import DUE, DelayedRow, delayed_row
from duesweep_testing.memory_sessions import MemoryTaskSession
from support.contract.memory_stores import DueKeyStore
from support.dispatch_world import World, one, slice_end, world_of

LOCKED = DestinationError("Shipping is locked")
TRIGGER_SECONDS = 30


class Outage:
    """`Shipping` is unavailable until the clock shows this many seconds. `tried_at` is when it was
    tried in vain.
    """

    def __init__(self, world: World, until: float, queue: str = "Shipping") -> None:
        self.tried_at: list[float] = []
        self._world = world
        self._until = until
        world.queue.trouble[queue] = self._refuse

    def _refuse(self, _: Message) -> DuesweepError | None:
        now = self._world.clock.seconds()
        if now >= self._until:
            return None
        self.tried_at.append(now)
        return LOCKED


def _rows(count: int) -> list[DelayedRow]:
    return [delayed_row(queue) for _ in range(count) for queue in ("Shipping", "Billing")]


def test_short_outage_of_a_destination_leaves_nothing_and_charges_nothing() -> None:
    rows = _rows(6)
    world = world_of(*rows)
    outage = Outage(world, until=2.5)

    run = world.sweep(batch_size=BatchSize(rows=4))

    assert sorted(world.queue.arrived["Shipping"], key=str) == sorted(map(one, rows[::2]), key=str)
    assert len(world.queue.arrived["Billing"]) == 6
    assert (world.store.rows, world.store.attempts) == ({}, {})
    assert world.ends(run) == [slice_end(given=12, claimed=12)]
    assert outage.tried_at == [0, 1, 2]
    (report,) = world.breakers(run)
    assert (report.name, report.state, report.seconds, report.left) == ("Shipping", "closed", 3, 0)
    assert report.reason == "Shipping is locked"


def test_destination_is_tried_with_one_message_and_then_gets_the_others_in_batches() -> None:
    world = world_of(*[delayed_row("Shipping") for _ in range(7)])
    Outage(world, until=1)

    run = world.sweep(batch_size=BatchSize(rows=3))

    assert world.batches(run) == [(1, 0), (3, 0), (3, 0)]


def test_destination_that_stays_shut_is_left_after_the_time_to_trigger() -> None:
    rows = _rows(6)
    world = world_of(*rows)
    outage = Outage(world, until=1_000_000)

    run = world.sweep(batch_size=BatchSize(rows=4))

    assert len(world.queue.arrived["Billing"]) == 6
    assert list(world.store.rows) == [row.key for row in rows[::2]]
    assert world.store.attempts == {}
    assert world.clock.seconds() == TRIGGER_SECONDS
    assert outage.tried_at == list(range(TRIGGER_SECONDS))
    assert world.ends(run) == [slice_end("Shipping is locked", given=12, claimed=6, left=6)]
    (report,) = world.breakers(run)
    assert (report.state, report.seconds, report.left) == ("triggered", TRIGGER_SECONDS, 6)


def test_destinations_are_tried_in_vain_once_a_second_in_all() -> None:
    world = world_of(delayed_row("Shipping"), delayed_row("Billing"))
    shipping = Outage(world, until=1_000_000)
    billing = Outage(world, until=1_000_000, queue="Billing")

    world.sweep()

    again = sorted(shipping.tried_at[1:] + billing.tried_at[1:])
    assert len(again) == TRIGGER_SECONDS - 1
    assert all(later - earlier >= 1 for earlier, later in pairwise(again))
    assert abs(len(shipping.tried_at) - len(billing.tried_at)) <= 1


def test_wait_for_a_lock_is_a_quarter_of_the_time_at_the_most() -> None:
    world = world_of(delayed_row("Shipping"))
    tried_at: list[float] = []

    def lock(_: Message) -> DestinationError:
        tried_at.append(world.clock.seconds())
        world.clock.advance(2)
        return LOCKED

    world.queue.trouble["Shipping"] = lock

    world.sweep()

    assert tried_at == [0, 8, 16, 24]
    assert world.clock.seconds() == 2 + TRIGGER_SECONDS


def test_messages_that_others_take_while_they_wait_are_gone_and_not_left() -> None:
    rows = [delayed_row("Shipping") for _ in range(5)]
    world = world_of(*rows)
    times = iter(range(100))

    def take_away(_: Message) -> DestinationError | None:
        if next(times) == 3:
            for row in rows[1:]:
                del world.store.rows[row.key]
        return LOCKED if world.clock.seconds() < 10 else None

    world.queue.trouble["Shipping"] = take_away

    run = world.sweep(batch_size=BatchSize(rows=2))

    assert world.queue.arrived["Shipping"] == [one(rows[0])]
    assert world.ends(run) == [slice_end(given=5, claimed=1, gone=4)]


def test_error_queue_that_takes_messages_again_gets_those_of_later_batches() -> None:
    world = world_of(*[delayed_row("Nowhere") for _ in range(3)])
    Outage(world, until=1, queue="error")
    world.queue.trouble["Billing"] = lambda _: world.clock.advance(2)
    billing = delayed_row("Billing")
    world.store.rows = {billing.key: billing} | world.store.rows

    run = world.sweep(
        batch_size=BatchSize(rows=1), retry=Retry(max_attempts=1, error_queue="error")
    )

    assert len(world.queue.arrived["error"]) == 3
    assert world.ends(run) == [slice_end(given=4, claimed=4)]


@pytest.mark.parametrize("is_one_due", [True, False])
def test_store_that_finds_messages_by_their_due_leaves_nothing_either(*, is_one_due: bool) -> None:
    """A Due may lead to a message of another destination, or to one that is excluded."""

    def row(n: int) -> DelayedRow:
        due = DUE if is_one_due else DUE + timedelta(seconds=n // 3)
        return delayed_row(("Shipping", "Billing", "Shipping", "Nowhere")[n % 4], due=due)

    rows = [row(n) for n in range(40)]
    world = World(DueKeyStore(rows))
    Outage(world, until=3)
    keys = [str(one.due_us) for one in rows]

    run = world.sweep(keys, batch_size=BatchSize(rows=7))

    assert len(world.queue.arrived["Shipping"]) == 20
    assert len(world.queue.arrived["Billing"]) == 10
    assert set(world.store.attempts) == set(world.store.rows)
    assert {counter.attempts for counter in world.store.attempts.values()} == {1}
    assert world.ends(run) == [slice_end(given=40, claimed=40)]


def test_time_to_trigger_of_zero_leaves_the_messages_at_once() -> None:
    world = world_of(*_rows(2))
    outage = Outage(world, until=1)

    run = world.sweep(batch_size=BatchSize(rows=2), breaker=BreakerTimes(trigger_seconds=0))

    assert (outage.tried_at, world.clock.seconds()) == ([0], 0)
    assert world.ends(run) == [slice_end("Shipping is locked", given=4, claimed=2, left=2)]


def test_slice_ends_in_time_however_long_its_store_takes_to_answer_meanwhile() -> None:
    rows = [delayed_row("Shipping") for _ in range(2)]
    world = world_of(*rows)
    claim = MemoryTaskSession.claim

    def slow_claim(*arguments: Any) -> Claim:
        world.clock.advance(3)
        return claim(*arguments)

    def try_for_long(_: Message) -> DuesweepError:
        world.clock.advance(4)
        return LOCKED

    world.queue.trouble["Shipping"] = try_for_long
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryTaskSession, "claim", slow_claim)
        run = world.sweep()

    assert world.ends(run) == [slice_end("Shipping is locked", given=2, left=2)]
    assert world.clock.seconds() <= TRIGGER_SECONDS + 15
    (report,) = world.breakers(run)
    assert report.state == "triggered"


def test_all_destinations_together_wait_no_longer_than_each_may() -> None:
    clock = SettableClock()
    destinations = Destinations(BreakerTimes(), RateLimits(), BatchSize(), clock)
    destinations.add(0, [("Shipping", KeptMessage("key", "key", 1))])
    destinations.fail("Shipping", "locked", took_seconds=0)
    clock.advance(28)
    with destinations.giving(Turn("Shipping", ["key"])):
        destinations.fail("Shipping", "locked", took_seconds=10)

    assert destinations.seconds_to_next == 2
