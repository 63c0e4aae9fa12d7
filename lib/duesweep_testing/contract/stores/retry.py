"""Tests of which messages a claim takes as eligible."""

from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest
from duesweep_testing.sweeps import open_sweep


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
            subject.end_back_off()

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, row)

        assert claim.messages == (subject.message(row, attempts=3),)
        assert subject.attempts() == {row.key: 3}

    def test_message_that_fails_again_waits_again(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        steps.fail(subject, run, row)
        subject.end_back_off()
        assert steps.claimable(subject, run, row) == [row.key]

        steps.fail(subject, run, row)

        assert steps.claimable(subject, run, row) == []

    def test_message_without_backoff_is_eligible_at_once(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, row)
            failed = steps.failed(*claim.messages, retry_seconds=0)
            session.finish(run, 0, failed, claim.server_us)

        assert steps.claimable(subject, run, row) == [row.key]
