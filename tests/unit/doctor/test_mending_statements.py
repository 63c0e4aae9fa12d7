"""The statements of `doctor --print-sql`."""

from dataclasses import replace

import pytest

from duesweep.core.finding import Check, ok, warning
from duesweep.operations.doctor import Diagnosis
from duesweep.report.text import Line
from duesweep.report.views.upkeep import mending_statements

_LACKING = warning(Check.TABLE_INDEX, "t", "No index", statements=["CREATE INDEX ON t (due)"])


@pytest.mark.parametrize("others", [[], ["queues.other.dsn"]])
def test_database_is_named_if_the_configuration_has_several(others: list[str]) -> None:
    passed = [
        replace(ok(Check.SERVER_REACHABLE, one, "The server answers"), setting=one)
        for one in ["store.dsn", *others]
    ]
    found = Diagnosis.of("Sales", [*passed, replace(_LACKING, setting="store.dsn")])

    lines = [block.text for block in mending_statements(found) if isinstance(block, Line)]

    named = ["-- In the database that store.dsn names:"] if others else []
    assert lines == [*named, "CREATE INDEX ON t (due);"]
