"""The contract of a queue."""

from duesweep_testing.contract.queues.answer import AnswerContract
from duesweep_testing.contract.queues.batch import BatchContract
from duesweep_testing.contract.queues.deliver import DeliverContract
from duesweep_testing.contract.queues.refuse import RefuseContract
from duesweep_testing.contract.queues.resolve import ResolveContract
from duesweep_testing.contract.queues.transaction import TransactionContract


class BrokerContract(ResolveContract, DeliverContract, BatchContract, AnswerContract):
    """The contract of a queue that cannot roll back, and refuses no message for its contents. The
    fixture `subject` is a `BrokerUnderTest`.
    """


class QueueContract(BrokerContract, RefuseContract, TransactionContract):
    """The whole contract of a queue. The fixture `subject` is a `QueueUnderTest`."""
