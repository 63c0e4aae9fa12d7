"""How long a sweep would take, by the last ones in the ledger."""

from datetime import timedelta
from typing import Any

import pytest

from duesweep.outlook import estimate_seconds
from duesweep_testing.builders import DUE

# Ten usual sweeps, the newest first: the median of their rates is 100 messages a second.
LAST = [{"rows_per_second": rate} for rate in (90, 110, 100, 100, 100, 100, 100, 100, 120, 80)]
OLDER = {"rows_per_second": 1}


class _Ledger:
    """A ledger with these sweeps, the newest first."""

    def __init__(self, *sweeps: dict[str, Any]) -> None:
        usual = {"source": "nsb", "engine": "spark", "outcome": "done", "dispatched": 1_000}
        self._sweeps = [
            usual | {"start": DUE - timedelta(minutes=number)} | each
            for number, each in enumerate(sweeps)
        ]

    def rows(self, table: str, columns: tuple[str, ...]) -> list[dict[str, Any]]:
        assert table == "sweeps"
        return [{name: row[name] for name in columns} for row in self._sweeps]


@pytest.mark.parametrize(
    ("sweeps", "seconds"),
    [
        ([*LAST, *[OLDER] * 30], 5),
        ([*LAST, *[{"rows_per_second": 1, "source": "other"}] * 30], 5),
        ([*[{"rows_per_second": 1, "engine": "in-process"}] * 30, *LAST], 5),
        ([*[{"rows_per_second": 1, "dispatched": 99}] * 30, *LAST], 5),
        ([{"rows_per_second": None}, {"rows_per_second": 250}], 2),
        ([{"rows_per_second": 250, "source": "other"}], None),
        ([], None),
    ],
)
def test_time_is_told_by_the_rates_of_the_last_sweeps_that_compare(
    sweeps: list[dict[str, Any]], seconds: float | None
) -> None:
    ledger: Any = _Ledger(*sweeps)

    assert estimate_seconds(ledger, "nsb", 500, "spark") == seconds
