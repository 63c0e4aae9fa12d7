"""One task's session on a PostgreSQL store: the batch contract."""

from collections.abc import Sequence, Set
from datetime import datetime
from typing import Any

from duesweep.core.message import Message
from duesweep.drivers.postgresql.session import PostgreSqlSession
from duesweep.drivers.postgresql.wire import UuidArray
from duesweep.errors import UnusualBatchError
from duesweep.stores.dialect import Location
from duesweep.stores.postgresql.account import PostgreSqlAccount
from duesweep.stores.relational.task import RelationalTaskSession
from duesweep.stores.values import Claim, Excluded, Horizon, SweepRun

_TURN_WAIT = "10s"
# Whoever waits for a row holds others meanwhile. NServiceBus's mover holds its rows for about 5 ms.
_TAKE_WAIT = "20ms"
# A client that sends nothing for so long is frozen, and the messages that it has locked are due.
_IDLE_WAIT = "2s"


class PostgreSqlTaskSession(RelationalTaskSession):
    """Claims by key and finishes, on one connection; `connection` is for a queue in the same
    database, which delivers in the claim's own transaction.
    """

    _statements: PostgreSqlSession

    def __init__(self, connection: PostgreSqlSession, store: Location) -> None:
        statements = connection.named(store.names())
        account = PostgreSqlAccount(statements, store)
        super().__init__(statements, account, store.source, store.addresses.endpoint)
        self.connection = connection
        self._delayed = str(store.delayed)
        self._kind = store.kind

    def __enter__(self) -> "PostgreSqlTaskSession":
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.__exit__(*error)

    def expect_no_idle_client(self) -> None:
        """Let the server end a transaction whose client sends nothing for long."""
        self._statements.row("set_idle_wait", wait=_IDLE_WAIT)

    def claim(self, run: SweepRun, claim_keys: Sequence[str]) -> Claim:
        """Lock what is eligible among these keys."""
        server_us = self._fence(run)
        rows = self._statements.rows("claim", **_claim_values(run.horizon, claim_keys))
        return self._read_claim(run, claim_keys, rows, server_us)

    def take(self, run: SweepRun, claim_keys: Sequence[str]) -> Claim:
        """Remove what is eligible among these keys, unless others hold a row for long."""
        usual_wait = f"{self.connection.limits.lock_seconds * 1_000:.0f}"
        _, fence, _, rows, [hooks], _ = self._statements.rows_of_each(
            "take",
            ("set_lock_wait", {"wait": _TAKE_WAIT}),
            ("fence", {"sweep_id": run.sweep_id}),
            # For the messages that the queue appends.
            ("check_constraints_at_once", {}),
            ("take", _claim_values(run.horizon, claim_keys)),
            ("find_delete_hooks", {"delayed": self._delayed}),
            ("set_lock_wait", {"wait": usual_wait}),
        )
        server_us = self._time_of_batch(run, fence)
        if hooks.found:
            raise UnusualBatchError("a trigger or a rule has a say in what is removed")
        claim = self._read_claim(run, claim_keys, rows, server_us)
        if claim.skipped:
            raise UnusualBatchError(f"{claim.skipped} rows were not removed")
        if len(claim.messages) < len(rows):
            raise UnusualBatchError("a message is in back-off")
        return claim

    def _read_claim(
        self, run: SweepRun, claim_keys: Sequence[str], rows: Sequence[Any], server_us: int
    ) -> Claim:
        claimed = {row.id for row in rows}
        skipped, gone, later = self._unclaimed(claim_keys, claimed, run.horizon.before)
        counters = self._account.read_attempts([row.id for row in rows])
        messages = [
            self._message(row, counters.get(row.id))
            for row in rows
            if row.id not in counters or counters[row.id].is_eligible
        ]
        messages.sort(key=lambda message: message.due_us or 0)
        later += len(rows) - len(messages)
        return Claim(tuple(messages), server_us, (), skipped, gone, later, self._paused)

    def _unclaimed(
        self, claim_keys: Sequence[str], claimed: Set[str], horizon: datetime
    ) -> tuple[int, int, int]:
        """How many of the keys that were not claimed are held by others, gone, and due later."""
        missing = [key for key in claim_keys if key not in claimed]
        if not missing:
            return 0, 0, 0
        row = self._statements.row("explain_unclaimed", keys=UuidArray.of(missing), horizon=horizon)
        return row.skipped, len(missing) - row.skipped - row.later, row.later

    def claim_key(self, message: Message) -> str:
        """Its key, which is indexed."""
        return message.key

    def _message(self, row: Any, counter: Any) -> Message:
        attempts = counter.attempts if counter else 0
        return self._kind.read_message(row.id, row.due_us, row.instant_us, row, attempts)

    def exclude(self, messages: Sequence[Excluded]) -> None:
        """Nothing to do: a key leads to its own message only, and the plan has it once."""

    def include(self, messages: Sequence[Excluded]) -> None:
        """Nothing to do, either."""

    def grant_exhausted(self, run: SweepRun, wanted: int, limit: int) -> int:
        """How many more messages the sweep may exhaust."""
        # Another slice's batch, which is waited for, may take its time; a row's lock may not.
        wait = self._statements.row("set_lock_wait", wait=_TURN_WAIT)
        row = self._statements.row("lock_sweep_counters", sweep_id=run.sweep_id)
        self._statements.row("set_lock_wait", wait=wait.before)
        exhausted: int = row.exhausted
        return max(0, min(wanted, limit - exhausted))

    def _remove(self, messages: Sequence[Message]) -> int:
        return self._statements.execute("remove", keys=UuidArray.of([m.key for m in messages]))


def _claim_values(horizon: Horizon, claim_keys: Sequence[str]) -> dict[str, object]:
    keys = {"keys": UuidArray.of(claim_keys), "horizon": horizon.before}
    return keys | instant_values(horizon)


def instant_values(horizon: Horizon) -> dict[str, object]:
    """The values by which the server makes an instant of a Due.

    Without looking ahead only what is due is claimed, so no instant may be later than the sweep's
    own time. In the hour of a clock change the zone's rules alone could name a later one.
    """
    latest = None if horizon.ahead else horizon.server_time
    return {"zone": horizon.zone or "UTC", "latest": latest}
