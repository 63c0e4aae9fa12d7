"""The contract of a store."""

from duesweep.testing.contract.stores.audit import AuditContract
from duesweep.testing.contract.stores.change import ChangeContract
from duesweep.testing.contract.stores.claim import ClaimContract
from duesweep.testing.contract.stores.claim_keys import ClaimKeyContract
from duesweep.testing.contract.stores.due import DueContract
from duesweep.testing.contract.stores.finish import FinishContract
from duesweep.testing.contract.stores.held import HeldContract
from duesweep.testing.contract.stores.locks import LockContract
from duesweep.testing.contract.stores.look import LookContract
from duesweep.testing.contract.stores.messages import MessageContract
from duesweep.testing.contract.stores.plan import PlanContract
from duesweep.testing.contract.stores.retry import RetryContract
from duesweep.testing.contract.stores.stop import StopContract
from duesweep.testing.contract.stores.sweep import SweepContract
from duesweep.testing.contract.stores.take import TakeContract


class StoreContract(
    PlanContract,
    ClaimContract,
    DueContract,
    LockContract,
    RetryContract,
    ClaimKeyContract,
    FinishContract,
    SweepContract,
    StopContract,
    TakeContract,
    MessageContract,
    LookContract,
    HeldContract,
    ChangeContract,
    AuditContract,
):
    """The whole contract of a store. The fixture `subject` is a `StoreUnderTest`."""
