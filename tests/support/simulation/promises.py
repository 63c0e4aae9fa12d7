"""The promises of every run, checked at each commit and at the end, independently of the code
under test.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from duesweep.core.account import SweepReport
from duesweep.core.errors import MessageError
from duesweep.core.message import Message
from duesweep.core.routing import fits_destination
from duesweep.core.world import micros
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import Claim
from duesweep_testing.builders import DelayedRow

if TYPE_CHECKING:
    from duesweep_testing.memory_ledger import MemoryTables
    from support.simulation.services import SimulatedStore, SimulatedTask


ERROR_QUEUE = "error"


class BrokenPromiseError(BaseException):
    """A promise is broken; no code under test may catch it."""


@dataclass(slots=True)
class Promises:
    """The facts of a run, as the servers saw them. `may_double`: the queues have a transaction of
    their own, and a fault at its end delivers a batch again.
    """

    may_double: bool
    most_exhausted: int
    store: "SimulatedStore" = field(init=False)
    stored: dict[str, DelayedRow] = field(default_factory=dict)
    arrived: Counter[str] = field(default_factory=Counter)
    moved: set[str] = field(default_factory=set)
    refusals: Counter[str] = field(default_factory=Counter)
    _arrived_at: dict[str, int] = field(default_factory=dict)

    def note_stored(self, rows: Iterable[DelayedRow]) -> None:
        """Messages that the endpoint stored."""
        self.stored |= {row.key: row for row in rows}

    def note_refused(self, refused: Mapping[str, MessageError]) -> None:
        """A queue has refused messages for their own fault."""
        self.refusals.update(refused.keys())

    def check_claim(self, session: "SimulatedTask", claim: Claim) -> None:
        """No other session holds a claimed message, and none is in back-off."""
        store = self.store
        for one in claim.messages:
            if store.holders.get(one.key) is not session:
                _break(f"{one.key} is claimed, and another session holds it")
            counter = store.attempts.get(one.key)
            if counter is not None and counter.next_attempt_at > micros(store.now):
                _break(f"{one.key} is claimed in its back-off")

    def check_commit(self, run: SweepRun) -> None:
        """A batch may commit only while its sweep is open."""
        sweep = self.store.sweeps.get(run.sweep_id)
        if sweep is None or sweep.closed_at is not None:
            _break(f"a batch committed after its sweep {run.sweep_id} was closed")

    def check_arrived(self, task: "SimulatedTask", queue: str, messages: Sequence[Message]) -> None:
        """Messages arrive in their queue once, due, and not while their destination is paused."""
        store = self.store
        for one in () if queue == ERROR_QUEUE else messages:
            row = store.rows.get(one.key)
            self.arrived[one.key] += 1
            if self._arrived_at.get(one.key) == store.scheduler.steps:
                _break(f"{one.key} arrives twice at once")
            self._arrived_at[one.key] = store.scheduler.steps
            is_again = self.arrived[one.key] > 1 or one.key in self.moved
            if (row is None or is_again) and not self.may_double:
                _break(f"{one.key} arrives twice")
            if row is not None and not row.is_due(store.now):
                _break(f"{one.key} arrives before it is due")
            for pause in store.pauses_in_force():
                if fits_destination(queue, pause.pattern) and pause.paused_at < task.claimed_at:
                    _break(f"{one.key} arrives while {pause.pattern} is paused")

    def check_report(self, report: SweepReport) -> None:
        """Each planned message is accounted for. The numbers of a report always add up: the rest
        counts as left, and the reason says so.
        """
        if report.reason is not None and "are not accounted for" in report.reason:
            _break(f"sweep {report.sweep_id}: {report.reason}")

    def check_settled(self, tables: "MemoryTables") -> None:
        """At the end: each message is in one place, and the ledger says which; no lock is held, and
        only a message's own fault has cost it an attempt.
        """
        store, rows = self.store, {name: table.rows for name, table in tables.tables.items()}
        if store.holders or store.settler or store.sweeps:
            _break("something is held, or not settled, after the end of all")
        outcomes = Counter((row["message_key"], row["outcome"]) for row in rows["tombstones"])
        errors = Counter(row["message_key"] for row in rows["errors"])
        changes = Counter(
            row["message_key"] for row in rows.get("changes", ()) if row["change"] == "cancelled"
        )
        returned = [row for row in rows.get("changes", ()) if row["new_key"] is not None]
        ids = Counter((row["message_key"], row["of"]) for row in returned)
        if twice := [key for (key, _), count in ids.items() if count > 1]:
            _break(f"{twice[0]} was put back twice")
        keys = {*self.stored, *(row["new_key"] for row in returned)}
        for (key, outcome), count in outcomes.items():
            if count > 1:
                _break(f"{key} has {count} tombstones of {outcome}")
        for key in sorted(keys):
            self._check_place(key, outcomes, errors[key], changes[key])
        retries = {row["message_key"]: row["attempts"] for row in rows["retries"]}
        if retries != {key: one.attempts for key, one in store.attempts.items()}:
            _break(f"the ledger's retries are {retries}, the store's {store.attempts}")
        self._check_sweeps(rows["sweeps"], outcomes)
        failures = {row["message_key"]: row["attempts"] for row in rows["errors"]} | retries
        for key, attempts in failures.items():
            if attempts > self.refusals[key]:
                _break(f"{key} has {attempts} failures, and was refused {self.refusals[key]} times")

    def _check_place(
        self, key: str, outcomes: Counter[tuple[str, str]], errors: int, cancelled: int
    ) -> None:
        places = {
            "the store": int(key in self.store.rows),
            "its queue": int(self.arrived[key] > 0 or key in self.moved),
            "errors": errors,
            "cancelled": cancelled,
        }
        dispatched, arrived = outcomes[key, "dispatched"], self.arrived[key]
        if self.may_double:
            # A message that arrived before its COMMIT was lost is still in the store.
            is_right = sum(places.values()) > 0 and dispatched <= min(1, arrived)
        else:
            is_right = sum(places.values()) == 1 and dispatched == arrived
        if not is_right:
            _break(f"{key} is in {places}, has {dispatched} tombstones, arrived {arrived} times")
        if errors != outcomes[key, "exhausted"]:
            _break(f"{key} is {errors} times among the errors, without its tombstone")

    def _check_sweeps(
        self, sweeps: Sequence[Mapping[str, Any]], outcomes: Counter[tuple[str, str]]
    ) -> None:
        ids = Counter(row["sweep_id"] for row in sweeps)
        if twice := [one for one, count in ids.items() if count > 1]:
            _break(f"the ledger has sweep {twice[0]} twice")
        for outcome in ("dispatched", "exhausted"):
            counted = sum(row[outcome] for row in sweeps)
            found = sum(n for (_, kind), n in outcomes.items() if kind == outcome)
            if counted != found:
                _break(f"sweeps count {counted} {outcome} messages, and tombstones are {found}")
        for row in sweeps:
            if row["exhausted"] > self.most_exhausted:
                _break(f"sweep {row['sweep_id']} exhausted {row['exhausted']} messages")


def _break(text: str) -> None:
    raise BrokenPromiseError(text)
