"""Batch after batch in one session."""

from duesweep.testing.contract.queues import steps
from duesweep.testing.contract.subjects import BrokerUnderTest


class BatchContract:
    """Every batch counts, and those that deliver nothing do nothing."""

    def test_batches_follow_each_other_in_one_session(self, subject: BrokerUnderTest) -> None:
        letters = steps.messages(3)

        with steps.sessions(subject) as (store, queue):
            for letter in letters:
                with store.transaction():
                    steps.carry(queue, "Billing", letter)
                    queue.commit()

        assert subject.letters("Billing") == steps.letters(*letters)

    def test_commit_without_deliveries_does_nothing(self, subject: BrokerUnderTest) -> None:
        with steps.sessions(subject) as (store, queue):
            for _ in range(2):
                with store.transaction():
                    queue.commit()

        assert subject.letters("Billing") == []

    def test_rollback_without_deliveries_does_nothing(self, subject: BrokerUnderTest) -> None:
        (letter,) = steps.messages(1)

        with steps.sessions(subject) as (store, queue):
            for _ in range(2):
                queue.rollback()
            with store.transaction():
                steps.carry(queue, "Billing", letter)
                queue.commit()
            queue.rollback()

        assert subject.letters("Billing") == steps.letters(letter)
