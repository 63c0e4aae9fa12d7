"""Tests of the transaction of deliveries."""

from duesweep_testing.contract.queues import steps
from duesweep_testing.contract.subjects import QueueUnderTest
from duesweep_testing.contract.transactions import roll_back


class TransactionContract:
    """A batch is delivered as a whole or not at all, with the store's transaction or before it."""

    def test_batch_is_not_visible_before_its_end(self, subject: QueueUnderTest) -> None:
        with steps.sessions(subject) as (store, queue), store.transaction():
            queue.deliver(queue.resolve("Billing"), steps.messages(2))

            assert subject.arrived("Billing") == []

    def test_batch_that_fails_before_the_queues_commit_has_delivered_nothing(
        self, subject: QueueUnderTest
    ) -> None:
        with steps.sessions(subject) as (store, queue), roll_back(store):
            queue.deliver(queue.resolve("Billing"), steps.messages(2))

        assert subject.arrived("Billing") == []

    def test_batch_that_fails_after_the_commit_of_a_queues_own_transaction_is_delivered(
        self, subject: QueueUnderTest
    ) -> None:
        sent = steps.messages(2)

        with steps.sessions(subject) as (store, queue), roll_back(store):
            steps.deliver_in(queue, "Billing", *sent)
            queue.commit()

        durable = sent if subject.has_own_transaction else []
        assert subject.arrived("Billing") == steps.expected(*durable)

    def test_rollback_forgets_what_was_delivered_and_the_next_batch_is_a_new_one(
        self, subject: QueueUnderTest
    ) -> None:
        subject.create("Shipping")
        before, lost, lost_elsewhere, after = steps.messages(4)

        with steps.sessions(subject) as (store, queue):
            with store.transaction():
                steps.deliver_in(queue, "Billing", before)
                queue.commit()
            with roll_back(store):
                queue.deliver(queue.resolve("Billing"), [lost])
                queue.deliver(queue.resolve("Shipping"), [lost_elsewhere])
            queue.rollback()
            with store.transaction():
                steps.deliver_in(queue, "Billing", after)
                queue.commit()

        assert subject.arrived("Billing") == steps.expected(before, after)
        assert subject.arrived("Shipping") == []
