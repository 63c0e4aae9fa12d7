"""Waiting messages: chosen by a filter, listed, and shown whole with their history."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from duesweep.core import logs
from duesweep.core.change import (
    SCAN_LIMIT,
    DueSpan,
    MessageFilter,
    WaitingMessage,
    spelled_alike,
    spellings,
)
from duesweep.core.errors import (
    ConfigError,
    DuesweepError,
    ExitCode,
    LedgerError,
    MessageError,
    StoreError,
)
from duesweep.core.headers import Headers
from duesweep.core.quantities import duration_text, short_time
from duesweep.core.result import Listed, Result, exit_code_of
from duesweep.core.routing import UnknownDestination, find_unknown
from duesweep.core.times import BUCKETS, bucket_ends, bucket_of
from duesweep.core.world import instant_of, micros
from duesweep.ledger.base import Among, LedgerRow
from duesweep.ledger.ledger import Ledger
from duesweep.operations.endpoint import Endpoint
from duesweep.operations.opening import reading_ledger
from duesweep.stores.base import OperatorDriver, Store, operators_of
from duesweep.stores.people import People
from duesweep.sweep.pairing import require_own

# A filter, or a function of the server's time that returns it.
Wanted = MessageFilter | Callable[[datetime], MessageFilter]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that waits, without its headers and its body. `destination` None: it is unknown;
    `due` None: never. `next_attempt_at` and `error`: why it is in back-off.
    """

    key: str
    message_id: str | None
    message_type: str | None
    destination: str | None
    due: datetime | None
    body_bytes: int
    attempts: int
    next_attempt_at: datetime | None
    error: str | None

    @classmethod
    def of(cls, found: WaitingMessage, own_name: str) -> "Waiting":
        """`own_name` stands for the endpoint's own queue."""
        return cls(**_facts(found, own_name))


@dataclass(frozen=True, slots=True)
class WholeMessage(Waiting):
    """Such a message, whole. `headers` None: `headers_error` says why they cannot be read."""

    headers: Headers | None
    headers_error: str | None
    headers_text: str
    body: bytes | None

    @classmethod
    def of(cls, found: WaitingMessage, own_name: str) -> "WholeMessage":
        """With the body that was read."""
        message = found.message
        fault = message.headers if isinstance(message.headers, MessageError) else None
        return cls(
            **_facts(found, own_name),
            headers=None if isinstance(message.headers, MessageError) else message.headers,
            headers_error=None if fault is None else str(fault),
            headers_text=message.headers_text,
            body=message.body,
        )


def _facts(found: WaitingMessage, own_name: str) -> dict[str, Any]:
    message = found.message
    return {
        "key": message.key,
        "message_id": message.message_id,
        "message_type": message.message_type,
        "destination": found.destination(own_name) or None,
        "due": found.due,
        "body_bytes": found.body_bytes,
        "attempts": message.attempts,
        "next_attempt_at": found.next_attempt_at,
        "error": found.error,
    }


class Choice:
    """The messages that a filter means, in pages, the earliest Due first; it is read
    once. `looked_at` is how many messages were looked at so far, and `destinations` where they go.
    `is_cut`: there are more, but it stopped at its limit. `own_queue` is the name that stands for
    the endpoint's own queue.
    """

    def __init__(
        self,
        wanted: MessageFilter,
        own_queue: str,
        pages: Iterator[Sequence[WaitingMessage]],
        most: int | None,
    ) -> None:
        self.looked_at = 0
        self.destinations: set[str] = set()
        self.is_cut = False
        self._wanted, self._own_queue = wanted, own_queue
        self._pages = pages
        self._most = most

    def __iter__(self) -> Iterator[list[WaitingMessage]]:
        """The messages that fit; a page is empty if none of many does."""
        logs.step("looked at: 0")
        for page in self._pages:
            left = len(page) if self._most is None else self._most - self.looked_at
            self.is_cut = len(page) > left
            self.looked_at += min(len(page), left)
            logs.step(f"looked at: {self.looked_at:,}")
            addresses = (one.destination(self._own_queue) for one in page[:left])
            self.destinations.update(filter(None, addresses))
            yield [one for one in page[:left] if self._wanted.matches(one, self._own_queue)]
            if self.is_cut:
                return


@contextmanager
def opened_choice(
    people: People, wanted: MessageFilter, own_queue: str, scan_limit: int
) -> Iterator[Choice]:
    """Open the choice. Messages whose keys are known are found by them; `scan_limit` is for filters
    that have to read headers.
    """
    if wanted.keys:
        found = [
            one
            for one in find_by_keys(people, wanted.keys)
            if wanted.due.has(None if one.due is None else micros(one.due))
        ]
        yield Choice(wanted, own_queue, iter([found]), None)
        return
    with people.look(wanted.due) as pages:
        most = scan_limit if wanted.reads_headers else None
        yield Choice(wanted, own_queue, pages, most)


def find_by_keys(
    people: People, keys: Sequence[str], *, with_body: bool = False
) -> Sequence[WaitingMessage]:
    """The messages with these keys, however the keys are spelled."""
    found = {one.lock_key: one for one in people.find(keys, with_body=with_body)}
    unknown = set(keys).difference(one.message.key for one in found.values())
    if others := sorted({spelled_alike(key) for key in unknown}.difference(keys)):
        found |= {one.lock_key: one for one in people.find(others, with_body=with_body)}
    return list(found.values())


@contextmanager
def open_look(store: Store) -> Iterator[OperatorDriver]:
    """A session that shows waiting messages. Raises `ConfigError` if the store has none, and in
    place of an error of the store if tables or rights are not as a reader needs them. They are not
    checked before, since that takes time; only that no rows are hidden.
    """
    with operators_of(store, "to show messages").open_driver() as session:
        try:
            session.check_sight()
            yield session
        except StoreError as error:
            if not error.transient:
                session.check_reading()
            raise


# Called once, with the first messages and the server's time: before all others are counted, which
# may take its time.
Show = Callable[[Sequence[Waiting], datetime], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Listed):
    """`messages` are the first ones of the `total` that were chosen, `counts` how many of all are
    in each of `BUCKETS`. `looked_at`: how many messages were looked at to choose them; None: the
    store counted. `is_cut`: there are more than `scan_limit`, so the counts are too low.
    `unknown_destination`: the filter's, if none of the messages looked at is for it.
    """

    source: str
    now: datetime
    total: int
    counts: Mapping[str, int]
    looked_at: int | None
    is_cut: bool
    unknown_destination: UnknownDestination | None
    messages: Sequence[Waiting]
    scan_limit: int = field(repr=False)


def list_messages(
    endpoint: Endpoint,
    wanted: Wanted | None = None,
    *,
    most: int = 20,
    scan_limit: int = SCAN_LIMIT,
    show: Show | None = None,
) -> Listing:
    """The `most` first messages that wait, and how many come due how soon. Locks nothing. `show`
    gets the first messages before all are counted.
    """
    with open_look(endpoint.context.store) as session:
        now = session.due.horizon().server_time
        meant = wanted(now) if callable(wanted) else wanted or MessageFilter()
        name = endpoint.context.own_name
        return read_listing(
            session.people, meant, name, now, most=most, scan_limit=scan_limit, show=show
        )


def read_listing(
    people: People,
    wanted: MessageFilter,
    own_name: str,
    now: datetime,
    *,
    most: int,
    scan_limit: int,
    show: Show | None = None,
) -> Listing:
    """The `most` first messages that a filter means, and how many it means. `now` is the server's
    time.
    """
    first: list[Waiting] = []
    counts = [0] * len(BUCKETS)
    ends = bucket_ends(now)
    is_counted = wanted == MessageFilter(due=wanted.due)
    with opened_choice(people, wanted, own_name, scan_limit) as choice:
        for page in choice:
            lacking = most - len(first)
            first += [Waiting.of(one, own_name) for one in page[:lacking]]
            if show is not None and 0 < lacking <= len(page):
                show(first, now)
            if is_counted and len(first) == most:
                break
            for one in page:
                counts[bucket_of(one.due, ends)] += 1
    if show is not None and len(first) < most:
        show(first, now)
    if is_counted:
        counts = _count(people, wanted.due, ends)
    is_known = is_counted or choice.is_cut
    return Listing(
        source=people.source,
        now=now,
        total=sum(counts),
        counts=dict(zip(BUCKETS, counts, strict=True)),
        looked_at=None if is_counted else choice.looked_at,
        is_cut=not is_counted and choice.is_cut,
        unknown_destination=None
        if is_known
        else find_unknown(wanted.destination, choice.destinations),
        messages=first,
        scan_limit=scan_limit,
    )


def _count(people: People, span: DueSpan, ends: Sequence[datetime]) -> list[int]:
    """How many messages of a span are in each bucket, by the store's own count. It counts between
    all ends of buckets and of the span.
    """
    limits = {limit for limit in (span.start, span.end) if limit is not None}
    points = sorted({*ends, *limits})
    counts = [0] * len(BUCKETS)
    starts: list[datetime | None] = [None, *points]
    for start, end, count in zip(
        starts, [*points, None], people.count_waiting(points), strict=True
    ):
        is_early = span.start is not None and (start is None or start < span.start)
        is_late = span.end is not None and (end is None or end > span.end)
        if not is_early and not is_late:
            counts[0 if start is None else bucket_of(start, ends)] += count
    return counts


class Event(NamedTuple):
    """A row of the ledger's `table`: when the message got which outcome, and in which sweep or by
    which command.
    """

    at: datetime | None
    table: str
    what: str
    detail: str
    sweep_id: str | None


def read_history(
    ledger: Ledger, source: str, key: str | None, message_id: str | None
) -> list[Event]:
    """The events of a message, the earliest first. It is known by its key, by its message id, or by
    both; rows of the key tell its message id, and a message that came back has another key.
    """
    keys = sorted(spellings([key])) if key else []
    found = _events(ledger, source, Among("message_key", keys))
    ids = {message_id, *(row["message_id"] for row in found)} - {None}
    others = _events(ledger, source, Among("message_id", sorted(filter(None, ids))))
    # The rows of the key are there already, each as often as the ledger has it.
    found += [row for row in others if row["message_key"] not in keys]
    found.sort(key=lambda row: (row["at"] is not None, row["at"] or 0, row["place"]))
    return [_event(row) for row in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown(Result):
    """The messages that are `named`, whole, and their history in the ledger. `history_error`: why
    that is not known. `looked_at`: nothing was found among this many messages, and the others were
    not looked at.
    """

    source: str
    now: datetime
    messages: Sequence[WholeMessage]
    history: Sequence[Event]
    history_error: str | None
    named: str = field(repr=False)
    looked_at: int | None = field(repr=False)
    exit_code: ExitCode = field(repr=False)


def show(endpoint: Endpoint, key: str | None = None, *, message_id: str | None = None) -> Shown:
    """A message that waits, whole, and its history in the ledger. Locks nothing. The exit code is 3
    if neither store nor ledger knows it.
    """
    context = endpoint.context
    if (key is None) == (message_id is None):
        raise ConfigError(
            "A message is shown by its key, or by its message id",
            advice="give either KEY or --message-id ID; `duesweep list` has both",
        )
    looked_at = None
    with open_look(context.store) as session:
        now = session.due.horizon().server_time
        if key is not None:
            found = find_by_keys(session.people, [key], with_body=True)
        else:
            wanted = MessageFilter(message_ids=(message_id or "",))
            with opened_choice(session.people, wanted, context.own_name, SCAN_LIMIT) as choice:
                keys = [one.message.key for page in choice for one in page]
            looked_at = choice.looked_at if choice.is_cut and not keys else None
            found = session.people.find(keys, with_body=True)
        ids = message_id or next((one.message.message_id for one in found), None)
        keyed = key or next((one.message.key for one in found), None)
        events: Sequence[Event] = ()
        problem: DuesweepError | None = None
        try:
            with reading_ledger(context, endpoint.spark) as ledger:
                require_own(session.binding, ledger)
                events = read_history(ledger, context.store.source, keyed, ids)
        except (ConfigError, LedgerError) as error:
            problem = error
    code = ExitCode.DONE if found or events else ExitCode.MESSAGES_FAILED
    # A wrong setting is shown next to a message; without a message it is the result.
    is_known = bool(found) and isinstance(problem, ConfigError)
    return Shown(
        source=context.store.source,
        now=now,
        messages=[WholeMessage.of(one, context.own_name) for one in found],
        history=events,
        history_error=None if problem is None else str(problem.problem),
        named=f"key {key}" if key is not None else f"message id {message_id}",
        looked_at=looked_at,
        exit_code=code if problem is None or is_known else exit_code_of(problem),
    )


# The tables of `find_events`, by their places.
_PLACES = {1: "tombstones", 2: "retries", 3: "errors", 4: "changes"}


def _events(ledger: Ledger, source: str, wanted: Among) -> list[LedgerRow]:
    if not wanted.values:
        return []
    of_them = [Among("source", [source]), wanted]
    return list(ledger.ask("find_events", dict.fromkeys(_PLACES.values(), of_them)))


def _event(row: LedgerRow) -> Event:
    table = _PLACES[row["place"]]
    queue = f"to {row['queue']}" if row["queue"] else ""
    match table:
        case "tombstones":
            ms = row["lateness_ms"]
            late = "" if ms is None else f"{duration_text(ms)} late"
            facts = [queue, late, f"attempt {row['attempts']}"]
        case "retries":
            facts = [f"failures so far: {row['attempts']}", row["error_text"]]
        case "errors":
            facts = [f"failures: {row['attempts']}", row["error_text"]]
        case _:
            before, after = _time(row["due_before"]), _time(row["due_after"])
            moved = f"due moved from {before} to {after}"
            due = moved if before and after else f"due {before or after}"
            facts = [f"by {row['given_by']}", due if before or after else "", queue, row["reason"]]
    at = None if row["at"] is None else instant_of(row["at"])
    return Event(at, table, row["what"], "; ".join(filter(None, facts)), row["sweep_id"])


def _time(instant_us: int | None) -> str:
    return "" if instant_us is None else short_time(instant_of(instant_us))
