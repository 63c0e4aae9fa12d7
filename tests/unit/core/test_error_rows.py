"""Which errors an operator means, and how they are grouped."""

from datetime import UTC, datetime, timedelta

import pytest

from duesweep.core.change import ChangeKind
from duesweep.core.error_rows import ErrorFilter, ErrorGroups, ErrorId, ErrorRow

_NINE = datetime(2026, 11, 23, 9, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
_ROW = ErrorRow(
    id=ErrorId("sweep", "key"),
    message_id="message",
    message_type="Sales.Cancel",
    destination="Billing.Orders",
    attempts=5,
    first_failed_at=_NINE - _MINUTE,
    last_failed_at=_NINE,
    error_class="duesweep.errors.QueueNotFoundError",
    error_text="There is no queue Billing.Orders",
)


@pytest.mark.parametrize(
    "chosen",
    [
        ErrorFilter(),
        ErrorFilter(ids=("x", "key")),
        ErrorFilter(ids=("message",)),
        ErrorFilter(group=_ROW.group),
        ErrorFilter(error_class="QueueNotFoundError"),
        ErrorFilter(error_class="duesweep.*"),
        ErrorFilter(destination="Billing*", message_type="*Cancel"),
        ErrorFilter(since=_NINE, until=_NINE + _MINUTE),
    ],
)
def test_filter_means_an_error_that_fits_all_its_conditions(chosen: ErrorFilter) -> None:
    assert chosen.matches(_ROW)


@pytest.mark.parametrize(
    "chosen",
    [
        ErrorFilter(ids=("x",)),
        ErrorFilter(ids=("key",), group="0"),
        ErrorFilter(error_class="NotFoundError"),
        ErrorFilter(destination="Billing"),
        ErrorFilter(destination="Billing*", message_type="Sales"),
        ErrorFilter(until=_NINE),
        ErrorFilter(since=_NINE + _MINUTE),
    ],
)
def test_filter_does_not_mean_an_error_that_fails_one_condition(chosen: ErrorFilter) -> None:
    assert not chosen.matches(_ROW)


def test_filter_fits_the_queues_name_in_an_address() -> None:
    row = _ROW._replace(destination='"public"."Billing"')

    assert ErrorFilter(destination="Billing").matches(row)
    assert not ErrorFilter(destination="public").matches(row)


def test_error_without_type_and_destination_fits_no_pattern() -> None:
    unreadable = _ROW._replace(message_type=None, destination=None)

    assert ErrorFilter().matches(unreadable)
    assert not ErrorFilter(destination="*").matches(unreadable)
    assert not ErrorFilter(message_type="*").matches(unreadable)


def test_group_is_the_same_wherever_it_is_computed() -> None:
    # Written down: people keep these ids in their notes for a shift.
    assert _ROW.group == "efa5c5d6"
    assert _ROW._replace(message_id="other", last_failed_at=_NINE + _MINUTE).group == _ROW.group
    for other in (
        _ROW._replace(destination="Shipping"),
        _ROW._replace(message_type=None),
        _ROW._replace(error_class="x"),
    ):
        assert other.group != _ROW.group


def test_groups_count_what_became_of_errors() -> None:
    groups = ErrorGroups()
    for number, fate in enumerate(
        [None, ChangeKind.REPLAYED, ChangeKind.DISCARDED, ChangeKind.DISCARDED]
    ):
        at = _NINE + number * _MINUTE
        groups.add(_ROW._replace(message_id=f"m{number}", last_failed_at=at), fate)

    (group,) = groups.sorted()

    counts = (group.count, group.open, group.replayed, group.discarded)
    assert counts == (4, 1, 1, 2)
    assert (group.first, group.last) == (_NINE, _NINE + 3 * _MINUTE)


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_example_is_the_last_one_that_is_open(order: slice) -> None:
    fates = [None, None, ChangeKind.REPLAYED]
    rows = [
        (_ROW._replace(message_id=f"m{number}", last_failed_at=_NINE + number * _MINUTE), fate)
        for number, fate in enumerate(fates)
    ]
    groups = ErrorGroups()
    for row, fate in rows[order]:
        groups.add(row, fate)

    (group,) = groups.sorted()

    assert group.example.message_id == "m1"


def test_group_with_the_most_open_errors_comes_first() -> None:
    groups = ErrorGroups()
    groups.add(_ROW._replace(destination="a"), ChangeKind.REPLAYED)
    groups.add(_ROW._replace(destination="a"), ChangeKind.REPLAYED)
    groups.add(_ROW._replace(destination="b"), None)

    assert [group.example.destination for group in groups.sorted()] == ["b", "a"]
