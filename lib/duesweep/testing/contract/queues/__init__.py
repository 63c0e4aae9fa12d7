"""The contract of a queue."""

from duesweep.testing.contract.queues.answer import AnswerContract
from duesweep.testing.contract.queues.batch import BatchContract
from duesweep.testing.contract.queues.deliver import DeliverContract
from duesweep.testing.contract.queues.refuse import RefuseContract
from duesweep.testing.contract.queues.resolve import ResolveContract
from duesweep.testing.contract.queues.transaction import TransactionContract


class BrokerContract(ResolveContract, DeliverContract, BatchContract, AnswerContract):
    """What a queue has to keep that takes back nothing, and looks into no message; the fixture
    `subject` is a `BrokerUnderTest`.
    """


class QueueContract(BrokerContract, RefuseContract, TransactionContract):
    """All that a queue has to keep; the fixture `subject` is a `QueueUnderTest`."""
