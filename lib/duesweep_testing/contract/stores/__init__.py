"""The contract of a store."""

from duesweep_testing.contract.stores.change import ChangeContract
from duesweep_testing.contract.stores.claim import (
    ClaimContract,
    DueContract,
    LockContract,
    RetryContract,
)
from duesweep_testing.contract.stores.claim_keys import ClaimKeyContract
from duesweep_testing.contract.stores.finish import FinishContract
from duesweep_testing.contract.stores.held import HeldContract
from duesweep_testing.contract.stores.look import LookContract
from duesweep_testing.contract.stores.move import MoveContract
from duesweep_testing.contract.stores.plan import PlanContract
from duesweep_testing.contract.stores.set_up import SetUpContract
from duesweep_testing.contract.stores.sweep import AuditContract, StopContract, SweepContract


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
    MoveContract,
    SetUpContract,
    LookContract,
    HeldContract,
    ChangeContract,
    AuditContract,
):
    """The whole contract of a store. The fixture `subject` is a `StoreUnderTest`."""
