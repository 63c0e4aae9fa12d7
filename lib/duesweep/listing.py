"""Lists what waits: the messages that come due first, and how many come due how soon."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from duesweep.choose import choose
from duesweep.core.change import DueSpan, MessageFilter, WaitingMessage
from duesweep.core.routing import UnknownDestination, find_unknown
from duesweep.core.times import BUCKETS, bucket_ends, bucket_of
from duesweep.stores.base import OperatorDriver

# Called once, with the first messages: before all others are counted, which may take its time.
Show = Callable[[Sequence[WaitingMessage]], None]


@dataclass(frozen=True, slots=True)
class Listing:
    """`messages` are the first ones of all that were chosen, `counts` how many of all are in each
    of `BUCKETS`. `looked_at`: how many messages were looked at to choose them; None: the store
    counted. `is_cut`: there are more than the limit of that, so the counts are too low. `unknown`:
    the filter's destination, if none of those that were looked at is for it.
    """

    messages: Sequence[WaitingMessage]
    counts: Sequence[int]
    looked_at: int | None = None
    is_cut: bool = False
    unknown: UnknownDestination | None = None

    @property
    def total(self) -> int:
        """How many were chosen."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class Question:
    """What to list: `now` is the server's time, `own_queue` the name of the endpoint's own queue,
    `most` how many messages to return.
    """

    wanted: MessageFilter
    now: datetime
    own_queue: str
    most: int
    scan_limit: int


def list_waiting(
    session: OperatorDriver,
    question: Question,
    show: Show | None = None,
    tell: Callable[[int], None] | None = None,
) -> Listing:
    """The first messages that a filter means, and how many it means. `tell` is told how many were
    looked at by now.
    """
    first: list[WaitingMessage] = []
    counts = [0] * len(BUCKETS)
    ends = bucket_ends(question.now)
    wanted = question.wanted
    is_counted = wanted == MessageFilter(due=wanted.due)
    show = show or _show_nothing
    with choose(session, wanted, question.own_queue, question.scan_limit) as choice:
        for page in choice:
            if tell is not None:
                tell(choice.looked_at)
            lacking = question.most - len(first)
            first += page[:lacking]
            if 0 < lacking <= len(page):
                show(first)
            if is_counted and len(first) == question.most:
                break
            for one in page:
                counts[bucket_of(one.due, ends)] += 1
    if len(first) < question.most:
        show(first)
    if is_counted:
        return Listing(first, _count(session, wanted.due, ends))
    unknown = None if choice.is_cut else find_unknown(wanted.destination, choice.destinations)
    return Listing(first, counts, choice.looked_at, choice.is_cut, unknown)


def _show_nothing(_: Sequence[WaitingMessage]) -> None:
    """For a caller who waits for the whole listing."""


def _count(session: OperatorDriver, span: DueSpan, ends: Sequence[datetime]) -> list[int]:
    """How many messages of a span are in each bucket, by the store's own count. It counts between
    all ends of buckets and of the span.
    """
    limits = {limit for limit in (span.start, span.end) if limit is not None}
    points = sorted({*ends, *limits})
    counts = [0] * len(BUCKETS)
    starts: list[datetime | None] = [None, *points]
    for start, end, count in zip(
        starts, [*points, None], session.count_waiting(points), strict=True
    ):
        is_early = span.start is not None and (start is None or start < span.start)
        is_late = span.end is not None and (end is None or end > span.end)
        if not is_early and not is_late:
            counts[0 if start is None else bucket_of(start, ends)] += count
    return counts
