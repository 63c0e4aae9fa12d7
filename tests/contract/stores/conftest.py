"""Each store in turn."""

import pytest
from contract.store_subjects import MemoryUnderTest, PostgreSqlUnderTest, StoreUnderTest
from endpoint import Endpoint

from duesweep.testing.memory import MemoryStore
from duesweep.testing.memory_queue import MemoryQueue

# Names that somebody has: blanks, dots, quotes, brackets, braces, percent signs, 63 bytes.
ODD_ENDPOINT = 'Sales."Or\'ders".[%s].{delayed}'
ODD_SCHEMA = 'the "odd" one: 100%'
LONGEST_TABLE = "Late.Ünd" + 54 * "x"

STORES = ("memory", "postgresql", "postgresql in New York, with odd names")


@pytest.fixture(params=STORES)
def subject(request: pytest.FixtureRequest) -> StoreUnderTest:
    """Each store in turn, empty."""
    if request.param == "memory":
        return MemoryUnderTest(MemoryStore(), MemoryQueue("Billing"))
    endpoint: Endpoint = request.getfixturevalue("endpoint")
    if "odd" in request.param:
        database = endpoint.admin.info.dbname
        endpoint.execute(f"ALTER DATABASE {database} SET TimeZone = 'America/New_York'")
        endpoint.execute("SET TimeZone = 'America/New_York'")
        endpoint = endpoint.named(ODD_ENDPOINT, ODD_SCHEMA, LONGEST_TABLE)
    return PostgreSqlUnderTest(endpoint.set_up("Billing"))
