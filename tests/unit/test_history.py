"""The ledger's history of one message, its lateness, and its estimate of a sweep's time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duesweep.ledger.ledger import Ledger
from duesweep.ledger.rows import SCHEMAS
from duesweep.operations.look import estimate_seconds
from duesweep.operations.maintain import last_gap
from duesweep.operations.messages import Event, read_history
from duesweep.operations.status import lateness_steps
from duesweep_testing.builders import DUE
from duesweep_testing.memory_ledger import MemoryTable, MemoryTables

FIRST = datetime(2026, 12, 1, 8, tzinfo=UTC)
SOURCE = "orders"
_HOUR, _SECOND = timedelta(hours=1), timedelta(seconds=1)


def _ledger(**tables: list[dict[str, Any]]) -> Ledger:
    """A ledger, which always has its first table, with these rows. A column that a row lacks is
    NULL.
    """
    memory = MemoryTables()
    for name, rows in ({"tombstones": []} | tables).items():
        empty = dict.fromkeys(SCHEMAS[name].names) | {"source": SOURCE}
        memory.tables[name] = MemoryTable({}, [empty | row for row in rows])
    return Ledger(memory)


def _events(ledger: Ledger, key: str | None, message_id: str | None = None) -> list[Event]:
    return read_history(ledger, SOURCE, key, message_id)


def _delivered(key: str, message_id: str, **more: object) -> dict[str, Any]:
    known = {"message_key": key, "message_id": message_id, "outcome": "dispatched", "attempts": 1}
    return known | more


def test_events_of_all_tables_come_in_their_order() -> None:
    ledger = _ledger(
        tombstones=[
            {
                "message_key": "1",
                "dispatched_at": FIRST + timedelta(hours=3),
                "outcome": "dispatched",
                "queue": "Billing",
                "lateness_ms": 1_200,
                "attempts": 2,
                "sweep_id": "s2",
            }
        ],
        retries=[{"message_key": "1", "last_failed_at": FIRST, "attempts": 1, "error_text": "no"}],
        changes=[
            {
                "message_key": "1",
                "changed_at": FIRST + timedelta(hours=1),
                "change": "rescheduled",
                "given_by": "ada@host",
                "reason": "too early",
                "due_before": FIRST,
                "due_after": FIRST + timedelta(hours=2),
                "sweep_id": "c1",
            }
        ],
    )

    assert [event[1:] for event in _events(ledger, "1")] == [
        ("retries", "failed", "failures so far: 1; no", None),
        (
            "changes",
            "rescheduled",
            "by ada@host; due moved from 2026-12-01 08:00:00 to 2026-12-01 10:00:00; too early",
            "c1",
        ),
        ("tombstones", "dispatched", "to Billing; 1.2 s late; attempt 2", "s2"),
    ]


def test_message_that_came_back_under_another_key_is_followed_by_its_id() -> None:
    ledger = _ledger(
        errors=[_delivered("1", "m", last_failed_at=FIRST, error_text="no")],
        tombstones=[
            _delivered("2", "m", dispatched_at=FIRST + timedelta(hours=1)),
            _delivered("3", "other", dispatched_at=FIRST),
        ],
    )

    assert {event.table for event in _events(ledger, "1")} == {"errors", "tombstones"}
    assert _events(ledger, "1") == _events(ledger, None, "m")
    assert len(_events(ledger, "1", "m")) == 2


def test_delivery_that_the_ledger_has_twice_is_shown_twice() -> None:
    ledger = _ledger(tombstones=2 * [_delivered("1", "m", dispatched_at=FIRST)])

    assert len(_events(ledger, "1")) == len(_events(ledger, None, "m")) == 2


def test_messages_of_other_sources_and_without_an_id_are_left_out() -> None:
    ledger = _ledger(
        retries=[
            {"message_key": "1", "source": "others", "attempts": 1, "error_text": "no"},
            {"message_key": "2", "attempts": 1, "error_text": "no"},
            {"message_key": "3", "attempts": 1, "error_text": "no"},
        ]
    )

    assert _events(ledger, "1") == []
    assert len(_events(ledger, "2")) == 1


# Ten usual sweeps, the newest first: the median of their rates is 100 messages a second.
LAST = [{"rows_per_second": rate} for rate in (90, 110, 100, 100, 100, 100, 100, 100, 120, 80)]
OLDER = {"rows_per_second": 1}


@pytest.mark.parametrize(
    ("sweeps", "seconds"),
    [
        ([*LAST, *[OLDER] * 30], 5),
        ([*LAST, *[{"rows_per_second": 1, "source": "other"}] * 30], 5),
        ([*[{"rows_per_second": 1, "engine": "in-process"}] * 30, *LAST], 5),
        ([*[{"rows_per_second": 1, "dispatched": 99}] * 30, *LAST], 5),
        ([{"rows_per_second": None}, {"rows_per_second": 250}], 2),
        ([{"rows_per_second": 250, "source": "other"}], None),
        # Without a large sweep, small ones count for ten times as many messages.
        ([{"rows_per_second": 50, "dispatched": 50}], 10),
        ([{"rows_per_second": 50, "dispatched": 49}], None),
        ([], None),
    ],
)
def test_time_is_told_by_the_rates_of_the_last_sweeps_that_compare(
    sweeps: list[dict[str, Any]], seconds: float | None
) -> None:
    usual = {"engine": "spark", "outcome": "done", "dispatched": 1_000}
    started = [{"start": DUE - timedelta(minutes=number)} for number in range(len(sweeps))]
    ledger = _ledger(
        sweeps=[usual | start | each for start, each in zip(started, sweeps, strict=True)]
    )

    assert estimate_seconds(ledger, SOURCE, 500, "spark") == seconds


def test_lateness_counts_each_message_in_the_first_step_that_is_long_enough() -> None:
    late = [0, 1_000, 1_001, None, 59_999, 86_400_000, 86_400_001]
    ledger = _ledger(tombstones=[{"lateness_ms": ms, "attempts": 1} for ms in late])

    rows = list(ledger.ask("count_lateness", {"tombstones": []}, most=10, late=59_999))

    steps = lateness_steps({row["step"]: row["messages"] for row in rows})
    assert [(step.label, step.messages) for step in steps if step.messages] == [
        ("1 s", 2),
        ("10 s", 1),
        ("1 min", 1),
        ("1 d", 1),
        ("more", 1),
    ]
    assert (sum(row["messages"] for row in rows), sum(row["late"] for row in rows)) == (7, 2)


@pytest.mark.parametrize(
    ("spans", "cut"),
    [
        ([], FIRST),
        ([(-2, -1), (1, 2)], FIRST),
        ([(-1, 1)], FIRST - _HOUR - _SECOND),
        ([(-3, -0.5), (-1, 1), (-5, -4)], FIRST - 3 * _HOUR - _SECOND),
        ([(-1, 1), (-2, -1.0001), (-4, -3)], FIRST - 2 * _HOUR - _SECOND),
    ],
    ids=["no sweeps", "none ran then", "one would be cut in two", "several that overlap", "close"],
)
def test_ledger_is_cut_before_the_sweeps_that_it_would_cut_in_two(
    spans: list[tuple[float, float]], cut: datetime
) -> None:
    others = {"source": "others", "start": FIRST - 9 * _HOUR, "end": FIRST + _HOUR}
    ran = [{"start": FIRST + start * _HOUR, "end": FIRST + end * _HOUR} for start, end in spans]

    assert last_gap(_ledger(sweeps=[others, *ran]), SOURCE, FIRST) == cut
    assert last_gap(_ledger(), SOURCE, FIRST) == FIRST
