"""Tests of which messages a claim takes, locks and returns."""

from datetime import timedelta

import pytest

from duesweep.core.errors import MessageError, StoreError, UnreadableHeadersError
from duesweep.core.world import late_ms, micros
from duesweep_testing.builders import delayed_row
from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest
from duesweep_testing.sweeps import open_sweep, roll_back


class ClaimContract:
    """Messages as they are stored, ready to be delivered."""

    def test_claim_returns_messages_as_they_are_stored_in_the_order_of_their_due(
        self, subject: StoreUnderTest
    ) -> None:
        late = steps.row(subject, due=subject.now() - 2 * steps.MINUTE)
        later = steps.row(subject, None, due=subject.now() - 3 * steps.MINUTE, body=None)
        last = steps.row(subject, due=subject.now() - steps.MINUTE, body=b"")
        run, [last, late, later] = steps.load(subject, last, late, later)

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, late, last, later)

        assert claim.messages == tuple(subject.message(row) for row in (later, late, last))

    def test_claim_returns_the_servers_time(self, subject: StoreUnderTest) -> None:
        due = subject.now() - steps.MINUTE
        run, [row] = steps.load(subject, steps.row(subject, due=due))

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, row)

        (claimed,) = claim.messages
        passed_us = claim.server_us - micros(run.horizon.server_time)
        assert 0 <= passed_us < 60_000_000
        late = late_ms(claimed.instant_us, claim.server_us)
        assert late is not None
        assert 60_000 <= late < 120_000

    @pytest.mark.parametrize(
        "body",
        [None, b"", b"\0", bytes(range(256)), b"x" * 300_001],
        ids=["none", "empty", "one NUL", "every byte", "300 kB and one"],
    )
    def test_claim_returns_any_body_as_it_is(
        self, subject: StoreUnderTest, body: bytes | None
    ) -> None:
        run, [row] = steps.load(subject, steps.row(subject, body=body))

        with steps.batch(subject) as session:
            (claimed,) = steps.claim(subject, session, run, row).messages

        assert claimed.body == body

    def test_claim_returns_unreadable_headers_with_the_reason_and_as_they_are(
        self, subject: StoreUnderTest
    ) -> None:
        rows = [steps.poison(subject, text) for text in subject.unreadable]
        run, rows = steps.load(subject, *rows)

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, *rows)

        claimed = {m.key: m for m in claim.messages}
        assert set(claimed) == {row.key for row in rows}
        for row in rows:
            message = claimed[row.key]
            assert isinstance(message.headers, UnreadableHeadersError)
            # Two errors are never equal. So all fields except the headers are compared.
            assert message._replace(headers={}) == subject.message(row)._replace(headers={})

    def test_claim_returns_headers_to_be_delivered_without_the_forward_destination(
        self, subject: StoreUnderTest
    ) -> None:
        more = {"Grüße": '\N{CHECK MARK} \\ " \t /', "Nullable": None, "Empty": ""}
        run, [row] = steps.load(subject, steps.row(subject, more=more))

        with steps.batch(subject) as session:
            (claimed,) = steps.claim(subject, session, run, row).messages

        assert claimed.destination == "Billing"
        assert claimed.headers_text == subject.message(row).headers_text
        assert "ForwardDestination" not in claimed.headers_text
        assert not isinstance(claimed.headers, MessageError)
        assert {name: claimed.headers[name] for name in more} == more

    def test_claim_of_more_than_a_batch_holds_names_the_claim_keys_that_it_has_not_reached(
        self, subject: StoreUnderTest
    ) -> None:
        rows = [steps.row(subject, body=b"x" * 3_000_000) for _ in range(6)]
        run, rows = steps.load(subject, *rows)
        claim_keys, claimed = subject.claim_keys(rows), []

        with subject.store.open_task() as session:
            while claim_keys:
                with session.transaction():
                    claim = session.claim(run, claim_keys)
                    session.finish(run, 0, steps.delivered(*claim.messages), claim.server_us)
                assert 0 < len(claim.messages) == len(claim_keys) - len(claim.unread)
                claimed += steps.keys(claim)
                claim_keys = list(claim.unread)

        assert sorted(claimed) == sorted(row.key for row in rows)
        assert subject.waiting() == set()

    def test_claim_keys_without_a_message_are_counted_by_their_reason(
        self, subject: StoreUnderTest
    ) -> None:
        rows = [steps.row(subject) for _ in range(5)]
        run, [gone, rescheduled, failed, free, also_free] = steps.load(subject, *rows)
        steps.fail(subject, run, failed)
        subject.reschedule(rescheduled.key, subject.now() + steps.MINUTE)
        other_run = open_sweep(subject.store)
        with steps.batch(subject) as session:
            taken = steps.claim(subject, session, other_run, gone)
            session.finish(other_run, 0, steps.delivered(*taken.messages), taken.server_us)

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, gone, rescheduled, failed, free, also_free)

        assert sorted(steps.keys(claim)) == sorted([free.key, also_free.key])
        assert claim.skipped == len(claim.unread) == 0
        # If claim keys are Dues, a message that was rescheduled counts as gone.
        assert (claim.gone, claim.later) in {(1, 2), (2, 1)}

    def test_claim_keys_of_locked_rows_are_counted_as_skipped(
        self, subject: StoreUnderTest
    ) -> None:
        steps.need_skipping(subject)
        due = subject.now() - steps.MINUTE
        run, rows = steps.load(subject, *[delayed_row(due=due) for _ in range(6)])

        with steps.batch(subject) as other:
            held = steps.claim(subject, other, run, *rows[:4])
            with steps.batch(subject) as session:
                claim = steps.claim(subject, session, run, *rows)

        assert len(held.messages) == 4
        assert (len(claim.messages), claim.skipped) == (2, 4)
        assert claim.gone == claim.later == len(claim.unread) == 0


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


class LockContract:
    """One transaction locks a row. Others skip it and do not wait."""

    def test_claim_skips_rows_that_another_session_has_locked_and_does_not_wait(
        self, subject: StoreUnderTest
    ) -> None:
        steps.need_skipping(subject)
        run, [held, free] = steps.load(subject, steps.row(subject), steps.row(subject))
        other_run = open_sweep(subject.store)

        with steps.batch(subject) as other:
            assert steps.keys(steps.claim(subject, other, run, held)) == [held.key]

            try:
                claimed = steps.claimable(subject, run, held, free)
                claimed_by_another_sweep = steps.claimable(subject, other_run, held, free)
            except StoreError as error:
                pytest.fail(f"The claim waited for the lock: {error}")
            assert claimed == claimed_by_another_sweep == [free.key]

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


class RetryContract:
    """A failed message is not claimed until it is eligible again."""

    def test_claim_leaves_messages_for_which_another_session_has_counted_a_failure(
        self, subject: StoreUnderTest
    ) -> None:
        run, [failing, other] = steps.load(subject, steps.row(subject), steps.row(subject))
        second_run = open_sweep(subject.store)

        steps.fail(subject, run, failing)

        assert steps.claimable(subject, second_run, failing, other) == [other.key]
        assert subject.attempts() == {failing.key: 1}

    def test_eligible_message_is_claimed_with_its_failures(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        for _ in range(3):
            steps.fail(subject, run, row)
            assert steps.claimable(subject, run, row) == []
            subject.end_back_off()

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, row)

        assert claim.messages == (subject.message(row, attempts=3),)
        assert subject.attempts() == {row.key: 3}

    def test_message_without_backoff_is_eligible_at_once(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, row)
            failed = steps.failed(*claim.messages, retry_seconds=0)
            session.finish(run, 0, failed, claim.server_us)

        assert steps.claimable(subject, run, row) == [row.key]
