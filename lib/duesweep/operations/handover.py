"""Empties a store for good: dispatches due messages, and defers the rest to the delay ladder; or
counts its messages by destination.

A handover is a sweep that looks ahead as far as the ladder reaches. Each batch is moved and removed
in one transaction. So a handover that was stopped, even by a crash, continues when it is run again.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from math import inf
from typing import NamedTuple

from duesweep.config.adapters.context import handover_context
from duesweep.core.account import SweepReport
from duesweep.core.change import DueSpan
from duesweep.core.errors import ConfigError, DestinationError, ExitCode, MessageError, Problem
from duesweep.core.message import Message
from duesweep.core.policy import LookAhead, Paused, delay_level
from duesweep.core.result import Result, exit_code_of
from duesweep.core.world import StoreClock, micros
from duesweep.operations.endpoint import Endpoint
from duesweep.operations.messages import open_look
from duesweep.operations.opening import opened_engine
from duesweep.operations.run import Run, ended_run
from duesweep.sweep.job import Engine, SweepContext
from duesweep.sweep.open_sweep import Shown
from duesweep.sweep.rounds import Rounds
from duesweep.sweep.stop import Stop
from duesweep.sweep.sweep import sweep

# 1,000 years: later than any real Due, and still a date that Python can represent.
_ALL = timedelta(days=365 * 1_000)
_TOO_LATE = "It is due later than the delay ladder can hold it"
_HOLDS_NOTHING = "It is not due, and its queue cannot hold a message until it is due"


@dataclass(frozen=True, slots=True)
class Handover(Result):
    """The result of a handover; `left` messages are still in the store. `without_spark`: see
    `Run`.
    """

    report: SweepReport
    left: int
    without_spark: Problem | None = None

    @property
    def exit_code(self) -> ExitCode:
        """The process's exit code. A handover is done when it has left nothing in the store."""
        of_sweep = exit_code_of(self.report)
        if of_sweep is ExitCode.WORK_LEFT or self.left > self.report.failed:
            return ExitCode.WORK_LEFT
        return of_sweep

    @property
    def run(self) -> Run:
        """It as a run of a sweep."""
        run = ended_run(self.report)
        return replace(run, exit_code=self.exit_code, without_spark=self.without_spark)


class Place(NamedTuple):
    """A destination of messages. `level` is the delay ladder's; None: delivered at once. `problem`
    is why they would stay; None: they would go. `destination` None is the endpoint's own queue.
    """

    destination: str | None
    level: int | None = None
    problem: str | None = None


class Destined(NamedTuple):
    """How many messages would go where: as `Place`, with a name for the endpoint's own queue."""

    destination: str
    level: int | None
    problem: str | None
    messages: int


@dataclass(frozen=True, slots=True)
class Preview(Result):
    """The destinations of a handover; messages that would stay come last."""

    destinations: Sequence[Destined]

    @property
    def exit_code(self) -> ExitCode:
        """The process's exit code."""
        has_problem = any(one.problem for one in self.destinations)
        return ExitCode.MESSAGES_FAILED if has_problem else ExitCode.DONE


@dataclass(frozen=True, slots=True)
class Aborted(Result):
    """How many handovers and sweeps were stopped."""

    source: str
    stopped: int


def check_handover(endpoint: Endpoint) -> Sequence[Problem]:
    """Raise an error that would stop a handover, before Spark starts; return notices about the
    store.
    """
    context = handover_context(endpoint.config)
    longest_delay(context)
    with context.store.open_driver() as session:
        session.check()
        context.queue.check(context.retry.error_queue, session)
        return session.notices()


def handover(
    endpoint: Endpoint,
    *,
    cutoff: datetime | None = None,
    stop: Stop | None = None,
    shown: Shown | None = None,
) -> Handover:
    """Move all messages that are due at `cutoff` or later (None: all of them) out of the store,
    on Spark: due messages to their queues, the rest into RabbitMQ's delay ladder.
    """
    context = handover_context(endpoint.config)
    on_spark = context.spark_from is not None
    with opened_engine(context, on_spark=on_spark, spark=endpoint.spark) as engine:
        return hand_over(engine, context, cutoff, shown, stop=stop)


def hand_over(
    engine: Engine,
    context: SweepContext,
    cutoff: datetime | None = None,
    shown: Shown | None = None,
    *,
    stop: Stop | None = None,
) -> Handover:
    """Hand over with this engine.

    Raises `ConfigError` if no queue can hold messages until they are due, and the errors of `sweep`
    raises.
    """
    # As if it began at once: it takes all messages that the queues can hold.
    look_ahead = LookAhead(longest_delay(context), started=inf)
    context = replace(context, look_ahead=look_ahead, cutoff=cutoff)
    # While it rests before another round, `--abort` would find none.
    single = Rounds(context.breaker, context.world.clock, is_single=True)
    report = sweep(engine, context, shown, stop=stop, rounds=single)
    with context.store.open_driver() as session:
        since = session.due.horizon().cut_off(cutoff).since if cutoff else None
        return Handover(report, session.due.count_stored(since), engine.without_spark)


def preview_handover(endpoint: Endpoint, *, cutoff: datetime | None = None) -> Preview:
    """How many messages a handover would send to each destination. Moves nothing."""
    context = handover_context(endpoint.config)
    longest_delay(context)
    found = count_destinations(context, cutoff)
    destined = [
        Destined(place.destination or context.store.own_queue, place.level, place.problem, messages)
        for place, messages in sorted(found.items(), key=lambda item: _order(item[0]))
    ]
    return Preview(destined)


def _order(place: Place) -> tuple[bool, str, int, str]:
    level = -1 if place.level is None else place.level
    return (place.problem is not None, place.destination or "", level, place.problem or "")


def abort_handover(endpoint: Endpoint) -> Aborted:
    """Stop the handovers and sweeps that are running, each before its next batch. Moved messages
    stay in their queues, the others in the store.
    """
    context = handover_context(endpoint.config)
    with context.store.open_driver() as session:
        session.check()
        remaining = session.due.count_pending(session.due.horizon())
        stopped = sum(
            session.sweeps.close(one.sweep_id, abandoned=True, remaining=remaining)
            for one in session.journal.unsettled()
            # Sweeps, not commands. One that is frozen looks dead, and would continue.
            if one.command is None and not one.is_closed
        )
    return Aborted(context.store.source, stopped)


def longest_delay(context: SweepContext) -> int:
    """For how many seconds the queues can defer a message; `ConfigError` if they cannot."""
    longest = context.queue.longest_delay
    if not longest:
        raise ConfigError(
            "None of the queues can hold messages until they are due, so nothing can be handed "
            "over",
            advice="configure a [queues] section of kind rabbitmq, and routes that lead to it",
        )
    return longest


def count_destinations(context: SweepContext, cutoff: datetime | None = None) -> Counter[Place]:
    """Count how many of the messages that a handover would take would go where. Messages that are
    paused or in back-off are not counted. Changes and locks nothing.
    """
    found: Counter[Place] = Counter()
    with (
        open_look(context.store) as session,
        context.store.open_task() as task,
        context.queue.open(task) as queue,
    ):
        session.check()
        now = session.due.horizon().server_time
        paused = Paused([pause.pattern for pause in session.due.pauses()], context.own_name)
        clock = StoreClock(micros(now), context.world.clock)

        @cache
        def longest(address: str | None) -> int | str:
            try:
                return queue.longest_delay(queue.resolve(address))
            except (DestinationError, MessageError) as error:
                return str(error)

        def place(message: Message) -> Place:
            if isinstance(message.headers, MessageError):
                return Place(None, problem=str(message.headers))
            address, seconds = message.destination, clock.seconds_until(message)
            known = longest(address)
            if isinstance(known, str):
                return Place(address, problem=known)
            if seconds > known:
                return Place(address, problem=_TOO_LATE if known else _HOLDS_NOTHING)
            return Place(address, delay_level(seconds) if seconds else None)

        with session.people.look(DueSpan(cutoff, now + _ALL)) as pages:
            for page in pages:
                tried = (one for one in page if (one.next_attempt_at or now) <= now)
                _, free = paused.separate([one.message for one in tried])
                found.update(map(place, free))
    return found
