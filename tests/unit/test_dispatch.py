"""A task and its slice, over a store and queues in memory."""

import gc
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import compress
from typing import Any

import pytest
from pyspark.sql import Row

from duesweep.core.account import CUT, close_slice
from duesweep.core.errors import (
    ConfigError,
    DestinationError,
    DuesweepError,
    QueueError,
    RefusedMessageError,
    StoreError,
    TransactionLostError,
    UnusualBatchError,
)
from duesweep.core.message import Message
from duesweep.core.policy import CLAIM_SECONDS, BatchSize
from duesweep.core.world import SettableClock
from duesweep.drivers.statements import MAX_LOST_TRANSACTIONS
from duesweep.stores import tombstone
from duesweep.stores.task import Forwarded
from duesweep.sweep.claim_keys import ClaimKeys, read_claim_keys
from duesweep_testing.builders import BODY, DelayedRow, delayed_row
from duesweep_testing.journal import BatchEntry, SliceEntry
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_queue import MemoryQueue
from duesweep_testing.sweeps import close_sweep, open_sweep
from support.contract.memory_stores import MovingStore
from support.dispatch_world import World, one, slice_end, world_of

Rows = Sequence[DelayedRow]


def _own_transaction(rows: Rows) -> World:
    return World(MemoryStore(rows), MemoryQueue("Billing", "Shipping", own_transaction=True))


# The forms in which a batch runs: step by step, all or nothing, and to queues that commit alone.
FORMS: Mapping[str, Callable[[Rows], World]] = {
    "careful": lambda rows: world_of(*rows),
    "moved": lambda rows: World(MovingStore(*rows)),
    "own transaction": _own_transaction,
}
_QUEUES = {"B": "Billing", "S": "Shipping", "N": "Nowhere", "-": None}


def _rows(destinations: str) -> list[DelayedRow]:
    """A message for each letter; a question mark is one whose headers cannot be read."""
    return [
        DelayedRow(headers="{") if letter == "?" else delayed_row(_QUEUES[letter])
        for letter in destinations
    ]


@dataclass(frozen=True)
class Case:
    """The outcome of the messages for these destinations: `+` arrives, `x` fails and is charged,
    `.` stays as it was. `errors` are met at a message's place, `times` often.
    """

    destinations: str
    becomes: str
    end: SliceEntry
    errors: Mapping[int, DuesweepError] = field(default_factory=dict)
    times: int = 1_000


_LOST = TransactionLostError("deadlock")
_ROLLED_BACK = TransactionLostError("a trigger rolls back", destination_is_at_fault=True)
_LOCKED = DestinationError("Shipping is locked")
CASES = {
    "all is usual": Case("BBBSS", "+++++", slice_end(given=5, claimed=5)),
    "an unknown queue": Case("BBBN", "+++x", slice_end(given=4, claimed=4)),
    "headers that cannot be read": Case("B?B", "+x+", slice_end(given=3, claimed=3)),
    "a refused message": Case(
        "BBBB", "+x++", slice_end(given=4, claimed=4), {1: RefusedMessageError("too long")}
    ),
    "a transaction that is lost": Case(
        "BBBB", "++++", slice_end(given=4, claimed=4), {2: _LOST}, times=2
    ),
    "one that is lost again and again": Case(
        "BB", "..", slice_end("deadlock", given=2), {0: _LOST}
    ),
    "a destination that loses it": Case(
        "BSB",
        "+.+",
        slice_end("a trigger rolls back", given=3, claimed=2, left=1),
        {1: _ROLLED_BACK},
    ),
    "a destination that takes nothing": Case(
        "BSBS",
        "+.+.",
        slice_end("Shipping is locked", given=4, claimed=2, left=2),
        {1: _LOCKED, 3: _LOCKED},
    ),
    "a service that fails for good": Case(
        "BBB",
        "...",
        slice_end("it is gone", given=3),
        {1: StoreError("it is gone", transient=False)},
    ),
    "a queue's service that fails for good": Case(
        "BBB",
        "...",
        slice_end("it is gone", given=3),
        {1: QueueError("it is gone", transient=False)},
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES)
def test_each_message_arrives_once_is_charged_or_stays(case: str, form: str) -> None:
    given = CASES[case]
    rows = _rows(given.destinations)
    world = FORMS[form](rows)
    times = {row.key: iter(range(given.times)) for row in rows}

    def meet(message: Message) -> DuesweepError | None:
        place = next(number for number, row in enumerate(rows) if row.key == message.key)
        return given.errors.get(place) if next(times[message.key], None) is not None else None

    world.queue.trouble = dict.fromkeys(("Billing", "Shipping"), meet)

    run = world.sweep()

    arrived = world.queue.arrived["Billing"] + world.queue.arrived["Shipping"]
    expected = [one(row) for row in compress(rows, [sign == "+" for sign in given.becomes])]
    assert sorted(arrived, key=str) == sorted(expected, key=str)
    failed = [row.key for row in compress(rows, [sign == "x" for sign in given.becomes])]
    assert {
        key: counter.attempts for key, counter in world.store.attempts.items()
    } == dict.fromkeys(failed, 1)
    assert list(world.store.rows) == [
        row.key for row in compress(rows, [sign != "+" for sign in given.becomes])
    ]
    assert world.counted(run) == (len(expected), len(failed))
    assert world.ends(run) == [given.end]
    assert world.store.holders == {}


@pytest.mark.parametrize("form", FORMS)
def test_fault_of_a_destination_that_passes_leaves_and_charges_nothing(form: str) -> None:
    world = FORMS[form](_rows("BSBS"))
    times = iter(range(2))
    world.queue.trouble["Shipping"] = lambda _: _LOCKED if next(times, None) is not None else None

    report = world.rounds()

    assert len(world.queue.arrived["Billing"]) == len(world.queue.arrived["Shipping"]) == 2
    assert (world.store.rows, world.store.attempts) == ({}, {})
    assert (report.found, report.claimed, report.left) == (4, 4, 0)


def test_due_messages_are_delivered_and_accounted_for() -> None:
    rows = _rows("BS-B")
    world = world_of(*rows)

    run = world.sweep()

    assert world.queue.arrived == {
        "Billing": [one(rows[0]), one(rows[3])],
        "Shipping": [one(rows[1])],
        "Sales.Orders": [one(rows[2])],
        "error": [],
    }
    assert world.store.rows == {}
    (batch, _) = world.store.journal[run.sweep_id]
    assert isinstance(batch, BatchEntry)
    assert batch.outcomes is not None
    assert batch.body_bytes == 4 * len(BODY)
    accounts = tombstone.decode(batch.outcomes).to_pylist()
    queues = ("Billing", "Shipping", "Sales.Orders", "Billing")
    assert {row["message_key"]: row["queue"] for row in accounts} == {
        row.key: queue for row, queue in zip(rows, queues, strict=True)
    }
    assert {row["attempts"] for row in accounts} == {1}


def test_slice_run_twice_does_nothing_the_second_time() -> None:
    rows = _rows("BN")
    world = world_of(*rows)
    keys = [row.key for row in rows]
    run = world.sweep(keys)
    after_first = (dict(world.store.rows), dict(world.store.attempts), world.counted(run))

    world.run_slice(run, keys)

    assert (world.store.rows, world.store.attempts, world.counted(run)) == after_first
    assert world.queue.arrived["Billing"] == [one(rows[0])]
    assert world.ends(run) == [slice_end(given=2, claimed=2), slice_end(given=2, gone=1, later=1)]


def test_what_another_session_holds_is_left_to_it() -> None:
    rows = _rows("BB")
    world = world_of(*rows)
    other_run = open_sweep(world.store)
    with world.store.open_task() as other, other.transaction():
        other.claim(other_run, [rows[0].key])

        run = world.sweep()

    assert world.queue.arrived["Billing"] == [one(rows[1])]
    assert world.counted(run) == (1, 0)
    assert world.ends(run) == [slice_end(given=2, claimed=1, skipped=1)]


@pytest.mark.parametrize("form", ["careful", "moved"])
def test_message_that_is_not_due_yet_stays(form: str) -> None:
    world = FORMS[form](_rows("B"))
    early = delayed_row("Billing", due=world.store.now + timedelta(minutes=1))
    world.store.rows[early.key] = early
    run = open_sweep(world.store)
    run = replace(run, horizon=run.horizon.looking_ahead(timedelta(minutes=2)))

    world.run_slice(run)

    assert list(world.store.rows) == [early.key]
    assert len(world.queue.arrived["Billing"]) == 1


def _slow(world: World, seconds: float) -> Callable[[Message], None]:
    return lambda _: world.clock.advance(seconds)


def test_batch_within_its_time_puts_nothing_back_and_its_time_counts_as_lateness() -> None:
    world = world_of(*_rows("BS"))
    world.queue.trouble["Billing"] = _slow(world, CLAIM_SECONDS)

    run = world.sweep()

    (batch, _) = world.store.journal[run.sweep_id]
    assert isinstance(batch, BatchEntry)
    assert batch.lateness_ms == (3_600_000 + 1_000 * CLAIM_SECONDS,) * 2


class _RacingClock(SettableClock):
    """Each look at it takes as long as a batch may take; there are 100 looks."""

    def seconds(self) -> float:
        self.advance(CLAIM_SECONDS + 1)
        assert super().seconds() < 100 * (CLAIM_SECONDS + 1)
        return super().seconds()


def test_batch_that_is_late_from_the_start_still_delivers_one_group_at_a_time() -> None:
    world = world_of(*_rows("BSN-"))

    run = world.sweep(clock=_RacingClock())

    assert world.batches(run) == [(1, 0), (1, 0), (0, 1), (1, 0)]


# How many messages were taken at once, and claimed with care, batch by batch of two.
@pytest.mark.parametrize(
    ("destinations", "taken", "claimed"),
    [
        ("BBBSS", [2, 2, 1], []),
        ("BBNNBB", [2, 2, 2], [2]),
        pytest.param("BN" * 5, [2, 2, 2], [2] * 5, id="after three in a row, no more is taken"),
        pytest.param("BNBNBB" * 3, [2] * 9, [2] * 6, id="one that is usual begins the row again"),
    ],
)
def test_batch_that_is_unusual_is_run_again_with_care(
    caplog: pytest.LogCaptureFixture, destinations: str, taken: list[int], claimed: list[int]
) -> None:
    store = MovingStore(*_rows(destinations))
    world = World(store)

    run = world.sweep(batch_size=BatchSize(rows=2))

    assert (store.moved, store.claimed) == (taken, claimed)
    careful = world.careful_batches(run)
    assert sum(each.batches for each in careful) == len(claimed)
    # One line for the slice, if it lost time.
    told = [each.message for each in caplog.records if "careful form" in each.message]
    assert len(told) == (len(claimed) > 3)
    assert all(f"in {len(claimed)} batches: {careful[0].reason}" in each for each in told)


def test_queue_with_a_transaction_of_its_own_never_takes() -> None:
    """A rollback of the store would not undo its deliveries."""
    store = MovingStore(*_rows("BBB"))
    world = World(store, MemoryQueue("Billing", own_transaction=True))

    world.sweep()

    assert (store.moved, store.claimed) == ([], [3])
    assert len(world.queue.arrived["Billing"]) == 3


def test_batch_that_a_session_finds_unusual_is_delivered_once() -> None:
    store = MovingStore(*_rows("BBB"))
    world = World(store)
    odd: list[DuesweepError] = [UnusualBatchError("odd")]
    world.queue.trouble["Billing"] = lambda _: odd.pop() if odd else None

    run = world.sweep()

    assert (store.moved, store.claimed, world.counted(run)) == ([3], [3], (3, 0))
    assert len(world.queue.arrived["Billing"]) == 3


def test_only_batches_of_a_destination_that_is_unavailable_take_the_careful_form() -> None:
    store = MovingStore(*_rows("BBSBBBSBBB"))
    world = World(store)
    world.trouble("Shipping", _LOCKED)

    run = world.sweep(batch_size=BatchSize(rows=2))

    # The second message for it is left without a claim.
    assert (store.moved, store.claimed) == ([2, 2, 2, 1, 2], [2])
    assert world.ends(run) == [slice_end("Shipping is locked", given=10, claimed=8, left=2)]


def test_message_that_tries_a_destination_again_takes_the_careful_form() -> None:
    store = MovingStore(*_rows("BBSBBBSBBB"))
    world = World(store)
    times = iter(range(2))
    world.queue.trouble["Shipping"] = lambda _: _LOCKED if next(times, None) is not None else None
    world.queue.trouble["Billing"] = _slow(world, 1)

    run = world.sweep(batch_size=BatchSize(rows=2))

    assert (store.moved, store.claimed) == ([2, 2, 2, 1, 2], [2, 1])
    assert world.ends(run) == [slice_end(given=10, claimed=9, left=1)]
    assert world.rounds().claimed == 1


def test_batch_of_blocked_messages_only_journals_nothing_but_the_end() -> None:
    world = world_of(*_rows("S"))
    world.trouble("Shipping", _LOCKED)

    run = world.sweep()

    assert len(world.store.journal[run.sweep_id]) == 1
    assert world.ends(run) == [slice_end("Shipping is locked", given=1, left=1)]


class _Unreachable(MemoryStore):
    """Its server accepts only the first `sessions`."""

    def __init__(self, error: DuesweepError, rows: Rows, sessions: int) -> None:
        super().__init__(rows)
        self._error = error
        self._sessions = sessions

    def open_task(self) -> Any:
        self._sessions -= 1
        if self._sessions < 0:
            raise self._error
        return super().open_task()


@pytest.mark.parametrize(
    ("error", "sessions"),
    [
        (StoreError("no server answers", transient=True), 0),
        # It does not come back after the first message.
        (StoreError("no server answers", transient=True), 1),
    ],
)
def test_store_out_of_reach_leaves_the_slice_without_an_end_and_raises_nothing(
    error: DuesweepError, sessions: int
) -> None:
    rows = _rows("BB")
    world = World(_Unreachable(error, rows, sessions))
    world.trouble("Billing", error, rows[1].key)

    run = world.sweep(batch_size=BatchSize(rows=1))

    assert (world.counted(run), world.ends(run)) == ((sessions, 0), [])
    assert len(world.store.rows) == 2 - sessions


def test_machine_on_which_no_session_can_be_opened_says_why() -> None:
    """Such as an executor without ODBC: no end of the slice can be journalled there."""
    rows = _rows("BB")
    world = World(_Unreachable(ConfigError("pyodbc cannot be loaded"), rows, 0))

    with pytest.raises(ConfigError, match="pyodbc cannot be loaded"):
        world.sweep(batch_size=BatchSize(rows=1))


def test_unforeseen_error_is_raised_and_the_slice_does_the_rest_when_it_is_run_again() -> None:
    rows = _rows("BBBBBB")
    world = world_of(*rows, batch_size=BatchSize(rows=2))
    keys = [row.key for row in rows]
    run = open_sweep(world.store)

    def break_down(message: Message) -> None:
        if message.key == rows[3].key:
            raise ZeroDivisionError

    world.queue.trouble["Billing"] = break_down
    with pytest.raises(ZeroDivisionError):
        world.run_slice(run, keys)

    assert world.queue.arrived["Billing"] == [one(row) for row in rows[:2]]
    assert list(world.store.rows) == keys[2:]
    assert (world.store.holders, world.ends(run)) == ({}, [])

    world.queue.trouble.clear()
    world.run_slice(run, keys)

    assert world.queue.arrived["Billing"] == [one(row) for row in rows]
    assert world.counted(run) == (6, 0)


def test_closed_sweep_stops_and_logs_name_their_sweep(caplog: pytest.LogCaptureFixture) -> None:
    cut, closed = world_of(*_rows("B")), world_of(*_rows("B"))
    cut.trouble("Billing", _LOST)
    closed_run = open_sweep(closed.store)
    close_sweep(closed.store, closed_run)

    cut_run = cut.sweep()
    closed.run_slice(closed_run)

    assert closed.store.journal[closed_run.sweep_id] == closed.queue.arrived["Billing"] == []
    assert len(closed.store.rows) == 1
    # Workers have no handler of their own, so they print warnings only.
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    *again, last, stopped = caplog.messages
    slice_0 = f"Slice 0 of sweep {cut_run.sweep_id}"
    assert again == [f"{slice_0} claims a batch again: deadlock"] * MAX_LOST_TRANSACTIONS
    assert last == f"{slice_0} is cut: deadlock"
    assert stopped.startswith(f"Slice 0 of sweep {closed_run.sweep_id} stops: ")


class _Body:
    """An object in a cycle."""

    def __init__(self) -> None:
        self.circle = self


def test_circles_of_a_batch_are_collected_before_the_next_and_the_collector_is_as_before() -> None:
    world = world_of(*_rows("BBBBBB"))
    bodies: list[weakref.ref[_Body]] = []
    alive: list[int] = []

    def leave_a_circle(_: Message) -> None:
        alive.append(sum(body() is not None for body in bodies))
        bodies.append(weakref.ref(_Body()))

    world.queue.trouble["Billing"] = leave_a_circle
    before = gc.get_threshold()
    gc.set_threshold(500, 10, 10)
    try:
        world.sweep(batch_size=BatchSize(rows=2))
        assert gc.get_threshold() == (500, 10, 10)
    finally:
        gc.set_threshold(*before)

    assert alive == [0, 1, 0, 1, 0, 1]


def _chunks(*chunks: tuple[str | None, str | None, int | None]) -> Any:
    """Rows as Spark hands them to a task."""
    return [Row(claim_keys=keys, sizes=sizes, total=total) for keys, sizes, total in chunks]


def test_destinations_of_a_chunk_that_are_not_as_many_as_its_keys_are_unknown() -> None:
    rows = [
        Row(claim_keys="a,b", sizes="1,2", total=3, forwards="x\x1fy"),
        Row(claim_keys="c", sizes="3", total=3, forwards="x\x1fy"),
    ]

    found = read_claim_keys(rows)

    assert found.groups(range(3)) == [
        Forwarded("x", ["a"]),
        Forwarded("y", ["b"]),
        Forwarded(None, ["c"]),
    ]


def test_claim_keys_are_in_the_order_of_their_chunks() -> None:
    rows = [Row(claim_keys=key, sizes="1", total=3, chunk=n) for n, key in ((2, "c"), (0, "a"))]
    rows.append(Row(claim_keys="b", sizes="1", total=3, chunk=1))

    assert read_claim_keys(rows).keys == ["a", "b", "c"]


@pytest.mark.parametrize("in_order", [True, False])
def test_claim_keys_of_many_destinations_come_together_unless_their_order_counts(
    *, in_order: bool
) -> None:
    forwards = [f"to {place % 20}" for place in range(60)]
    keys = ClaimKeys([str(place) for place in range(60)], [1] * 60, 60, forwards)

    places = keys.places(in_order=in_order)

    assert sorted(places) == list(range(60))
    assert (list(places) == list(range(60))) is in_order
    first = keys.groups(places[:6])
    assert [len(group.keys) for group in first] == ([1] * 6 if in_order else [3, 3])
    assert all(list(map(int, g.keys)) == sorted(map(int, g.keys)) for g in first)


@pytest.mark.parametrize(
    ("chunks", "keys", "says"),
    [
        ([("a,b", "1,2", 3), ("c", "30", 3)], ["a", "b", "c"], None),
        # A slice without claim keys has a row.
        ([(None, None, None)], [], None),
        pytest.param([], [], "read 0 of its keys", id="before its first row"),
        ([("a,b", "1,2", 5)], ["a", "b"], "read 2 of 5 keys"),
    ],
)
def test_read_of_claim_keys_that_broke_off_differs_from_a_complete_one(
    chunks: list[tuple[str, str, int]], keys: list[str], says: str | None
) -> None:
    found = read_claim_keys(_chunks(*chunks))

    assert (found.keys, list(found.sizes)) == (keys, [1, 2, 30][: len(keys)])
    if says is None:
        assert (found.fault, found.total) == (None, len(keys))
    else:
        assert says in str(found.fault)


def test_slice_that_was_read_in_part_delivers_that_part_and_ends_as_cut() -> None:
    stored = _rows("BBBBB")
    world = world_of(*stored)
    run = open_sweep(world.store)
    keys = [row.key for row in stored[:2]]

    world.run_slice(run, keys, total=5)

    assert world.queue.arrived["Billing"] == [one(row) for row in stored[:2]]
    fault = ClaimKeys(keys, [100, 100], 5).fault
    assert fault is not None
    assert world.ends(run) == [slice_end(fault, given=2, claimed=2)]
    closed = close_slice(5, 2, [world.ends(run)[0].end])
    assert (closed.account.skipped, closed.account.left, closed.reason) == (0, 3, fault)
    assert close_slice(5, 2, []).reason == CUT
