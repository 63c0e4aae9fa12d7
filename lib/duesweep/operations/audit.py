"""Compares store, journal and ledger of a source, also while sweeps run.

Two reads at different moments can differ, so a difference is only a
suspicion. Suspects are looked at again, in an order in which nothing healthy differs:
work that the journal still has is left out before the ledger is read again; a message that the
ledger knows as gone is looked for in the store after that. What still differs is a finding.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from duesweep.core import logs
from duesweep.core.change import ChangeKind, WaitingMessage
from duesweep.core.errors import ConfigError, ExitCode
from duesweep.core.quantities import time_text
from duesweep.core.result import Result
from duesweep.ledger.base import COUNT, Among, Between, Condition, LedgerRow
from duesweep.ledger.ledger import Ledger
from duesweep.operations.endpoint import Endpoint
from duesweep.operations.opening import reading_ledger
from duesweep.stores.base import OperatorDriver, operators_of
from duesweep.stores.leftovers import Leftovers
from duesweep.stores.people import People
from duesweep.sweep.settle import find_older_copy, require_own

if TYPE_CHECKING:
    pass

_KEYS_AT_ONCE = 200_000
_MOST_COUNTERS = 10_000
_MOST_EXAMPLES = 10
# More sweeps are chosen here, and not by the storage.
_MOST_NAMED = 1_000
_PARTS = ("claimed", "skipped", "gone", "eligible_later", "held", "left")
_CLAIMED = ("dispatched", "failed", "exhausted")
# The columns of `sweeps` that the rules read.
SWEEP_NUMBERS = ("found", *_PARTS, *_CLAIMED)
_DISPATCHED = {"dispatched", "deferred"}


class AuditCheck(StrEnum):
    """The names of findings; stable, for scripts. docs/commands.md has their meanings."""

    TOMBSTONE_TWICE = "tombstone-twice"
    TOMBSTONE_MISSING = "tombstone-missing"
    TOMBSTONE_UNEXPECTED = "tombstone-unexpected"
    OUTCOME_DIFFERS = "outcome-differs"
    SWEEP_MISSING = "sweep-missing"
    SWEEP_TWICE = "sweep-twice"
    SWEEP_SUMS = "sweep-sums"
    ERROR_TWICE = "error-twice"
    ERROR_MISSING = "error-missing"
    ERROR_UNEXPECTED = "error-unexpected"
    CANCELLED_DIFFERS = "cancelled-differs"
    STORED_AND_GONE = "stored-and-gone"
    COUNTER_LEFT = "counter-left"
    OLDER_COPY = "older-copy"
    JOURNAL_OLD = "journal-old"
    JOURNAL_ORPHANED = "journal-orphaned"


_REPORT = "report this, with `duesweep show KEY` and the ledger's history of an example"
_RESTORE = "find out who changed the ledger's tables (`DESCRIBE HISTORY`), and restore that version"
_SWEEP = "run `duesweep sweep`, which corrects this; if it does not, read its error"
_ADVICE: Mapping[AuditCheck, str] = {
    AuditCheck.TOMBSTONE_TWICE: f"look whether the message arrived twice, and {_REPORT}",
    AuditCheck.TOMBSTONE_MISSING: _RESTORE,
    AuditCheck.TOMBSTONE_UNEXPECTED: _RESTORE,
    AuditCheck.OUTCOME_DIFFERS: _RESTORE,
    AuditCheck.SWEEP_MISSING: _RESTORE,
    AuditCheck.SWEEP_TWICE: _RESTORE,
    AuditCheck.SWEEP_SUMS: f"{_RESTORE}; if they are unchanged, report this",
    AuditCheck.ERROR_TWICE: _RESTORE,
    AuditCheck.ERROR_MISSING: f"{_RESTORE}: `errors` holds the only copy of these messages",
    AuditCheck.ERROR_UNEXPECTED: _RESTORE,
    AuditCheck.CANCELLED_DIFFERS: f"{_RESTORE}: `changes` holds the only copy of these messages",
    AuditCheck.STORED_AND_GONE: "pause its destination, and look whether the message arrived: a "
    "sweep would send it again (a restored backup of the store is the usual cause)",
    AuditCheck.COUNTER_LEFT: f"another process removed the message; {_SWEEP}",
    AuditCheck.OLDER_COPY: "restore the newer copy, or accept this state with `setup --rebind`",
    AuditCheck.JOURNAL_OLD: f"the ledger lacks its results; {_SWEEP}",
    AuditCheck.JOURNAL_ORPHANED: "compare its rows of duesweep_journal and duesweep_changes with "
    "the ledger (column sweep_id), and delete them if the ledger has them",
}


class Suspect(NamedTuple):
    """Something that is not true: of a sweep, a command or a message, by its id or key."""

    check: AuditCheck
    about: str
    found: str


class Example(NamedTuple):
    """One of the things that a check found."""

    about: str
    found: str


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """The result of one check: `count` things, some as examples."""

    check: AuditCheck
    count: int
    examples: Sequence[Example]
    advice: str


@dataclass(frozen=True, slots=True)
class AuditReport(Result):
    """The differences, and how much was looked at. `unsettled`: sweeps and commands that the
    journal still has; the ledger's rows of them were not judged. `findings` are the suspects by
    their checks.
    """

    source: str
    tombstones: int
    sweeps: int
    stored: int
    unsettled: int
    findings: Sequence[AuditFinding]
    suspects: Sequence[Suspect] = field(repr=False)
    exit_code: ExitCode
    error: None = None


@dataclass(slots=True)
class SweepFacts:
    """The ledger's rows of one sweep or command. `row` are the `SWEEP_NUMBERS` of its
    row in `sweeps`, of which there are `rows`.
    """

    row: tuple[int | None, ...] = ()
    rows: int = 0
    dispatched: int = 0
    exhausted: int = 0
    cancelled: int = 0
    others: int = 0
    errors: int = 0
    changes_cancelled: int = 0

    def add_row(self, row: Mapping[str, Any]) -> None:
        self.row = tuple(row[name] for name in SWEEP_NUMBERS)
        self.rows += 1

    def add_tombstones(self, outcome: str | None, count: int) -> None:
        if outcome in _DISPATCHED:
            self.dispatched += count
        elif outcome == "exhausted":
            self.exhausted += count
        elif outcome == ChangeKind.CANCELLED:
            self.cancelled += count
        else:
            self.others += count

    @property
    def tombstones(self) -> int:
        """All tombstones of a sweep, whatever their outcome."""
        return self.dispatched + self.exhausted + self.others

    def numbers(self) -> dict[str, int | None]:
        return dict(zip(SWEEP_NUMBERS, self.row, strict=True))


class Tombstone(NamedTuple):
    """Of a message that is suspected."""

    key: str
    message_id: str | None
    due: datetime | None
    outcome: str | None


@dataclass(slots=True)
class LedgerCount:
    """The ledger's rows of sweeps and commands, by their ids. `last_start`: when its last sweep
    began.
    """

    sweeps: dict[str, SweepFacts] = field(default_factory=dict)
    last_start: datetime | None = None

    def of(self, sweep_id: str | None) -> SweepFacts:
        """The facts of one, to be added to."""
        return self.sweeps.setdefault(sweep_id or "(none)", SweepFacts())

    @property
    def tombstones(self) -> int:
        return sum(one.tombstones + one.cancelled for one in self.sweeps.values())

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.sweeps.values())


def audit(endpoint: Endpoint) -> AuditReport:
    """Compare store, journal and ledger; differences are in `suspects`. Changes and locks nothing.
    Raises `ConfigError` if the
    store cannot be audited, and where its journal belongs to another ledger, or to none.
    """
    context = endpoint.context
    operators = operators_of(context.store, "an audit")
    with operators.open_driver() as session, reading_ledger(context, endpoint.spark) as ledger:
        session.check_reading()
        return _audit(session, ledger)


def _audit(session: OperatorDriver, ledger: Ledger) -> AuditReport:
    if require_own(session.binding, ledger) is None:
        found = ledger.read().ledger_id
        there = "no ledger" if found is None else f"ledger {found}"
        raise ConfigError(
            f"The journal of {session.source} belongs to no ledger yet, and {there} is at "
            f"{ledger.root}",
            advice="check ledger.root; the first sweep creates the ledger, or takes the one there",
        )
    account = LedgerAccount(ledger, session.source)
    logs.step("counts the ledger's rows")
    counted = account.count()
    logs.step("compares sweeps with their tombstones")
    suspects = [*_sweeps(session, account, counted), *account.twice()]
    if older := find_older_copy(session, ledger):
        suspects.append(Suspect(AuditCheck.OLDER_COPY, session.source, str(older)))
    stored = 0
    with session.people.keys() as pages:
        for keys in _in_portions(pages, _KEYS_AT_ONCE):
            logs.step(f"looks for stored messages in the ledger; looked at: {stored:,}")
            stored += len(keys)
            suspects += _stored_and_gone(session.people, account.final_tombstones(keys))
    logs.step("compares the journal with the ledger")
    suspects += [*_counters(session.leftovers), *_journal(session, counted)]
    return AuditReport(
        source=session.source,
        tombstones=counted.tombstones,
        sweeps=counted.rows,
        stored=stored,
        unsettled=len(session.journal.unsettled()),
        findings=list(_grouped(suspects)),
        suspects=suspects,
        exit_code=ExitCode.MESSAGES_FAILED if suspects else ExitCode.DONE,
    )


def _grouped(suspects: Sequence[Suspect]) -> Iterator[AuditFinding]:
    """In the order of the checks."""
    order = list(AuditCheck)
    ordered = sorted(suspects, key=lambda one: (order.index(one.check), one.about))
    for check, group in groupby(ordered, key=lambda one: one.check):
        examples = [Example(one.about, one.found) for one in group]
        yield AuditFinding(check, len(examples), examples[:_MOST_EXAMPLES], _ADVICE[check])


def _sweeps(
    session: OperatorDriver, account: "LedgerAccount", counted: LedgerCount
) -> Iterator[Suspect]:
    """Sweeps and commands whose rows do not agree, and that are settled."""
    suspected = {one.about for one in judge_sweeps(counted.sweeps)}
    # A sweep in the ledger that is not in the journal now is settled: the ledger has all its rows.
    suspected -= {str(one.sweep_id) for one in session.journal.unsettled()}
    if suspected:
        yield from judge_sweeps(account.count(suspected).sweeps)


def _stored_and_gone(people: People, tombstones: Iterable[Tombstone]) -> Iterator[Suspect]:
    """Messages that have a tombstone, and are still stored after that was read."""
    gone: dict[str, list[Tombstone]] = {}
    for one in tombstones:
        gone.setdefault(one.key, []).append(one)
    # A custom store may take its time to find a message, and here there should be none.
    for waiting in people.find(list(gone)) if gone else ():
        of_it = gone.get(waiting.message.key, ())
        tombstone = next((one for one in of_it if _is_same(one, waiting)), None)
        if tombstone is not None:
            found = f"it is stored, and tombstones has it as {tombstone.outcome}"
            yield Suspect(AuditCheck.STORED_AND_GONE, tombstone.key, found)


def _is_same(tombstone: Tombstone, waiting: WaitingMessage) -> bool:
    """If its id is its key, a message that its endpoint delays again has the same key."""
    return tombstone.key != tombstone.message_id or tombstone.due == waiting.due


def _counters(leftovers: Leftovers) -> Iterator[Suspect]:
    """Retry counters of messages that are not stored, at two looks."""
    gone = leftovers.gone_counters(_MOST_COUNTERS)
    still_gone = set(leftovers.gone_counters(_MOST_COUNTERS)) if gone else set()
    for key in gone:
        if key in still_gone:
            found = "it has a retry counter, but is not in the store"
            yield Suspect(AuditCheck.COUNTER_LEFT, key, found)


def _journal(session: OperatorDriver, counted: LedgerCount) -> Iterator[Suspect]:
    """Unsettled work, at two looks: a driver may have ended between its row and lock."""
    work = (
        (str(one.sweep_id), one.started_at, session.journal.still_alive(one.sweep_id))
        for one in session.journal.unsettled()
    )
    old = list(judge_journal(work, counted.last_start))
    orphaned = session.leftovers.orphaned_journal()
    left = {str(one.sweep_id) for one in session.journal.unsettled()} if old else set()
    yield from (one for one in old if one.about in left)
    still_orphaned: set[UUID] = set(session.leftovers.orphaned_journal()) if orphaned else set()
    for sweep_id in orphaned:
        if sweep_id in still_orphaned:
            found = "the journal has rows of it, and no row in its table of sweeps"
            yield Suspect(AuditCheck.JOURNAL_ORPHANED, str(sweep_id), found)


def _in_portions(pages: Iterable[Sequence[str]], size: int) -> Iterator[list[str]]:
    portion: list[str] = []
    for page in pages:
        portion += page
        if len(portion) >= size:
            yield portion
            portion = []
    if portion:
        yield portion


class LedgerAccount:
    """Reads a source's rows. Rows that retention may have removed are left out."""

    def __init__(self, ledger: Ledger, source: str) -> None:
        self._ledger = ledger
        self._source = Among("source", [source])
        self._name = source
        self._kept_from = ledger.kept_from(source)

    def count(self, only: Collection[str] | None = None) -> LedgerCount:
        """Count by sweep; with `only`, nothing but these."""
        while True:
            found = self._count(only)
            # Retention says so before it removes rows.
            before, self._kept_from = self._kept_from, self._ledger.kept_from(self._name)
            if self._kept_from == before:
                return found

    def _count(self, only: Collection[str] | None) -> LedgerCount:
        found = LedgerCount()
        self._add_sweeps(found, only)
        for row in self._counts("tombstones", "dispatched_at", ("sweep_id", "outcome"), only):
            found.of(row["sweep_id"]).add_tombstones(row["outcome"], row[COUNT])
        for row in self._counts("errors", "last_failed_at", ("sweep_id",), only):
            found.of(row["sweep_id"]).errors += row[COUNT]
        cancelled = Among("change", [ChangeKind.CANCELLED])
        for row in self._counts("changes", "changed_at", ("sweep_id",), only, cancelled):
            found.of(row["sweep_id"]).changes_cancelled += row[COUNT]
        if only is not None:
            found.sweeps = {key: one for key, one in found.sweeps.items() if key in only}
        return found

    def twice(self) -> Iterator[Suspect]:
        """Messages with two tombstones or errors that mean the same. A store may use a key again,
        for another Due.
        """
        same = ("message_key", "message_id", "due")
        rows = self._counts("tombstones", "dispatched_at", same, None, least=2)
        suspected = {tuple(row[name] for name in same) for row in rows}
        final = Counter(one[:3] for one in self.final_tombstones([key for key, *_ in suspected]))
        for one in suspected:
            if final[one] > 1:
                found = f"tombstones has {final[one]:,} rows of it that no command has undone"
                yield Suspect(AuditCheck.TOMBSTONE_TWICE, one[0], found)
        for row in self._counts(
            "errors", "last_failed_at", ("message_key", "sweep_id"), None, least=2
        ):
            found = f"errors has {row[COUNT]:,} rows of it, all of sweep {row['sweep_id']}"
            yield Suspect(AuditCheck.ERROR_TWICE, row["message_key"], found)

    def final_tombstones(self, keys: Sequence[str]) -> Iterator[Tombstone]:
        """The tombstones of these messages, without the ones that a command has undone: it stored
        the message again under its key, and noted which sweep or command had removed it.
        """
        columns = ("message_key", "message_id", "due", "outcome", "sweep_id")
        conditions = (self._source, *self._kept("dispatched_at"), Among("message_key", keys))
        rows = list(self._ledger.rows("tombstones", columns, *conditions)) if keys else []
        stored_again = self._stored_again({row["message_key"] for row in rows})
        final = []
        for row in rows:
            undone = (row["message_key"], row["sweep_id"])
            if stored_again[undone]:
                stored_again[undone] -= 1
            else:
                final.append(Tombstone(*(row[name] for name in columns[:-1])))
        # A message that was restored again, although it was not cancelled again, may go again.
        more: Counter[str] = Counter()
        for (key, _), count in stored_again.items():
            more[key] += count
        for one in final:
            if more[one.key]:
                more[one.key] -= 1
            else:
                yield one

    def _stored_again(self, keys: Collection[str]) -> Counter[tuple[str, str | None]]:
        """How often commands stored messages again under the keys that they had before, by the
        sweep or command that they undid. Most stores give a new key, which has no tombstone yet.
        """
        columns, among = ("new_key", "message_key", "of"), Among("new_key", sorted(keys))
        rows = self._ledger.rows("changes", columns, self._source, among) if keys else ()
        return Counter(
            (row["new_key"], row["of"]) for row in rows if row["new_key"] == row["message_key"]
        )

    def _add_sweeps(self, found: LedgerCount, only: Collection[str] | None) -> None:
        conditions = [self._source, *self._kept("end"), *_among(only)]
        for row in self._ledger.rows("sweeps", ("sweep_id", "start", *SWEEP_NUMBERS), *conditions):
            found.of(row["sweep_id"]).add_row(row)
            if found.last_start is None or row["start"] > found.last_start:
                found.last_start = row["start"]

    def _counts(
        self,
        table: str,
        time: str,
        columns: Sequence[str],
        only: Collection[str] | None,
        *more: Condition,
        least: int = 1,
    ) -> Iterator[LedgerRow]:
        conditions = (self._source, *self._kept(time), *_among(only), *more)
        return self._ledger.count(table, columns, *conditions, least=least)

    def _kept(self, column: str) -> Iterator[Condition]:
        if self._kept_from is not None:
            yield Between(column, self._kept_from)


def _among(only: Collection[str] | None) -> Iterator[Condition]:
    if only is not None and len(only) <= _MOST_NAMED:
        yield Among("sweep_id", sorted(only))


def judge_sweeps(facts: Mapping[str, SweepFacts]) -> Iterator[Suspect]:
    """The differences in the sweeps and commands of a ledger."""
    for sweep_id, one in facts.items():
        yield from _judge_command(sweep_id, one)
        if one.rows:
            yield from _judge_sweep(sweep_id, one)
        elif one.tombstones:
            found = f"sweeps has no row of it, tombstones has {one.tombstones:,} rows"
            yield Suspect(AuditCheck.SWEEP_MISSING, sweep_id, found)


def judge_journal(unsettled: Iterable[tuple[str, Any, bool]], last_start: Any) -> Iterator[Suspect]:
    """Work of the journal that a later sweep should have settled: (id, start, is alive) of each.
    `last_start`: when the last sweep in the ledger began; or None.
    """
    for sweep_id, start, is_alive in unsettled:
        if not is_alive and last_start is not None and start < last_start:
            began = f"it began at {time_text(start)}"
            found = f"{began}, its driver is gone, and a later sweep did not settle it"
            yield Suspect(AuditCheck.JOURNAL_OLD, sweep_id, found)


def _judge_sweep(sweep_id: str, one: SweepFacts) -> Iterator[Suspect]:
    if one.rows > 1:
        yield Suspect(AuditCheck.SWEEP_TWICE, sweep_id, f"sweeps has {one.rows} rows of it")
        return
    numbers = one.numbers()
    wrong = next(_wrong_sums(numbers), None)
    if wrong is not None:
        yield Suspect(AuditCheck.SWEEP_SUMS, sweep_id, wrong)
        return
    dispatched, exhausted = numbers["dispatched"] or 0, numbers["exhausted"] or 0
    told = f"sweeps says {dispatched:,} dispatched and {exhausted:,} exhausted"
    has = f"tombstones has {one.dispatched:,} and {one.exhausted:,}"
    if one.others:
        has += f", and {one.others:,} with other outcomes"
    missing = dispatched + exhausted - one.tombstones
    if missing:
        check = AuditCheck.TOMBSTONE_MISSING if missing > 0 else AuditCheck.TOMBSTONE_UNEXPECTED
        yield Suspect(check, sweep_id, f"{told}; {has}")
    elif (one.dispatched, one.exhausted) != (dispatched, exhausted):
        yield Suspect(AuditCheck.OUTCOME_DIFFERS, sweep_id, f"{told}; {has}")
    if one.errors != exhausted:
        is_less = one.errors < exhausted
        check = AuditCheck.ERROR_MISSING if is_less else AuditCheck.ERROR_UNEXPECTED
        found = f"sweeps says {exhausted:,} exhausted; errors has {one.errors:,} rows"
        yield Suspect(check, sweep_id, found)


def _judge_command(sweep_id: str, one: SweepFacts) -> Iterator[Suspect]:
    if one.cancelled != one.changes_cancelled:
        has = f"tombstones has {one.cancelled:,} cancelled messages"
        found = f"{has}, changes {one.changes_cancelled:,}"
        yield Suspect(AuditCheck.CANCELLED_DIFFERS, sweep_id, found)


def _wrong_sums(numbers: Mapping[str, int | None]) -> Iterator[str]:
    for whole, parts in (("found", _PARTS), ("claimed", _CLAIMED)):
        values = [numbers[name] for name in parts]
        # Rows of older versions lack some.
        if numbers[whole] is not None and None not in values:
            total = sum(value or 0 for value in values)
            if numbers[whole] != total:
                yield f"{whole} is {numbers[whole]:,}, and {' + '.join(parts)} is {total:,}"
