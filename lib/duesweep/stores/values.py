"""The values that cross the contract of a store."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from duesweep.message import Message


@dataclass(frozen=True, slots=True)
class Horizon:
    """What a sweep calls due: everything stored with a Due before `before`.

    `server_time` is the server's clock at that moment. The two differ where the writers' time zone
    is not UTC (docs/architecture.md, «Due»).
    """

    before: datetime
    server_time: datetime

    @property
    def shift_us(self) -> int:
        """How far the stored clock is ahead of the server's, in microseconds."""
        shift = self.before - self.server_time
        return (shift.days * 86_400 + shift.seconds) * 1_000_000 + shift.microseconds


@dataclass(frozen=True, slots=True)
class SweepRun:
    """An open sweep, as its tasks know it."""

    sweep_id: UUID
    horizon: Horizon


@dataclass(frozen=True, slots=True)
class Claim:
    """Messages whose rows this transaction has locked, ripe and due, in the order of their Due.

    `server_us` is the server's time at the claim, microseconds since 1970-01-01 UTC. `unread` are
    tickets for a claim of their own: what they lead to was more than a batch may hold in bytes.
    """

    messages: tuple[Message, ...]
    server_us: int
    unread: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Slices:
    """A plan: how many messages each slice has, and the SQL of their tickets, for JDBC.

    A ticket is text without commas by which a claim finds one message again: its key, or where no
    key is indexed its Due. The query's columns: `slice` (the number, from 0), `tickets` and `sizes`
    (bytes of headers and body), the latter two lists separated by commas, oldest first.
    """

    tickets_query: str
    planned: tuple[int, ...]

    @property
    def found(self) -> int:
        """How many messages are due and ripe."""
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
class SweepSummary:
    """The row of one sweep in the ledger's `sweeps`, derived from its journal; the same names in
    `--json`. Times are aware datetimes, `bytes` those of the bodies dispatched. `found` is
    `claimed + skipped + left`, `claimed` is `dispatched + failed + exhausted`; `skipped` were held
    or taken by others, `left` were not reached, `held_back` are those of `failed` that the limit of
    exhausted messages kept in the store.
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
    left: int
    held_back: int
    bytes: int
    lateness_p50_ms: int | None
    lateness_p95_ms: int | None
    lateness_max_ms: int | None
    rows_per_second: float
    outcome: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """What one batch delivered: an Arrow IPC stream, see `duesweep.tombstone`."""

    sweep_id: UUID
    outcomes: bytes


@dataclass(frozen=True, slots=True)
class JournalExtent:
    """How many messages a sealed group exhausted, and the size of the largest."""

    rows: int
    longest_bytes: int
