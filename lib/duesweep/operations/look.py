"""Whether there is work at an endpoint's store, and how much; a preview of a sweep."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from duesweep.core import logs
from duesweep.core.change import DueSpan, WaitingMessage
from duesweep.core.errors import (
    ConfigError,
    DuesweepError,
    LedgerError,
    MessageError,
    Problem,
    StoreError,
)
from duesweep.core.held_back import HeldBack, Holder, held_by_back_off, held_by_lock, held_by_pause
from duesweep.core.policy import MOST_IN_A_SWEEP, Pause, Paused
from duesweep.core.result import Result
from duesweep.core.routing import fits_destination
from duesweep.ledger.base import Among, local_folder
from duesweep.ledger.ledger import Ledger
from duesweep.operations.endpoint import Endpoint
from duesweep.operations.messages import open_look
from duesweep.operations.opening import (
    EngineChoice,
    can_start_spark,
    choose_engine,
    command_ledger,
)
from duesweep.stores.base import DriverSession, Store
from duesweep.stores.binding import SourceBinding
from duesweep.stores.due import Due, Horizon, Slices
from duesweep.stores.people import People
from duesweep.sweep.job import Planned, SweepContext
from duesweep.sweep.low_water import LowWater
from duesweep.sweep.pairing import require_own
from duesweep.sweep.queues_check import find_missing_queues, refuse_missing_queues
from duesweep.sweep.stop import Stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# At most this many due messages are counted: quick, and more than enough to see that a backlog
# grows.
MOST_COUNTED = 100_000
# Before any Due that an endpoint would store.
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
# A plan looks at this many messages, the longest due ones first: about two seconds.
MOST_LOOKED_AT = 50_000
# How late messages are, by the end of each step; the last one has none.
LATENESS = ("up_to_1_min", "up_to_1_h", "up_to_1_d", "more")
_STEPS = (timedelta(minutes=1), timedelta(hours=1), timedelta(days=1))
_LAST_SWEEPS = 10
# Three sweeps, if one begins each 20 s, or more.
_LONG_LOCK = timedelta(minutes=1)
_LEAST_MESSAGES, _MUCH_MORE = 100, 10
# This many destinations, with the most messages, are compared with the queues.
_MOST_ASKED = 100


class NextDue(NamedTuple):
    """When the next message comes due, and what time it is, both by the server's clock."""

    instant: datetime
    now: datetime

    def later(self, by: timedelta) -> "NextDue":
        """The same, after some time."""
        return self._replace(now=self.now + by)


@dataclass(frozen=True, slots=True)
class Look:
    """The result of a look at the store. `has_work`: any message is eligible, or any sweep
    unsettled; `needs_spark`: it is for Spark. `notices` are the store's. `next_due`: the next
    message, if there is no work, and if the store can tell. `pauses` are in force. `since`:
    messages with an earlier Due are held back; None: not known. Without work, `held_back` are the
    due messages, and `next_attempt` is the first of the failed ones. `planned`: the plan of a sweep
    in this process, if it is made already. `has_unsettled`: another one settles sweeps.
    """

    has_work: bool
    needs_spark: bool
    notices: Sequence[Problem]
    next_due: NextDue | None = None
    pauses: Sequence[Pause] = ()
    since: datetime | None = None
    next_attempt: NextDue | None = None
    held_back: Sequence[HeldBack] = ()
    planned: Planned | None = None
    has_unsettled: bool = False

    def later(self, by: timedelta) -> "Look":
        """The same, after some time in which nothing has changed."""
        due, attempt = self.next_due, self.next_attempt
        return replace(
            self, next_due=due and due.later(by), next_attempt=attempt and attempt.later(by)
        )


@contextmanager
def look_at(
    context: SweepContext, choice: EngineChoice, stop: Stop, *, plans: bool = False
) -> Iterator[Look]:
    """Look whether there is work, and how much of it a sweep would do; `choice` says whether it is
    Spark's. It also `plans`, if the sweep follows in the block and is this process's. Raises
    `ConfigError` for wrong settings.
    """
    with ExitStack() as opened:
        session = opened.enter_context(context.store.open_driver())
        check(session, context)
        found = look(session, context, choice, stop, opened=opened if plans else None)
        if found.planned is None:
            opened.close()
        yield found


def check(session: DriverSession, context: SweepContext) -> None:
    """Raise `ConfigError` unless store and queues are as a sweep needs them."""
    session.check()
    context.queue.check(context.retry.error_queue, session)


def look(
    session: DriverSession,
    context: SweepContext,
    choice: EngineChoice,
    stop: Stop,
    *,
    opened: ExitStack | None = None,
    settles: bool = True,
    low_water: LowWater | None = None,
) -> Look:
    """As `look_at`, with a session that has been checked. `opened` is for the sweep that follows;
    None: it does not plan. Unless it `settles`, unsettled sweeps are no work for it. `low_water` is
    a watcher's.
    """
    ahead = timedelta(seconds=context.look_ahead.longest_seconds)
    now = session.due.horizon()
    low_water = low_water or LowWater(context.world.clock)
    work = low_water.find_work(session.due, now.looking_ahead(ahead))
    if work is None or (work.only_settles and not settles):
        notices, pauses = session.notices(), session.due.pauses()
        idle = Look(
            has_work=False,
            needs_spark=choice.spark_from == 0,
            notices=notices,
            pauses=pauses,
            has_unsettled=work is not None,
        )
        try:
            return _without_work(session.due, idle, now)
        except StoreError:
            # Nothing can be delivered, whether or not the store still answers.
            return idle
    horizon = replace(now.looking_ahead(ahead), since=work.since)
    refuse_missing_queues(context, session.due, horizon)
    notices = [*session.notices(), *session.table_notices(), *context.queue.notices(session)]
    pauses = session.due.pauses()
    reach = replace(context.reach(now), since=work.since)
    plan, found = None, None
    if opened is not None:
        plan, found = _plan(session.due, context, choice, reach)

    def count() -> int:
        pending = session.due.count_pending(horizon, choice.spark_from) if found is None else found
        return stop.most_of(pending)

    planned = None
    if opened is not None and plan is not None and plan.found:
        planned = Planned(reach, plan, session, opened)
    return Look(
        has_work=True,
        needs_spark=choice.is_spark(count),
        notices=notices,
        pauses=pauses,
        since=work.since,
        planned=planned,
    )


def _plan(
    due: Due, context: SweepContext, choice: EngineChoice, horizon: Horizon
) -> tuple[Slices | None, int | None]:
    """The plan of a sweep in this process, unless it is Spark's or too large; and the number of
    messages, counted up to `spark_from`, if that is known now.
    """
    if choice.needs_spark or choice.spark_from == 0:
        return None, None
    from duesweep.sweep.in_process import cut_in_process  # noqa: PLC0415 - only if there is work

    most = min(MOST_IN_A_SWEEP, (choice.spark_from or MOST_IN_A_SWEEP + 1) - 1)
    plan = due.plan_at_once(horizon, cut_in_process(context), most)
    if plan is None:
        return None, choice.spark_from if choice.spark_from == most + 1 else None
    return plan, plan.found


def _without_work(due: Due, look: Look, horizon: Horizon) -> Look:
    """The reasons for which due messages wait, and when the next one comes due. If none is due,
    this is one statement.
    """
    now, (instant, failing) = horizon.server_time, due.next_due(horizon)
    held = [held_by_pause(pause) for pause in look.pauses]
    if failing is not None:
        held.append(held_by_back_off(failing.messages, failing.next_attempt))
    return replace(
        look,
        next_due=None if instant is None else NextDue(instant, now),
        next_attempt=None if failing is None else NextDue(failing.next_attempt, now),
        held_back=held,
    )


def held_by_locks(due: Due, horizon: Horizon, *, only_stuck: bool = False) -> Sequence[HeldBack]:
    """The due messages that others have locked, by who does. `only_stuck`: by transactions that are
    older than a mover's or a batch's, or whose age the server does not tell.
    """
    now = horizon.server_time
    return [
        held_by_lock(one.messages, one.holder, one.since)
        for one in due.locked(horizon)
        if not only_stuck or one.since is None or now - one.since > _LONG_LOCK
    ]


@dataclass(frozen=True, slots=True)
class StillDue:
    """The due messages after a run. `messages` is the number that the next sweep would take, up to
    `MOST_COUNTED`. `oldest_seconds`: for how long the oldest stored message has been due, whatever
    holds it back; 0: none is due; None: the store cannot tell.
    """

    messages: int
    oldest_seconds: float | None = None


def look_at_due(store: Store) -> StillDue | None:
    """The due messages now; None if the store does not answer."""
    try:
        with store.open_driver() as session:
            horizon = session.due.horizon()
            messages = session.due.count_pending(horizon, most=MOST_COUNTED)
            oldest = session.due.next_due(replace(horizon, before=_BEGINNING)).due
    except DuesweepError:
        return None
    if oldest is None:
        return StillDue(messages, 0.0)
    return StillDue(messages, max(0.0, (horizon.server_time - oldest).total_seconds()))


class DestinationOutlook(NamedTuple):
    """Messages that are due for a destination; None: it cannot be read. `late` has how many there
    are in each step of `LATENESS`, `eligible` how many a sweep would take. `problem`: why they
    would fail, for example because there is no queue; None: none is known.
    """

    destination: str | None
    eligible: int
    late: Mapping[str, int]
    back_off: int = 0
    paused: int = 0
    limited: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Outlook(Result):
    """`looked_at` of the messages that are due were looked at, the longest due ones first; `due`
    are all; `is_cut`: there are more than were looked at. `eligible` are the messages that a sweep
    would take, as far as the store itself knows. `slices` 0: one for each core. `seconds`: how long
    the sweep would take, by the rate of the last ones; None without one. `sql`: how a plan reads
    the claim keys, if asked for.
    """

    source: str
    now: datetime
    due: int
    eligible: int
    looked_at: int
    is_cut: bool
    engine: str
    slices: int
    seconds: float | None
    destinations: Sequence[DestinationOutlook]
    held_back: Sequence[HeldBack] = ()
    sql: str | None = None


class DueMessages:
    """Counts messages that are due by their destinations, as far as it may look. Of the messages
    that it looked at, `oldest_due` has been due for the longest, and `oldest_eligible` is the first
    that a sweep would take.
    """

    def __init__(
        self,
        context: SweepContext,
        now: datetime,
        pauses: Sequence[Pause],
        most: int = MOST_LOOKED_AT,
    ) -> None:
        self.looked_at = 0
        self.oldest_due: datetime | None = None
        self.oldest_eligible: datetime | None = None
        self._most = most
        self._context = context
        self._now = now
        self._paused = Paused([pause.pattern for pause in pauses], context.own_name)
        # By destination, how many messages are in each field of its outlook, and in each step.
        self._counts: defaultdict[str | None, Counter[str]] = defaultdict(Counter)

    def look(self, people: People) -> Sequence[DestinationOutlook]:
        """The destinations of due messages, with the most messages first."""
        with people.look(DueSpan(end=self._now)) as pages:
            for page in pages:
                for waiting in page[: self._most - self.looked_at]:
                    self._add(waiting)
                self.looked_at = min(self._most, self.looked_at + len(page))
                if self.looked_at == self._most:
                    break
        found = (
            DestinationOutlook(
                destination,
                counts["eligible"],
                {step: counts[step] for step in LATENESS},
                counts["back_off"],
                counts["paused"],
                counts["limited"],
            )
            for destination, counts in self._counts.items()
        )
        return sorted(found, key=lambda one: (-sum(one.late.values()), one.destination or ""))

    def held(self, pauses: Sequence[Pause]) -> Iterator[HeldBack]:
        """The reasons that hold messages back, as far as they were looked at."""
        counts = self._counts.values()
        for pause in pauses:
            held = [n for name, n in self._counts.items() if fits_destination(name, pause.pattern)]
            yield held_by_pause(pause, sum(each["paused"] for each in held))
        if waiting := sum(each["back_off"] for each in counts):
            yield held_by_back_off(waiting)
        for limit in self._context.rate_limits.limits:
            names = [name for name in self._counts if self._context.rate_limits.of(name) == limit]
            if limited := sum(self._counts[name]["limited"] for name in names):
                why = f"{limit.per_second:g} messages a second at most"
                yield HeldBack(Holder.LIMITED, limit.pattern, why, limited)

    def _add(self, waiting: WaitingMessage) -> None:
        message = waiting.message
        is_unknown = message.destination is None and isinstance(message.headers, MessageError)
        name = None if is_unknown else message.destination or self._context.own_name
        counts = self._counts[name]
        self.oldest_due = self.oldest_due or waiting.due
        late = self._now - (waiting.due or self._now)
        counts[LATENESS[sum(late > step for step in _STEPS)]] += 1
        if self._paused.separate([message])[0]:
            counts["paused"] += 1
        elif waiting.next_attempt_at is not None and waiting.next_attempt_at > self._now:
            counts["back_off"] += 1
        else:
            self.oldest_eligible = self.oldest_eligible or waiting.due
            counts["eligible"] += 1
            counts["limited"] += self._context.rate_limits.of(name) is not None


def estimate_seconds(ledger: Ledger, source: str, messages: int, engine: str) -> float | None:
    """How long a sweep of this many messages would take, by the rates of the last ones on the same
    engine; None if none is worth a comparison. Without a large sweep the small ones count, but they
    say nothing of a much larger one, since they mostly begin and end.
    """
    sweeps = {"sweeps": [Among("source", [source]), Among("engine", [engine])]}
    for least in (_LEAST_MESSAGES, -(-messages // _MUCH_MORE)):
        found = ledger.ask("last_rates", sweeps, least=least, most=_LAST_SWEEPS)
        rates: list[float] = [row["rows_per_second"] for row in found]
        if rates:
            return messages / median(rates)
    return None


# Called with the destinations, before all messages are counted, which may take its time.
ShowDestinations = Callable[[Sequence[DestinationOutlook]], None]


def plan(
    endpoint: Endpoint, *, show: ShowDestinations | None = None, with_sql: bool = False
) -> Outlook:
    """A preview of a sweep now. Changes and locks nothing. `show` gets the destinations before all
    messages are counted; `with_sql`: also how a plan reads the claim keys. Raises `ConfigError` if
    the store cannot show messages.
    """
    from duesweep.sweep.in_process import sessions_for  # noqa: PLC0415 - a look does without

    context, spark = endpoint.context, endpoint.spark
    with open_look(context.store) as session:
        horizon = session.due.horizon()
        now, pauses = horizon.server_time, session.due.pauses()
        messages = DueMessages(context, now, pauses)
        logs.step("looks at due messages")
        destinations = messages.look(session.people)
        logs.step("compares their destinations with the queues, and counts all")
        if show is not None:
            show(destinations)
        destinations = with_problems(context, destinations)
        due, *_ = session.people.count_waiting([now])
        # A plan does not know of all messages whether they are paused; a reader of them does.
        eligible = (
            sum(one.eligible for one in destinations)
            if messages.looked_at >= due
            else session.due.count_pending(horizon)
        )
        choice = choose_engine(context, spark)
        on_spark = choice.is_spark(lambda: eligible)
        # A sweep would continue in its own process.
        on_spark = on_spark and (spark is not None or choice.needs_spark or can_start_spark())
        sql = session.people.plan_sql(context.reach(horizon)) if with_sql else None
        locked = held_by_locks(session.due, horizon) if due else ()
        engine = "spark" if on_spark else "in-process"
        logs.step("reads the rates of the last sweeps")
        seconds = _estimate(session.binding, context, eligible, engine, spark=spark)
    return Outlook(
        source=context.store.source,
        now=now,
        due=due,
        eligible=eligible,
        looked_at=messages.looked_at,
        is_cut=messages.looked_at < due,
        engine=engine,
        slices=context.slices if on_spark else sessions_for(context, eligible),
        seconds=seconds,
        destinations=destinations,
        held_back=(*messages.held(pauses), *locked),
        sql=sql,
    )


def with_problems(
    context: SweepContext, destinations: Sequence[DestinationOutlook]
) -> Sequence[DestinationOutlook]:
    """The same, with reasons why messages for them would fail."""
    names = [one.destination for one in destinations[:_MOST_ASKED] if one.destination is not None]
    missing = find_missing_queues(context, names)
    return [one._replace(problem=missing.get(one.destination or "")) for one in destinations]


def _estimate(
    binding: SourceBinding,
    context: SweepContext,
    eligible: int,
    engine: str,
    *,
    spark: "SparkSession | None",
) -> float | None:
    """By the ledger, if it can be read without starting Spark."""
    if spark is None and local_folder(context.ledger_root) is None:
        return None
    try:
        with command_ledger(context, spark) as ledger:
            require_own(binding, ledger)
            return estimate_seconds(ledger, context.store.source, eligible, engine)
    except (ConfigError, LedgerError):
        # A plan is of use without it, and the sweep reports the fault.
        return None
