"""The states of a circuit breaker."""

import random

from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.breaker import BreakerLimits, BreakerState, CircuitBreaker
from duesweep.core.clock import SettableClock

LIMITS = BreakerLimits(trigger_seconds=30, failures_per_second=1)


def _breaker(limits: BreakerLimits = LIMITS) -> tuple[CircuitBreaker, SettableClock]:
    clock = SettableClock(100)
    return CircuitBreaker(limits, clock), clock


def test_breaker_is_closed_until_something_fails() -> None:
    breaker, clock = _breaker()
    clock.advance(1_000)
    breaker.succeed()

    assert breaker.state is BreakerState.CLOSED
    assert (breaker.open_seconds, breaker.reason) == (0, "")


def test_breaker_that_failed_is_tried_again_after_a_pause_and_closed_by_a_success() -> None:
    breaker, clock = _breaker()
    breaker.fail("locked")

    assert (breaker.state, breaker.seconds_to_try) == (BreakerState.OPEN, 1)

    clock.advance(1)
    assert breaker.seconds_to_try == 0
    breaker.succeed()
    clock.advance(60)

    assert breaker.is_closed
    assert (breaker.open_seconds, breaker.opened_seconds_ago) == (1, 61)
    assert breaker.reason == "locked"


def test_pause_after_a_try_that_took_long_is_three_times_as_long() -> None:
    breaker, _ = _breaker()
    breaker.fail("locked", took_seconds=2)

    assert breaker.seconds_to_try == 6


def test_nobody_waits_for_longer_than_until_the_breaker_is_triggered() -> None:
    breaker, _ = _breaker()
    breaker.fail("locked", took_seconds=15)

    assert breaker.seconds_to_try == 30


def test_breaker_that_takes_one_message_and_refuses_the_next_is_triggered_all_the_same() -> None:
    clock = SettableClock(100)
    breaker = CircuitBreaker(LIMITS, clock, forgives_at_once=False)
    for _ in range(10):
        breaker.fail("slow")
        clock.advance(3)
        breaker.succeed()
        clock.advance(2)
    breaker.fail("slow")

    assert breaker.state is BreakerState.TRIGGERED
    assert breaker.open_seconds == 30


def test_time_in_which_it_worked_does_not_count_as_failing() -> None:
    clock = SettableClock(100)
    breaker = CircuitBreaker(LIMITS, clock, forgives_at_once=False)
    breaker.fail("locked")
    clock.advance(18)
    breaker.succeed()
    clock.advance(14)
    breaker.fail("locked again")

    assert (breaker.state, breaker.open_seconds) == (BreakerState.OPEN, 18)


def test_breaker_that_worked_for_longer_than_it_had_failed_has_its_whole_time_again() -> None:
    clock = SettableClock(100)
    breaker = CircuitBreaker(LIMITS, clock, forgives_at_once=False)
    breaker.fail("locked")
    clock.advance(3)
    breaker.succeed()
    clock.advance(28)
    breaker.fail("locked again")

    assert (breaker.state, breaker.open_seconds) == (BreakerState.OPEN, 0)


def test_breaker_that_fails_for_the_time_to_trigger_is_triggered() -> None:
    breaker, clock = _breaker()
    breaker.fail("locked")
    clock.advance(29.9)
    breaker.fail("still locked")
    before = breaker.state
    clock.advance(0.2)

    assert (before, breaker.state) == (BreakerState.OPEN, BreakerState.TRIGGERED)
    assert breaker.reason == "still locked"


def test_success_makes_the_next_failure_the_first() -> None:
    breaker, clock = _breaker()
    breaker.fail("locked")
    clock.advance(29)
    breaker.succeed()
    breaker.fail("locked again")
    clock.advance(29)

    assert breaker.state is BreakerState.OPEN
    assert breaker.open_seconds == 29


def test_time_to_trigger_of_zero_gives_no_second_try() -> None:
    breaker, _ = _breaker(BreakerLimits(trigger_seconds=0))
    breaker.fail("locked")

    assert breaker.state is BreakerState.TRIGGERED


def test_fault_that_does_not_pass_triggers_at_once() -> None:
    breaker, _ = _breaker()
    breaker.fail("no right to insert", is_lasting=True)

    assert breaker.state is BreakerState.TRIGGERED


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
    limits = BreakerLimits(trigger, rate)
    breaker, clock = _breaker(limits)
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
        breaker = CircuitBreaker(LIMITS, clock)
        breaker.fail("locked")
        tries = 0
        while breaker.state is BreakerState.OPEN:
            assert breaker.seconds_to_try > 0, clock.seconds()
            clock.sleep(breaker.seconds_to_try)
            breaker.fail("locked")
            tries += 1
        assert 30 <= tries <= 31
