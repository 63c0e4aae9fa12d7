"""One task's session on a store on SQL Server: the batch contract, by Due.

The transport's table is a heap with one index, on Due. To find rows by their keys is to look at
every row of their span of Due, and thousands may share one. So a claim key is a Due, and a batch
claims as many rows of each Due as it has claim keys, of those that nobody else holds, and removes
many of one Due as its first.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from duesweep.core.message import Message
from duesweep.core.policy import SCANNED_ROWS
from duesweep.core.world import micros
from duesweep.drivers.sqlserver.binding import bound_text, due_of
from duesweep.drivers.sqlserver.session import SqlServerSession
from duesweep.errors import StoreError, TransactionLostError
from duesweep.stores.dialect import Location
from duesweep.stores.relational.task import RelationalTaskSession
from duesweep.stores.sqlserver import batches_lock, find_delayed
from duesweep.stores.sqlserver.account import SqlServerAccount, listed, listed_as
from duesweep.stores.sqlserver.claimed import ClaimedRows
from duesweep.stores.sqlserver.removal import RemovalByDue
from duesweep.stores.values import Claim, Excluded, SweepRun


class SqlServerTaskSession(RelationalTaskSession):
    """Claims by Due and finishes, on one connection; `connection` is for a queue on the same
    server, which delivers in the claim's own transaction.
    """

    _statements: SqlServerSession

    def __init__(self, connection: SqlServerSession, store: Location) -> None:
        names = store.names(find_delayed(connection, store))
        statements, claimed = connection.named(names), ClaimedRows()
        account = SqlServerAccount(statements, store, claimed)
        super().__init__(statements, account, store.source, store.addresses.endpoint)
        self.connection = connection
        self._kind = store.kind
        self._claimed = claimed
        self._batch_bytes = store.batch_bytes
        server = connection.row("describe_server")
        self._removal = RemovalByDue(
            statements, store.source, claimed, removes_firsts=bool(server.deletes_expressions)
        )

    def __enter__(self) -> "SqlServerTaskSession":
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.__exit__(*error)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction; nested, a savepoint."""
        is_batch = not self.connection.is_in_transaction
        with super().transaction():
            yield
        if is_batch:
            # A message that becomes eligible again within this slice could consume the claim key of
            # another. Only after the commit: a batch that was rolled back is claimed again.
            self._claimed.exclude_failed()

    def exclude(self, messages: Sequence[Excluded]) -> None:
        """Remember their keys: their Due leads to them again."""
        self._claimed.exclude(messages)

    def include(self, messages: Sequence[Excluded]) -> None:
        """Forget their keys."""
        self._claimed.include(messages)

    def claim(self, run: SweepRun, claim_keys: Sequence[str]) -> Claim:
        """Lock what is eligible of these Dues, at most a row a claim key."""
        server_us = self._fence(run)
        self._claimed.begin()
        claim_keys, unread = self._narrowed(sorted(claim_keys))
        if not claim_keys:
            return Claim((), server_us, paused=self._paused)
        rows, is_all = self._read(run, claim_keys)
        missing = Counter(claim_keys) - Counter(row.due for row in rows)
        skipped, gone, later = 0, 0, 0
        if not is_all:
            unread += missing.elements()
        elif missing:
            skipped, gone, later = self._explained(run, missing, Counter(row.due for row in rows))
        counters = self._account.read_attempts([str(row.message_key) for row in rows])
        messages = [
            self._message(row, counters.get(str(row.message_key)))
            for row in rows
            if _is_eligible(counters.get(str(row.message_key)))
        ]
        messages.sort(key=lambda message: message.due_us or 0)
        self._claimed.add(rows)
        later += len(rows) - len(messages)
        return Claim(tuple(messages), server_us, unread, skipped, gone, later, self._paused)

    def _explained(
        self, run: SweepRun, missing: Counter[str], claimed: Counter[str]
    ) -> tuple[int, int, int]:
        """How many rows that were missing at their Dues are held by others, gone, and in back-off
        since the sweep began.
        """
        skipped = later = 0
        rows = self._statements.rows(
            "explain_unclaimed",
            source=self.source,
            sweep_id=run.sweep_id,
            dues=_dues(missing.elements()),
            **listed_as("excluded", self._claimed.excluded(missing)),
        )
        for row in rows:
            here = self._claimed.excluded([row.due])
            # A row that is neither ours, nor in back-off, nor excluded, is somebody else's.
            others = row.present - claimed[row.due] - row.waiting - len(here)
            held = max(0, min(missing[row.due], others))
            skipped += held
            later += max(0, min(missing[row.due] - held, row.failed_since))
        return skipped, missing.total() - skipped - later, later

    def claim_key(self, message: Message) -> str:
        """Its Due, to the tick."""
        return self._claimed.due(message)

    def _narrowed(self, claim_keys: list[str]) -> tuple[list[str], list[str]]:
        """Claim keys whose Dues a claim may look through, and those for another claim.

        A claim locks what it looks at. So that it never looks at more than its bound, the known
        failures of the same Dues, and what was excluded, have to leave room.
        """
        if self._some_waiting() + len(claim_keys) <= SCANNED_ROWS:
            return claim_keys, []
        later: list[str] = []
        while (
            len(set(claim_keys)) > 1 and self._waiting(claim_keys) + len(claim_keys) > SCANNED_ROWS
        ):
            middle = len(claim_keys) // 2
            claim_keys, later = claim_keys[:middle], claim_keys[middle:] + later
        return claim_keys, later

    def _some_waiting(self) -> int:
        """At least as many as `_waiting` finds, up to the bound; cheap where few have failed."""
        found = {"source": self.source, "most": SCANNED_ROWS}
        row = self._statements.row("count_some_waiting", **found)
        return int(row.waiting) + self._claimed.excluded_count

    def _waiting(self, claim_keys: list[str]) -> int:
        row = self._statements.row("count_waiting", source=self.source, dues=_dues(claim_keys))
        return int(row.waiting) + len(self._claimed.excluded(claim_keys))

    def _read(self, run: SweepRun, claim_keys: list[str]) -> tuple[list[Any], bool]:
        left = self._batch_bytes

        def wanted(row: Any) -> bool:
            nonlocal left
            left -= 2 * len(row.headers or "") + len(row.body or b"")
            return left > 0

        return self._statements.read_while(
            wanted,
            "claim",
            dues=_dues(claim_keys),
            horizon=bound_text(run.horizon.before),
            source=self.source,
            paused=json.dumps(
                [{"fits": like} for each in self._paused for like in self._kind.pausing(each, None)]
            ),
            **listed_as("excluded", self._claimed.excluded(claim_keys)),
        )

    def _message(self, row: Any, counter: Any) -> Message:
        """The message in a claimed row. Its Due is UTC's: it is the instant itself."""
        due_us = None if row.due is None else micros(due_of(row.due))
        if self._kind.raise_counters is not None:
            attempts = row.attempts
        else:
            attempts = counter.attempts if counter else 0
        return self._kind.read_message(str(row.message_key), due_us, due_us, row, attempts)

    def _fence_rows(self, run: SweepRun) -> Sequence[Any]:
        lock = batches_lock(run.sweep_id)
        return self._statements.rows("fence", sweep_id=run.sweep_id, lock=lock)

    def grant_exhausted(self, run: SweepRun, wanted: int, limit: int) -> int:
        """How many more messages the sweep may exhaust. If its other slices hold the lock for too
        long, none: then the messages stay as failures.
        """
        lock = f"{batches_lock(run.sweep_id)}/exhausted"
        row = self._statements.row("lock_sweep_counters", sweep_id=run.sweep_id, lock=lock)
        return 0 if row.answer < 0 else max(0, min(wanted, limit - row.exhausted))

    def _remove(self, messages: Sequence[Message]) -> int:
        self.connection.require_transaction()
        if self._kind.has_indexed_key:
            keys = listed(message.key for message in messages)
            return self._statements.execute("remove_by_id", **keys)
        return self._removal.remove(messages)

    def _not_removed(self, text: str, advice: str) -> StoreError:
        """Or somebody took them who heeds no locks, as on servers that have no such hints."""
        return TransactionLostError(text, advice=advice)


def _is_eligible(counter: Any) -> bool:
    return counter is None or bool(counter.is_eligible)


def _dues(claim_keys: Iterable[str]) -> str:
    """Each Due of the claim keys, and how many of them it has, as JSON."""
    return json.dumps([{"due": due, "wanted": n} for due, n in Counter(claim_keys).items()])
