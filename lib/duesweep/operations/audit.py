"""Compares store, journal and ledger of a source, also while sweeps run.

Two reads at different moments can differ, so a difference is only a
suspicion. Suspects are looked at again, in an order in which nothing healthy differs:
work that the journal still has is left out before the ledger is read again; a message that the
ledger knows as gone is looked for in the store after that. What still differs is a finding.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import Any, NamedTuple
from uuid import UUID

from duesweep.core import logs
from duesweep.core.change import ChangeKind
from duesweep.core.errors import ConfigError, ExitCode
from duesweep.core.quantities import time_text
from duesweep.core.result import Result
from duesweep.ledger.base import Among, Between, Condition, LedgerRow
from duesweep.ledger.ledger import Ledger
from duesweep.operations.endpoint import Endpoint
from duesweep.operations.opening import reading_ledger
from duesweep.stores.base import OperatorDriver, operators_of
from duesweep.stores.people import People
from duesweep.sweep.pairing import find_older_copy, require_own

_KEYS_AT_ONCE = 200_000
_MOST_COUNTERS = 10_000
_MOST_EXAMPLES = 10
# More sweeps are chosen here, and not by the storage.
_MOST_NAMED = 1_000
_PARTS = ("claimed", "skipped", "gone", "eligible_later", "held", "left")
_CLAIMED = ("dispatched", "failed", "exhausted")


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


@dataclass(slots=True)
class LedgerCount:
    """The ledger's rows of sweeps and commands, and which of these are suspected. `last_start`:
    when its last sweep began.
    """

    tombstones: int = 0
    sweeps: int = 0
    last_start: datetime | None = None
    suspects: list[Suspect] = field(default_factory=list)

    def add(self, one: LedgerRow) -> None:
        """Count a row of `count_by_sweep`."""
        self.tombstones += _tombstones(one) + one["cancelled_rows"]
        self.sweeps += one["sweeps"]
        self.suspects += judge_sweep(one)
        if one["start"] is not None:
            self.last_start = max(one["start"], self.last_start or one["start"])


def audit(endpoint: Endpoint) -> AuditReport:
    """Compare store, journal and ledger; differences are in `suspects`. Changes and locks nothing.
    Raises `ConfigError` if the store cannot be audited, or its journal belongs to another ledger or
    to none.
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
    suspects += [*_counters(session.people), *_journal(session, counted)]
    return AuditReport(
        source=session.source,
        tombstones=counted.tombstones,
        sweeps=counted.sweeps,
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
    suspected = {one.about for one in counted.suspects}
    # A sweep in the ledger that is not in the journal now is settled: the ledger has all its rows.
    suspected -= {str(one.sweep_id) for one in session.journal.unsettled()}
    if suspected:
        yield from (one for one in account.count(suspected).suspects if one.about in suspected)


def _stored_and_gone(people: People, tombstones: Iterable[LedgerRow]) -> Iterator[Suspect]:
    """Messages that have a tombstone, and are still stored after that was read."""
    gone: defaultdict[str, list[LedgerRow]] = defaultdict(list)
    for one in tombstones:
        gone[one["message_key"]].append(one)
    # A custom store may take its time to find a message, and here there should be none.
    for waiting in people.find(list(gone)) if gone else ():
        of_it = gone.get(waiting.message.key, ())
        # If its id is its key, a message that its endpoint delays again has the same key.
        of_this = (
            one
            for one in of_it
            if one["message_key"] != one["message_id"] or one["due"] == waiting.due
        )
        tombstone = next(of_this, None)
        if tombstone is not None:
            found = f"it is stored, and tombstones has it as {tombstone['outcome']}"
            yield Suspect(AuditCheck.STORED_AND_GONE, tombstone["message_key"], found)


def _counters(people: People) -> Iterator[Suspect]:
    """Retry counters of messages that are not stored, at two looks."""
    gone = people.gone_counters(_MOST_COUNTERS)
    still_gone = set(people.gone_counters(_MOST_COUNTERS)) if gone else set()
    for key in gone:
        if key in still_gone:
            found = "it has a retry counter, but is not in the store"
            yield Suspect(AuditCheck.COUNTER_LEFT, key, found)


def _journal(session: OperatorDriver, counted: LedgerCount) -> Iterator[Suspect]:
    """Unsettled work, at two looks: a driver may have ended between its row and lock."""
    work = (
        (str(one.sweep_id), one.started_at, one.is_alive) for one in session.journal.unsettled()
    )
    old = list(judge_journal(work, counted.last_start))
    orphaned = session.people.orphaned_journal()
    left = {str(one.sweep_id) for one in session.journal.unsettled()} if old else set()
    yield from (one for one in old if one.about in left)
    still_orphaned: set[UUID] = set(session.people.orphaned_journal()) if orphaned else set()
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
        self._kept_from = ledger.kept_from().get(source)

    def count(self, only: Collection[str] | None = None) -> LedgerCount:
        """Count by sweep; with `only`, nothing but these."""
        while True:
            found = self._count(only)
            # Retention says so before it removes rows.
            before, kept_from = self._kept_from, self._ledger.kept_from()
            self._kept_from = kept_from.get(self._name)
            if self._kept_from == before:
                return found

    def _count(self, only: Collection[str] | None) -> LedgerCount:
        conditions: list[Condition] = []
        if only is not None and len(only) <= _MOST_NAMED:
            conditions.append(Among("sweep_id", sorted(only)))
        cancelled = Among("change", [ChangeKind.CANCELLED])
        tables = {
            "sweeps": self._rows("end", *conditions),
            "tombstones": self._rows("dispatched_at", *conditions),
            "errors": self._rows("last_failed_at", *conditions),
            "changes": self._rows("changed_at", cancelled, *conditions),
        }
        found = LedgerCount()
        for row in self._ledger.ask("count_by_sweep", tables):
            found.add(row)
        return found

    def twice(self) -> Iterator[Suspect]:
        """Messages with two tombstones or errors that mean the same."""
        alike = self._ledger.ask("find_alike", {"tombstones": self._rows("dispatched_at")})
        for keys in _in_portions(([row["message_key"]] for row in alike), _KEYS_AT_ONCE):
            for row in self.final_tombstones(keys):
                if row["tombstones"] > 1:
                    has = f"tombstones has {row['tombstones']:,} rows of it"
                    found = f"{has} that no command has undone"
                    yield Suspect(AuditCheck.TOMBSTONE_TWICE, row["message_key"], found)
        errors = {"errors": self._rows("last_failed_at")}
        for row in self._ledger.ask("find_doubled_errors", errors):
            found = f"errors has {row['errors']:,} rows of it, all of sweep {row['sweep_id']}"
            yield Suspect(AuditCheck.ERROR_TWICE, row["message_key"], found)

    def final_tombstones(self, keys: Sequence[str]) -> Iterator[LedgerRow]:
        """How many tombstones these messages have, without the ones that a command has undone: it
        stored the message again under its key, and noted which sweep or command had removed it.
        """
        of_keys = Among("message_key", keys)
        tables = {
            "tombstones": self._rows("dispatched_at", of_keys),
            "changes": [self._source, of_keys],
        }
        return self._ledger.ask("count_final_tombstones", tables)

    def _rows(self, time: str, *more: Condition) -> Sequence[Condition]:
        """The rows of a table that retention has not removed, by its instant `time`."""
        kept = [] if self._kept_from is None else [Between(time, self._kept_from)]
        return [self._source, *kept, *more]


def judge_sweep(one: LedgerRow) -> Iterator[Suspect]:
    """The differences in the rows of a sweep or command: a row of `count_by_sweep`."""
    sweep_id, tombstones = one["sweep_id"], _tombstones(one)
    if one["cancelled_rows"] != one["change_rows"]:
        has = f"tombstones has {one['cancelled_rows']:,} cancelled messages"
        found = f"{has}, changes {one['change_rows']:,}"
        yield Suspect(AuditCheck.CANCELLED_DIFFERS, sweep_id, found)
    if one["sweeps"]:
        yield from _judge_numbers(one)
    elif tombstones:
        found = f"sweeps has no row of it, tombstones has {tombstones:,} rows"
        yield Suspect(AuditCheck.SWEEP_MISSING, sweep_id, found)


def _tombstones(one: LedgerRow) -> int:
    """All tombstones of a sweep, whatever their outcome; a command's are counted apart."""
    tombstones: int = one["dispatched_rows"] + one["exhausted_rows"] + one["other_rows"]
    return tombstones


def judge_journal(unsettled: Iterable[tuple[str, Any, bool]], last_start: Any) -> Iterator[Suspect]:
    """Work of the journal that a later sweep should have settled: (id, start, is alive) of each.
    `last_start`: when the last sweep in the ledger began; or None.
    """
    for sweep_id, start, is_alive in unsettled:
        if not is_alive and last_start is not None and start < last_start:
            began = f"it began at {time_text(start)}"
            found = f"{began}, its driver is gone, and a later sweep did not settle it"
            yield Suspect(AuditCheck.JOURNAL_OLD, sweep_id, found)


def _judge_numbers(one: LedgerRow) -> Iterator[Suspect]:
    sweep_id, errors = one["sweep_id"], one["error_rows"]
    if one["sweeps"] > 1:
        yield Suspect(AuditCheck.SWEEP_TWICE, sweep_id, f"sweeps has {one['sweeps']} rows of it")
        return
    wrong = next(_wrong_sums(one), None)
    if wrong is not None:
        yield Suspect(AuditCheck.SWEEP_SUMS, sweep_id, wrong)
        return
    dispatched, exhausted = one["dispatched"] or 0, one["exhausted"] or 0
    told = f"sweeps says {dispatched:,} dispatched and {exhausted:,} exhausted"
    has = f"tombstones has {one['dispatched_rows']:,} and {one['exhausted_rows']:,}"
    if one["other_rows"]:
        has += f", and {one['other_rows']:,} with other outcomes"
    missing = dispatched + exhausted - _tombstones(one)
    if missing:
        check = AuditCheck.TOMBSTONE_MISSING if missing > 0 else AuditCheck.TOMBSTONE_UNEXPECTED
        yield Suspect(check, sweep_id, f"{told}; {has}")
    elif (one["dispatched_rows"], one["exhausted_rows"]) != (dispatched, exhausted):
        yield Suspect(AuditCheck.OUTCOME_DIFFERS, sweep_id, f"{told}; {has}")
    if errors != exhausted:
        check = AuditCheck.ERROR_MISSING if errors < exhausted else AuditCheck.ERROR_UNEXPECTED
        found = f"sweeps says {exhausted:,} exhausted; errors has {errors:,} rows"
        yield Suspect(check, sweep_id, found)


def _wrong_sums(one: LedgerRow) -> Iterator[str]:
    for whole, parts in (("found", _PARTS), ("claimed", _CLAIMED)):
        told, values = one[whole], [one[name] for name in parts]
        # Rows of older versions lack some.
        if told is not None and None not in values and told != sum(values):
            yield f"{whole} is {told:,}, and {' + '.join(parts)} is {sum(values):,}"
