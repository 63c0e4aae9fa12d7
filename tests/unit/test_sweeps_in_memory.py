"""Whole sweeps over a store, queues and a ledger in memory, many of them in any order.

Whatever happens in between, each message is somewhere once: in the store, in its queue with one
tombstone, or whole among the errors.
"""

from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from duesweep.core.errors import DestinationError, DuesweepError, RefusedMessageError
from duesweep.core.policy import BatchSize, BreakerTimes, Retry, Slicing
from duesweep.stores.base import DriverSession
from duesweep.stores.sweeps import SweepRun
from duesweep.sweep.in_process import InProcessEngine
from duesweep.sweep.job import Job
from duesweep.sweep.slice import dispatch_slice, read_claim_keys
from duesweep.sweep.sweep import sweep
from duesweep_testing.builders import DUE, delayed_row
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_queue import MemoryQueue
from duesweep_testing.sweeps import context_of

_DESTINATIONS = st.sampled_from(["Billing", "Shipping"])
_TROUBLE = st.sampled_from([None, RefusedMessageError("too large"), DestinationError("locked")])


class Sweeps(RuleBasedStateMachine):
    """Messages come, sweeps and settlers die, queues refuse, and time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.queue = MemoryQueue("Billing", "Shipping", "error")
        self.context = context_of(
            self.store,
            self.queue,
            self.store.clock,
            batch_size=BatchSize(rows=3),
            retry=Retry(max_attempts=2, initial_seconds=10),
            breaker=BreakerTimes(trigger_seconds=1),
        )
        self.stored: dict[str, str] = {}

    @rule(destinations=st.lists(_DESTINATIONS, min_size=1, max_size=7), minutes=st.integers(-5, 90))
    def messages_come(self, destinations: list[str], minutes: int) -> None:
        for name in destinations:
            row = delayed_row(name, due=DUE + timedelta(minutes=minutes))
            self.store.rows[row.key] = row
            self.stored[row.key] = name

    @rule(trouble=_TROUBLE)
    def queue_changes(self, trouble: DuesweepError | None) -> None:
        self.queue.trouble["Billing"] = lambda _: trouble

    @rule(seconds=st.sampled_from([1, 30, 3_600]))
    def time_passes(self, seconds: int) -> None:
        self.store.clock.advance(seconds)

    @rule()
    def sweep(self) -> None:
        due = self._due()
        report = sweep(InProcessEngine(), self.context)

        assert report.ledger_error is None
        accounted = report.claimed + report.skipped + report.gone + report.eligible_later
        assert report.found == accounted + report.held + report.left == due

    @rule(closes=st.booleans())
    def sweep_dies(self, closes: bool) -> None:  # noqa: FBT001 - Hypothesis names it
        """Its batches are committed, but not settled."""
        with self.store.open_driver() as session:
            run = session.sweeps.open(session.due.horizon(), engine="in-process")
            self._dispatch(session, run)
            if closes:
                session.sweeps.close(run.sweep_id, abandoned=False, remaining=0)

    @precondition(lambda self: self.context.tables.tables)
    @rule()
    def settled_sweep_comes_back_from_a_backup(self) -> None:
        """The journal is restored as it was before the last settle: the ledger takes it once."""
        self.sweep_dies(closes=True)
        [*_, sweep_id] = self.store.sweeps
        kept = self.store.sweeps[sweep_id], self.store.journal[sweep_id]
        self.sweep()
        kept[0].owner = None
        self.store.sweeps[sweep_id], self.store.journal[sweep_id] = kept
        self.store.changes[sweep_id] = []

    @invariant()
    def each_message_is_somewhere_once(self) -> None:
        delivered = sum(map(len, self.queue.arrived.values()))
        tables = self.context.tables.tables
        errors = tables["errors"].rows if tables else []
        gone = self.stored.keys() - self.store.rows.keys()

        # What dead sweeps did is in their journals. A restored one is in both.
        known = {row["message_key"] for row in errors} | self._exhausted_in_journals()
        assert len(gone) == delivered + len(known)
        assert known <= gone

    def teardown(self) -> None:
        """The last sweep settles all that others left."""
        self.sweep()
        rows = self.context.tables.tables["tombstones"].rows
        keys = [row["message_key"] for row in rows]
        assert sorted(keys) == sorted(self.stored.keys() - self.store.rows.keys())
        assert self.store.sweeps == {}
        retried = {row["message_key"] for row in self.context.tables.tables["retries"].rows}
        assert retried == self.store.attempts.keys()

    def _exhausted_in_journals(self) -> set[str]:
        entries = (one for each in self.store.journal.values() for one in each)
        return {one.message_key for one in entries if hasattr(one, "error_text")}

    def _due(self) -> int:
        with self.store.open_driver() as session:
            return session.due.count_pending(session.due.horizon())

    def _dispatch(self, session: DriverSession, run: SweepRun) -> None:
        plan = session.due.plan(run.horizon, Slicing(2))
        first = session.sweeps.note_slices(run, plan)
        for number in range(len(plan.planned)):
            keys = read_claim_keys(session.due.claim_keys(plan, number))
            dispatch_slice(Job(self.context, run, first_slice=first), number, keys)


TestSweeps = Sweeps.TestCase
TestSweeps.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)
