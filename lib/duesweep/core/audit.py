"""The rules of the audit: what has to be true of sweeps, commands and the journal. Without I/O."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from duesweep.core.change import ChangeKind

_PARTS = ("claimed", "skipped", "gone", "eligible_later", "held", "left")
_CLAIMED = ("dispatched", "failed", "exhausted")
# The columns of `sweeps` that the rules read.
SWEEP_NUMBERS = ("found", *_PARTS, *_CLAIMED)
_DISPATCHED = {"dispatched", "deferred"}


class AuditCheck(StrEnum):
    """The names of findings; stable, for scripts. What each means is in docs/commands.md."""

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
    JOURNAL_OLD = "journal-old"
    JOURNAL_ORPHANED = "journal-orphaned"


class Suspect(NamedTuple):
    """Something that is not true: of a sweep, a command or a message, by its id or key."""

    check: AuditCheck
    about: str
    found: str


@dataclass(slots=True)
class SweepFacts:
    """What the ledger's tables have of one sweep or command. `row` are the `SWEEP_NUMBERS` of its
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
        """A row of `sweeps`."""
        self.row = tuple(row[name] for name in SWEEP_NUMBERS)
        self.rows += 1

    def add_tombstones(self, outcome: str | None, count: int) -> None:
        """So many tombstones with this outcome."""
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
        """Those of a sweep, whatever their outcome."""
        return self.dispatched + self.exhausted + self.others

    def numbers(self) -> dict[str, int | None]:
        """The row of `sweeps`, by names."""
        return dict(zip(SWEEP_NUMBERS, self.row, strict=True))


def judge_sweeps(facts: Mapping[str, SweepFacts]) -> Iterator[Suspect]:
    """What is not true of the sweeps and commands of a ledger."""
    for sweep_id, one in facts.items():
        yield from _judge_command(sweep_id, one)
        if one.rows:
            yield from _judge_sweep(sweep_id, one)
        elif one.tombstones:
            found = f"sweeps has no row of it, tombstones has {one.tombstones:,} rows"
            yield Suspect(AuditCheck.SWEEP_MISSING, sweep_id, found)


def judge_journal(unsettled: Iterable[tuple[str, Any, bool]], last_start: Any) -> Iterator[Suspect]:
    """Work of the journal that a later sweep should have settled: (id, start, is alive) of each.
    `last_start`: when the last sweep in the ledger began; None: there is none.
    """
    for sweep_id, start, is_alive in unsettled:
        if not is_alive and last_start is not None and start < last_start:
            began = f"it began at {start:%Y-%m-%d %H:%M:%S} UTC"
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
