"""The listed messages, and the number of messages read for them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from duesweep.core.change import DueSpan, MessageFilter, WaitingMessage
from duesweep.operations.messages import Listing, Show, opened_choice, read_listing
from duesweep_testing.builders import delayed_row
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_driver import MemoryPeople

NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)
BILLING = MessageFilter(destination="Billing")


class CountedLook(MemoryPeople):
    """Counts the pages that were read."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.stored = store.rows
        self.pages = 0

    @contextmanager
    def look(self, span: DueSpan) -> Iterator[Iterator[Sequence[WaitingMessage]]]:
        with super().look(span) as pages:
            yield map(self.count, pages)

    def find(self, keys: Sequence[str], *, with_body: bool = False) -> Sequence[WaitingMessage]:
        return self.count(super().find(keys, with_body=with_body))

    def count(self, page: Sequence[WaitingMessage]) -> Sequence[WaitingMessage]:
        self.pages += 1
        return page


def _look(*seconds: float, destination: str = "Billing") -> CountedLook:
    """A store whose messages are due in these seconds from now."""
    rows = [delayed_row(destination, due=NOW + timedelta(seconds=each)) for each in seconds]
    return CountedLook(MemoryStore(rows))


def _listed(
    look: CountedLook,
    wanted: MessageFilter | None = None,
    most: int = 2,
    *,
    scan_limit: int = 1_000_000,
    show: Show | None = None,
) -> Listing:
    chosen, own_name = wanted or MessageFilter(), "Sales.Orders"
    return read_listing(look, chosen, own_name, NOW, most=most, scan_limit=scan_limit, show=show)


def _counts(listing: Listing) -> dict[str, int]:
    return {name: count for name, count in listing.counts.items() if count}


def test_store_counts_many_messages_of_which_the_first_are_read() -> None:
    look = _look(90_000, 30, -1, 100, -2, *[200] * 5_000)

    listing = _listed(look)

    assert [one.due for one in listing.messages] == [NOW - timedelta(seconds=s) for s in (2, 1)]
    assert _counts(listing) == {"overdue": 2, "in_1_min": 1, "in_5_min": 5_001, "later": 1}
    assert (listing.total, listing.looked_at, look.pages) == (5_005, None, 1)


@pytest.mark.parametrize(
    ("limit", "looked_at", "pages"),
    [(1, 1, 1), (1_000, 1_000, 2), (1_001, 1_001, 2), (2_500, 2_500, 3), (9_999, 2_500, 3)],
)
def test_headers_of_all_are_read_up_to_the_limit_where_they_decide(
    limit: int, looked_at: int, pages: int
) -> None:
    look = _look(*range(2_500))

    listing = _listed(look, BILLING, scan_limit=limit)

    assert (listing.looked_at, listing.total, look.pages) == (looked_at, looked_at, pages)
    assert listing.is_cut == (looked_at < 2_500)


@pytest.mark.parametrize("wanted", [MessageFilter(), BILLING])
@pytest.mark.parametrize("dues", [(), (1,), (1, 2), (1, 2, 3), tuple(range(1_500))])
def test_first_messages_are_shown_once_whoever_counts(
    wanted: MessageFilter, dues: Sequence[float]
) -> None:
    shown: list[int] = []

    listing = _listed(_look(*dues), wanted, show=lambda messages, _: shown.append(len(messages)))

    assert shown == [min(2, len(dues))]
    assert listing.total == len(dues)


def test_first_messages_are_shown_before_the_others_are_read() -> None:
    look = _look(*range(5_000))
    pages: list[int] = []

    _listed(look, BILLING, show=lambda *_: pages.append(look.pages))

    assert (pages, look.pages) == ([1], 5)


@pytest.mark.parametrize("most", [0, 2])
def test_span_is_counted_by_the_store_between_its_limits(most: int) -> None:
    look = _look(-3_600, -60, -59, 0, 30, 59, 60, 200, 86_400)
    span = DueSpan(NOW - timedelta(seconds=60), NOW + timedelta(seconds=100))

    listing = _listed(look, MessageFilter(due=span), most)

    assert _counts(listing) == {"overdue": 2, "in_1_min": 3, "in_5_min": 1}
    assert (len(listing.messages), listing.looked_at) == (most, None)


@pytest.mark.parametrize(
    ("span", "counts"),
    [
        (DueSpan(start=NOW), {"in_1_min": 1, "later": 2}),
        (DueSpan(end=NOW), {"overdue": 1}),
        (DueSpan(end=NOW + timedelta(days=3)), {"overdue": 1, "in_1_min": 1, "later": 1}),
    ],
)
def test_what_is_never_due_is_in_spans_without_an_end(
    span: DueSpan, counts: dict[str, int]
) -> None:
    look = _look(-1, 1, 90_000)
    never = delayed_row(due="infinity")
    look.stored[never.key] = never

    counted = _listed(look, MessageFilter(due=span), 9)
    scanned = _listed(look, MessageFilter(destination="*", due=span), 9)
    found = _listed(look, MessageFilter(keys=(never.key,), due=span))

    assert _counts(counted) == _counts(scanned) == counts
    assert len(counted.messages) == counted.total
    assert found.total == (span.end is None)


def test_message_is_found_by_its_key_without_a_scan() -> None:
    look = _look(*range(2_500))
    key = next(iter(look.stored))

    listing = _listed(look, MessageFilter(keys=(key, "absent")))

    assert [one.key for one in listing.messages] == [key]
    assert look.pages == 1


def test_chosen_pages_end_with_their_block() -> None:
    with opened_choice(_look(1, 2), BILLING, "Sales.Orders", 1) as choice:
        pages: Iterator[list[WaitingMessage]] = iter(choice)
        assert len(next(pages)) == 1
        assert list(pages) == []
    assert (choice.looked_at, choice.is_cut) == (1, True)
