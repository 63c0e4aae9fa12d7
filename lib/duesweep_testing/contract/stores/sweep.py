"""Tests of a sweep as a whole: its limit, its end, its stop, two at once, and the audit."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import chain
from time import monotonic

import pytest

from duesweep.core.account import Account, BreakerReport, CarefulBatches, SliceEnd
from duesweep.core.errors import QueueNotFoundError, SweepClosedError, SweepStoppedError
from duesweep.core.message import Exhausted, Failed, Outcome
from duesweep.core.policy import BatchSize, Retry
from duesweep.stores import tombstone
from duesweep.stores.sweeps import SweepRun
from duesweep.sweep.claim_keys import ClaimKeys
from duesweep.sweep.job import Job
from duesweep.sweep.limits import dispatch_slice
from duesweep_testing.builders import DelayedRow, delayed_row
from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest
from duesweep_testing.journal import BatchEntry, SliceEntry
from duesweep_testing.sweeps import close_sweep, context_of, open_sweep, stop_sweep


class SweepContract:
    """The slices of a sweep share its counters and its end. Sweeps do not disturb each other."""

    def test_sweep_grants_exhausted_messages_up_to_its_limit(self, subject: StoreUnderTest) -> None:
        run, rows = steps.load(subject, *[steps.row(subject) for _ in range(9)])

        batches = [rows[:3], rows[3:4], rows[4:7], rows[7:]]
        assert [_exhaust(subject, run, batch) for batch in batches] == [3, 1, 1, 0]
        assert subject.counters(run) == (5, 4)

    def test_grant_that_is_not_used_is_not_counted(self, subject: StoreUnderTest) -> None:
        run, rows = steps.load(subject, *[steps.row(subject) for _ in range(5)])

        with steps.batch(subject) as session:
            assert session.grant_exhausted(run, 5, limit=5) == 5

        assert _exhaust(subject, run, rows) == 5
        assert subject.counters(run) == (5, 0)

    def test_limit_is_each_sweeps_own(self, subject: StoreUnderTest) -> None:
        run, rows = steps.load(subject, *[steps.row(subject) for _ in range(10)])
        other = open_sweep(subject.store)

        assert _exhaust(subject, run, rows[:5]) == _exhaust(subject, other, rows[5:]) == 5

    def test_slices_that_exhaust_at_once_count_one_after_the_other(
        self, subject: StoreUnderTest
    ) -> None:
        run, rows = steps.load(subject, *[steps.row(subject) for _ in range(6)])

        with ThreadPoolExecutor() as pool:
            with steps.batch(subject) as session:
                assert session.grant_exhausted(run, 3, limit=5) == 3
                second = pool.submit(_exhaust, subject, run, rows[:3])
                assert wait([second], timeout=steps.WHILE_SECONDS).not_done
            assert second.result(timeout=60) == 3

    def test_closed_sweep_claims_nothing_and_journals_nothing(
        self, subject: StoreUnderTest
    ) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        other_run = open_sweep(subject.store)
        close_sweep(subject.store, run)

        with pytest.raises(SweepClosedError), steps.batch(subject) as session:
            steps.claim(subject, session, run, row)
        with pytest.raises(SweepClosedError), subject.store.open_task() as session:
            session.end_slice(run, 0, SliceEnd(Account(given=1, claimed=1), None))

        assert subject.journal(run) == []
        assert steps.claimable(subject, other_run, row) == [row.key]

    def test_sweep_is_alive_while_its_driver_or_its_settler_is_there(
        self, subject: StoreUnderTest
    ) -> None:
        open_driver = subject.store.open_driver
        with open_driver() as driver:
            sweep_id = driver.sweeps.open(driver.due.horizon()).sweep_id
            with open_driver() as other:
                assert steps.is_alive(other, sweep_id)

        with open_driver() as settler, open_driver() as other:
            # To ask locks nothing.
            assert not steps.is_alive(other, sweep_id)
            with settler.journal.settling() as before, other.journal.settling() as name:
                assert before is None
                assert name is not None
                assert settler.journal.adopt(sweep_id)
                assert not other.journal.adopt(sweep_id)
                assert steps.is_alive(other, sweep_id)
            assert not steps.is_alive(other, sweep_id)
            assert [one.sweep_id for one in other.journal.unsettled()] == [sweep_id]

    def test_sweep_that_is_released_may_be_settled_while_its_driver_goes_on(
        self, subject: StoreUnderTest
    ) -> None:
        with subject.store.open_driver() as driver, subject.store.open_driver() as other:
            sweep_id = driver.sweeps.open(driver.due.horizon()).sweep_id
            driver.sweeps.close(sweep_id, abandoned=False, remaining=0)
            before = steps.is_alive(other, sweep_id)
            driver.sweeps.release(sweep_id)

            with other.journal.settling():
                assert (before, other.journal.adopt(sweep_id)) == (True, True)
                assert steps.is_alive(driver, sweep_id)

    @pytest.mark.parametrize("is_in_ledger", [True, False])
    def test_sweep_that_is_forgotten_leaves_nothing_and_claims_no_more(
        self, subject: StoreUnderTest, *, is_in_ledger: bool
    ) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        close_sweep(subject.store, run)

        with subject.store.open_driver() as driver:
            driver.journal.delete_settled(run.sweep_id, is_in_ledger=is_in_ledger)
            left = {one.sweep_id for one in driver.journal.unsettled()}

        assert run.sweep_id not in left
        with pytest.raises(SweepClosedError), steps.batch(subject) as session:
            steps.claim(subject, session, run, row)

    def test_sweep_is_closed_only_when_its_batches_in_flight_have_ended(
        self, subject: StoreUnderTest
    ) -> None:
        run, [row] = steps.load(subject, steps.row(subject))

        with ThreadPoolExecutor() as pool, subject.store.open_driver() as driver:
            # How long it takes here to close one that has no batches.
            other, began = open_sweep(subject.store), monotonic()
            driver.sweeps.close(other.sweep_id, abandoned=True, remaining=0)
            seconds = max(steps.WHILE_SECONDS, 3 * (monotonic() - began))
            with steps.batch(subject) as session:
                claim = steps.claim(subject, session, run, row)
                closing = pool.submit(
                    driver.sweeps.close, run.sweep_id, abandoned=True, remaining=0
                )
                assert wait([closing], timeout=seconds).not_done
                session.finish(run, 0, steps.delivered(*claim.messages), claim.server_us)
            closing.result(timeout=60)

        assert len(subject.journal(run)) == 1

    def test_end_of_a_slice_is_journalled_at_once(self, subject: StoreUnderTest) -> None:
        run = open_sweep(subject.store)
        account = Account(2_000, claimed=900, skipped=80, gone=7, later=13, left=1_000)
        breaker = BreakerReport(
            "Billing", "open", "2026-11-01T08:00:00+00:00", 30.0, 7, "locked \0"
        )
        careful = CarefulBatches("a destination is not \0 the last header", 7)
        whole = SliceEnd(Account(1_000, claimed=1_000), None, (breaker,), (careful,))

        with subject.store.open_task() as session:
            session.end_slice(run, 3, whole)
            session.end_slice(run, 4, SliceEnd(account, "Billing is locked \0"))

        assert [type(entry) for entry in subject.journal(run)] == [SliceEntry, SliceEntry]
        first, second = subject.journal(run)
        assert first == SliceEntry(3, whole)
        assert isinstance(second, SliceEntry)
        assert (second.slice_number, second.end.account) == (4, account)
        assert str(second.end.reason).startswith("Billing is locked")

    def test_sweep_in_many_batches_delivers_each_message_once(
        self, subject: StoreUnderTest
    ) -> None:
        rows = subject.load(_rows(subject, 300))
        run = open_sweep(subject.store)

        _sweep(subject, run, subject.claim_keys(rows), threading.Barrier(1))

        _assert_each_delivered_once(subject, rows, [run])
        last = subject.journal(run)[-1]
        assert isinstance(last, SliceEntry)
        account = Account(given=len(rows), claimed=len(rows))
        assert (last.end.account, last.end.reason) == (account, None)

    def test_two_sweeps_side_by_side_deliver_each_of_several_thousand_messages_once(
        self, subject: StoreUnderTest
    ) -> None:
        steps.need_skipping(subject)
        rows = subject.load(_rows(subject, 4_000))
        runs = [open_sweep(subject.store), open_sweep(subject.store)]
        claim_keys = subject.claim_keys(rows)

        with ThreadPoolExecutor() as pool:
            # From both ends: both have work, and they meet in the middle.
            start = threading.Barrier(2)
            list(pool.map(_sweep, [subject] * 2, runs, [claim_keys, claim_keys[::-1]], [start] * 2))

        _assert_each_delivered_once(subject, rows, runs)


def _rows(subject: StoreUnderTest, count: int) -> list[DelayedRow]:
    """Ten rows with different Dues, and `count` rows with one Due, some without a queue."""
    due = subject.now() - steps.MINUTE
    return [steps.row(subject) for _ in range(10)] + [
        delayed_row("Nowhere" if n % 100 == 0 else "Billing", due=due) for n in range(count)
    ]


def _assert_each_delivered_once(
    subject: StoreUnderTest, rows: Sequence[DelayedRow], runs: Sequence[SweepRun]
) -> None:
    """Assert that the runs delivered all that they can, and each journalled its own part."""
    messages = [subject.message(row) for row in rows]
    unknown = {m.key for m in messages if m.destination == "Nowhere"}
    expected = [m.headers_text for m in messages if m.key not in unknown]
    assert sorted(subject.delivered()) == sorted(expected)
    assert subject.waiting() == unknown
    assert subject.attempts() == dict.fromkeys(unknown, 1)
    journals = [_batches(subject, run) for run in runs]
    assert all(sum(entry.dispatched for entry in journal) for journal in journals)
    accounts = [key for journal in journals for entry in journal for key in _accounts(entry)]
    assert sorted(accounts) == sorted({m.key for m in messages} - unknown)


def _exhaust(subject: StoreUnderTest, run: SweepRun, rows: Sequence[DelayedRow]) -> int:
    """Exhaust as many of `rows` as a sweep's limit of 5 grants, in one batch."""
    with steps.batch(subject) as session:
        claim = steps.claim(subject, session, run, *rows)
        granted = session.grant_exhausted(run, len(rows), limit=5)
        error = QueueNotFoundError("There is no queue")
        outcomes: list[Outcome] = [Exhausted(m, error, None) for m in claim.messages[:granted]]
        outcomes += [Failed(m, error, 0, is_over_limit=True) for m in claim.messages[granted:]]
        session.finish(run, 0, outcomes, claim.server_us)
        return granted


def _sweep(
    subject: StoreUnderTest, run: SweepRun, claim_keys: Sequence[str], start: threading.Barrier
) -> None:
    batch_size = BatchSize(rows=50)
    context = context_of(
        subject.store, subject.queue, batch_size=batch_size, retry=Retry(max_exhausted_per_sweep=0)
    )
    start.wait(10)
    dispatch_slice(
        Job(context, run), 0, ClaimKeys(claim_keys, [1_000] * len(claim_keys), len(claim_keys))
    )


def _batches(subject: StoreUnderTest, run: SweepRun) -> list[BatchEntry]:
    return [entry for entry in subject.journal(run) if isinstance(entry, BatchEntry)]


def _accounts(entry: BatchEntry) -> list[str]:
    if entry.outcomes is None:
        return []
    keys: list[str] = tombstone.decode(entry.outcomes).column("message_key").to_pylist()
    return keys


HOUR_SECONDS = 3_600


class StopContract:
    """A sweep that is to stop begins no other batch, and finishes the ones that it has begun."""

    def test_sweep_that_is_to_stop_claims_nothing_more(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        stop_sweep(subject.store, run, 0)

        with pytest.raises(SweepStoppedError), steps.batch(subject) as session:
            steps.claim(subject, session, run, row)

        assert steps.claimable(subject, open_sweep(subject.store), row) == [row.key]

    def test_claim_without_keys_tells_when_the_sweep_is_to_stop(
        self, subject: StoreUnderTest
    ) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        with steps.batch(subject) as session:
            assert steps.claim(subject, session, run).messages == ()

        stop_sweep(subject.store, run, 0)

        with pytest.raises(SweepStoppedError), steps.batch(subject) as session:
            steps.claim(subject, session, run)
        assert subject.waiting() == {row.key}

    def test_batch_in_hand_is_finished_and_the_slice_ended(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        whole = SliceEnd(Account(2, claimed=1, left=1), None)

        with subject.store.open_task() as session:
            with session.transaction():
                claim = steps.claim(subject, session, run, row)
                stop_sweep(subject.store, run, 0)
                session.finish(run, 0, steps.delivered(*claim.messages), claim.server_us)
            session.end_slice(run, 0, whole)

        assert subject.waiting() == set()
        assert [entry.dispatched for entry in steps.batches(subject, run)] == [1]
        assert subject.journal(run)[-1] == SliceEntry(0, whole)

    def test_sweep_goes_on_until_its_own_stop(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))

        stop_sweep(subject.store, open_sweep(subject.store), 0)
        stop_sweep(subject.store, run, HOUR_SECONDS)

        assert steps.claimable(subject, run, row) == [row.key]

    def test_earlier_stop_counts_whichever_was_asked_for_first(
        self, subject: StoreUnderTest
    ) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        stop_sweep(subject.store, run, HOUR_SECONDS)
        stop_sweep(subject.store, run, 0)
        stop_sweep(subject.store, run, HOUR_SECONDS)

        with pytest.raises(SweepStoppedError), steps.batch(subject) as session:
            steps.claim(subject, session, run, row)


class AuditContract:
    """All stored messages are reported, also locked ones, and the journal's rest."""

    def test_keys_of_all_messages_are_told_whoever_holds_them(
        self, subject: StoreUnderTest
    ) -> None:
        run, rows = steps.load(subject, *(steps.row(subject) for _ in range(3)))

        with steps.operator(subject) as store, steps.batch(subject) as task:
            steps.claim(subject, task, run)
            with store.people.keys() as pages:
                found = sorted(chain.from_iterable(pages))

        assert found == sorted(row.key for row in rows)

    def test_counter_of_a_stored_message_is_not_gone(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        steps.fail(subject, run, row)

        with steps.operator(subject) as store:
            assert list(store.people.gone_counters(10)) == []

    def test_sweep_whose_driver_is_gone_is_unsettled_and_not_alive(
        self, subject: StoreUnderTest
    ) -> None:
        before = subject.server_time()
        run = open_sweep(subject.store)

        with steps.operator(subject) as store:
            [work] = store.journal.unsettled()
            assert list(store.people.orphaned_journal()) == []

        assert (work.sweep_id, work.is_closed, work.is_alive) == (run.sweep_id, False, False)
        assert abs(work.started_at - before) < steps.MINUTE
