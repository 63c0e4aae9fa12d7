"""The page about metrics tells those that exist."""

import re
from pathlib import Path

from duesweep.telemetry.definitions import METRICS

_PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_page_lists_each_metric_as_it_is_defined() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.+) \|$", _PAGE.read_text("utf-8"), re.MULTILINE)

    assert rows == [(metric.name, metric.kind.value, metric.meaning) for metric in METRICS]
