"""What was swept, what waits, and what needs a hand: what the report shows of an endpoint."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple, TypeVar

from duesweep.config import Config, EndpointSettings
from duesweep.core.errors import DuesweepError, ExitCode
from duesweep.core.exhausted import ErrorFilter
from duesweep.core.finding import Finding, is_to_mend, worst_first
from duesweep.core.policy import Pause
from duesweep.ledger.base import Among, Between, Condition, LedgerRow
from duesweep.ledger.ledger import Ledger
from duesweep.operations.doctor import examination, examine_services
from duesweep.operations.errors import ErrorGroup, ExhaustedMessages, grouped
from duesweep.operations.messages import open_look
from duesweep.operations.opening import endpoints_of, reading_ledger
from duesweep.stores.base import Store
from duesweep.sweep.job import SweepContext

T = TypeVar("T")

_HOURS = 24
_WEEK = timedelta(days=7)
_COLUMNS = (
    *("start", "end", "outcome", "found", "dispatched", "failed", "exhausted", "left"),
    *("lateness_p95_ms", "reason"),
)
_SHOWN_SWEEPS = 20
# To read the lateness of so many messages takes about a second.
_MOST_MESSAGES = 200_000
_FAILING = ("error_class", "destination", "last_failed_at", "error_text")
_MOST_BARS = 56
# The last milliseconds of each step of lateness; the last step has none.
_LATENESS_ENDS = (1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000)
_LATENESS = ("1 s", "10 s", "1 min", "10 min", "1 h", "1 d", "more")


class Step(NamedTuple):
    """A bar of a plot."""

    label: str
    messages: int


class SweepLine(NamedTuple):
    """A row of the ledger's `sweeps`; `seconds` is how long the sweep took."""

    start: datetime
    seconds: float
    outcome: str
    found: int
    dispatched: int
    failed: int
    exhausted: int
    left: int
    lateness_p95_ms: int | None
    reason: str | None


class Failing(NamedTuple):
    """Messages in back-off: they have failed, and are tried again. `last` is the last failure."""

    error_class: str
    destination: str | None
    messages: int
    last: datetime
    example: str


@dataclass(frozen=True, slots=True)
class History:
    """What the ledger tells since `since`. `sweeps` are the last ones, the newest first. `rate`
    has the messages that were dispatched in each step of time, `backlog` the most that a sweep of
    that time found due. `lateness` is about the last `lateness_of` dispatched messages.
    """

    since: datetime
    sweeps: Sequence[SweepLine]
    count: int
    dispatched: int
    failed: int
    exhausted: int
    rate: Sequence[Step]
    backlog: Sequence[Step]
    lateness: Sequence[Step]
    lateness_of: int
    failing: Sequence[Failing]
    errors: Sequence[ErrorGroup]

    @property
    def open_errors(self) -> int:
        """Errors that nobody has replayed or discarded."""
        return sum(group.open for group in self.errors)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the store tells at `now`, by its clock: `due` messages are due; so many more come due
    in the next `hour`, `day` and `week`, each counted from now, and `later`. `hours` are the next
    24.
    """

    now: datetime
    due: int
    hour: int
    day: int
    week: int
    later: int
    hours: Sequence[Step]
    pauses: Sequence[Pause]


@dataclass(frozen=True, slots=True)
class Status:
    """What is known of one source. `waiting` or `history` None: it could not be read, and
    `problems` say why. `findings` are the doctor's that are not good. `options` name the endpoint
    on a command line.
    """

    source: str
    waiting: Waiting | None
    history: History | None
    findings: Sequence[Finding] = ()
    problems: Sequence[str] = ()
    options: Sequence[str] = field(default=(), repr=False)

    @property
    def is_known(self) -> bool:
        """Whether anything could be read."""
        return self.waiting is not None or self.history is not None


@dataclass(frozen=True, slots=True)
class Statuses:
    """What is known of several. `exit_code` is 4 if nothing of some endpoint could be read, 2 if
    its settings are wrong.
    """

    made_at: datetime
    sources: Sequence[Status]
    exit_code: ExitCode
    error: None = None


def statuses(settings: Sequence[EndpointSettings], overrides: Sequence[str], days: int) -> Statuses:
    """What is known of these endpoints. What is wrong with one is said, and the others are there.
    Raises `DuesweepError` if nothing is known of any.
    """
    endpoints, failures = endpoints_of(settings, overrides)
    if not endpoints:
        raise failures[0][1]
    found = [status(each.config, each.context, days, each.options) for each in endpoints]
    code = ExitCode.DONE if all(each.is_known for each in found) else ExitCode.WORK_LEFT
    found += [Status(name, None, None, problems=[str(error)]) for name, error in failures]
    return Statuses(datetime.now(UTC), found, ExitCode.CONFIGURATION if failures else code)


def status(config: Config, context: SweepContext, days: int, options: Sequence[str] = ()) -> Status:
    """What is known of an endpoint; its history of so many days. Changes nothing."""
    now, problems = datetime.now(UTC), list[str]()
    source = context.store.source

    def history() -> History:
        with reading_ledger(context) as ledger:
            return _read_history(ledger, source, now - timedelta(days=days), now)

    return Status(
        source=source,
        waiting=_try(lambda: _read_waiting(context.store), "The store", problems),
        history=_try(history, "The ledger", problems),
        findings=_try(lambda: _findings(config), "What the doctor looks at", problems) or (),
        problems=problems,
        options=options,
    )


def _findings(config: Config) -> Sequence[Finding]:
    findings, _ = examine_services(examination(config))
    return worst_first([finding for finding in findings if is_to_mend(finding)])


def _try(read: Callable[[], T], what: str, problems: list[str]) -> T | None:
    try:
        return read()
    except DuesweepError as error:
        problems.append(f"{what} could not be read: {error}")
        return None


def _read_waiting(store: Store) -> Waiting:
    """What waits now. Raises `StoreError`, and `ConfigError` if the store cannot show messages."""
    with open_look(store) as session:
        now, pauses = session.horizon().server_time, session.pauses()
        hours = [now + timedelta(hours=number) for number in range(1, _HOURS + 1)]
        due, *by_hour, rest_of_week, later = session.count_waiting([now, *hours, now + _WEEK])
    day = sum(by_hour)
    return Waiting(
        now=now,
        due=due,
        hour=by_hour[0],
        day=day,
        week=day + rest_of_week,
        later=later,
        # By when each hour begins.
        hours=[
            Step(f"{end - timedelta(hours=1):%H:%M}", count)
            for end, count in zip(hours, by_hour, strict=True)
        ],
        pauses=pauses,
    )


def _read_history(ledger: Ledger, source: str, since: datetime, now: datetime) -> History:
    """What the ledger tells of a source since then. Raises `LedgerError` and `ConfigError`."""
    messages = ExhaustedMessages(ledger, source)
    messages.check()
    of_source = Among("source", [source])
    found = ledger.rows("sweeps", _COLUMNS, of_source, Between("start", since))
    sweeps = sorted(map(_sweep_line, found), key=lambda line: line.start, reverse=True)
    steps = TimeSteps(since, now)
    latest = list(_lateness(ledger, of_source, sweeps))
    return History(
        since=since,
        sweeps=sweeps[:_SHOWN_SWEEPS],
        count=len(sweeps),
        dispatched=sum(line.dispatched for line in sweeps),
        failed=sum(line.failed for line in sweeps),
        exhausted=sum(line.exhausted for line in sweeps),
        rate=steps.rate(sweeps),
        backlog=steps.backlog(sweeps),
        lateness=lateness_steps(latest),
        lateness_of=len(latest),
        failing=_failing(ledger, of_source),
        errors=[group for group in grouped(messages.seen(ErrorFilter())) if group.open],
    )


def _sweep_line(row: LedgerRow) -> SweepLine:
    return SweepLine(
        start=row["start"],
        seconds=(row["end"] - row["start"]) / timedelta(seconds=1),
        outcome=row["outcome"],
        found=row["found"] or 0,
        dispatched=row["dispatched"] or 0,
        failed=row["failed"] or 0,
        exhausted=row["exhausted"] or 0,
        left=row["left"] or 0,
        lateness_p95_ms=row["lateness_p95_ms"],
        reason=row["reason"],
    )


def _lateness(
    ledger: Ledger, of_source: Condition, sweeps: Sequence[SweepLine]
) -> Iterator[int | None]:
    """The lateness of the messages of the last sweeps, up to `_MOST_MESSAGES`."""
    since, messages = None, 0
    for sweep in sweeps:
        if messages and messages + sweep.dispatched > _MOST_MESSAGES:
            break
        since, messages = sweep.start, messages + sweep.dispatched
    if not messages:
        return
    dispatched = Among("outcome", ["dispatched"])
    conditions = (of_source, dispatched, Between("dispatched_at", since))
    # One sweep may have millions.
    for row in islice(ledger.rows("tombstones", ("lateness_ms",), *conditions), _MOST_MESSAGES):
        yield row["lateness_ms"]


def _failing(ledger: Ledger, of_source: Condition) -> Sequence[Failing]:
    groups: dict[tuple[str, str | None], Failing] = {}
    for row in ledger.rows("retries", _FAILING, of_source):
        key = row["error_class"] or "", row["destination"]
        before = groups.get(key)
        last, text = row["last_failed_at"], row["error_text"] or ""
        if before is None:
            groups[key] = Failing(*key, 1, last, text)
        else:
            is_later = last > before.last
            groups[key] = Failing(
                *key,
                before.messages + 1,
                last if is_later else before.last,
                text if is_later else before.example,
            )
    return sorted(groups.values(), key=lambda each: -each.messages)


def lateness_steps(milliseconds: Iterable[int | None]) -> Sequence[Step]:
    """How many messages were up to so late."""
    counts = Counter(bisect_left(_LATENESS_ENDS, ms) for ms in milliseconds if ms is not None)
    return [Step(label, counts[number]) for number, label in enumerate(_LATENESS)]


class TimeSteps:
    """The time from `since` to `now` in up to 56 steps of whole hours."""

    def __init__(self, since: datetime, now: datetime) -> None:
        hours = max(1, -(-int((now - since).total_seconds()) // 3_600))
        self._each = timedelta(hours=-(-hours // _MOST_BARS))
        self._count = -(-timedelta(hours=hours) // self._each)
        # Steps end now, so that the last one is whole.
        self._start = now - self._count * self._each

    def rate(self, sweeps: Iterable[SweepLine]) -> Sequence[Step]:
        """How many messages were dispatched in each step, by when their sweep began."""
        return self._steps(sweeps, lambda sweep, before: before + sweep.dispatched)

    def backlog(self, sweeps: Iterable[SweepLine]) -> Sequence[Step]:
        """The most messages that a sweep of each step found due."""
        return self._steps(sweeps, lambda sweep, before: max(before, sweep.found))

    def _steps(
        self, sweeps: Iterable[SweepLine], take: Callable[[SweepLine, int], int]
    ) -> Sequence[Step]:
        counts = [0] * self._count
        for sweep in sweeps:
            number = (sweep.start - self._start) // self._each
            if 0 <= number < self._count:
                counts[number] = take(sweep, counts[number])
        return [
            Step(f"{self._start + number * self._each:%d %b %H:%M}", count)
            for number, count in enumerate(counts)
        ]
