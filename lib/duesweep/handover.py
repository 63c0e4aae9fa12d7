"""Empties a store for good: dispatches what is due, and defers the rest to the delay ladder.

A handover is a sweep that looks ahead as far as the ladder reaches. Each batch is moved and removed
in one transaction. So a handover that was stopped, even by a crash, continues when it is run again.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from duesweep.core.account import SweepReport
from duesweep.core.errors import ConfigError, ExitCode
from duesweep.preview import PreviewEntry, count_destinations
from duesweep.stores.base import DriverSession, Horizon, Unsettled
from duesweep.sweep.job import SweepContext
from duesweep.sweep.stop import Stop
from duesweep.sweep.sweep import Engine, Watch, exit_code, sweep

# 1,000 years: later than any real Due, and still a date that Python can represent.
_ALL = timedelta(days=365 * 1_000)


@dataclass(frozen=True, slots=True)
class Handover:
    """What a handover did; `left` messages are still in the store."""

    summary: SweepReport
    left: int

    @property
    def exit_code(self) -> ExitCode:
        """The process's exit code. A handover is done when it has left nothing in the store."""
        of_sweep = exit_code(self.summary)
        if of_sweep is ExitCode.WORK_LEFT or self.left > self.summary.failed:
            return ExitCode.WORK_LEFT
        return of_sweep


def handover(
    engine: Engine,
    context: SweepContext,
    cutoff: datetime | None = None,
    watch: Watch | None = None,
    *,
    stop: Stop | None = None,
) -> Handover:
    """Hand over the messages that are due at `cutoff` or later (None: all messages).

    Raises `ConfigError` where no queue can hold messages until they are due, and what `sweep`
    raises.
    """
    summary = sweep(engine, context, watch, _reach(longest_delay(context), cutoff), stop=stop)
    with context.store.open_driver() as session:
        since = session.horizon().cut_off(cutoff).since if cutoff else None
        return Handover(summary, session.count_stored(since))


def preview(context: SweepContext, cutoff: datetime | None = None) -> Counter[PreviewEntry]:
    """Count how many messages a handover would send to which queue, and how many would stay.

    Moves nothing.
    """
    longest_delay(context)
    return count_destinations(context, _reach(_ALL.total_seconds(), cutoff))


def abort(context: SweepContext) -> int:
    """Stop the handovers and sweeps of the store that are running, each before its next batch.

    Returns how many were stopped. Moved messages stay in their queues, the others in the store.
    """
    with context.store.open_driver() as session:
        session.check()
        remaining = session.count_pending(session.horizon())
        return sum(
            session.close_sweep(one.sweep_id, abandoned=True, remaining=remaining)
            for one in session.unsettled()
            if _is_under_way(session, one)
        )


def _is_under_way(session: DriverSession, unsettled: Unsettled) -> bool:
    """Whether it is a sweep that is not closed, and whose driver lives."""
    is_open = unsettled.command is None and not unsettled.is_closed
    return is_open and session.still_alive(unsettled.sweep_id)


def longest_delay(context: SweepContext) -> int:
    """For how many seconds the queues can defer a message; `ConfigError` where they cannot."""
    longest = context.queue.longest_delay
    if not longest:
        raise ConfigError(
            "None of the queues can hold messages until they are due, so nothing can be handed "
            "over",
            advice="configure a [queues] section of kind rabbitmq, and routes that lead to it",
        )
    return longest


def _reach(seconds: float, cutoff: datetime | None) -> Callable[[Horizon], Horizon]:
    def reach(horizon: Horizon) -> Horizon:
        cut = horizon.cut_off(cutoff) if cutoff else horizon
        return cut.looking_ahead(timedelta(seconds=seconds))

    return reach
