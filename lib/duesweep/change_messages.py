"""What `cancel` and `reschedule` do: hold messages that an operator chose, and change them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from duesweep.core.change import DueSpan
from duesweep.core.message import Message
from duesweep.core.policy import BatchLimits
from duesweep.core.times import Moment
from duesweep.core.world import instant_of, micros
from duesweep.drivers.statements import retry_lost_transactions
from duesweep.steer import Tally, Work
from duesweep.stores.base import Claim, OperatorTask, SweepRun

# The rest of a message's row, besides its body.
_USUAL_BYTES = 2_000

# Changes messages that are held, in the transaction that holds them. Returns how many it changed.
_Change = Callable[[OperatorTask, SweepRun, Claim, Sequence[Message]], int]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Messages by their lock keys, with the sizes of their bodies. One that is not due in the `due`
    span any more, because somebody has rescheduled it, counts as gone.
    """

    lock_keys: Sequence[str]
    sizes: Sequence[int]
    due: DueSpan


@dataclass(frozen=True, slots=True)
class NewDue:
    """A new Due: a moment, or the old Due moved `by` a time."""

    to: Moment | None = None
    by: timedelta = timedelta()

    def of(self, message: Message, now: datetime) -> datetime | None:
        """The message's new Due; None: it has none that could be moved, or beyond all times."""
        if self.to is not None:
            return self.to.at(now)
        if message.instant_us is None:
            return None
        try:
            return instant_of(message.instant_us) + self.by
        except OverflowError:
            return None


def cancel_chosen(chosen: Chosen, limits: BatchLimits) -> Work:
    """The work of `cancel`."""

    def cancel(
        session: OperatorTask, run: SweepRun, claim: Claim, messages: Sequence[Message]
    ) -> int:
        session.cancel(run, messages, claim.server_us)
        return len(messages)

    return _in_batches(chosen, limits, cancel)


def reschedule_chosen(chosen: Chosen, limits: BatchLimits, due: NewDue) -> Work:
    """The work of `reschedule`."""

    def reschedule(
        session: OperatorTask, run: SweepRun, claim: Claim, messages: Sequence[Message]
    ) -> int:
        now = run.horizon.server_time
        dues = [(message, due.of(message, now)) for message in messages]
        known = [(message, new) for message, new in dues if new is not None]
        session.reschedule(run, known, claim.server_us)
        return len(known)

    return _in_batches(chosen, limits, reschedule)


def _in_batches(chosen: Chosen, limits: BatchLimits, change: _Change) -> Work:
    def work(session: OperatorTask, run: SweepRun) -> Iterator[Tally]:
        @retry_lost_transactions
        def do(lock_keys: Sequence[str]) -> Tally:
            with session.transaction():
                claim = session.hold(run, lock_keys)
                meant = [one for one in claim.messages if _is_in(chosen.due, one)]
                changed = change(session, run, claim, meant)
            return Tally(
                changed=changed,
                held=claim.skipped,
                gone=claim.gone + len(claim.messages) - len(meant),
                refused=len(meant) - changed,
            )

        sizes = [size + _USUAL_BYTES for size in chosen.sizes]
        for batch in limits.batches(chosen.lock_keys, sizes):
            yield do(batch)

    return work


def _is_in(span: DueSpan, message: Message) -> bool:
    if message.instant_us is None:
        return span.end is None
    # Compared as numbers: a Due may be beyond Python's times.
    starts = span.start is None or message.instant_us >= micros(span.start)
    return starts and (span.end is None or message.instant_us < micros(span.end))
