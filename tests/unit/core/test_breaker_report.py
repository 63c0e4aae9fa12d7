"""What is told of breakers: of each slice in the journal, of all together in the summary."""

from datetime import datetime, timedelta

from duesweep.core.breaker import BreakerLimits, CircuitBreaker
from duesweep.core.breaker_report import (
    MOST_REPORTED,
    BreakerReport,
    merge_reports,
    report_as_text,
    report_from_text,
    report_of,
)
from duesweep.core.clock import SettableClock
from duesweep_testing.builders import DUE

EARLY, LATE = "2026-11-01T08:00:00+00:00", "2026-11-01T08:00:05+00:00"


def test_report_says_when_it_opened_by_this_machines_time() -> None:
    clock = SettableClock(1_000)
    breaker = CircuitBreaker(BreakerLimits(), clock)
    breaker.fail("locked")
    clock.advance(5)
    breaker.succeed()
    clock.advance(60)

    report = report_of("Billing", breaker, 0, DUE.replace(microsecond=0))

    assert datetime.fromisoformat(report.since) == DUE.replace(microsecond=0) - timedelta(
        seconds=65
    )
    assert (report.state, report.seconds, report.reason) == ("closed", 5, "locked")


def test_report_comes_back_from_its_text_as_it_was() -> None:
    report = BreakerReport('"Ship"."x"', "triggered", EARLY, 30.0, 7, "locked \0 \udc80")

    assert report_from_text(report_as_text([report])) == [report]
    assert report_as_text([]) is None
    assert report_from_text(None) == []


def test_reports_of_slices_become_one_that_is_closed_if_all_are() -> None:
    slices = [
        BreakerReport("Billing", "closed", EARLY, 3.0, 0, "locked"),
        BreakerReport("Billing", "triggered", LATE, 30.0, 5, "still locked"),
        BreakerReport("Shipping", "closed", EARLY, 1.0, 0, "locked"),
        BreakerReport("Billing", "triggered", LATE, 20.0, 6, "still locked"),
    ]

    assert merge_reports(slices) == (
        BreakerReport("Billing", "triggered", EARLY, 30.0, 11, "still locked"),
        BreakerReport("Shipping", "closed", EARLY, 1.0, 0, "locked"),
    )


def test_those_with_the_most_messages_are_told_where_there_are_many() -> None:
    many = [BreakerReport(f"q{n:03}", "triggered", EARLY, 1.0, n, "x") for n in range(100)]

    told = report_from_text(report_as_text(many))

    assert [report.left for report in told] == list(range(99, 99 - MOST_REPORTED, -1))
