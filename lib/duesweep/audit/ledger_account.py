"""What the ledger's tables have of a source, counted for the audit's rules."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from duesweep.core.audit import SWEEP_NUMBERS, AuditCheck, Suspect, SweepFacts
from duesweep.core.change import ChangeKind
from duesweep.ledger.base import COUNT, Among, Between, Condition, LedgerRow
from duesweep.ledger.ledger import Ledger

# More sweeps are chosen here, and not by the storage.
_MOST_NAMED = 1_000


class Tombstone(NamedTuple):
    """Of a message that is suspected."""

    key: str
    message_id: str | None
    due: datetime | None
    outcome: str | None


@dataclass(slots=True)
class LedgerCount:
    """What the ledger has of sweeps and commands, by their ids. `last_start`: when its last sweep
    began.
    """

    sweeps: dict[str, SweepFacts] = field(default_factory=dict)
    last_start: datetime | None = None

    def of(self, sweep_id: str | None) -> SweepFacts:
        """The facts of one, to be added to."""
        return self.sweeps.setdefault(sweep_id or "(none)", SweepFacts())

    @property
    def tombstones(self) -> int:
        """All that were counted."""
        return sum(one.tombstones + one.cancelled for one in self.sweeps.values())

    @property
    def rows(self) -> int:
        """Rows of `sweeps`."""
        return sum(one.rows for one in self.sweeps.values())


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
        """The tombstones of these messages, without those that a command has undone: it stored the
        message again under its key, and noted which sweep or command had removed it.
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
        # A message that was restored once more, although it was not cancelled again, may go again.
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
