"""Past sweeps, waiting messages and problems: the content of the report for an endpoint."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import floor
from typing import NamedTuple, TypeVar

from duesweep.config import EndpointSettings
from duesweep.core import logs
from duesweep.core.errors import DuesweepError, ExitCode, StoreError, shorten
from duesweep.core.exhausted import ErrorFilter
from duesweep.core.finding import Finding, Severity, for_readers, is_to_mend, worst_first
from duesweep.core.held_back import HeldBack, Holder
from duesweep.core.policy import Pause
from duesweep.core.quantities import count_text, time_text
from duesweep.core.result import Result
from duesweep.core.world import micros
from duesweep.ledger.base import Among, Asked, Between, Condition, LedgerRow
from duesweep.ledger.ledger import Ledger
from duesweep.operations.doctor import examine_services, route_findings, services_of
from duesweep.operations.endpoint import Endpoint
from duesweep.operations.exhausted import ErrorGroup, ExhaustedMessages, grouped
from duesweep.operations.look import (
    DestinationOutlook,
    DueMessages,
    held_by_locks,
    with_problems,
)
from duesweep.operations.messages import open_look
from duesweep.operations.opening import endpoints_of, reading_ledger
from duesweep.sweep.job import SweepContext
from duesweep.sweep.pairing import find_older_copy, require_own

T = TypeVar("T")

_HOUR, _DAY, _WEEK = timedelta(hours=1), timedelta(days=1), timedelta(days=7)
# A page is made again and again: it looks at fewer messages than a plan, in half a second or less.
_MOST_LOOKED_AT = 10_000
# Messages without an objective are late after this time, and so is a row of the ledger.
_PATIENCE = timedelta(minutes=10)
_SHOWN_SWEEPS = 20
# A concern names this many destinations. All are in the table below it.
_MOST_NAMED = 3
_CUT_SHORT = {"incomplete", "abandoned"}
# To read the lateness of this many messages takes about a second.
_MOST_MESSAGES = 200_000
# No message is later.
_NEVER_MS = 2**62
_MOST_BARS = 60
_STEPS = [
    timedelta(minutes=each) for each in (1, 5, 15, 30, 60, 180, 360, 720, 1_440, 10_080, 43_200)
]
# A Monday.
_BEGINNING = datetime(1970, 1, 5, tzinfo=UTC)
# The steps of `count_lateness`, from 1 on.
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


class InBackOff(NamedTuple):
    """Messages in back-off: they have failed, and are tried again. `last` is the last failure."""

    error_class: str
    destination: str | None
    messages: int
    last: datetime
    example: str


@dataclass(frozen=True, slots=True)
class History:
    """The ledger since `since`. `sweeps` are the last ones, the newest first. `rate`
    has the messages that were dispatched in each step of time, `backlog` the most that a sweep of
    that time found due. `lateness` is about the last `lateness_of` dispatched messages; `late` of
    them were dispatched at their first attempt, and later than the objective. `lost_errors`: how
    many of the `exhausted` messages the table `errors` lacks, which has the only copy of most.
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
    late: int
    failing: Sequence[InBackOff]
    errors: Sequence[ErrorGroup]
    lost_errors: int = 0

    @property
    def in_back_off(self) -> int:
        """Messages that have failed, and are tried again."""
        return sum(each.messages for each in self.failing)

    @property
    def open_errors(self) -> int:
        """Errors that were not replayed or discarded."""
        return sum(group.open for group in self.errors)


@dataclass(frozen=True, slots=True)
class WaitingCounts:
    """The store at `now`, by its clock: `due` messages are due; these numbers come due
    in the next `hour`, `day` and `week`, each counted from now, and `later`. `hours` are the next
    24, from full hours on. `looked_at` of the due messages were looked at, the longest due ones
    first: the `destinations` and `held_back` are about them, as in a plan. `oldest_due`:
    since when the oldest of them has been due, `oldest_eligible` the oldest that a sweep would
    take. The ledger lacks `unsettled` sweeps and commands that ended; the first of them began at
    `unsettled_since`.
    """

    now: datetime
    due: int
    hour: int
    day: int
    week: int
    later: int
    hours: Sequence[Step]
    pauses: Sequence[Pause]
    looked_at: int
    oldest_due: datetime | None
    oldest_eligible: datetime | None
    destinations: Sequence[DestinationOutlook]
    held_back: Sequence[HeldBack]
    unsettled: int
    unsettled_since: datetime | None


class Concern(NamedTuple):
    """Something that is not well. `severity` is a fault's or a warning's."""

    severity: Severity
    text: str


@dataclass(frozen=True, slots=True)
class Status(Result):
    """The facts of one source. `waiting` or `history` None: it could not be read, and
    `problems` say why. `findings` are the doctor's that are not good. `objective_seconds`: how late
    a message may be; None: not set. `concerns`, the worst first, are the conclusions;
    without any all is well. `options` name the endpoint on a command line.
    """

    source: str
    waiting: WaitingCounts | None
    history: History | None
    findings: Sequence[Finding] = ()
    problems: Sequence[str] = ()
    objective_seconds: float | None = None
    concerns: Sequence[Concern] = ()
    options: Sequence[str] = field(default=(), repr=False)

    def judged(self) -> "Status":
        """The same with its concerns."""
        ordered = sorted(_concerns(self), key=lambda one: list(Severity).index(one.severity))
        return replace(self, concerns=ordered)

    @property
    def is_known(self) -> bool:
        """Whether anything could be read."""
        return self.waiting is not None or self.history is not None


@dataclass(frozen=True, slots=True)
class Statuses:
    """The facts of several. `exit_code` is 4 if nothing of some endpoint could be read, 2 if
    its settings are wrong.
    """

    made_at: datetime
    sources: Sequence[Status]
    exit_code: ExitCode


def statuses(settings: Sequence[EndpointSettings], overrides: Sequence[str], days: int) -> Statuses:
    """The facts of these endpoints. A fault of one is reported, and the others are there.
    Raises `DuesweepError` if nothing is known of any.
    """
    endpoints, failures = endpoints_of(settings, overrides)
    if not endpoints:
        raise failures[0][1]
    found = [status(each, days=days) for each in endpoints]
    code = ExitCode.DONE if all(each.is_known for each in found) else ExitCode.WORK_LEFT
    found += [Status(name, None, None, problems=[str(error)]).judged() for name, error in failures]
    return Statuses(datetime.now(UTC), found, ExitCode.CONFIGURATION if failures else code)


def status(endpoint: Endpoint, *, days: int = 7) -> Status:
    """The sweeps of these days, the waiting messages, and the problems. Changes nothing."""
    problems: list[str] = []
    context = endpoint.context
    source, objective = endpoint.source, context.objective_seconds

    def history() -> History:
        with reading_ledger(context) as ledger:
            # That the store is out of reach is a problem of its own.
            with suppress(StoreError), context.store.open_driver() as session:
                session.check_sight()
                require_own(session.binding, ledger)
                if older := find_older_copy(session, ledger):
                    problems.append(str(older))
            return _read_history(ledger, source, days, objective)

    logs.step(f"{source}: reads store and ledger, and runs the doctor's checks")
    return Status(
        source=source,
        waiting=_try(lambda: read_waiting(context), "The store", problems),
        history=_try(history, "The ledger", problems),
        findings=_try(lambda: _findings(endpoint), "The doctor's checks", problems) or (),
        problems=problems,
        objective_seconds=objective,
        options=endpoint.options,
    ).judged()


def _concerns(found: Status) -> Iterator[Concern]:
    for problem in found.problems:
        yield Concern(Severity.FAULT, problem)
    if found.waiting is not None:
        yield from _waiting_concerns(found.waiting, found.objective_seconds)
    if found.history is not None:
        yield from _history_concerns(found.history, found.objective_seconds)
    for severity in (Severity.FAULT, Severity.WARNING):
        if count := sum(finding.severity is severity for finding in found.findings):
            yield Concern(severity, f"{count_text(count, severity)} found by the doctor")


def _waiting_concerns(waiting: WaitingCounts, objective: float | None) -> Iterator[Concern]:
    failing = [one for one in waiting.destinations if one.problem is not None and one.eligible]
    if failing:
        worst = max(failing, key=lambda one: one.eligible)
        whose = "" if len(failing) == 1 else f"; {_name(worst)}"
        count = _due_text([(_name(one), one.eligible) for one in failing])
        yield Concern(Severity.FAULT, f"{count} would fail{whose}: {worst.problem}")
    oldest = waiting.oldest_eligible
    patience = _PATIENCE if objective is None else timedelta(seconds=objective)
    if oldest is not None and waiting.now - oldest > patience:
        text = f"the next sweep's oldest message has been due since {time_text(oldest)}"
        if objective is None:
            yield Concern(Severity.WARNING, text)
        else:
            limit = f"longer than slo.lateness_seconds ({objective:g} s)"
            yield Concern(Severity.FAULT, f"{text}, {limit}")
    paused = [(_name(one), one.paused) for one in waiting.destinations if one.paused]
    if paused:
        yield Concern(Severity.WARNING, f"paused: {_due_text(paused)}")
    for held in waiting.held_back:
        if held.holder is Holder.LOCKED:
            count = count_text(held.messages or 0, "due message")
            yield Concern(Severity.WARNING, f"{count} locked by {held.why}")
    since = waiting.unsettled_since
    if since is not None and waiting.now - since > _PATIENCE:
        yield Concern(
            Severity.WARNING,
            f"the ledger lacks {count_text(waiting.unsettled, 'sweep or command')}; the first "
            f"began at {time_text(since)}",
        )


def _due_text(counts: Sequence[tuple[str, int]]) -> str:
    """How many due messages, and for which destinations: three of them, with the most messages."""
    total = count_text(sum(count for _, count in counts), "due message")
    if len(counts) == 1:
        return f"{total} for {counts[0][0]}"
    most = sorted(counts, key=lambda each: -each[1])[:_MOST_NAMED]
    named = ", ".join(f"{name}: {count:,}" for name, count in most)
    more = f", and {len(counts) - len(most)} more" if len(counts) > len(most) else ""
    return f"{total} for {len(counts)} destinations ({named}{more})"


def _name(of: DestinationOutlook) -> str:
    return shorten(of.destination or "(cannot be read)")


def _history_concerns(history: History, objective: float | None) -> Iterator[Concern]:
    if history.lost_errors:
        count = count_text(history.lost_errors, "exhausted message")
        yield Concern(
            Severity.FAULT,
            f"the ledger has lost {count} of the last sweeps: `errors` lacks them; run "
            "`duesweep audit`, and restore the ledger from a backup",
        )
    if history.open_errors:
        count = count_text(history.open_errors, "error")
        yield Concern(Severity.FAULT, f"{count} to replay or discard")
    if history.sweeps and history.sweeps[0].outcome in _CUT_SHORT:
        last = history.sweeps[0]
        why = f": {shorten(last.reason)}" if last.reason else ""
        yield Concern(Severity.WARNING, f"the last sweep is {last.outcome}{why}")
    if history.late and objective is not None:
        yield Concern(
            Severity.WARNING,
            f"{history.late:,} of the last {count_text(history.lateness_of, 'message')} were "
            f"dispatched later than slo.lateness_seconds ({objective:g} s)",
        )
    if history.in_back_off:
        count = count_text(history.in_back_off, "message")
        yield Concern(Severity.WARNING, f"{count} in back-off after a failure")


def _findings(endpoint: Endpoint) -> Sequence[Finding]:
    config = endpoint.config
    found, _ = examine_services(endpoint.context, services_of(config), route_findings(config))
    return worst_first(filter(is_to_mend, for_readers(found)))


def _try(read: Callable[[], T], what: str, problems: list[str]) -> T | None:
    try:
        return read()
    except DuesweepError as error:
        problems.append(f"{what} could not be read: {error}")
        return None


def read_waiting(context: SweepContext) -> WaitingCounts:
    """The waiting messages. Raises `StoreError`, and `ConfigError` if the store cannot show
    messages.
    """
    with open_look(context.store) as session:
        horizon, pauses = session.due.horizon(), session.due.pauses()
        now = horizon.server_time
        first = now.replace(minute=0, second=0, microsecond=0)
        full_hours = [first + number * _HOUR for number in range(1, 25)]
        ends = sorted({now + _HOUR, now + _DAY, now + _WEEK, *full_hours})
        due, *counts, later = session.people.count_waiting([now, *ends])
        messages = DueMessages(context, now, pauses, _MOST_LOOKED_AT)
        destinations = messages.look(session.people)
        oldest_eligible = messages.oldest_eligible
        if oldest_eligible is None and messages.looked_at < due:
            # Behind all that was looked at.
            work = session.due.find_work(horizon)
            oldest_eligible = work and work.since
        locked = held_by_locks(session.due, horizon, only_stuck=True) if due else ()
        unsettled = [one.started_at for one in session.journal.unsettled() if one.is_closed]

    def between(start: datetime, end: datetime) -> int:
        return sum(count for at, count in zip(ends, counts, strict=True) if start < at <= end)

    return WaitingCounts(
        now=now,
        due=due,
        hour=between(now, now + _HOUR),
        day=between(now, now + _DAY),
        week=sum(counts),
        later=later,
        # By when each hour begins; the first is under way.
        hours=[
            Step(f"{start:%H:%M}", between(start, min(start + _HOUR, now + _DAY)))
            for start in (first, *full_hours)
        ],
        pauses=pauses,
        looked_at=messages.looked_at,
        oldest_due=messages.oldest_due,
        oldest_eligible=oldest_eligible,
        destinations=with_problems(context, destinations),
        held_back=(*messages.held(pauses), *locked),
        unsettled=len(unsettled),
        unsettled_since=min(unsettled, default=None),
    )


def _read_history(ledger: Ledger, source: str, days: int, objective: float | None) -> History:
    """The history of a source in the ledger. Raises `LedgerError` and `ConfigError`."""
    now = datetime.now(UTC)
    since = now - timedelta(days=days)
    messages = ExhaustedMessages(ledger, source)
    messages.check()
    of_source = Among("source", [source])
    sweeps: Asked = {"sweeps": [of_source, Between("start", since)]}
    last = ledger.ask("last_sweeps", sweeps, most=_SHOWN_SWEEPS)
    (sums,) = ledger.ask("sum_sweeps", sweeps, most=_MOST_MESSAGES)
    rate, backlog = read_steps(ledger, sweeps, sums["first_start"] or since, now)
    lateness = _lateness(ledger, of_source, sums, objective)
    failing = ledger.ask("count_failing", {"retries": [of_source]})
    exhausted: Asked = {**sweeps, "errors": [of_source]}
    (lost,) = ledger.ask("count_lost_errors", exhausted) if sums["exhausted"] else ({},)
    return History(
        since=since,
        sweeps=[SweepLine(**row) for row in last],
        count=sums["sweeps"],
        dispatched=sums["dispatched"] or 0,
        failed=sums["failed"] or 0,
        exhausted=sums["exhausted"] or 0,
        rate=rate,
        backlog=backlog,
        lateness=lateness_steps({row["step"]: row["messages"] for row in lateness}),
        lateness_of=sum(row["messages"] for row in lateness),
        late=sum(row["late"] for row in lateness),
        failing=[InBackOff(**row) for row in failing],
        errors=[group for group in grouped(messages.counted(ErrorFilter())) if group.open],
        lost_errors=lost.get("lost") or 0,
    )


def _lateness(
    ledger: Ledger, of_source: Condition, sums: LedgerRow, objective: float | None
) -> Sequence[LedgerRow]:
    """The lateness of messages of the last sweeps, up to `_MOST_MESSAGES`, in steps. A message that
    had failed before was in back-off, and is not late.
    """
    if not sums["dispatched"]:
        return ()
    since = Between("dispatched_at", sums["recent_from"])
    dispatched: Asked = {"tombstones": [of_source, Among("outcome", ["dispatched"]), since]}
    late_ms = _NEVER_MS if objective is None else floor(objective * 1_000)
    return [*ledger.ask("count_lateness", dispatched, most=_MOST_MESSAGES, late=late_ms)]


def lateness_steps(messages: Mapping[int, int]) -> Sequence[Step]:
    """How many messages were up to this late, by the steps of `count_lateness`."""
    return [Step(label, messages.get(step, 0)) for step, label in enumerate(_LATENESS, start=1)]


def read_steps(
    ledger: Ledger, sweeps: Asked, since: datetime, now: datetime
) -> tuple[Sequence[Step], Sequence[Step]]:
    """The time from `since` to `now` in up to 60 steps: how many messages were dispatched in each,
    by when their sweep began, and the most that a sweep of it found due. The first step begins at a
    full hour, or, where steps are longer than an hour, as if one had begun at midnight.
    """
    for step in _STEPS:
        whole = max(step, _HOUR)
        start = _BEGINNING + (since - _BEGINNING) // whole * whole
        count = (now - start) // step + 1
        if count <= _MOST_BARS:
            break
    spans = {"first": micros(start), "length": step // timedelta(microseconds=1)}
    found = {row["step"]: row for row in ledger.ask("sum_by_step", sweeps, **spans)}
    starts = [start + number * step for number in range(count)]

    def steps(number: str) -> Sequence[Step]:
        rows = (found.get(micros(each), {}) for each in starts)
        return [
            Step(f"{each:%d %b %H:%M}", row.get(number) or 0)
            for each, row in zip(starts, rows, strict=True)
        ]

    return steps("dispatched"), steps("found")
