"""Tests of several batches in one session."""

from duesweep_testing.contract.queues import steps
from duesweep_testing.contract.subjects import BrokerUnderTest


class BatchContract:
    """Every batch is delivered. A batch without deliveries does nothing."""

    def test_batches_follow_each_other_in_one_session(self, subject: BrokerUnderTest) -> None:
        sent = steps.messages(3)

        with steps.sessions(subject) as (store, queue):
            for one in sent:
                with store.transaction():
                    steps.deliver_in(queue, "Billing", one)
                    queue.commit()

        assert subject.arrived("Billing") == steps.expected(*sent)

    def test_commit_without_deliveries_does_nothing(self, subject: BrokerUnderTest) -> None:
        with steps.sessions(subject) as (store, queue):
            for _ in range(2):
                with store.transaction():
                    queue.commit()

        assert subject.arrived("Billing") == []

    def test_rollback_without_deliveries_does_nothing(self, subject: BrokerUnderTest) -> None:
        (one,) = steps.messages(1)

        with steps.sessions(subject) as (store, queue):
            for _ in range(2):
                queue.rollback()
            with store.transaction():
                steps.deliver_in(queue, "Billing", one)
                queue.commit()
            queue.rollback()

        assert subject.arrived("Billing") == steps.expected(one)
