"""Tests of which messages a claim takes as due."""

from datetime import timedelta

import pytest

from duesweep.core.world import micros
from duesweep_testing.builders import delayed_row
from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest
from duesweep_testing.sweeps import open_sweep


class DueContract:
    """A claim takes messages that are in the store and due at that moment, not the plan's."""

    def test_claim_leaves_a_message_that_was_rescheduled_after_the_plan(
        self, subject: StoreUnderTest
    ) -> None:
        run, [row, other] = steps.load(subject, steps.row(subject), steps.row(subject))

        subject.reschedule(row.key, subject.now() + timedelta(hours=1))

        assert steps.claimable(subject, run, row, other) == [other.key]
        assert subject.waiting() == {row.key, other.key}

    def test_message_is_due_before_the_horizon_and_not_at_it(self, subject: StoreUnderTest) -> None:
        run = open_sweep(subject.store)
        horizon, tick = run.horizon.before, subject.abilities.tick

        # If the store rounds, a message due at the horizon may be due before it.
        before, at, after = subject.load(
            delayed_row(due=horizon + shift) for shift in (-tick, 0 * tick, tick)
        )

        rows = [before, at, after]
        if subject.abilities.stand_in is not None:
            # It stores a Due between two ticks, before the tick up to which the horizon is rounded.
            rows.remove(at)
        due = [row.key for row in rows if row.is_due(horizon)]
        assert steps.claimable(subject, run, *rows) == due
        assert before.key in due
        assert after.key not in due

    def test_message_due_at_minus_infinity_is_claimed_and_one_due_at_infinity_is_not(
        self, subject: StoreUnderTest
    ) -> None:
        if not subject.abilities.has_infinite_due:
            pytest.skip("Due is never infinite in this store")
        rows = delayed_row(due="-infinity"), delayed_row(due="infinity")
        run, [since_ever, never] = steps.load(subject, *rows)

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, since_ever, never)

        assert [(m.key, m.due_us) for m in claim.messages] == [(since_ever.key, None)]

    def test_message_due_since_the_year_one_is_claimed(self, subject: StoreUnderTest) -> None:
        # The year 1, or the earliest time that the store can hold.
        run, [row] = steps.load(subject, delayed_row(due=subject.abilities.first_due))

        with steps.batch(subject) as session:
            (claimed,) = steps.claim(subject, session, run, row).messages

        assert claimed.due_us == row.due_us

    def test_claim_returns_the_instant_at_which_each_message_is_due(
        self, subject: StoreUnderTest
    ) -> None:
        dues = [subject.now() - minutes * steps.MINUTE for minutes in (1, 10)]
        run, rows = steps.load(subject, *[steps.row(subject, due=due) for due in dues])

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, *rows)

        # A Due is ahead of its instant by as much as the store's clock is ahead of the server's.
        ahead_us = micros(subject.now()) - micros(subject.server_time())
        found = {m.key: m.instant_us for m in claim.messages}
        assert found.keys() == {row.key for row in rows}
        for row in rows:
            instant_us, due_us = found[row.key], row.due_us
            assert instant_us is not None
            assert due_us is not None
            assert abs(due_us - ahead_us - instant_us) < 60_000_000

    def test_claim_of_missing_keys_of_no_keys_and_of_one_key_twice(
        self, subject: StoreUnderTest
    ) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        gone = steps.row(subject)

        assert steps.claimable(subject, run, gone) == []
        assert steps.claimable(subject, run) == []
        assert steps.claimable(subject, run, row, row) == [row.key]
        assert steps.claimable(subject, run, row, gone) == [row.key]
