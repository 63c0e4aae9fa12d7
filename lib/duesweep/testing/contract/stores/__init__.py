"""The contract of a store."""

from duesweep.testing.contract.stores.claim import ClaimContract
from duesweep.testing.contract.stores.due import DueContract
from duesweep.testing.contract.stores.finish import FinishContract
from duesweep.testing.contract.stores.locks import LockContract
from duesweep.testing.contract.stores.messages import MessageContract
from duesweep.testing.contract.stores.retry import RetryContract
from duesweep.testing.contract.stores.sweep import SweepContract
from duesweep.testing.contract.stores.tickets import TicketContract


class StoreContract(
    ClaimContract,
    DueContract,
    LockContract,
    RetryContract,
    TicketContract,
    FinishContract,
    SweepContract,
    MessageContract,
):
    """All that a store has to keep; the fixture `subject` is a `StoreUnderTest`."""
