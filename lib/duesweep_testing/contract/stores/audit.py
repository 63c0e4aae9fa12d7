"""Tests of what is compared with the ledger, for stores that can be audited."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

from duesweep.stores.base import OperatorDriver
from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest
from duesweep_testing.sweeps import open_sweep


class AuditContract:
    """All that is stored is told, whoever holds it, and what the journal still has."""

    def test_keys_of_all_messages_are_told_whoever_holds_them(
        self, subject: StoreUnderTest
    ) -> None:
        run, rows = steps.load(subject, *(steps.row(subject) for _ in range(3)))

        with audited(subject) as store, steps.batch(subject) as task:
            steps.claim(subject, task, run)
            with store.keys() as pages:
                found = sorted(chain.from_iterable(pages))

        assert found == sorted(row.key for row in rows)

    def test_counter_of_a_stored_message_is_not_gone(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        steps.fail(subject, run, row)

        with audited(subject) as store:
            assert list(store.gone_counters(10)) == []

    def test_sweep_whose_driver_is_gone_is_unsettled_and_not_alive(
        self, subject: StoreUnderTest
    ) -> None:
        before = subject.server_time()
        run = open_sweep(subject.store)

        with audited(subject) as store:
            [work] = store.unsettled()
            is_alive = store.still_alive(work.sweep_id)
            assert list(store.orphaned_journal()) == []

        assert (work.sweep_id, work.is_closed, is_alive) == (run.sweep_id, False, False)
        assert abs(work.started_at - before) < steps.MINUTE


@contextmanager
def audited(subject: StoreUnderTest) -> Iterator[OperatorDriver]:
    """What is compared; skips the test where the store cannot be audited."""
    with steps.operators(subject).open_driver() as session:
        yield session
