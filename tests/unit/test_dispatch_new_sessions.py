"""A store or a queue's service that fails for some time: the slice is cut, and the next round
delivers the rest on new sessions.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.account import CUT, Account, SweepReport, close_slice
from duesweep.core.errors import (
    DestinationError,
    DuesweepError,
    QueueError,
    SilentServiceError,
    StoreError,
    TransactionLostError,
)
from duesweep.core.message import Message
from duesweep.core.policy import BatchSize, RateLimit, RateLimits
from duesweep.stores.sweeps import SweepRun
from duesweep.sweep.stop import Stop
from duesweep_testing.builders import DUE, ENDPOINT, DelayedRow, delayed_row
from duesweep_testing.memory import MemoryStore, MemoryTaskSession
from duesweep_testing.memory_driver import MemoryDriverSession
from duesweep_testing.memory_queue import MemoryQueue
from support.contract.memory_stores import DueKeySession, DueKeyStore
from support.dispatch_world import World, one

AWAY = StoreError("the server restarts", transient=True)
TWO = BatchSize(rows=2)


class FailingStore(MemoryStore):
    """No session can be opened, and no batch commits, while its clock shows a time in `away`; if
    it `refuses_drivers`, also none of a driver. The COMMITs whose numbers are in `unanswered`
    succeed, but the task is not told.
    """

    def __init__(self, rows: list[DelayedRow]) -> None:
        super().__init__(rows)
        self.world: World | None = None
        self.away: list[tuple[float, float]] = []
        self.unanswered: set[int] = set()
        self.refuses_drivers = False
        self.opened = 0
        self.commits = 0

    @contextmanager
    def open_task(self) -> Iterator[MemoryTaskSession]:
        self.opened += 1
        self.refuse_if_away()
        yield _FailingSession(self)

    def open_driver(self) -> MemoryDriverSession:
        if self.refuses_drivers:
            self.refuse_if_away()
        return super().open_driver()

    def refuse_if_away(self) -> None:
        assert self.world is not None
        now = self.world.clock.seconds()
        if any(since <= now < until for since, until in self.away):
            raise AWAY


class _FailingSession(MemoryTaskSession):
    def __init__(self, store: FailingStore) -> None:
        super().__init__(store)
        self._failing = store

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            yield
            self._failing.refuse_if_away()
        self._failing.commits += 1
        if self._failing.commits in self._failing.unanswered:
            raise StoreError("the connection was lost", transient=True)


def _world(rows: list[DelayedRow], *, own_transaction: bool = False) -> tuple[World, FailingStore]:
    store = FailingStore(rows)
    queue = MemoryQueue("Billing", "Shipping", "error", own_transaction=own_transaction)
    world = World(store, queue)
    store.world = world
    return world, store


def _account(world: World, run: SweepRun, planned: int) -> Account:
    ends = [entry.end for entry in world.ends(run)]
    return close_slice(planned, sum(world.counted(run)), ends).account


def _counts(report: SweepReport) -> tuple[int, int, int, int]:
    return report.found, report.claimed, report.left, report.gone


def _is_over(report: SweepReport, count: int) -> bool:
    """Whether the sweep moved that many messages, all that it found."""
    return (_counts(report), report.outcome, report.reason) == ((count, count, 0, 0), "done", None)


# If a driver is accepted, a sweep can be closed, whose slice had no session to journal its end.
@pytest.mark.parametrize(("refuses_drivers", "reason"), [(False, CUT), (True, str(AWAY))])
def test_next_round_goes_on_with_new_sessions_and_delivers_each_message_once(
    *, refuses_drivers: bool, reason: str
) -> None:
    rows = [delayed_row() for _ in range(6)]
    world, store = _world(rows)
    world.queue.trouble["Billing"] = lambda _: world.clock.advance(0.5)
    store.away = [(1.5, 6)]
    store.refuses_drivers = refuses_drivers

    report = world.rounds(batch_size=TWO)

    assert world.queue.arrived["Billing"] == [one(row) for row in rows]
    assert store.attempts == {}
    assert _is_over(report, 6)
    (breaker,) = report.breakers
    assert (breaker.name, breaker.state, breaker.reason) == ("store and queues", "closed", reason)
    assert 4 <= breaker.seconds <= 7


def test_service_that_stays_away_ends_the_rounds_after_the_time_to_trigger() -> None:
    rows = [delayed_row() for _ in range(6)]
    world, store = _world(rows)
    world.trouble("Billing", AWAY, rows[3].key)

    report = world.rounds(batch_size=TWO)

    # Rounds after 1, 1, 1.5, 1.5 … seconds; each opens a session, and one for the slice's end.
    assert world.clock.seconds() == 29
    assert store.opened == 1 + 2 * 21
    assert _counts(report) == (6, 2, 4, 0)
    assert (report.outcome, report.reason) == ("incomplete", "the server restarts")
    assert [one.state for one in report.breakers] == ["triggered"]
    assert (store.attempts, store.holders) == ({}, {})


def test_slice_that_is_cut_ends_on_another_session_and_under_its_own_number() -> None:
    rows = [delayed_row() for _ in range(6)]
    world, store = _world(rows)
    world.trouble("Billing", AWAY, rows[3].key)

    run = world.sweep(first_slice=2, batch_size=TWO)

    assert store.opened == 2
    (entry,) = world.ends(run)
    assert entry.slice_number == 2
    assert entry.end.account == Account(given=6, claimed=2)
    assert entry.end.reason == "the server restarts"


def test_round_that_moves_messages_gives_the_service_its_whole_time_again() -> None:
    rows = [delayed_row() for _ in range(6)]
    world, store = _world(rows)
    world.queue.trouble["Billing"] = lambda _: world.clock.advance(0.5)
    store.away = [(1, 25), (27.6, 50)]

    assert _is_over(world.rounds(batch_size=TWO), 6)


@pytest.mark.parametrize(
    "error",
    [
        SilentServiceError("the server has not answered for 20 s", transient=True),
        StoreError("a trigger keeps rows", transient=False),
        QueueError("the disk is broken", transient=False),
    ],
)
def test_fault_that_does_not_pass_ends_the_sweep_at_once(error: DuesweepError) -> None:
    world, _ = _world([delayed_row()])
    world.trouble("Billing", error)

    report = world.rounds()

    assert world.clock.seconds() == 0
    assert (_counts(report), report.reason) == ((1, 0, 1, 0), str(error))


@pytest.mark.parametrize("unanswered", [{1}, {2}, {3}, {1, 3}])
def test_batch_that_was_committed_without_an_answer_counts_as_claimed(unanswered: set[int]) -> None:
    rows = [delayed_row() for _ in range(6)]
    world, store = _world(rows)
    store.unanswered = unanswered

    report = world.rounds(batch_size=TWO)

    assert world.queue.arrived["Billing"] == [one(row) for row in rows]
    assert (_counts(report), report.outcome) == ((6, 6, 0, 0), "done")
    # The last batch leaves nothing for another round.
    assert report.reason == ("the connection was lost" if unanswered == {3} else None)


def test_batch_without_an_answer_is_not_told_as_gone_where_messages_are_left() -> None:
    rows = [delayed_row() for _ in range(4)] + [delayed_row("Shipping") for _ in range(4)]
    world, store = _world(rows)
    world.trouble("Shipping", DestinationError("no right to insert", transient=False))
    store.unanswered = {1}

    report = world.rounds(batch_size=TWO)

    assert _counts(report) == (8, 4, 4, 0)


def test_slice_end_that_was_committed_without_an_answer_is_journalled_again() -> None:
    world, store = _world([delayed_row()])
    store.unanswered = {2}

    run = world.sweep()

    assert [entry.end.account for entry in world.ends(run)] == [Account(given=1, claimed=1)] * 2
    assert _account(world, run, 1) == Account(1, 1)


@pytest.mark.parametrize("is_shut_before", [False, True])
def test_queue_of_its_own_transaction_gets_a_batch_that_was_cut_once_more_only(
    *, is_shut_before: bool
) -> None:
    rows = [delayed_row() for _ in range(2)]
    world, store = _world(rows, own_transaction=True)
    sent: list[str] = []
    refusals = iter([QueueError("the broker restarts", transient=True)] if is_shut_before else [])

    def send(message: Message) -> DuesweepError | None:
        sent.append(message.key)
        return next(refusals, None)

    world.queue.trouble["Billing"] = send

    def refuse_batches() -> None:
        if store.holders:
            raise StoreError("the disk is full", transient=True)

    # The store's COMMIT, when the queue has committed.
    store.refuse_if_away = refuse_batches  # type: ignore[method-assign]

    report = world.rounds()

    # A round whose queue fails while it gets a batch has also sent it in vain.
    assert len(sent) == 4 - is_shut_before
    assert (_counts(report), report.reason) == ((2, 0, 2, 0), "the disk is full")


def test_batch_that_succeeds_lets_the_next_one_be_sent_twice() -> None:
    rows = [delayed_row() for _ in range(4)]
    world, store = _world(rows, own_transaction=True)
    sent: list[str] = []
    world.queue.trouble["Billing"] = lambda m: sent.append(m.key)
    commits = iter(["full", "well", "full"])

    def refuse_batches() -> None:
        if store.holders and next(commits, "well") == "full":
            raise StoreError("the disk is full", transient=True)

    store.refuse_if_away = refuse_batches  # type: ignore[method-assign]

    report = world.rounds(batch_size=TWO)

    keys = [row.key for row in rows]
    assert sent == [*keys[:2], *keys[:2], *keys[2:], *keys[2:]]
    assert _is_over(report, 4)


def test_batch_that_finds_nothing_does_not_let_the_next_one_be_sent_twice() -> None:
    rows = [delayed_row() for _ in range(4)]
    world, store = _world(rows, own_transaction=True)
    sent: list[str] = []
    world.queue.trouble["Billing"] = lambda m: sent.append(m.key)

    def refuse_batches() -> None:
        if store.holders:
            # Another sweep takes the first batch before the next round claims it again.
            for row in rows[:2]:
                store.rows.pop(row.key, None)
            raise StoreError("the disk is full", transient=True)

    store.refuse_if_away = refuse_batches  # type: ignore[method-assign]

    report = world.rounds(batch_size=TWO)

    assert sent == [row.key for row in rows]
    assert _counts(report) == (4, 0, 2, 2)


class _RestartedDueKeyStore(DueKeyStore):
    """Its session ends with an error in the third batch."""

    def __init__(self, rows: list[DelayedRow]) -> None:
        super().__init__(rows)
        self.claims = 0

    @contextmanager
    def open_task(self) -> Iterator[DueKeySession]:
        yield _RestartedSession(self)


class _RestartedSession(DueKeySession):
    def claim(self, run: SweepRun, *claim_keys: object) -> object:  # type: ignore[override]
        assert isinstance(self._store, _RestartedDueKeyStore)
        self._store.claims += 1
        if self._store.claims in {3, 5}:
            raise AWAY
        return super().claim(run, *claim_keys)  # type: ignore[arg-type]


def test_rounds_that_are_cut_leave_nothing_of_a_destination_that_is_available_again() -> None:
    rows = [delayed_row(("Shipping", "Billing")[n % 2], due=DUE) for n in range(12)]
    world = World(_RestartedDueKeyStore(rows))
    times = iter(range(4))
    world.queue.trouble["Shipping"] = lambda _: (
        DestinationError("locked") if next(times, None) is not None else None
    )

    report = world.rounds(batch_size=TWO)

    assert len(world.queue.arrived["Shipping"]) == len(world.queue.arrived["Billing"]) == 6
    assert _is_over(report, 12)


def test_what_is_excluded_for_the_slice_takes_no_claim_key() -> None:
    rows = [delayed_row(("Shipping", "Billing")[n % 2], due=DUE) for n in range(12)]
    world = World(_RestartedDueKeyStore(rows))
    world.trouble("Shipping", DestinationError("no right to insert", transient=False))

    report = world.rounds(batch_size=TWO)

    assert len(world.queue.arrived["Billing"]) == 6
    assert _counts(report) == (12, 6, 6, 0)
    assert report.reason == "no right to insert"


class _UncommittedDueKeyStore(DueKeyStore):
    """Rolls the first batch back at its end."""

    commits = 0

    @contextmanager
    def open_task(self) -> Iterator[DueKeySession]:
        yield _UncommittedSession(self)


class _UncommittedSession(DueKeySession):
    @contextmanager
    def transaction(self) -> Iterator[None]:
        assert isinstance(self._store, _UncommittedDueKeyStore)
        with super().transaction():
            yield
            self._store.commits += 1
            if self._store.commits == 1:
                raise TransactionLostError("deadlock")


def test_message_that_failed_in_a_batch_that_was_rolled_back_is_claimed_again() -> None:
    rows = [delayed_row(name, due=DUE) for name in ("Nowhere", "Billing")]
    world = World(_UncommittedDueKeyStore(rows))

    report = world.rounds(batch_size=TWO)

    assert [counter.attempts for counter in world.store.attempts.values()] == [1]
    assert _counts(report) == (2, 2, 0, 0)
    # The slice did, not another round.
    assert len(report.sweep_ids) == 1


@pytest.mark.parametrize("rates", [(), (RateLimit("Billing", 100),)], ids=["tried", "limited"])
def test_session_that_fails_leaves_no_message_beyond_the_share_unaccounted_for(
    rates: tuple[RateLimit, ...],
) -> None:
    world, _ = _world([delayed_row("Billing") for _ in range(6)])
    errors = iter([*([] if rates else [DestinationError("locked")]), AWAY])
    world.queue.trouble["Billing"] = lambda _: next(errors, None)

    stop = Stop(most=3, clock=world.clock)
    report = world.rounds(stop, rate_limits=RateLimits(rates, ENDPOINT))

    assert _counts(report) == (6, 3, 3, 0)
    assert len(world.store.rows) == 3


# The sweep needs a session at its very beginning.
OUTAGES = st.lists(
    st.tuples(st.floats(0.1, 20), st.floats(0, 40)).map(lambda o: (o[0], o[0] + o[1])), max_size=3
)


@given(store=OUTAGES, shipping=OUTAGES, unanswered=st.sets(st.integers(1, 12), max_size=3))
def test_each_message_is_delivered_once_or_left_whatever_fails(
    store: list[tuple[float, float]],
    shipping: list[tuple[float, float]],
    unanswered: set[int],
) -> None:
    rows = [delayed_row(("Shipping", "Billing")[n % 2]) for n in range(12)]
    world, failing = _world(rows)
    failing.away, failing.unanswered = store, unanswered

    def lock(_: Message) -> DestinationError | None:
        now = world.clock.seconds()
        is_shut = any(since <= now < until for since, until in shipping)
        return DestinationError("locked") if is_shut else None

    world.queue.trouble["Shipping"] = lock
    world.queue.trouble["Billing"] = lambda _: world.clock.advance(0.3)

    report = world.rounds(batch_size=TWO)

    arrived = world.queue.arrived["Shipping"] + world.queue.arrived["Billing"]
    expected = [one(row) for row in rows if row.key not in failing.rows]
    assert sorted(map(str, arrived)) == sorted(map(str, expected))
    assert failing.attempts == {}
    assert _counts(report) == (12, len(arrived), len(failing.rows), 0)
    assert (report.skipped, report.eligible_later, report.held) == (0, 0, 0)
    assert report.outcome == ("incomplete" if failing.rows else "done")
    # The longest is a failure of the store right before the end of a wait for a destination.
    assert world.clock.seconds() <= 20 + 40 * 3 + 2 * (30 + 2)
