"""Tests of sweeps that are stopped early."""

import pytest

from duesweep.core.account import Account, SliceEnd
from duesweep.core.errors import SweepStoppedError
from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest
from duesweep_testing.journal import SliceEntry
from duesweep_testing.sweeps import open_sweep, stop_sweep

HOUR_SECONDS = 3_600


class StopContract:
    """A sweep that is to stop begins no other batch, and finishes those that it has begun."""

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

    def test_sweep_that_is_to_stop_takes_nothing_more(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        stop_sweep(subject.store, run, 0)

        with subject.store.open_task() as session:
            if not session.can_take:
                pytest.skip("it does not remove messages as it claims them")
            with pytest.raises(SweepStoppedError), session.transaction():
                session.take(run, subject.claim_keys([row]))

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

    def test_sweep_that_is_to_stop_later_goes_on_until_then(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))

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

    def test_stop_is_for_one_sweep_only(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        other = open_sweep(subject.store)

        stop_sweep(subject.store, other, 0)

        assert steps.claimable(subject, run, row) == [row.key]
