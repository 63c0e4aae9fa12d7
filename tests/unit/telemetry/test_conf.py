"""The alerts, the dashboard in conf/ and the page about metrics have metrics that exist."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from duesweep.report.metrics import METRICS, OF_WATCHERS

_CONF = Path(__file__).parents[3] / "conf"
_ALERTS = _CONF / "prometheus" / "alerts.yml"
_DASHBOARD = _CONF / "grafana" / "duesweep.json"
_ALL = [*METRICS, *OF_WATCHERS]
_KNOWN = {metric.name for metric in _ALL}
_COUNTERS = {metric.name for metric in METRICS if metric.is_counter}
_PROMTOOL = shutil.which("promtool")


def _expressions() -> list[str]:
    dashboard = json.loads(_DASHBOARD.read_text("utf-8"))
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked = [v["query"]["query"] for v in dashboard["templating"]["list"] if v["type"] == "query"]
    return [*shown, *asked]


def _metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\bduesweep_\w+", text))


def test_dashboard_asks_for_metrics_that_exist() -> None:
    expressions = _expressions()

    assert len(expressions) > 5
    for expression in expressions:
        asked = _metrics_in(expression)
        assert asked, expression
        assert asked <= _KNOWN
        is_a_rate = "rate(" in expression or "increase(" in expression
        assert is_a_rate == bool(asked & _COUNTERS), expression


def test_dashboard_has_panels_of_their_own_number_and_place() -> None:
    panels: list[Any] = json.loads(_DASHBOARD.read_text("utf-8"))["panels"]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels}) == len(panels)
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in panels)


def test_alerts_ask_for_metrics_that_exist() -> None:
    asked = _metrics_in(_ALERTS.read_text("utf-8"))

    assert len(asked) > 5
    assert asked <= _KNOWN


def test_each_alert_leads_to_a_section_that_exists() -> None:
    text = _ALERTS.read_text("utf-8")
    links = re.findall(r'runbook_url: "https://duesweep\.example/(\w+)\.html#?([\w-]*)"', text)

    assert len(links) == text.count("- alert:")
    for page, section in links:
        titles = re.findall(r"^#+ (.+)$", (_PAGE.parent / f"{page}.md").read_text("utf-8"), re.M)
        # As the site names them.
        names = {re.sub(r"[^\w\s-]", "", each).strip().lower().replace(" ", "-") for each in titles}
        assert section in {"", *names}


@pytest.mark.skipif(_PROMTOOL is None, reason="promtool is missing (Debian's package prometheus)")
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", str(_ALERTS)),
        ("test", "rules", str(Path(__file__).with_name("alerts_test.yml"))),
    ],
    ids=["check", "test"],
)
def test_prometheus_accepts_the_alerts(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([str(_PROMTOOL), *arguments], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


_PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_page_lists_each_metric_as_it_is_defined() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.+) \|$", _PAGE.read_text("utf-8"), re.MULTILINE)

    assert rows == [
        (metric.name, "counter" if metric.is_counter else "gauge", metric.meaning)
        for metric in _ALL
    ]
