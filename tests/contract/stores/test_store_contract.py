"""The contract of a store, kept by every store that needs no server from outside."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from duesweep_testing.contract import StoreContract
from duesweep_testing.contract.memory import MemoryUnderTest
from duesweep_testing.contract.stores import (
    AuditContract,
    ChangeContract,
    ClaimContract,
    DueContract,
    FinishContract,
    HeldContract,
    LookContract,
    MoveContract,
    PlanContract,
)
from support.contract.memory_stores import DueKeysUnderTest
from support.contract.store_subjects import DelayedTableUnderTest, OpenEndpoint

# Names that occur in practice: blanks, dots, quotes, brackets, braces, percent signs, 63 bytes.
ODD_ENDPOINT = 'Sales."Or\'ders".[%s].{delayed}'
ODD_SCHEMA = 'the "odd" one: 100%'
LONGEST_TABLE = "Late.Ünd" + 54 * "x"


class DelayedTableContract(
    PlanContract,
    ClaimContract,
    DueContract,
    FinishContract,
    MoveContract,
    LookContract,
    HeldContract,
    ChangeContract,
    AuditContract,
):
    """The parts whose statements have names, columns and times of the delayed table. The others use
    duesweep's own tables, which all kinds have.
    """


class TestMemory(StoreContract):
    @pytest.fixture
    def subject(self) -> MemoryUnderTest:
        return MemoryUnderTest()


class TestMemoryWithDuesAsKeys(StoreContract):
    @pytest.fixture
    def subject(self) -> DueKeysUnderTest:
        return DueKeysUnderTest()


class _InPostgreSql:
    kind = "postgresql"
    zone = "UTC"

    @pytest.fixture
    def subject(self, open_endpoint: OpenEndpoint) -> Iterator[DelayedTableUnderTest]:
        with open_endpoint(self.zone) as endpoint:
            yield DelayedTableUnderTest(endpoint.of_kind(self.kind).set_up("Billing"))


class _InNewYorkWithOddNames(_InPostgreSql):
    @pytest.fixture
    def subject(self, open_endpoint: OpenEndpoint) -> Iterator[DelayedTableUnderTest]:
        schema = f"{ODD_SCHEMA} s{uuid.uuid4().hex[:12]}"
        with open_endpoint("America/New_York", schema) as endpoint:
            odd = endpoint.named(ODD_ENDPOINT, endpoint.schema, LONGEST_TABLE)
            yield DelayedTableUnderTest(odd.of_kind(self.kind).set_up("Billing"))


class TestPostgreSql(_InPostgreSql, StoreContract):
    pass


class TestPostgreSqlBehindAPooler(StoreContract):
    """One that lends the server's processes for a transaction each, to other programs too."""

    @pytest.fixture
    def subject(
        self, open_endpoint: OpenEndpoint, pooled: Callable[[str], str]
    ) -> Iterator[DelayedTableUnderTest]:
        with open_endpoint("UTC") as endpoint:
            endpoint.set_up("Billing")
            yield DelayedTableUnderTest(endpoint, pooled(endpoint.dsn))


class TestPostgreSqlInNewYorkWithOddNames(_InNewYorkWithOddNames, StoreContract):
    pass


class TestPostgreSqlInKolkata(_InPostgreSql, PlanContract):
    zone = "Asia/Kolkata"


class TestTimeouts(_InPostgreSql, StoreContract):
    kind = "sql-persistence"


class TestTimeoutsInNewYorkWithOddNames(_InNewYorkWithOddNames, DelayedTableContract):
    kind = "sql-persistence"


class TestTimeoutsInKolkata(_InPostgreSql, PlanContract):
    kind = "sql-persistence"
    zone = "Asia/Kolkata"
