"""The contract of a queue."""

from duesweep.testing.contract.queues.deliver import DeliverContract
from duesweep.testing.contract.queues.resolve import ResolveContract
from duesweep.testing.contract.queues.transaction import TransactionContract


class QueueContract(ResolveContract, DeliverContract, TransactionContract):
    """All that a queue has to keep; the fixture `subject` is a `QueueUnderTest`."""
