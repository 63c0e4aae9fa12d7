"""A destination that is unavailable for some time: a slice leaves its messages, and the next round
plans them again.
"""

from datetime import timedelta
from itertools import pairwise

import pytest

from duesweep.core.errors import DestinationError, DuesweepError
from duesweep.core.message import Message
from duesweep.core.policy import LEAST_WAIT_SECONDS, BatchSize, BreakerTimes, Retry
from duesweep.operations.watch import Ticker
from duesweep.sweep.stop import Stop
from duesweep_testing.builders import DUE, DelayedRow, delayed_row
from duesweep_testing.memory import MemoryStore
from support.contract.memory_stores import DueKeyStore, MovingStore
from support.dispatch_world import World, one, slice_end, world_of
from support.sweeps import run_sweep

LOCKED = DestinationError("Shipping is locked")
TRIGGER_SECONDS = 30


class Outage:
    """`Shipping` is unavailable until the clock shows this many seconds, and says so after
    `took_seconds`. `tried_at` is when it was tried in vain.
    """

    def __init__(
        self, world: World, until: float, queue: str = "Shipping", took_seconds: float = 0
    ) -> None:
        self.tried_at: list[float] = []
        self._world = world
        self._until, self._took_seconds = until, took_seconds
        world.queue.trouble[queue] = self._refuse

    def _refuse(self, _: Message) -> DuesweepError | None:
        now = self._world.clock.seconds()
        if now >= self._until:
            return None
        self.tried_at.append(now)
        self._world.clock.advance(self._took_seconds)
        return LOCKED


def _rows(count: int) -> list[DelayedRow]:
    return [delayed_row(queue) for _ in range(count) for queue in ("Shipping", "Billing")]


def test_short_outage_of_a_destination_leaves_nothing_and_charges_nothing() -> None:
    rows = _rows(6)
    world = world_of(*rows)
    outage = Outage(world, until=2.5)

    report = world.rounds(batch_size=BatchSize(rows=4))

    assert sorted(world.queue.arrived["Shipping"], key=str) == sorted(map(one, rows[::2]), key=str)
    assert len(world.queue.arrived["Billing"]) == 6
    assert (world.store.rows, world.store.attempts) == ({}, {})
    assert (report.found, report.claimed, report.left, report.gone) == (12, 12, 0, 0)
    assert (report.outcome, report.reason) == ("done", None)
    assert outage.tried_at == [0, 1, 2]
    (breaker,) = report.breakers
    assert (breaker.name, breaker.state, breaker.seconds, breaker.left) == (
        "Shipping",
        "closed",
        3.5,
        0,
    )
    assert breaker.reason == "Shipping is locked"


def test_slice_waits_for_no_outage() -> None:
    rows = _rows(6)
    world = world_of(*rows)
    outage = Outage(world, until=1_000_000)

    run = world.sweep(batch_size=BatchSize(rows=4))

    assert (outage.tried_at, world.clock.seconds()) == ([0], 0)
    assert len(world.queue.arrived["Billing"]) == 6
    assert world.ends(run) == [slice_end("Shipping is locked", given=12, claimed=6, left=6)]
    (report,) = world.breakers(run)
    assert (report.state, report.seconds, report.left) == ("open", 0, 6)


def test_long_slice_tries_a_destination_again_with_later_batches() -> None:
    world = world_of(*_rows(6))
    outage = Outage(world, until=2)
    world.queue.trouble["Billing"] = lambda _: world.clock.advance(0.5)

    run = world.sweep(batch_size=BatchSize(rows=4))

    assert outage.tried_at == [0, 1]
    # The third batch finds the destination available.
    assert world.ends(run) == [slice_end(given=12, claimed=8, left=4)]
    (report,) = world.breakers(run)
    assert (report.state, report.seconds, report.left) == ("closed", 2, 4)


def test_messages_that_would_only_be_blocked_are_not_claimed() -> None:
    store = MovingStore(*[delayed_row("Shipping") for _ in range(9)])
    world = World(store)
    Outage(world, until=7)

    report = world.rounds(batch_size=BatchSize(rows=3))

    # After the first batch, one message of each round tries the destination.
    assert store.claimed == [3, 1, 1, 1, 1, 1]
    assert (report.claimed, store.rows) == (9, {})


def test_destination_is_tried_with_one_message_and_then_gets_the_others_in_batches() -> None:
    world = world_of(*[delayed_row("Shipping") for _ in range(7)])
    outages = world_of(delayed_row("Shipping"))
    Outage(outages, until=1)
    (outage,) = outages.breakers(outages.sweep())

    run = world.sweep(batch_size=BatchSize(rows=3), outages=(outage,))

    assert world.batches(run) == [(1, 0), (2, 0), (3, 0), (1, 0)]


def test_destination_that_stays_shut_is_left_after_the_time_to_trigger() -> None:
    rows = _rows(6)
    world = world_of(*rows)
    outage = Outage(world, until=1_000_000)

    report = world.rounds(batch_size=BatchSize(rows=4))

    assert len(world.queue.arrived["Billing"]) == 6
    assert list(world.store.rows) == [row.key for row in rows[::2]]
    assert world.store.attempts == {}
    assert outage.tried_at[:4] == [0, 1, 2, 3.5]
    assert all(later - earlier == 1.5 for earlier, later in pairwise(outage.tried_at[3:]))
    assert TRIGGER_SECONDS - 1.5 <= outage.tried_at[-1] < TRIGGER_SECONDS
    assert (report.found, report.claimed, report.left) == (12, 6, 6)
    assert (report.outcome, report.reason) == ("incomplete", "Shipping is locked")
    (breaker,) = report.breakers
    assert (breaker.state, breaker.seconds, breaker.left) == ("triggered", outage.tried_at[-1], 6)


def test_rounds_that_move_nothing_are_not_in_the_ledger() -> None:
    world = world_of(*_rows(2))
    Outage(world, until=10)

    report = world.rounds(batch_size=BatchSize(rows=4))

    assert len(report.sweep_ids) == 2
    assert (world.store.sweeps, dict(world.store.journal)) == ({}, {})
    assert report.sweep_id == report.sweep_ids[-1]


def test_destination_that_waits_long_is_not_overtaken_by_the_one_before_it() -> None:
    world = world_of(delayed_row("Shipping"), delayed_row("Billing"))
    Outage(world, until=1_000_000)
    Outage(world, until=1, queue="Billing")

    report = world.rounds()

    assert len(world.queue.arrived["Billing"]) == 1
    assert (report.claimed, report.left) == (1, 1)


def test_destinations_are_tried_in_vain_once_a_second_in_all() -> None:
    world = world_of(delayed_row("Shipping"), delayed_row("Billing"))
    shipping = Outage(world, until=1_000_000)
    billing = Outage(world, until=1_000_000, queue="Billing")

    world.rounds()

    again = sorted(shipping.tried_at[1:] + billing.tried_at[1:])
    assert len(again) >= TRIGGER_SECONDS / 2 - 1
    assert all(later - earlier >= 1 for earlier, later in pairwise(again))
    assert shipping.tried_at[1:]
    assert billing.tried_at[1:]


def test_wait_for_a_lock_is_a_quarter_of_the_time_at_the_most() -> None:
    world = world_of(delayed_row("Shipping"))
    outage = Outage(world, until=1_000_000, took_seconds=2)

    world.rounds()

    assert outage.tried_at == [0, 8, 16, 24]
    assert world.clock.seconds() == 26


@pytest.mark.parametrize("left", [0, 1])
def test_messages_that_others_take_while_they_wait_are_gone_and_not_left(left: int) -> None:
    rows = [delayed_row("Shipping") for _ in range(5)]
    world = world_of(*rows)
    times = iter(range(100))

    def take_away(_: Message) -> DestinationError | None:
        if next(times) == 3:
            for row in rows[left:]:
                del world.store.rows[row.key]
        return LOCKED if world.clock.seconds() < 10 else None

    world.queue.trouble["Shipping"] = take_away

    report = world.rounds(batch_size=BatchSize(rows=2))

    assert world.queue.arrived["Shipping"] == list(map(one, rows[:left]))
    assert (report.found, report.claimed, report.gone, report.left) == (5, left, 5 - left, 0)
    assert (report.outcome, report.reason) == ("done", None)
    assert [(breaker.state, breaker.left) for breaker in report.breakers] == [("closed", 0)]


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

    world = World(DueKeyStore([row(n) for n in range(40)]))
    Outage(world, until=3)

    report = world.rounds(batch_size=BatchSize(rows=7))

    assert len(world.queue.arrived["Shipping"]) == 20
    assert len(world.queue.arrived["Billing"]) == 10
    assert set(world.store.attempts) == set(world.store.rows)
    assert {counter.attempts for counter in world.store.attempts.values()} == {1}
    assert (report.found, report.claimed) == (40, 40)


def test_time_to_trigger_of_zero_leaves_the_messages_at_once() -> None:
    world = world_of(*_rows(2))
    outage = Outage(world, until=1)

    report = world.rounds(batch_size=BatchSize(rows=2), breaker=BreakerTimes(trigger_seconds=0))

    assert (outage.tried_at, world.clock.seconds()) == ([0], 0)
    assert (report.claimed, report.left, report.reason) == (2, 2, "Shipping is locked")


def test_rounds_claim_no_more_messages_than_they_may_together() -> None:
    rows = [delayed_row("Billing") for _ in range(2)]
    rows += [delayed_row("Shipping") for _ in range(5)]
    world = World(MemoryStore(rows))
    Outage(world, until=2)

    report = world.rounds(Stop(most=4, clock=world.clock))

    assert (len(world.queue.arrived["Billing"]), len(world.queue.arrived["Shipping"])) == (2, 2)
    assert (report.claimed, report.left, report.outcome) == (4, 3, "stopped")
    assert len(world.store.rows) == 3


def test_watcher_does_not_wait_for_an_outage_and_keeps_trying_with_one_message() -> None:
    world = world_of(*_rows(3))
    outage = Outage(world, until=50)
    ticker = Ticker(world.context(spark_from=None), Stop(clock=world.clock), has_spark=False)

    runs = []
    while world.clock.seconds() < 60:
        runs.append(ticker.tick())
        world.clock.advance(LEAST_WAIT_SECONDS)
    ticker.close()

    assert len(world.queue.arrived["Billing"]) == len(world.queue.arrived["Shipping"]) == 3
    gaps = [later - earlier for earlier, later in pairwise(outage.tried_at)]
    assert 1 <= min(gaps) < max(gaps) < 1.6
    tries = len(outage.tried_at)
    assert [run.outcome for run in runs[tries - 1 : tries + 2]] == ["incomplete", "done", "idle"]
    reports = [run.report for run in runs[:tries] if run.report is not None]
    assert {len(report.breakers) for report in reports} == {1}
    # The other ticks moved nothing.
    assert [len(report.sweep_ids) for report in reports[:3]] == [1, 1, 0]
    assert runs[tries].report is not None
    assert runs[tries].report.dispatched == 3


@pytest.mark.parametrize("locked", [0, 1])
def test_watcher_forgets_an_outage_that_is_over(locked: int) -> None:
    """Also while others hold a message, which ends each sweep."""
    held = [delayed_row("Billing") for _ in range(locked)]
    world = world_of(*_rows(3), *held)
    world.store.holders.update((row.key, object()) for row in held)
    Outage(world, until=3)
    ticker = Ticker(world.context(spark_from=None), Stop(clock=world.clock), has_spark=False)
    while len(world.store.rows) > locked:
        ticker.tick()
        world.clock.advance(1)

    runs = []
    for _ in range(3):
        row = delayed_row("Shipping")
        world.store.rows[row.key] = row
        runs.append(ticker.tick())
    ticker.close()

    reports = [run.report for run in runs if run.report is not None]
    assert [(report.dispatched, report.breakers) for report in reports] == [(1, ())] * 3


def test_messages_that_a_pause_holds_since_the_plan_are_told_as_held() -> None:
    world = world_of(*_rows(2))
    Outage(world, until=5)

    def pause(_: Message) -> None:
        with world.store.open_driver() as driver:
            driver.people.pause("Billing", None, "ops@host", "why")

    world.queue.trouble["Billing"] = pause

    report = world.rounds(batch_size=BatchSize(rows=2))

    assert (report.found, report.claimed, report.held) == (4, 3, 1)
    assert (report.left, report.gone, report.outcome) == (0, 0, "done")


def test_messages_that_are_paused_during_an_outage_are_held_and_not_gone() -> None:
    world = world_of(*_rows(2))

    def pause(_: Message) -> DuesweepError:
        with world.store.open_driver() as driver:
            driver.people.pause("Shipping", None, "ops@host", "it is broken")
        return LOCKED

    world.queue.trouble["Shipping"] = pause

    report = world.rounds()

    assert (report.found, report.claimed, report.held) == (4, 2, 2)
    assert (report.gone, report.left) == (0, 0)


def test_sweep_that_is_aborted_begins_no_other_round() -> None:
    world = world_of(*_rows(2))

    def abort(_: Message) -> DuesweepError:
        with world.store.open_driver() as driver:
            for one in driver.journal.unsettled():
                world.store.sweeps[one.sweep_id].in_flight.clear()
                driver.sweeps.close(one.sweep_id, abandoned=True, remaining=0)
        return LOCKED

    world.queue.trouble["Shipping"] = abort

    report = world.rounds(batch_size=BatchSize(rows=1))

    assert report.outcome == "abandoned"
    assert len(report.sweep_ids) == 1
    assert world.clock.seconds() == 0


def test_round_that_drops_the_counter_of_a_message_that_is_gone_is_in_the_ledger() -> None:
    nowhere = delayed_row("Nowhere")
    world = world_of(*_rows(1), nowhere)
    Outage(world, until=1_000_000)
    refuse = world.queue.trouble["Shipping"]

    def take_away(message: Message) -> DuesweepError | None:
        if world.clock.seconds() >= 1:
            world.store.rows.pop(nowhere.key, None)
        return refuse(message)

    world.queue.trouble["Shipping"] = take_away
    context = world.context()

    run_sweep(context, stop=Stop(clock=world.clock))

    counters = [row["message_key"] for row in context.tables.tables["retries"].rows]
    assert counters == list(world.store.attempts)


@pytest.mark.parametrize(("initial_seconds", "tries"), [(0, 1), (4, 3), (1_000, 21)])
def test_run_costs_a_message_one_attempt_however_long_an_outage_elsewhere_lasts(
    initial_seconds: float, tries: int
) -> None:
    world = world_of(*_rows(1), delayed_row("Nowhere"))
    outage = Outage(world, until=1_000_000)

    report = world.rounds(retry=Retry(initial_seconds=initial_seconds))

    assert [counter.attempts for counter in world.store.attempts.values()] == [1]
    assert (report.found, report.failed, report.left) == (3, 1, 1)
    assert len(outage.tried_at) == tries
