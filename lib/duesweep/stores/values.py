"""The values that cross the contract of a store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from duesweep.core.message import Headers, Message
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts


class TransactionMode(StrEnum):
    """What is promised of moving a message; the names are NServiceBus's `TransportTransactionMode`.

    `RECEIVE_ONLY` is at least once, `SENDS_ATOMIC_WITH_RECEIVE` exactly once where store and queue
    share a transaction, `TRANSACTION_SCOPE` takes a transaction that spans servers.
    """

    NONE = "none"
    RECEIVE_ONLY = "receive-only"
    SENDS_ATOMIC_WITH_RECEIVE = "sends-atomic-with-receive"
    TRANSACTION_SCOPE = "transaction-scope"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What a store that users bring is made from: the section `store` of the configuration.

    `name`, `schema` and `delayed_table` are None where they are not set. `batch_bytes` is what a
    claim may read; `options` are the store's own, from `[store.options]`; `timeouts` say how long
    it may wait for a server that says nothing.
    """

    dsn: str = field(repr=False)
    endpoint: str
    name: str | None = None
    schema: str | None = None
    delayed_table: str | None = None
    batch_bytes: int = 8_000_000
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    timeouts: Timeouts = DEFAULT_TIMEOUTS


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to store until it is `due`, an aware datetime. `destination` None is the endpoint's
    own queue.
    """

    destination: str | None
    headers: Headers
    body: bytes | None
    due: datetime


@dataclass(frozen=True, slots=True)
class Horizon:
    """What a sweep calls due: everything stored with a Due before `before`.

    `server_time` is the server's clock at that moment. The two differ where the writers' time zone
    is not UTC (docs/architecture.md, «Due»), and by how far a sweep looks `ahead`. What was stored
    with a Due before `since` is left to others; None: nothing is. `zone` is the one whose clock
    stored Dues show, as PostgreSQL calls it; None: UTC.
    """

    before: datetime
    server_time: datetime
    ahead: timedelta = timedelta()
    since: datetime | None = None
    zone: str | None = None

    def looking_ahead(self, ahead: timedelta) -> "Horizon":
        """The same moment's horizon of a sweep that looks so far ahead."""
        return replace(self, before=self.before + ahead, ahead=self.ahead + ahead)

    def cut_off(self, cutoff: datetime) -> "Horizon":
        """The same horizon, less what is due before an instant."""
        return replace(self, since=cutoff + timedelta(microseconds=self.shift_us))

    @property
    def shift_us(self) -> int:
        """How far the clock that stored Dues show is ahead of the server's, in microseconds, when
        the sweep asked. For the instant of a Due the zone's own rules are exact, where they are
        known.
        """
        shift = self.before - self.ahead - self.server_time
        return (shift.days * 86_400 + shift.seconds) * 1_000_000 + shift.microseconds


@dataclass(frozen=True, slots=True)
class SweepRun:
    """An open sweep, as its tasks know it."""

    sweep_id: UUID
    horizon: Horizon


@dataclass(frozen=True, slots=True)
class Claim:
    """Messages whose rows this transaction has locked, eligible and due, in the order of their Due.

    Each message says at which instant it is due (`Message.instant_us`). `server_us` is the server's
    time at the claim, microseconds since 1970-01-01 UTC. `unread` are claim keys for a claim of
    their own: what they lead to was more than a batch may hold in bytes. Of the other claim keys
    that led to no message, `skipped` led to rows that others hold, `gone` to none, and `later` to
    messages that are not due, or not eligible, any more. So the number of claim keys is the sum of
    all five.
    """

    messages: tuple[Message, ...]
    server_us: int
    unread: Sequence[str] = ()
    skipped: int = 0
    gone: int = 0
    later: int = 0

    def __post_init__(self) -> None:
        # Without it a message that is not due yet would pass for one that is.
        if any(m.instant_us is None and m.due_us is not None for m in self.messages):
            raise ValueError("A claim has to set the instant_us of each message with a finite Due")


@dataclass(frozen=True, slots=True)
class Slices:
    """A plan: how many messages each slice has, and the SQL of their claim keys, for JDBC.

    A claim key is text without commas by which a claim finds one message again: its key, or where
    no key is indexed its Due. The query's columns: `slice` (the number, from 0), `claim_keys` and
    `sizes` (bytes of headers and body), the latter two lists separated by commas, oldest first, and
    `total`: how many claim keys all rows of the slice have together. A slice without claim keys has
    a row, too. Without one, an empty slice would look like a read that broke off.
    """

    claim_keys_query: str
    planned: tuple[int, ...]

    @property
    def found(self) -> int:
        """How many messages are eligible."""
        return sum(self.planned)


@dataclass(frozen=True, slots=True)
class JdbcSource:
    """Where and how Spark reads from the store's database; the properties hold the password."""

    url: str
    properties: dict[str, str]

    def __repr__(self) -> str:
        return f"JdbcSource({self.url!r})"


@dataclass(frozen=True, slots=True)
class UnsettledSweep:
    """A sweep whose outcomes the ledger may not have yet."""

    sweep_id: UUID
    is_closed: bool
    sealed_at: datetime | None


@dataclass(frozen=True, slots=True)
class FailureReason:
    """Why `count` messages of a sweep failed; one of them was for `destination`, None where that
    cannot be read.
    """

    reason: str
    count: int
    destination: str | None


@dataclass(frozen=True, slots=True)
class SweepSummary:
    """The row of one sweep in the ledger's `sweeps`, derived from its journal; the same names in
    `--json`. Times are aware datetimes, `bytes` those of the bodies dispatched. `found` is
    `claimed + skipped + gone + eligible_later + left`, `claimed` is
    `dispatched + failed + exhausted`. `skipped` were locked by others, `gone` were taken or removed
    by others, `eligible_later` came to have a later Due or attempt, `left` were not reached.
    `over_limit` are those of `failed` that the limit of exhausted messages kept in the store.
    `failures`, the commonest reasons first, are not in the ledger's row: its `retries` and `errors`
    have the reason of each message.
    """

    sweep_id: str
    source: str
    start: datetime
    end: datetime
    horizon: datetime
    found: int
    claimed: int
    dispatched: int
    failed: int
    exhausted: int
    skipped: int
    gone: int
    eligible_later: int
    left: int
    over_limit: int
    bytes: int
    lateness_p50_ms: int | None
    lateness_p95_ms: int | None
    lateness_max_ms: int | None
    rows_per_second: float
    outcome: str
    reason: str | None
    failures: tuple[FailureReason, ...] = ()


@dataclass(frozen=True, slots=True)
class SweepReport(SweepSummary):
    """A sweep's summary as its driver tells it; `ledger_error` is why the ledger has not got the
    sweep, or others before it, yet; None: it has. The journal keeps them until the next sweep.
    """

    ledger_error: str | None = None


@dataclass(frozen=True, slots=True)
class Unbound:
    """A source that `setup --rebind` freed; `ledger_id` None: it was bound to no ledger."""

    source: str
    ledger_id: UUID | None

    def __str__(self) -> str:
        if self.ledger_id is None:
            return (
                f"The journal of {self.source} was bound to no ledger; the next sweep binds it to "
                "the one at ledger.root"
            )
        return (
            f"The journal of {self.source} is freed from ledger {self.ledger_id}; the next sweep "
            "binds it to the ledger at ledger.root, and creates what is missing there"
        )


@dataclass(frozen=True, slots=True)
class Completed:
    """A table of an earlier version, to which `setup` added the columns that it lacked."""

    table: object

    def __str__(self) -> str:
        return f"added the columns that {self.table} lacked"


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many messages, bytes and sweeps a journal holds that the ledger has not got."""

    rows: int
    bytes: int
    sweeps: int = 0


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """What one batch delivered: an Arrow IPC stream, see `duesweep.tombstone`."""

    sweep_id: UUID
    outcomes: bytes


@dataclass(frozen=True, slots=True)
class JournalExtent:
    """How many messages a closed sweep exhausted, and the size of the largest."""

    rows: int
    longest_bytes: int
