"""The contract of a store."""

from duesweep_testing.contract.stores.audit import AuditContract
from duesweep_testing.contract.stores.change import ChangeContract
from duesweep_testing.contract.stores.claim import ClaimContract
from duesweep_testing.contract.stores.claim_keys import ClaimKeyContract
from duesweep_testing.contract.stores.due import DueContract
from duesweep_testing.contract.stores.finish import FinishContract
from duesweep_testing.contract.stores.held import HeldContract
from duesweep_testing.contract.stores.locks import LockContract
from duesweep_testing.contract.stores.look import LookContract
from duesweep_testing.contract.stores.messages import MessageContract
from duesweep_testing.contract.stores.plan import PlanContract
from duesweep_testing.contract.stores.retry import RetryContract
from duesweep_testing.contract.stores.stop import StopContract
from duesweep_testing.contract.stores.sweep import SweepContract
from duesweep_testing.contract.stores.take import TakeContract


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
