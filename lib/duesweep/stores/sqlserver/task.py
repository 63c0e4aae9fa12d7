"""One task's session on a store on SQL Server: the batch contract, by Due.

The transport's table is a heap with one index, on Due. To find rows by their keys is to look at
every row of their span of Due, and thousands may share one. So a claim key is a Due, and a batch
claims as many rows of each Due as it has claim keys, of those that nobody else holds, and removes
many of one Due as its first.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from duesweep.drivers.sqlserver import SqlServerConnection
from duesweep.errors import StoreError, TransactionLostError
from duesweep.message import Message
from duesweep.policy import SCANNED_ROWS
from duesweep.stores.relational.messages import json_message
from duesweep.stores.sqlserver.account import SqlServerAccount, listed, listed_as
from duesweep.stores.sqlserver.driver import batches_lock
from duesweep.stores.sqlserver.location import SqlServerLocation
from duesweep.stores.sqlserver.statements import due_of, due_text
from duesweep.stores.sqlserver.table import find_delayed
from duesweep.stores.values import Claim, SweepRun
from duesweep.tombstone import micros

# So many messages of one Due are removed by their keys, more of them as the Due's first.
_FEW = 4


class _OthersRemovedError(Exception):
    """Rows that were not claimed came among the first of a Due: go back, and remove by key."""


class SqlServerTaskSession(SqlServerAccount):
    """Claims by Due and finishes, on one connection; `connection` is for a queue on the same
    server, which delivers in the claim's own transaction.
    """

    def __init__(self, connection: SqlServerConnection, store: SqlServerLocation) -> None:
        names = store.names(find_delayed(connection, store))
        super().__init__(connection, names, store.source, store.addresses.endpoint)
        self._batch_bytes = store.batch_bytes
        self._removes_firsts = bool(connection.row("describe_server", {}).deletes_expressions)

    def __enter__(self) -> "SqlServerTaskSession":
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.__exit__(*error)

    def claim(self, run: SweepRun, claim_keys: Sequence[str]) -> Claim:
        """Lock what is eligible of these Dues, at most a row a claim key."""
        server_us = self._fence(run)
        self._claimed, self._failing = {}, []
        claim_keys, unread = self._narrowed(sorted(claim_keys))
        if not claim_keys:
            return Claim((), server_us)
        rows, is_all = self._read(run, claim_keys)
        missing = Counter(claim_keys) - Counter(row.due for row in rows)
        skipped, gone, later = 0, 0, 0
        if not is_all:
            unread += missing.elements()
        elif missing:
            skipped, gone, later = self._explained(run, missing, Counter(row.due for row in rows))
        counters = self._read_attempts([str(row.message_key) for row in rows])
        messages = [
            self._due_message(row, counters.get(str(row.message_key)))
            for row in rows
            if _is_eligible(counters.get(str(row.message_key)))
        ]
        messages.sort(key=lambda message: message.due_us or 0)
        self._claimed = {str(row.message_key): row for row in rows}
        later += len(rows) - len(messages)
        return Claim(tuple(messages), server_us, unread, skipped, gone, later)

    def _explained(
        self, run: SweepRun, missing: Counter[str], claimed: Counter[str]
    ) -> tuple[int, int, int]:
        """How many rows that were missing at their Dues are held by others, gone, and in back-off
        since the sweep began.
        """
        skipped = later = 0
        rows = self._statements.rows(
            "explain_unclaimed",
            source=self._source,
            sweep_id=run.sweep_id,
            dues=_dues(missing.elements()),
            **listed_as("excluded", self._excluded_among(missing)),
        )
        for row in rows:
            here = self._excluded.get(row.due, ())
            # A row that is neither ours, nor in back-off, nor excluded, is somebody else's.
            others = row.present - claimed[row.due] - row.waiting - len(here)
            held = max(0, min(missing[row.due], others))
            skipped += held
            later += max(0, min(missing[row.due] - held, row.failed_since))
        return skipped, missing.total() - skipped - later, later

    def claim_key(self, message: Message) -> str:
        """Its Due, to the tick."""
        return str(self._claimed[message.key].due)

    def _narrowed(self, claim_keys: list[str]) -> tuple[list[str], list[str]]:
        """Claim keys whose Dues a claim may look through, and those for another claim.

        A claim locks what it looks at. So that it never looks at more than its bound, the known
        failures of the same Dues, and what was excluded, have to leave room.
        """
        later: list[str] = []
        while (
            len(set(claim_keys)) > 1 and self._waiting(claim_keys) + len(claim_keys) > SCANNED_ROWS
        ):
            middle = len(claim_keys) // 2
            claim_keys, later = claim_keys[:middle], claim_keys[middle:] + later
        return claim_keys, later

    def _waiting(self, claim_keys: list[str]) -> int:
        row = self._statements.row("count_waiting", source=self._source, dues=_dues(claim_keys))
        return int(row.waiting) + len(self._excluded_among(claim_keys))

    def _excluded_among(self, claim_keys: Iterable[str]) -> set[str]:
        found = (self._excluded.get(due, ()) for due in set(claim_keys))
        return {key for keys in found for key in keys}

    def _read(self, run: SweepRun, claim_keys: list[str]) -> tuple[list[Any], bool]:
        left = self._batch_bytes

        def wanted(row: Any) -> bool:
            nonlocal left
            left -= 2 * len(row.headers or "") + len(row.body or b"")
            return left > 0

        return self.connection.read_while(
            wanted,
            "claim",
            self._names,
            dues=_dues(claim_keys),
            horizon=due_text(run.horizon.before),
            source=self._source,
            **listed_as("excluded", self._excluded_among(claim_keys)),
        )

    def _due_message(self, row: Any, counter: Any) -> Message:
        """The message in a claimed row. Its Due is UTC's: it is the instant itself."""
        message = self._message(row, counter)
        return message._replace(instant_us=message.due_us)

    def _message(self, row: Any, counter: Any) -> Message:
        due_us = micros(due_of(row.due))
        attempts = counter.attempts if counter else 0
        return json_message(str(row.message_key), due_us, row.headers, row.body, attempts)

    def _fence_rows(self, run: SweepRun) -> Sequence[Any]:
        lock = batches_lock(run.sweep_id)
        return self._statements.rows("fence", sweep_id=run.sweep_id, lock=lock)

    def grant_exhausted(self, run: SweepRun, wanted: int, limit: int) -> int:
        """How many more messages the sweep may exhaust; none where its other slices take too long
        over theirs: then they stay, as failures.
        """
        lock = f"{batches_lock(run.sweep_id)}/exhausted"
        row = self._statements.row("lock_sweep_counters", sweep_id=run.sweep_id, lock=lock)
        return 0 if row.answer < 0 else max(0, min(wanted, limit - row.exhausted))

    def _read_attempts(self, keys: Sequence[str]) -> dict[str, Any]:
        if not keys:
            return {}
        rows = self._statements.rows("read_attempts", source=self._source, **listed(keys))
        return {row.message_key: row for row in rows}

    def _remove(self, messages: Sequence[Message]) -> int:
        self.connection.require_transaction()
        gone = self._by_due(message.key for message in messages)
        claimed = self._by_due(self._claimed)
        few: list[tuple[str, str]] = []
        removed = 0
        for due, keys in gone.items():
            if self._removes_firsts and len(keys) > _FEW:
                removed += self._remove_firsts(due, keys, claimed[due] - keys)
            else:
                few += [(due, key) for key in keys]
        return removed + self._remove_by_key(few)

    def _by_due(self, keys: Iterable[str]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for key in keys:
            found.setdefault(self._claimed[key].due, set()).add(key)
        return found

    def _remove_firsts(self, due: str, keys: set[str], staying: set[str]) -> int:
        """Remove messages of one Due as the first of those that nobody else holds, but for those
        that stay, unless others have come among them.
        """
        kept = json.dumps([*staying, *self._excluded.get(due, ())])
        with suppress(_OthersRemovedError), self.transaction():
            rows = self._statements.rows(
                "remove_first", source=self._source, rows=len(keys), due=due, kept=kept
            )
            if {str(row.message_key) for row in rows} != keys:
                raise _OthersRemovedError
            return len(rows)
        return self._remove_by_key([(due, key) for key in keys])

    def _remove_by_key(self, messages: Sequence[tuple[str, str]]) -> int:
        if not messages:
            return 0
        listed = json.dumps([{"due": due, "key": key} for due, key in messages])
        return self._statements.execute("remove", messages=listed)

    def _not_removed(self, text: str, advice: str) -> StoreError:
        """Or somebody took them who heeds no locks, as on servers that have no such hints."""
        return TransactionLostError(text, advice=advice)


def _is_eligible(counter: Any) -> bool:
    return counter is None or bool(counter.is_eligible)


def _dues(claim_keys: Iterable[str]) -> str:
    """Each Due of the claim keys, and how many of them it has, as JSON."""
    return json.dumps([{"due": due, "wanted": n} for due, n in Counter(claim_keys).items()])
