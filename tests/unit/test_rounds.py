"""When a run of `sweep` plans messages again, by the reports of its rounds."""

from datetime import UTC, datetime

import pytest

from duesweep.core.account import (
    CUT,
    SERVICES,
    Account,
    BreakerReport,
    SliceEnd,
    SweepReport,
)
from duesweep.core.errors import StoreError
from duesweep.core.policy import BreakerTimes
from duesweep.core.world import SettableClock
from duesweep.stores.due import Horizon
from duesweep.sweep.rounds import Rounds
from support.reports import report

TIMES = BreakerTimes(trigger_seconds=30)
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_HORIZON = Horizon(_NOW, _NOW)


def _breaker(name: str, state: str, *, left: int = 0, seconds: float = 0.0) -> BreakerReport:
    return BreakerReport(name, state, "2026-11-01T08:00:00+00:00", seconds, left, "it is away")


def _round(claimed: int, left: int, *breakers: BreakerReport, reason: str = "") -> SweepReport:
    found = claimed + left
    return report(found=found, claimed=claimed, left=left, breakers=breakers, reason=reason or None)


AWAY = _breaker(SERVICES, "open")


@pytest.mark.parametrize(
    ("last", "seconds"),
    [
        pytest.param(_round(5, 0), None, id="nothing is left"),
        pytest.param(_round(0, 5), None, id="others hold it"),
        pytest.param(_round(5, 2, _breaker("Q", "open", left=2)), 1.0, id="an outage"),
        pytest.param(_round(5, 2, _breaker("Q", "triggered", left=2)), None, id="for good"),
        pytest.param(_round(5, 2, _breaker("Q", "closed", left=2)), 0.0, id="it is back"),
        pytest.param(_round(0, 2, _breaker("Q", "closed", left=2)), None, id="back for nothing"),
        pytest.param(
            _round(5, 4, _breaker("Q", "closed", left=2), _breaker("R", "open", left=2)),
            0.0,
            id="one is back",
        ),
        pytest.param(
            _round(5, 4, _breaker("Q", "triggered", left=2), _breaker("R", "open", left=2)),
            1.0,
            id="one for good",
        ),
        pytest.param(
            _round(0, 2, _breaker("Q", "open", left=2, seconds=29.5)), None, id="too late"
        ),
        pytest.param(_round(0, 2, AWAY), 1.0, id="lost sessions"),
        pytest.param(_round(2, 0, AWAY), None, id="lost sessions after all was done"),
        pytest.param(_round(0, 2, _breaker(SERVICES, "triggered")), None, id="lost for good"),
        pytest.param(_round(0, 2, reason=CUT), 1.0, id="a slice without an end"),
        pytest.param(
            _round(1, 2, _breaker("Q", "closed", left=2), AWAY), 1.0, id="back, and sessions lost"
        ),
    ],
)
def test_rest_after_a_round(last: SweepReport, seconds: float | None) -> None:
    rounds = Rounds(TIMES, SettableClock())

    rounds.note(last)

    assert rounds.seconds_to_next == seconds


def test_messages_that_stay_for_another_reason_need_no_round_once_the_sessions_work() -> None:
    rounds = Rounds(TIMES, SettableClock())
    rounds.note(_round(0, 2, AWAY))

    rounds.note(_round(0, 2))

    assert rounds.seconds_to_next is None
    assert [one.state for one in rounds.with_services(_round(0, 2)).breakers] == ["closed"]
    # It is reported once.
    assert rounds.with_services(_round(0, 2)).breakers == ()


def test_outages_continue_with_the_time_that_has_passed() -> None:
    clock = SettableClock()
    rounds = Rounds(TIMES, clock)
    rounds.note(_round(5, 2, _breaker("Q", "open", left=2, seconds=3)))
    rounds.fail(StoreError("the server restarts", transient=True))
    clock.advance(4)

    assert [(one.name, one.seconds) for one in rounds.outages] == [("Q", 7), (SERVICES, 4)]


def test_services_that_are_out_for_good_end_the_rounds_whatever_else_is_out() -> None:
    rounds = Rounds(TIMES, SettableClock())

    rounds.note(_round(0, 2, _breaker("Q", "open", left=2), _breaker(SERVICES, "triggered")))

    assert rounds.seconds_to_next is None


def test_rounds_end_if_they_cannot_even_begin() -> None:
    clock = SettableClock()
    rounds = Rounds(TIMES, clock)
    rounds.note(_round(5, 2, _breaker("Q", "open", left=2, seconds=1)))

    while (seconds := rounds.seconds_to_next) is not None:
        clock.advance(seconds)
        rounds.fail(StoreError("the server is away", transient=True))

    assert 28 <= clock.seconds() <= 31


def test_batches_are_sent_in_vain_in_two_rounds_unless_a_full_batch_succeeds() -> None:
    clock = SettableClock()
    sent = _breaker(SERVICES, "open", left=3)
    rounds = Rounds(TIMES, clock, 10)
    for claimed in (0, 10, 10, 10, 10):
        assert rounds.seconds_to_next is not None or not claimed
        rounds.note(_round(claimed, 2, sent))
    assert rounds.seconds_to_next is None

    rounds = Rounds(TIMES, clock, 10)
    rounds.note(_round(0, 2, sent))
    rounds.note(_round(9, 2, sent))
    assert rounds.seconds_to_next is None


def test_destination_that_a_long_slice_had_no_time_to_try_gets_one_more_round() -> None:
    clock = SettableClock()
    rounds = Rounds(TIMES, clock)

    rounds.note(_round(5, 2, _breaker("Q", "triggered", left=2, seconds=40)))
    assert rounds.seconds_to_next == 1.0
    clock.advance(1)
    assert [one.state for one in rounds.outages] == ["open"]
    assert rounds.outages[0].seconds < TIMES.trigger_seconds

    rounds.note(_round(0, 2, _breaker("Q", "open", left=2, seconds=29.5)))
    assert rounds.seconds_to_next is None


def test_outage_in_an_earlier_part_is_remembered_until_the_last_one() -> None:
    clock = SettableClock()
    rounds = Rounds(TIMES, clock)
    rounds.note(_round(5, 2, _breaker("Q", "open", left=2)), is_part=True)
    clock.advance(3)

    rounds.note(_round(5, 0), is_part=True)

    assert rounds.seconds_to_next == 1.0
    assert [(one.name, one.seconds) for one in rounds.outages] == [("Q", 3)]
    rounds.note(_round(2, 0))
    assert rounds.seconds_to_next is None


def test_sessions_that_were_lost_in_an_earlier_part_make_another_round() -> None:
    rounds = Rounds(TIMES, SettableClock())
    rounds.note(_round(5, 2, AWAY), is_part=True)

    rounds.note(_round(5, 0), is_part=True)

    assert rounds.seconds_to_next == 0.0


def test_watcher_without_a_time_to_trigger_begins_anew_each_time() -> None:
    rounds = Rounds(BreakerTimes(trigger_seconds=0), SettableClock(), never_ends=True)

    rounds.note(_round(5, 2, _breaker("Q", "triggered", left=2)))

    assert rounds.outages == ()


def test_watcher_never_gives_a_destination_up() -> None:
    rounds = Rounds(TIMES, SettableClock(), never_ends=True)

    rounds.note(
        _round(
            0,
            5,
            _breaker("Q", "triggered", left=2, seconds=40),
            _breaker("R", "triggered", left=2, seconds=5),
            _breaker("S", "open", left=1, seconds=5),
        )
    )

    assert [(one.state, one.seconds) for one in rounds.outages] == [
        ("open", 0.0),
        ("open", 5),
        ("open", 5),
    ]


def test_outage_goes_on_while_the_sweep_beside_it_does() -> None:
    clock = SettableClock()
    rounds = Rounds(TIMES, clock, never_ends=True)
    away = _breaker("Shipping", "open", left=2)
    blocked = SliceEnd(Account(given=3, claimed=1, left=2), "it is away", (away,))
    delivered = SliceEnd(Account(given=1, claimed=1), None)

    rounds.begin()
    assert rounds.go_on(_HORIZON, blocked)
    clock.advance(4)
    assert rounds.go_on(_HORIZON, delivered)
    assert [(one.name, one.seconds) for one in rounds.outages] == [("Shipping", 4)]
    rounds.note(_round(2, 2, away))

    assert [(one.name, one.seconds) for one in rounds.outages] == [("Shipping", 4)]


@pytest.mark.parametrize(
    ("left", "rest"),
    [
        pytest.param(1, 1.0, id="few"),
        pytest.param(300_000, 6.0, id="many"),
        pytest.param(5_000_000, 10.0, id="never longer"),
    ],
)
def test_open_sweep_plans_many_blocked_messages_rarely(left: int, rest: float) -> None:
    clock = SettableClock()
    rounds = Rounds(TIMES, clock, never_ends=True)
    away = _breaker("Shipping", "open", left=left)
    end = SliceEnd(Account(given=left + 1, claimed=1, left=left), "it is away", (away,))

    rounds.begin()
    # Deliveries take their time too.
    clock.advance(4)
    rounds.go_on(_HORIZON, end)

    assert rounds.low_water.seconds_to_try == pytest.approx(rest)


def test_messages_of_a_lost_session_are_planned_again_soon_while_others_wait_for_a_limit() -> None:
    rounds = Rounds(TIMES, SettableClock(), never_ends=True)
    cut = SliceEnd(Account(given=20), "a session was lost")

    assert rounds.go_on(_HORIZON, cut, waits=True)
    assert rounds.low_water.seconds_to_try == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("end", "goes_on"),
    [
        (SliceEnd(Account(given=1, claimed=1), None), True),
        (SliceEnd(Account(given=1, held=1), None), False),
        (SliceEnd(Account(given=2, claimed=1, skipped=1), None), False),
    ],
)
def test_sweep_goes_on_unless_a_round_left_messages_that_may_go(
    end: SliceEnd, *, goes_on: bool
) -> None:
    rounds = Rounds(TIMES, SettableClock(), never_ends=True)

    assert rounds.go_on(_HORIZON, end) is goes_on


def test_sweep_does_not_go_on_if_an_outage_triggers_at_once() -> None:
    rounds = Rounds(BreakerTimes(trigger_seconds=0), SettableClock(), never_ends=True)
    away = _breaker("Shipping", "triggered", left=1)

    assert not rounds.go_on(_HORIZON, SliceEnd(Account(given=1, left=1), "it is away", (away,)))
