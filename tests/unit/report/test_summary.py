"""What is shown of a sweep at its end."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duesweep.core.account import BreakerReport
from duesweep.report.summary import as_json, print_summary
from duesweep.stores.journal import FailureReason, SweepSummary
from duesweep.texts import make_printable

_START = datetime(2026, 11, 1, 8, tzinfo=UTC)
_FAILURES = (
    FailureReason('There is no queue table "public"."Nowhere"; create it', 1_200, "Nowhere"),
    FailureReason("The headers are not JSON [x]", 1, None),
)


def _summary(*failures: FailureReason) -> SweepSummary:
    return SweepSummary(
        sweep_id="5",
        source="nsb/public.Sales.Delayed",
        start=_START,
        end=_START,
        horizon=_START,
        found=1_201,
        claimed=1_201,
        dispatched=0,
        failed=1_201,
        exhausted=0,
        skipped=0,
        gone=0,
        eligible_later=0,
        held=0,
        left=0,
        over_limit=0,
        bytes=0,
        lateness_p50_ms=None,
        lateness_p95_ms=None,
        lateness_max_ms=None,
        rows_per_second=0.0,
        outcome="failures",
        reason=None,
        failures=failures,
    )


def test_json_names_the_reasons_of_failures() -> None:
    assert json.loads(json.dumps(as_json(_summary(*_FAILURES))))["failures"] == [
        {
            "reason": 'There is no queue table "public"."Nowhere"; create it',
            "count": 1_200,
            "destination": "Nowhere",
        },
        {"reason": "The headers are not JSON [x]", "count": 1, "destination": None},
    ]


def test_table_is_followed_by_the_reasons_of_failures(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(_summary(*_FAILURES))

    lines = capsys.readouterr().out.splitlines()
    at = lines.index("Why messages failed, most frequent reasons first:")
    assert lines[at + 1 :] == [
        '  1,200 messages, for example to Nowhere: There is no queue table "public"."Nowhere"; '
        "create it",
        "  1 message: The headers are not JSON [x]",
        "`duesweep list --failing` shows each of them, and when it is tried again.",
    ]
    assert not any("failures" in line and "Nowhere" in line for line in lines[:at])


def test_table_is_followed_by_what_took_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    since = "2026-11-01T08:00:00+00:00"
    breakers = (
        BreakerReport("Shipping", "triggered", since, 30.0, 1_200, "Shipping is locked"),
        BreakerReport("store and queues", "closed", since, 4.5, 0, "the server restarts"),
    )

    print_summary(replace(_summary(), breakers=breakers))

    lines = capsys.readouterr().out.splitlines()
    at = lines.index("What took nothing for some time:")
    assert lines[at + 1 :] == [
        "  Shipping: triggered, 1,200 messages left; took nothing from 2026-11-01 08:00:00 UTC on, "
        "for 30 s: Shipping is locked",
        "  store and queues: closed; took nothing from 2026-11-01 08:00:00 UTC on, for 4.5 s: "
        "the server restarts",
    ]
    document = json.loads(json.dumps(as_json(replace(_summary(), breakers=breakers))))
    assert [(one["name"], one["state"], one["left"]) for one in document["breakers"]] == [
        ("Shipping", "triggered", 1_200),
        ("store and queues", "closed", 0),
    ]


@pytest.mark.parametrize("harm", ["\x1b[2J", "\x9b2J", "\r", "\u202e", "\u200b", "\x07"])
def test_no_text_of_others_reaches_the_terminal_raw(
    capsys: pytest.CaptureFixture[str], harm: str
) -> None:
    failure = FailureReason(f"There is no queue a{harm}b", 1, f"a{harm}b")

    print_summary(replace(_summary(failure), source=f"a{harm}b", reason=f"a{harm}b"))

    printed = capsys.readouterr().out
    assert harm not in printed
    assert printed.count(make_printable(f"a{harm}b")) == 4


def test_brackets_in_names_are_no_mark_up(capsys: pytest.CaptureFixture[str]) -> None:
    name = "[/red][bold]a[/]"

    print_summary(replace(_summary(), source=name, reason=name))

    assert capsys.readouterr().out.count(name) == 2


def test_destination_of_300_kb_is_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(_summary(FailureReason("There is no queue", 1, "n" * 300_000)))

    assert len(capsys.readouterr().out) < 5_000


def test_sweep_without_failures_names_no_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(_summary())

    out = capsys.readouterr().out
    assert "Why" not in out
    assert "took nothing" not in out
    assert as_json(_summary())["failures"] == []


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
            "2 skipped (locked by others), 1 taken or removed by others, 3 not reached. "
            "The sweep is incomplete.",
        ),
        (
            {"found": 2, "failed": 0, "eligible_later": 2, "outcome": "done"},
            "Dispatched 0 of 2 due messages in 16 s; 2 no longer eligible.",
        ),
    ],
)
def test_summary_begins_with_a_sentence(
    changes: dict[str, Any], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = replace(_summary(), end=_START + timedelta(seconds=16.2), **changes)

    print_summary(summary)

    assert capsys.readouterr().out.splitlines()[0] == expected


def test_sentence_of_a_sweep_that_looked_ahead_does_not_call_all_messages_due(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_summary(replace(_summary(), dispatched=1_201, failed=0), only_due=False)

    assert capsys.readouterr().out.startswith("Dispatched 1,201 of 1,201 messages in 0 ms.\n")


def _table(capsys: pytest.CaptureFixture[str], summary: SweepSummary) -> dict[str, str]:
    print_summary(summary)
    lines = capsys.readouterr().out.splitlines()
    return dict(re.split("  +", line.strip(), maxsplit=1) for line in lines if line[:1] == " ")


def test_table_shows_times_and_sizes_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    late = {"lateness_p50_ms": 10_800_625, "lateness_p95_ms": 59_000, "lateness_max_ms": 5}
    shown = _table(capsys, replace(_summary(), bytes=12_345_678, rows_per_second=1_234.5, **late))

    assert shown["lateness"] == "3 h 0 min (p50), 59 s (p95), 5 ms (max)"
    assert (shown["bodies"], shown["rate"]) == ("12.3 MB", "1,234 rows/s")
    assert (shown["start"], shown["claimed"]) == ("2026-11-01 08:00:00 UTC", "1,201")
    assert "eligible later" in shown


def test_table_is_plain_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(_summary())

    assert capsys.readouterr().out.isascii()


def test_table_on_a_terminal_has_no_rows_that_are_0(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    late = {"lateness_p50_ms": 0, "lateness_p95_ms": 0, "lateness_max_ms": 7}
    in_pipe = _table(capsys, replace(_summary(), **late))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    on_terminal = _table(capsys, replace(_summary(), **late))
    of_none = _table(capsys, replace(_summary(), found=0, claimed=0, failed=0))

    left_out = {"exhausted", "skipped", "gone", "eligible later", "held", "left", "over limit"}
    assert in_pipe.keys() - on_terminal.keys() == left_out | {"bodies", "rate"}
    assert on_terminal["lateness"] == "0 ms (p50), 0 ms (p95), 7 ms (max)"
    assert on_terminal["failed"] == "1,201"
    assert of_none.keys() == {
        "sweep id",
        "start",
        "end",
        "horizon",
        "found",
        "dispatched",
        "outcome",
    }


def test_table_of_a_sweep_that_dispatched_nothing_has_no_lateness(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "lateness" not in _table(capsys, _summary())


def test_json_keeps_raw_numbers_and_names() -> None:
    late = replace(_summary(), lateness_p50_ms=10_800_625, bytes=12_345_678)

    document = as_json(late)

    assert (document["lateness_p50_ms"], document["bytes"]) == (10_800_625, 12_345_678)
    assert document["start"] == "2026-11-01T08:00:00+00:00"
