"""The output of a sweep at its end, in cases that tests/golden does not record, and the
steps of the report's plots.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duesweep.core.account import BreakerReport, CarefulBatches, FailureReason, SweepSummary
from duesweep.ledger.ledger import Ledger
from duesweep.ledger.rows import SCHEMAS
from duesweep.operations.run import Run
from duesweep.operations.status import Step, read_steps
from duesweep.report.document import plain
from duesweep.report.page import bars
from duesweep.report.tables import print_blocks
from duesweep.report.text import Note
from duesweep.report.views.runs import run_blocks
from duesweep.report.views.runs import summary as shown
from duesweep_testing.memory_ledger import MemoryTable, MemoryTables

_START = datetime(2026, 11, 1, 8, tzinfo=UTC)
_COUNTS = (
    *("dispatched", "exhausted", "skipped", "gone", "eligible_later", "held", "left"),
    *("over_limit", "bytes"),
)


def _summary(*failures: FailureReason, **changes: Any) -> SweepSummary:
    """1,201 messages, all of which failed."""
    values: dict[str, Any] = dict.fromkeys(_COUNTS, 0)
    values |= {"sweep_id": "5", "source": "nsb/public.Sales.Delayed", "horizon": _START}
    values |= {"start": _START, "end": _START, "found": 1_201, "claimed": 1_201, "failed": 1_201}
    values |= dict.fromkeys([f"lateness_{name}_ms" for name in ("p50", "p95", "max")])
    values |= {"rows_per_second": 0.0, "outcome": "failures", "reason": None}
    return SweepSummary(**values | {"failures": failures} | changes)


def _printed(capsys: pytest.CaptureFixture[str], summary: SweepSummary, **options: Any) -> str:
    print_blocks(shown(summary, **options))
    return capsys.readouterr().out


def test_table_is_followed_by_what_took_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    since = "2026-11-01T08:00:00+00:00"
    breakers = (
        BreakerReport("Shipping", "triggered", since, 30.0, 1_200, "Shipping is locked"),
        BreakerReport("store and queues", "closed", since, 4.5, 0, "the server restarts"),
    )

    lines = _printed(capsys, _summary(breakers=breakers)).splitlines()

    at = lines.index("Unavailable for some time:")
    assert lines[at + 1 :] == [
        "  Shipping: triggered, 1,200 messages left; unavailable from 2026-11-01 08:00:00 UTC, "
        "for 30 s: Shipping is locked",
        "  store and queues: closed; unavailable from 2026-11-01 08:00:00 UTC, for 4.5 s: "
        "the server restarts",
    ]
    document = json.loads(json.dumps(plain(_summary(breakers=breakers))))
    assert [(one["name"], one["state"], one["left"]) for one in document["breakers"]] == [
        ("Shipping", "triggered", 1_200),
        ("store and queues", "closed", 0),
    ]


def test_batches_that_were_not_moved_are_told_with_the_reasons(
    capsys: pytest.CaptureFixture[str],
) -> None:
    careful = (
        CarefulBatches("a destination is not the last header", 1_200),
        CarefulBatches("x", 1),
    )

    lines = _printed(capsys, _summary(careful_batches=careful)).splitlines()

    at = lines.index("Not moved within the server, but in the careful form, which takes longer:")
    assert lines[at + 1 :] == [
        "  1,200 batches: a destination is not the last header",
        "  1 batch: x",
    ]
    assert not any("careful batches" in line for line in lines[:at])


def test_reason_of_failures_is_not_told_again_as_one_of_batches(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = FailureReason("Queue x: it is full", 3, "x")

    printed = _printed(
        capsys, _summary(failures=(failed,), careful_batches=(CarefulBatches("it is full", 1),))
    )

    assert "it is full" in printed
    assert "careful form" not in printed


_REFUSED = 'Queue table "{0}": permission denied for table {0} (42501); grant INSERT on it'


def _triggered(name: str, left: int = 2) -> BreakerReport:
    since = "2026-11-01T08:00:00+00:00"
    return BreakerReport(name, "triggered", since, 30.0, left, _REFUSED.format(name))


@pytest.mark.parametrize(
    ("count", "more", "line"),
    [
        (
            1,
            "",
            "Q0: triggered, 2 messages left; unavailable from 2026-11-01 08:00:00 UTC, for 30 s: ",
        ),
        (5, "", "Q0, Q1, Q2 and 2 more: triggered, 10 messages left; unavailable from "),
        (5, "; and 1,000 more", "Q0, Q1, Q2 and 2 more: triggered, 10 messages left"),
    ],
)
def test_reason_of_unavailable_destinations_is_told_once(
    capsys: pytest.CaptureFixture[str], count: int, more: str, line: str
) -> None:
    breakers = [_triggered(f"Q{number}") for number in range(count)]
    summary = _summary(
        breakers=tuple(breakers),
        reason="; ".join(each.reason for each in breakers) + more,
        careful_batches=(CarefulBatches("permission denied for table Q0 (42501)", 1),),
    )

    printed = _printed(capsys, summary)

    assert printed.count("permission denied") == 1
    assert f"  {line}" in printed
    assert "  reason          unavailable destinations or services: see below" in printed


def test_other_reason_of_a_sweep_stays_beside_unavailable_destinations(
    capsys: pytest.CaptureFixture[str],
) -> None:
    breaker = _triggered("Q0")
    reason = f"the store restarts; {breaker.reason}"

    printed = _printed(capsys, _summary(breakers=(breaker, _triggered("Q1")), reason=reason))

    assert f"  reason          {reason}" in printed


def test_destination_of_300_kb_is_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    failure = FailureReason("There is no queue", 1, "n" * 300_000)

    assert len(_printed(capsys, _summary(failure))) < 5_000


def test_sweep_without_failures_and_without_times_names_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = _printed(capsys, _summary())

    for words in ("Why", "navailable", "lateness"):
        assert words not in out
    assert plain(_summary())["failures"] == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"found": 19_000, "dispatched": 18_970, "failed": 30},
            "Dispatched 18,970 of 19,000 due messages in 16 s; 30 failed (still in the store).",
        ),
        ({"found": 1, "dispatched": 1, "failed": 0}, "Dispatched 1 of 1 due message in 16 s."),
        ({"found": 0, "failed": 0}, "Found no due messages in 16 s."),
        (
            {"found": 9, "failed": 0, "exhausted": 3, "skipped": 2, "gone": 1, "left": 3}
            | {"outcome": "incomplete"},
            "Dispatched 0 of 9 due messages in 16 s; 3 exhausted (in the ledger's `errors`), "
            "2 skipped (locked by another process), 1 gone (removed by another process), "
            "3 left (not reached, or destination unavailable). The sweep is incomplete.",
        ),
        (
            {"found": 2, "failed": 0, "eligible_later": 2, "outcome": "done"},
            "Dispatched 0 of 2 due messages in 16 s; 2 eligible later (in back-off, or no longer "
            "due).",
        ),
    ],
)
def test_summary_begins_with_a_sentence(
    changes: dict[str, Any], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = replace(_summary(), end=_START + timedelta(seconds=16.2), **changes)

    assert _printed(capsys, summary).splitlines()[0] == expected


def test_sentence_of_a_sweep_that_looked_ahead_does_not_call_all_messages_due(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = _printed(capsys, _summary(dispatched=1_201, failed=0), only_due=False)

    assert printed.startswith("Dispatched 1,201 of 1,201 messages in 0 ms.\n")


_NOW = datetime(2026, 11, 23, 12, 30, tzinfo=UTC)


def _steps(hours: float, *sweeps: tuple[float, int, int]) -> tuple[Sequence[Step], Sequence[Step]]:
    """The plots of the last hours. A sweep is how many hours ago it began, and the numbers of
    messages that it found and dispatched.
    """
    columns = dict.fromkeys(SCHEMAS["sweeps"].names)
    rows = [
        columns | {"start": _NOW - timedelta(hours=ago), "found": found, "dispatched": dispatched}
        for ago, found, dispatched in sweeps
    ]
    tables = MemoryTables()
    tables.tables["sweeps"] = MemoryTable({}, rows)
    return read_steps(Ledger(tables), {"sweeps": []}, _NOW - timedelta(hours=hours), _NOW)


@pytest.mark.parametrize(
    ("hours", "count", "first"),
    [
        (0, 31, "23 Nov 12:00"),
        (0.9, 19, "23 Nov 11:00"),
        (4, 55, "23 Nov 08:00"),
        (24, 50, "22 Nov 12:00"),
        (7 * 24, 57, "16 Nov 12:00"),
        (30 * 24, 31, "24 Oct 00:00"),
        (400 * 24, 59, "13 Oct 00:00"),
    ],
)
def test_steps_begin_at_a_full_hour_before_the_first_sweep_and_fit_the_time(
    hours: float, count: int, first: str
) -> None:
    steps, _ = _steps(hours, (hours, 3, 2))

    assert (len(steps), steps[0].label) == (count, first)
    assert sum(step.messages for step in steps) == 2


def test_step_has_all_that_was_dispatched_and_the_most_that_was_found() -> None:
    rate, backlog = _steps(7 * 24, (0.1, 9, 8), (0.4, 20, 19), (1, 5, 4))

    assert [step.messages for step in rate[-2:]] == [4, 27]
    assert [step.messages for step in backlog[-2:]] == [5, 20]


def test_sweeps_outside_the_time_are_in_no_step() -> None:
    rate, _ = _steps(24, (25, 3, 3), (-1, 3, 3))

    assert sum(step.messages for step in rate) == 0


def test_plot_has_a_bar_for_each_step_and_even_numbers_up_to_the_highest() -> None:
    svg = bars([Step("08:00", 0), Step("09:00", 130), Step("10:00", 65)], "Due")

    assert re.findall(r'class="n">([\d,]+)<', svg) == ["0", "100", "200"]
    assert re.findall(r"<title>(.*?)</title>", svg) == ["08:00: 0", "09:00: 130", "10:00: 65"]
    assert re.findall(r' height="([\d.]+)"', svg) == ["0.0", "94.9", "47.4"]
    assert re.findall(r'y="174" class="m">([\d:]+)<', svg) == ["08:00", "09:00", "10:00"]


def test_plot_has_no_more_labels_than_fit() -> None:
    svg = bars([Step(f"23 Nov {hour:02}:00", hour) for hour in range(24)], "Due")

    assert re.findall(r'y="174">([^<]+)<', svg) == [
        "23 Nov 00:00",
        "23 Nov 07:00",
        "23 Nov 14:00",
    ]


def test_ledger_error_of_an_idle_run_is_printed_once() -> None:
    blocks = run_blocks(Run("sales", "idle", 4, error="the disk is full"))

    assert [each.text for each in blocks if isinstance(each, Note)] == ["the disk is full"]
