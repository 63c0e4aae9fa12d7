"""Tests of which rows a claim locks, skips and frees."""

import pytest

from duesweep.core.errors import StoreError
from duesweep_testing.builders import delayed_row
from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest
from duesweep_testing.contract.transactions import roll_back
from duesweep_testing.sweeps import open_sweep


class LockContract:
    """One transaction locks a row. Others skip it and do not wait."""

    def test_claim_skips_rows_that_another_session_has_locked_and_does_not_wait(
        self, subject: StoreUnderTest
    ) -> None:
        steps.need_skipping(subject)
        run, [held, free] = steps.load(subject, steps.row(subject), steps.row(subject))

        with steps.batch(subject) as other:
            assert steps.keys(steps.claim(subject, other, run, held)) == [held.key]

            try:
                claimed = steps.claimable(subject, run, held, free)
            except StoreError as error:
                pytest.fail(f"The claim waited for the lock: {error}")
            assert claimed == [free.key]

    def test_claim_of_another_sweep_skips_locked_rows_too(self, subject: StoreUnderTest) -> None:
        steps.need_skipping(subject)
        run, [row] = steps.load(subject, steps.row(subject))
        other_run = open_sweep(subject.store)

        with steps.batch(subject) as other:
            steps.claim(subject, other, other_run, row)

            assert steps.claimable(subject, run, row) == []

    def test_claims_of_one_due_at_the_same_time_get_different_messages(
        self, subject: StoreUnderTest
    ) -> None:
        steps.need_skipping(subject)
        due = subject.now() - steps.MINUTE
        run, rows = steps.load(subject, *[delayed_row(due=due) for _ in range(20)])

        with steps.batch(subject) as first, steps.batch(subject) as second:
            claims = [
                steps.claim(subject, first, run, *rows[:8]),
                steps.claim(subject, second, run, *rows[8:16]),
            ]

        keys = [key for claim in claims for key in steps.keys(claim)]
        assert [len(claim.messages) for claim in claims] == [8, 8]
        assert len(set(keys)) == 16
        assert set(keys) <= {row.key for row in rows}

    def test_claim_skips_what_a_batch_has_removed_and_not_committed(
        self, subject: StoreUnderTest
    ) -> None:
        steps.need_skipping(subject)
        run, [removed, free] = steps.load(subject, steps.row(subject), steps.row(subject))

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, removed)
            session.finish(run, 0, steps.delivered(*claim.messages), claim.server_us)

            assert steps.claimable(subject, run, removed, free) == [free.key]

    def test_rows_are_unlocked_when_the_transaction_ends(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        with subject.store.open_task() as other:
            with other.transaction():
                steps.claim(subject, other, run, row)
            assert steps.claimable(subject, run, row) == [row.key]
            with roll_back(other):
                steps.claim(subject, other, run, row)

            assert steps.claimable(subject, run, row) == [row.key]

    def test_savepoint_that_is_rolled_back_keeps_the_claim_before_it(
        self, subject: StoreUnderTest
    ) -> None:
        steps.need_skipping(subject)
        run, [row] = steps.load(subject, steps.row(subject))
        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, row)

            with roll_back(session):
                pass

            assert steps.claimable(subject, run, row) == []
            session.finish(run, 0, steps.delivered(*claim.messages), claim.server_us)

        assert subject.waiting() == set()
