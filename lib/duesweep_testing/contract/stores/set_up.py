"""Tests of a store before its first session."""

import pytest

from duesweep.core.errors import ConfigError
from duesweep.stores.base import Store, TransactionMode
from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest


class SetUpContract:
    """Set-up keeps stored messages, and a guarantee that the store cannot give is refused."""

    def test_set_up_can_be_repeated_and_keeps_what_is_there(self, subject: StoreUnderTest) -> None:
        if type(subject.store).set_up_infrastructure is Store.set_up_infrastructure:
            pytest.skip("The store expects its tables to exist")
        [row] = subject.load([steps.row(subject)])

        subject.store.set_up_infrastructure()

        assert subject.waiting() == {row.key}

    def test_mode_that_takes_a_distributed_transaction_is_refused(
        self, subject: StoreUnderTest
    ) -> None:
        subject.store.initialise(subject.own_queue, TransactionMode.RECEIVE_ONLY)

        with pytest.raises(ConfigError, match="transaction-scope"):
            subject.store.initialise(subject.own_queue, TransactionMode.TRANSACTION_SCOPE)
