"""What one task does with its slice, over a store and queues in memory."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from duesweep import tombstone
from duesweep.clock import SettableClock
from duesweep.dispatch import DispatchJob, dispatch_slice
from duesweep.errors import (
    ConfigError,
    DestinationError,
    DuesweepError,
    QueueError,
    RefusedMessageError,
    StoreError,
)
from duesweep.fault_headers import EXCEPTION_TYPE, FAILED_QUEUE, UNREADABLE_HEADERS
from duesweep.headers.json import without_forward_destination
from duesweep.message import Message
from duesweep.policy import CLAIM_SECONDS, BatchLimits, Retry
from duesweep.stores.base import SweepRun
from duesweep.testing.builders import BODY, DelayedRow, delayed_row
from duesweep.testing.journal import BatchEntry, ExhaustedEntry, SliceEntry
from duesweep.testing.memory import MemoryStore
from duesweep.testing.memory_queue import Letter, MemoryQueue


@dataclass(slots=True)
class World:
    """A store, its queues, and one sweep of it; `job` holds settings of the dispatch."""

    store: MemoryStore
    queue: MemoryQueue = field(default_factory=lambda: MemoryQueue("Billing", "Shipping", "error"))
    clock: SettableClock = field(default_factory=SettableClock)
    job: dict[str, Any] = field(default_factory=dict)

    def sweep(self, keys: Sequence[str] | None = None, **settings: Any) -> SweepRun:
        """Run one slice of a new sweep over `keys`, or all that is there; the sweep."""
        run = self.store.open_sweep()
        self.run_slice(run, keys, **settings)
        return run

    def run_slice(self, run: SweepRun, keys: Sequence[str] | None = None, **settings: Any) -> None:
        """Run slice 0 of `run`."""
        keys = list(self.store.rows) if keys is None else keys
        job = DispatchJob(
            store=self.store,
            queue=self.queue,
            run=run,
            limits=BatchLimits(),
            retry=Retry(),
            max_exhausted=1_000,
            error_queue=None,
            clock=self.clock,
        )
        dispatch_slice(replace(job, **(self.job | settings)), 0, keys, [100] * len(keys))

    def batches(self, run: SweepRun) -> list[tuple[int, int]]:
        """Dispatched and failed, batch by batch."""
        entries = self.store.journal[run.sweep_id]
        return [(e.dispatched, e.failed) for e in entries if isinstance(e, BatchEntry)]

    def exhausted(self, run: SweepRun) -> list[ExhaustedEntry]:
        """What was given up."""
        return [e for e in self.store.journal[run.sweep_id] if isinstance(e, ExhaustedEntry)]

    def ends(self, run: SweepRun) -> list[SliceEntry]:
        """The ends of slices."""
        return [e for e in self.store.journal[run.sweep_id] if isinstance(e, SliceEntry)]

    def trouble(self, queue: str, error: DuesweepError | None, *keys: str) -> None:
        """From now on these messages (none given: all) meet `error` at `queue`."""
        self.queue.trouble[queue] = lambda m: error if not keys or m.key in keys else None


def _world(*rows: DelayedRow, **job: Any) -> World:
    return World(MemoryStore(rows), job=job)


def _letter(row: DelayedRow) -> Letter:
    return Letter(without_forward_destination(row.headers), row.body)


def test_due_messages_are_delivered_and_accounted_for() -> None:
    rows = [
        delayed_row("Billing"),
        delayed_row("Shipping"),
        delayed_row(None),
        delayed_row("Billing"),
    ]
    world = _world(*rows)

    run = world.sweep()

    assert world.queue.letters == {
        "Billing": [_letter(rows[0]), _letter(rows[3])],
        "Shipping": [_letter(rows[1])],
        "Sales.Orders": [_letter(rows[2])],
        "error": [],
    }
    assert world.store.rows == {}
    assert world.batches(run) == [(4, 0)]
    assert world.ends(run) == [SliceEntry(0, planned=4, reason=None)]
    (batch, _) = world.store.journal[run.sweep_id]
    assert isinstance(batch, BatchEntry)
    assert batch.outcomes is not None
    assert batch.body_bytes == 4 * len(BODY)
    accounts = tombstone.decode(batch.outcomes).to_pylist()
    assert {row["message_key"]: row["queue"] for row in accounts} == {
        rows[0].key: "Billing",
        rows[1].key: "Shipping",
        rows[2].key: "Sales.Orders",
        rows[3].key: "Billing",
    }
    assert {row["attempts"] for row in accounts} == {1}


def test_slice_is_dispatched_in_batches_within_the_limits() -> None:
    world = _world(*[delayed_row() for _ in range(7)])

    run = world.sweep(limits=BatchLimits(rows=3))

    assert world.batches(run) == [(3, 0), (3, 0), (1, 0)]
    assert world.ends(run) == [SliceEntry(0, planned=7, reason=None)]


def test_refused_message_costs_only_itself() -> None:
    rows = [delayed_row() for _ in range(5)]
    world = _world(*rows)
    world.trouble("Billing", RefusedMessageError("too large"), rows[2].key)

    run = world.sweep()

    assert world.queue.letters["Billing"] == [_letter(r) for r in rows if r is not rows[2]]
    assert list(world.store.rows) == [rows[2].key]
    assert {key: count for key, (count, _) in world.store.attempts.items()} == {rows[2].key: 1}
    assert world.batches(run) == [(4, 1)]


def test_unreadable_headers_cost_only_their_message() -> None:
    rows = [delayed_row(), DelayedRow(headers="{"), delayed_row()]
    world = _world(*rows)

    run = world.sweep()

    assert len(world.queue.letters["Billing"]) == 2
    assert list(world.store.rows) == list(world.store.attempts) == [rows[1].key]
    assert world.batches(run) == [(2, 1)]


def test_unknown_destination_fails_with_backoff_and_is_exhausted_at_the_last_attempt() -> None:
    row = delayed_row("Nowhere")
    world = _world(row, retry=Retry(max_attempts=3, initial_seconds=100, max_seconds=1_000))

    first = world.sweep()
    (failures, ripe_us) = world.store.attempts[row.key]
    waited = ripe_us / 1_000_000 - world.store.clock.seconds()
    world.store.clock.advance(74)
    too_early = world.sweep()
    world.store.clock.advance(27)
    second = world.sweep()
    world.store.clock.advance(201)
    third = world.sweep()

    assert failures == 1
    assert 75 <= waited <= 100
    assert [world.batches(run) for run in (first, too_early, second, third)] == [
        [(0, 1)],
        [],
        [(0, 1)],
        [(0, 0)],
    ]
    (gone,) = world.exhausted(third)
    assert (gone.message_key, gone.attempts, gone.queue) == (row.key, 3, None)
    assert (gone.headers, gone.body) == (row.headers, row.body)
    assert gone.destination == "Nowhere"
    assert gone.error_class == "duesweep.errors.QueueNotFoundError"
    assert gone.error_text == "There is no queue Nowhere"
    assert world.store.rows == {}
    assert world.store.attempts == {}


def test_message_that_failed_before_is_delivered_with_its_attempts_counted() -> None:
    row = delayed_row("Late")
    world = _world(row, retry=Retry(initial_seconds=0))
    world.sweep()
    world.queue.letters["Late"] = []

    run = world.sweep()

    assert world.queue.letters["Late"] == [_letter(row)]
    (batch, _) = world.store.journal[run.sweep_id]
    assert isinstance(batch, BatchEntry)
    assert batch.outcomes is not None
    assert batch.attempts_changed
    assert tombstone.decode(batch.outcomes).to_pylist()[0]["attempts"] == 2
    assert world.store.attempts == {}


def test_limit_of_exhausted_messages_keeps_the_rest_in_the_store() -> None:
    world = _world(*[delayed_row("Nowhere") for _ in range(5)], retry=Retry(max_attempts=1))

    run = world.sweep(max_exhausted=3, limits=BatchLimits(rows=2))

    assert len(world.exhausted(run)) == 3
    assert len(world.store.rows) == len(world.store.attempts) == 2
    assert world.batches(run) == [(0, 0), (0, 1), (0, 1)]
    sweep = world.store.sweeps[run.sweep_id]
    assert (sweep.exhausted, sweep.held_back) == (3, 2)


def test_messages_that_the_limit_held_back_are_exhausted_by_the_next_sweep() -> None:
    world = _world(*[delayed_row("Nowhere") for _ in range(3)], retry=Retry(1, initial_seconds=0))
    world.sweep(max_exhausted=2)

    run = world.sweep(max_exhausted=2)

    assert [e.attempts for e in world.exhausted(run)] == [2]
    assert world.store.rows == {}


def test_limit_of_none_exhausts_nothing() -> None:
    world = _world(delayed_row("Nowhere"), retry=Retry(max_attempts=1))

    run = world.sweep(max_exhausted=0)

    assert world.exhausted(run) == []
    assert world.batches(run) == [(0, 1)]


def test_exhausted_message_lies_in_the_error_queue_as_well() -> None:
    unknown, unreadable = delayed_row("Nowhere"), DelayedRow(headers="{")
    world = _world(unknown, unreadable, retry=Retry(max_attempts=1), error_queue="error")

    run = world.sweep()

    letters = [json.loads(letter.headers) for letter in world.queue.letters["error"]]
    by_error = {headers[EXCEPTION_TYPE]: headers for headers in letters}
    assert by_error["duesweep.errors.QueueNotFoundError"][FAILED_QUEUE] == "Nowhere"
    poison = by_error["duesweep.errors.UnreadableHeadersError"]
    assert (poison[UNREADABLE_HEADERS], poison[FAILED_QUEUE]) == ("{", "Sales.Orders")
    assert {e.message_key: e.queue for e in world.exhausted(run)} == {
        unknown.key: "error",
        unreadable.key: "error",
    }
    assert {e.headers for e in world.exhausted(run)} == {unknown.headers, "{"}
    assert world.store.rows == {}


@pytest.mark.parametrize(
    "trouble",
    [DestinationError("error is locked"), RefusedMessageError("error wants no letters")],
    ids=["takes nothing now", "refuses the message"],
)
def test_message_that_the_error_queue_does_not_take_stays_as_a_failure(
    trouble: DuesweepError,
) -> None:
    row, good = delayed_row("Nowhere"), delayed_row("Billing")
    world = _world(row, good, retry=Retry(max_attempts=1), error_queue="error")
    world.trouble("error", trouble)

    run = world.sweep()

    assert world.queue.letters["Billing"] == [_letter(good)]
    assert list(world.store.rows) == list(world.store.attempts) == [row.key]
    assert world.exhausted(run) == []
    assert world.batches(run) == [(1, 1)]


def test_error_queue_that_is_gone_leaves_its_messages_and_says_so() -> None:
    row = delayed_row("Nowhere")
    world = _world(row, retry=Retry(max_attempts=1), error_queue="gone")

    run = world.sweep()

    assert list(world.store.rows) == [row.key]
    assert world.ends(run) == [SliceEntry(0, 1, "There is no queue gone")]


def test_own_queue_that_is_gone_does_not_keep_exhausted_messages_from_the_error_queue() -> None:
    row = delayed_row(None)
    world = _world(row, retry=Retry(max_attempts=1), error_queue="error")
    del world.queue.letters["Sales.Orders"]

    run = world.sweep()

    assert [e.queue for e in world.exhausted(run)] == ["error"]
    assert len(world.queue.letters["error"]) == 1
    assert world.ends(run) == [SliceEntry(0, 1, None)]


def test_blocked_destination_keeps_its_messages_uncharged_and_the_others_go_on() -> None:
    blocked = [delayed_row("Shipping") for _ in range(4)]
    others = [delayed_row("Billing") for _ in range(4)]
    world = _world(*[row for pair in zip(blocked, others, strict=True) for row in pair])
    tried: list[str] = []

    def lock(message: Message) -> DestinationError:
        tried.append(message.key)
        return DestinationError("Shipping is locked")

    world.queue.trouble["Shipping"] = lock

    run = world.sweep(limits=BatchLimits(rows=4))

    assert len(world.queue.letters["Billing"]) == 4
    assert list(world.store.rows) == [row.key for row in blocked]
    assert world.store.attempts == {}
    assert world.batches(run) == [(2, 0), (2, 0)]
    assert world.ends(run) == [SliceEntry(0, planned=8, reason="Shipping is locked")]
    assert tried == [blocked[0].key], "a blocked destination was tried again in the same slice"


def test_batch_of_blocked_messages_only_journals_nothing_but_the_end() -> None:
    world = _world(delayed_row("Shipping"))
    world.trouble("Shipping", DestinationError("Shipping is locked"))

    run = world.sweep()

    assert world.store.journal[run.sweep_id] == [SliceEntry(0, 1, "Shipping is locked")]


@pytest.mark.parametrize("error", [StoreError, QueueError])
def test_service_that_fails_ends_the_slice_with_its_reason_and_charges_nobody(
    error: type[StoreError],
) -> None:
    rows = [delayed_row() for _ in range(6)]
    world = _world(*rows)
    world.trouble("Billing", error("the server went away", transient=True), rows[3].key)

    run = world.sweep(limits=BatchLimits(rows=2))

    assert world.queue.letters["Billing"] == [_letter(row) for row in rows[:2]]
    assert list(world.store.rows) == [row.key for row in rows[2:]]
    assert world.store.attempts == {}
    assert world.store.holders == {}
    assert world.batches(run) == [(2, 0)]
    assert world.ends(run) == [SliceEntry(0, planned=6, reason="the server went away")]


class _Unreachable(MemoryStore):
    """Its server takes no session but the first `sessions`."""

    def __init__(self, error: DuesweepError, *rows: DelayedRow, sessions: int = 0) -> None:
        super().__init__(rows)
        self._error = error
        self._sessions = sessions

    def open_task(self) -> Any:
        self._sessions -= 1
        if self._sessions < 0:
            raise self._error
        return super().open_task()


@pytest.mark.parametrize(
    "error",
    [StoreError("no server answers", transient=True), ConfigError("the password is wrong")],
)
def test_store_out_of_reach_leaves_the_slice_without_an_end_and_raises_nothing(
    error: DuesweepError,
) -> None:
    world = World(_Unreachable(error, delayed_row()))

    run = world.sweep()

    assert world.store.journal[run.sweep_id] == []
    assert len(world.store.rows) == 1


def test_store_that_does_not_come_back_leaves_the_slice_without_an_end() -> None:
    rows = [delayed_row(), delayed_row()]
    away = StoreError("no server answers", transient=True)
    world = World(_Unreachable(away, *rows, sessions=1))
    world.trouble("Billing", away, rows[1].key)

    run = world.sweep(limits=BatchLimits(rows=1))

    assert world.batches(run) == [(1, 0)]
    assert world.ends(run) == []


def test_what_nobody_foresaw_is_raised_and_its_batch_undone() -> None:
    rows = [delayed_row() for _ in range(4)]
    world = _world(*rows)
    _break_at(rows[3], world)
    run = world.store.open_sweep()

    with pytest.raises(ZeroDivisionError):
        world.run_slice(run, limits=BatchLimits(rows=2))

    assert world.queue.letters["Billing"] == [_letter(row) for row in rows[:2]]
    assert list(world.store.rows) == [row.key for row in rows[2:]]
    assert world.store.holders == {}
    assert world.ends(run) == []


def _break_at(row: DelayedRow, world: World) -> None:
    def break_down(message: Message) -> None:
        if message.key == row.key:
            raise ZeroDivisionError

    world.queue.trouble["Billing"] = break_down


def test_slice_that_is_run_again_after_a_breakdown_does_the_rest_once() -> None:
    rows = [delayed_row() for _ in range(6)]
    world = _world(*rows, limits=BatchLimits(rows=2))
    keys = [row.key for row in rows]
    run = world.store.open_sweep()
    _break_at(rows[3], world)
    with pytest.raises(ZeroDivisionError):
        world.run_slice(run, keys)
    world.queue.trouble.clear()

    world.run_slice(run, keys)

    assert world.queue.letters["Billing"] == [_letter(row) for row in rows]
    assert world.batches(run) == [(2, 0), (2, 0), (2, 0)]


def test_slice_run_twice_does_nothing_the_second_time() -> None:
    rows = [delayed_row("Billing"), delayed_row("Nowhere")]
    world = _world(*rows)
    keys = [row.key for row in rows]
    run = world.sweep(keys)
    after_first = (dict(world.store.rows), dict(world.store.attempts), world.batches(run))

    world.run_slice(run, keys)

    assert (world.store.rows, world.store.attempts, world.batches(run)) == after_first
    assert world.queue.letters["Billing"] == [_letter(rows[0])]
    assert world.ends(run) == [SliceEntry(0, 2, None)] * 2


def test_closed_sweep_stops_silently() -> None:
    world = _world(delayed_row())
    run = world.store.open_sweep()
    world.store.close_sweep(run)

    world.run_slice(run)

    assert world.store.journal[run.sweep_id] == []
    assert world.queue.letters["Billing"] == []
    assert len(world.store.rows) == 1


def test_what_another_session_holds_is_left_to_it() -> None:
    rows = [delayed_row(), delayed_row()]
    world = _world(*rows)
    other_run = world.store.open_sweep()
    with world.store.open_task() as other, other.transaction():
        other.claim(other_run, [rows[0].key])

        run = world.sweep()

    assert world.queue.letters["Billing"] == [_letter(rows[1])]
    assert world.batches(run) == [(1, 0)]
    assert world.ends(run) == [SliceEntry(0, 2, None)]


def test_slow_batch_puts_groups_back_and_delivers_them_next() -> None:
    rows = [delayed_row(d) for d in ("Billing", "Shipping", None, "Billing", "Shipping")]
    world = _world(*rows)
    world.queue.trouble["Billing"] = _slow(world, CLAIM_SECONDS)

    run = world.sweep()

    assert {name: len(letters) for name, letters in world.queue.letters.items()} == {
        "Billing": 2,
        "Shipping": 2,
        "Sales.Orders": 1,
        "error": 0,
    }
    assert world.batches(run) == [(2, 0), (3, 0)]
    assert world.store.rows == {}
    assert world.ends(run) == [SliceEntry(0, 5, None)]


def test_batch_within_its_time_puts_nothing_back() -> None:
    rows = [delayed_row("Billing"), delayed_row("Shipping")]
    world = _world(*rows)
    world.queue.trouble["Billing"] = _slow(world, CLAIM_SECONDS)

    assert world.batches(world.sweep()) == [(2, 0)]


def test_time_that_a_batch_took_counts_as_lateness() -> None:
    world = _world(delayed_row())
    world.queue.trouble["Billing"] = _slow(world, 2.5)

    run = world.sweep()

    (batch, _) = world.store.journal[run.sweep_id]
    assert isinstance(batch, BatchEntry)
    assert batch.lateness_ms == (3_600_000 + 2_500,)


def _slow(world: World, seconds: float) -> Callable[[Message], None]:
    def take_time(_: Message) -> None:
        world.clock.advance(seconds)

    return take_time


def test_queue_with_a_transaction_of_its_own_gets_every_batch() -> None:
    rows = [delayed_row() for _ in range(3)]
    world = World(MemoryStore(rows), MemoryQueue("Billing", own_transaction=True))

    run = world.sweep(limits=BatchLimits(rows=2))

    assert world.queue.letters["Billing"] == [_letter(row) for row in rows]
    assert world.batches(run) == [(2, 0), (1, 0)]
