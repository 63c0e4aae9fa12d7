"""The contract of a store, kept by every store that needs no server from outside."""

import uuid
from collections.abc import Iterator

import pytest
from contract.due_keys import DueKeysUnderTest
from contract.store_subjects import OpenEndpoint, PostgreSqlUnderTest, TimeoutsUnderTest
from timeouts_endpoint import timeouts_of

from duesweep.testing.contract import StoreContract
from duesweep.testing.contract.memory import MemoryUnderTest

# Names that occur in practice: blanks, dots, quotes, brackets, braces, percent signs, 63 bytes.
ODD_ENDPOINT = 'Sales."Or\'ders".[%s].{delayed}'
ODD_SCHEMA = 'the "odd" one: 100%'
LONGEST_TABLE = "Late.Ünd" + 54 * "x"


class TestMemory(StoreContract):
    @pytest.fixture
    def subject(self) -> MemoryUnderTest:
        return MemoryUnderTest()


class TestMemoryWithDuesAsKeys(StoreContract):
    @pytest.fixture
    def subject(self) -> DueKeysUnderTest:
        return DueKeysUnderTest()


class TestPostgreSql(StoreContract):
    @pytest.fixture
    def subject(self, open_endpoint: OpenEndpoint) -> Iterator[PostgreSqlUnderTest]:
        with open_endpoint("UTC", f"s{uuid.uuid4().hex[:12]}") as endpoint:
            yield PostgreSqlUnderTest(endpoint.set_up("Billing"))


class TestTimeouts(StoreContract):
    @pytest.fixture
    def subject(self, open_endpoint: OpenEndpoint) -> Iterator[TimeoutsUnderTest]:
        with open_endpoint("UTC", f"s{uuid.uuid4().hex[:12]}") as endpoint:
            yield TimeoutsUnderTest(timeouts_of(endpoint).set_up("Billing"))


class TestTimeoutsInNewYorkWithOddNames(StoreContract):
    @pytest.fixture
    def subject(self, open_endpoint: OpenEndpoint) -> Iterator[TimeoutsUnderTest]:
        schema = f"{ODD_SCHEMA} s{uuid.uuid4().hex[:12]}"
        with open_endpoint("America/New_York", schema) as endpoint:
            odd = endpoint.named(ODD_ENDPOINT, endpoint.schema, LONGEST_TABLE)
            yield TimeoutsUnderTest(timeouts_of(odd).set_up("Billing"))


class TestPostgreSqlInNewYorkWithOddNames(StoreContract):
    @pytest.fixture
    def subject(self, open_endpoint: OpenEndpoint) -> Iterator[PostgreSqlUnderTest]:
        schema = f"{ODD_SCHEMA} s{uuid.uuid4().hex[:12]}"
        with open_endpoint("America/New_York", schema) as endpoint:
            odd = endpoint.named(ODD_ENDPOINT, endpoint.schema, LONGEST_TABLE)
            yield PostgreSqlUnderTest(odd.set_up("Billing"))
