"""Where the ledger can be cut."""

from datetime import UTC, datetime, timedelta

from duesweep.core.retention import cut_before

_NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
_HOUR, _SECOND = timedelta(hours=1), timedelta(seconds=1)


def _span(start: float, end: float) -> tuple[datetime, datetime]:
    return _NOON + start * _HOUR, _NOON + end * _HOUR


def test_cut_where_no_sweep_ran_is_the_one_that_is_wanted() -> None:
    assert cut_before(_NOON, []) == _NOON
    assert cut_before(_NOON, [_span(-2, -1), _span(1, 2)]) == _NOON


def test_cut_is_before_a_sweep_that_it_would_cut_in_two() -> None:
    assert cut_before(_NOON, [_span(-1, 1)]) == _NOON - _HOUR - _SECOND


def test_cut_is_before_all_sweeps_that_overlap() -> None:
    spans = [_span(-3, -0.5), _span(-1, 1), _span(-5, -4)]

    assert cut_before(_NOON, spans) == _NOON - 3 * _HOUR - _SECOND
