"""Each store in turn."""

import uuid
from collections.abc import Iterator

import pytest
from contract.store_subjects import (
    MemoryUnderTest,
    OpenEndpoint,
    PostgreSqlUnderTest,
    StoreUnderTest,
)

from duesweep.testing.memory import MemoryStore
from duesweep.testing.memory_queue import MemoryQueue

# Names that somebody has: blanks, dots, quotes, brackets, braces, percent signs, 63 bytes.
ODD_ENDPOINT = 'Sales."Or\'ders".[%s].{delayed}'
ODD_SCHEMA = 'the "odd" one: 100%'
LONGEST_TABLE = "Late.Ünd" + 54 * "x"

STORES = ("memory", "postgresql", "postgresql in New York, with odd names")


@pytest.fixture(params=STORES)
def subject(
    request: pytest.FixtureRequest, open_endpoint: OpenEndpoint
) -> Iterator[StoreUnderTest]:
    """Each store in turn, empty."""
    schema = f"s{uuid.uuid4().hex[:12]}"
    if request.param == "memory":
        yield MemoryUnderTest(MemoryStore(), MemoryQueue("Billing"))
    elif request.param == "postgresql":
        with open_endpoint("UTC", schema) as endpoint:
            yield PostgreSqlUnderTest(endpoint.set_up("Billing"))
    else:
        with open_endpoint("America/New_York", f"{ODD_SCHEMA} {schema}") as endpoint:
            odd = endpoint.named(ODD_ENDPOINT, endpoint.schema, LONGEST_TABLE)
            yield PostgreSqlUnderTest(odd.set_up("Billing"))
