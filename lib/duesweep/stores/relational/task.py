"""One task's session on a relational store: finishing a batch, and its journal."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

from duesweep.core.account import SliceEnd, report_as_text
from duesweep.core.message import Message
from duesweep.core.outcome import Outcomes
from duesweep.core.policy import RateLimit
from duesweep.drivers.statements import Session, retry_lost_transactions
from duesweep.errors import StoreError, SweepClosedError, SweepStoppedError, make_storable
from duesweep.stores import tombstone
from duesweep.stores.relational.account import BatchAccount
from duesweep.stores.sweeps import read_pauses
from duesweep.stores.values import SweepRun


class RelationalTaskSession(ABC):
    """What is the same in every dialect. A dialect claims, removes, and has its own `account`."""

    def __init__(
        self, statements: Session, account: BatchAccount, source: str, endpoint: str
    ) -> None:
        self._statements = statements
        self._account = account
        self.source = source
        self._endpoint = endpoint
        # The patterns of what is paused, as the batch under way found them.
        self._paused: tuple[str, ...] = ()

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction; nested, a savepoint."""
        return self._statements.transaction()

    def finish(self, run: SweepRun, slice_number: int, outcomes: Outcomes, server_us: int) -> None:
        """Carry `outcomes` out in the claim's transaction."""
        if outcomes.exhausted:
            self._account.journal_exhausted(run, slice_number, outcomes.exhausted, server_us)
        gone = [o.message for o in outcomes.delivered] + [o.message for o in outcomes.exhausted]
        if gone:
            self._remove_all(gone)
        if outcomes.failed:
            self._account.raise_attempts(outcomes.failed)
        if outcomes.exhausted or outcomes.over_limit:
            self._statements.execute(
                "add_exhausted",
                sweep_id=run.sweep_id,
                exhausted=len(outcomes.exhausted),
                over_limit=outcomes.over_limit,
            )
        self._journal_batch(run, slice_number, outcomes, server_us)

    def finish_taken(
        self, run: SweepRun, slice_number: int, outcomes: Outcomes, server_us: int
    ) -> None:
        """Account for messages that were taken, in the transaction that took them."""
        self._clear_attempts([o.message for o in outcomes.delivered])
        self._journal_batch(run, slice_number, outcomes, server_us)

    def end_slice(self, run: SweepRun, slice_number: int, end: SliceEnd) -> None:
        """Journal the end of a slice, in a transaction of its own."""
        with self.transaction():
            self._refuse_closed(run, self._fence_rows(run))
            self._statements.execute(
                "journal_slice",
                sweep_id=run.sweep_id,
                slice=slice_number,
                reason=end.reason and make_storable(end.reason),
                breakers=report_as_text(end.breakers),
                **asdict(end.account),
            )

    @retry_lost_transactions
    def reserve(self, limit: RateLimit, messages: int) -> float:
        """Reserve so many messages of a limit; see `LimitsRates`."""
        seconds = messages * limit.seconds_each
        with self._statements.transaction():
            row = self._statements.row(
                "reserve", source=self.source, pattern=limit.pattern, seconds=seconds
            )
        return float(row.wait_seconds)

    def _fence(self, run: SweepRun) -> int:
        """Begin a batch: hold the sweep open until this transaction ends. Returns the server's time
        in microseconds.
        """
        return self._time_of_batch(run, self._fence_rows(run))

    def _time_of_batch(self, run: SweepRun, fence: Sequence[Any]) -> int:
        self._refuse_closed(run, fence)
        if fence[0].is_stopping:
            raise SweepStoppedError(f"Sweep {run.sweep_id} of {self.source} is to stop")
        self._paused = ()
        if fence[0].has_pauses:
            self._paused = tuple(
                pause.pattern for pause in read_pauses(self._statements, self.source)
            )
        server_us: int = fence[0].server_us
        return server_us

    def _refuse_closed(self, run: SweepRun, fence: Sequence[Any]) -> None:
        if not fence or not fence[0].is_open:
            raise SweepClosedError(
                f"Sweep {run.sweep_id} of {self.source} was closed by another process, which took "
                "its driver for dead; what it had not delivered is left to the next sweep"
            )

    def _remove_all(self, messages: Sequence[Message]) -> None:
        removed = self._remove(messages)
        if removed != len(messages):
            # They are delivered already: roll everything back.
            raise self._not_removed(
                f"{self.source} removed {removed} of {len(messages)} rows that this sweep holds "
                "locked",
                "look for triggers or rules on the delayed table",
            )
        self._clear_attempts(messages)

    def _clear_attempts(self, messages: Sequence[Message]) -> None:
        counted = [m.key for m in messages if m.attempts]
        if counted:
            self._account.clear_attempts(counted)

    def _not_removed(self, text: str, advice: str) -> StoreError:
        """A trigger kept the rows, and will do so again."""
        return StoreError(text, transient=False, advice=advice)

    def _journal_batch(
        self, run: SweepRun, slice_number: int, outcomes: Outcomes, server_us: int
    ) -> None:
        delivered = outcomes.delivered
        late = tombstone.measure_lateness(delivered, server_us)
        tombstones = tombstone.encode(delivered, late, server_us, self._endpoint)
        self._statements.execute(
            "journal_batch",
            sweep_id=run.sweep_id,
            slice=slice_number,
            dispatched=len(delivered),
            failed=len(outcomes.failed),
            body_bytes=sum(o.message.body_bytes for o in delivered),
            attempts_changed=bool(outcomes.failed) or any(o.message.attempts for o in delivered),
            lateness_ms=self._account.lateness([ms for ms in late if ms is not None]),
            outcomes=tombstones if delivered else None,
        )

    def _fence_rows(self, run: SweepRun) -> Sequence[Any]:
        return self._statements.rows("fence", sweep_id=run.sweep_id)

    @abstractmethod
    def _remove(self, messages: Sequence[Message]) -> int:
        """Remove claimed messages; how many there were."""
