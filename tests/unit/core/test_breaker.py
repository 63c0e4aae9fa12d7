"""The states of a circuit breaker, and the reports of breakers."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.account import (
    MOST_REPORTED,
    Account,
    BreakerReport,
    BreakerState,
    SliceEnd,
    end_as_values,
    end_of,
    merge_reports,
)
from duesweep.core.policy import BreakerTimes
from duesweep.core.world import SettableClock
from duesweep.sweep.destinations import CircuitBreaker
from duesweep_testing.builders import DUE

TIMES = BreakerTimes(trigger_seconds=30, recovery_failures_per_second=1)
OPEN, TRIGGERED = BreakerState.OPEN, BreakerState.TRIGGERED


def _breaker(
    times: BreakerTimes = TIMES, *, forgives_at_once: bool = True
) -> tuple[CircuitBreaker, SettableClock]:
    clock = SettableClock(100)
    return CircuitBreaker(times, clock, forgives_at_once=forgives_at_once), clock


# What happens: "x" is a failure, "ok" a success, and a number the seconds that pass.
@pytest.mark.parametrize(
    ("steps", "state", "open_seconds", "forgives_at_once"),
    [
        pytest.param(["x", 29.9, "x"], OPEN, 29.9, True, id="not yet"),
        pytest.param(["x", 29.9, "x", 0.2], TRIGGERED, 30.1, True, id="after its time"),
        pytest.param(["x", 29, "ok", "x", 29], OPEN, 29, True, id="a success begins it again"),
        pytest.param([*["x", 3, "ok", 2] * 10, "x"], TRIGGERED, 30, False, id="it flaps"),
        pytest.param(["x", 18, "ok", 14, "x"], OPEN, 18, False, id="what worked does not count"),
        pytest.param(["x", 3, "ok", 28, "x"], OPEN, 0, False, id="worked longer than it failed"),
    ],
)
def test_breaker_is_triggered_when_it_has_failed_for_so_long(
    steps: Sequence[str | float],
    state: BreakerState,
    open_seconds: float,
    *,
    forgives_at_once: bool,
) -> None:
    breaker, clock = _breaker(forgives_at_once=forgives_at_once)
    for number, step in enumerate(steps):
        match step:
            case "x":
                breaker.fail(f"locked {number}")
                last = number
            case "ok":
                breaker.succeed()
            case _:
                clock.advance(step)

    assert breaker.state is state
    assert breaker.open_seconds == pytest.approx(open_seconds)
    assert breaker.reason == f"locked {last}"


def test_no_second_try_without_a_time_to_trigger_or_after_a_fault_that_does_not_pass() -> None:
    (at_once, _), (lasting, _) = _breaker(BreakerTimes(trigger_seconds=0)), _breaker()
    at_once.fail("locked")
    lasting.fail("no right to insert", is_lasting=True)

    assert at_once.state is lasting.state is TRIGGERED


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("fail"), st.floats(0, 5)),
        st.tuples(st.just("succeed"), st.just(0.0)),
        st.tuples(st.just("wait"), st.floats(0, 20)),
    )
)


@given(steps=STEPS, trigger=st.floats(0, 60), rate=st.floats(0.1, 10))
def test_breaker_is_open_exactly_while_it_fails_and_never_for_longer_than_the_time_to_trigger(
    steps: list[tuple[str, float]], trigger: float, rate: float
) -> None:
    times = BreakerTimes(trigger, rate)
    breaker, clock = _breaker(times)
    failing_since: float | None = None
    for step, seconds in steps:
        match step:
            case "wait":
                clock.advance(seconds)
            case "succeed":
                breaker.succeed()
                failing_since = None
            case _:
                breaker.fail("x", took_seconds=seconds)
                failing_since = clock.seconds() if failing_since is None else failing_since
                rest = max(0.0, trigger - breaker.open_seconds)
                least = min(max(1 / rate, seconds), rest)
                assert least - 1e-6 <= breaker.seconds_to_try <= rest + 1e-6
        assert breaker.is_closed == (failing_since is None)
        if failing_since is not None:
            is_over = clock.seconds() >= failing_since + trigger
            assert breaker.state is (BreakerState.TRIGGERED if is_over else BreakerState.OPEN)


def test_open_breaker_is_left_alone_for_a_while_wherever_its_clock_starts() -> None:
    rng = random.Random(0)
    for _ in range(20_000):
        clock = SettableClock(rng.uniform(0, 100_000))
        breaker = CircuitBreaker(TIMES, clock)
        breaker.fail("locked")
        tries = 0
        while breaker.state is BreakerState.OPEN:
            assert breaker.seconds_to_try > 0, clock.seconds()
            clock.sleep(breaker.seconds_to_try)
            breaker.fail("locked")
            tries += 1
        assert 30 <= tries <= 31


EARLY, LATE = "2026-11-01T08:00:00+00:00", "2026-11-01T08:00:05+00:00"


def test_report_says_when_it_opened_by_this_machines_time() -> None:
    clock = SettableClock(1_000)
    breaker = CircuitBreaker(BreakerTimes(), clock)
    breaker.fail("locked")
    clock.advance(5)
    breaker.succeed()
    clock.advance(60)

    report = breaker.report("Billing", 0, DUE.replace(microsecond=0))

    assert datetime.fromisoformat(report.since) == DUE.replace(microsecond=0) - timedelta(
        seconds=65
    )
    assert (report.state, report.seconds, report.reason) == ("closed", 5, "locked")


def _journalled(reports: Sequence[BreakerReport]) -> Sequence[BreakerReport]:
    values = end_as_values(SliceEnd(Account(), None, tuple(reports)))
    return end_of(SimpleNamespace(**values)).breakers


def test_report_comes_back_from_its_text_as_it_was() -> None:
    report = BreakerReport('"Ship"."x"', "triggered", EARLY, 30.0, 7, "locked \0 \udc80")

    assert _journalled([report]) == (report,)
    assert _journalled([]) == ()


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

    told = _journalled(many)

    assert [report.left for report in told] == list(range(99, 99 - MOST_REPORTED, -1))
