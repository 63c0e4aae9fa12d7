"""The contract of a store's journal, which settle reads, and the values that cross it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from duesweep.core.account import BreakerReport


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
    `claimed + skipped + gone + eligible_later + held + left`, `claimed` is
    `dispatched + failed + exhausted`. `skipped` were locked by others, `gone` were taken or removed
    by others, `eligible_later` came to have a later Due or attempt, `held` are for paused
    destinations, `left` were not reached.
    `engine` is what dispatched its slices.
    `over_limit` are those of `failed` that the limit of exhausted messages kept in the store.
    `failures`, the commonest reasons first, are not in the ledger's row: its `retries` and `errors`
    have the reason of each message. Nor are `breakers`: the destinations and services that took
    nothing for some time.
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
    held: int
    left: int
    over_limit: int
    bytes: int
    lateness_p50_ms: int | None
    lateness_p95_ms: int | None
    lateness_max_ms: int | None
    rows_per_second: float
    outcome: str
    reason: str | None
    engine: str | None = None
    failures: tuple[FailureReason, ...] = ()
    breakers: tuple[BreakerReport, ...] = ()


@dataclass(frozen=True, slots=True)
class SweepReport(SweepSummary):
    """A sweep's summary as its driver tells it; `ledger_error` is why the ledger has not got the
    sweep, or others before it, yet; None: it has. The journal keeps them until the next sweep.
    """

    ledger_error: str | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many messages, bytes and sweeps a journal holds that the ledger has not got."""

    rows: int
    bytes: int
    sweeps: int = 0


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """What one batch delivered: an Arrow IPC stream, see `duesweep.stores.tombstone`."""

    sweep_id: UUID
    outcomes: bytes


@dataclass(frozen=True, slots=True)
class ExhaustedPiece:
    """Exhausted messages of a sealed sweep, from one id of the journal's to another, both included.
    `longest_bytes` is the size of the largest.
    """

    first_id: int
    last_id: int
    rows: int
    longest_bytes: int


class Journal(Protocol):
    """The part of a driver session that settle uses."""

    source: str

    def try_settling(self) -> bool:
        """Become the source's only settler, until `end_settling` or the session's end. Never waits:
        False if another session is.
        """
        ...

    def end_settling(self) -> None:
        """Let others settle."""
        ...

    def settler(self) -> str:
        """Which process settles the source, and since when, as a sentence's beginning: "Process 7
        on web1, whose session has been idle since 12:03:04 UTC,".
        """
        ...

    def dead_sweeps(self) -> Sequence[UnsettledSweep]:
        """Unsettled sweeps whose driver is gone, the oldest first, a bounded number of them. If
        this session is the settler, only it may settle them until it is no more.
        """
        ...

    def keep_sweep(self, sweep_id: UUID) -> bool:
        """Let a sweep live by this session, since its own was lost; False: another one has it."""
        ...

    def close_sweep(
        self,
        sweep_id: UUID,
        *,
        abandoned: bool,
        remaining: int | Callable[[], int],
        reason: str | None = None,
        waits: bool = True,
    ) -> bool:
        """Close a sweep once its batches in flight have ended; False when it was closed already.
        Unless it `waits`, False also while batches are in flight.
        `remaining` messages or more are still due; a function is called when the batches have
        ended, and need not be called if all slices are complete.
        `reason`: why its dispatch was cut short; None if it was not.
        """
        ...

    def seal(self, sweep_id: UUID) -> None:
        """Note when a closed sweep was first settled."""
        ...

    def summary(self, sweep_id: UUID) -> tuple[SweepSummary, bool]:
        """The sweep's row for `sweeps`, and whether the retry counters changed."""
        ...

    def batches(self, sweep_id: UUID) -> Iterator[Sequence[JournalBatch]]:
        """What a sealed sweep delivered, in pieces bounded in memory; always the same pieces."""
        ...

    def exhausted(self, sweep_id: UUID) -> Sequence[ExhaustedPiece]:
        """What a sealed sweep exhausted, in pieces bounded in memory; always the same pieces."""
        ...

    def exhausted_rows(self, sweep_id: UUID, piece: ExhaustedPiece) -> Sequence[Any]:
        """The messages of a piece. They have the columns of the ledger's `tombstones` and `errors`
        that are not the same in all rows; headers are text, instants microseconds.
        """
        ...

    def retries_rows(self, most: int) -> Iterator[Sequence[Any]]:
        """The source's retry counters, at most `most` at a time, with the columns of the ledger's
        `retries` but `source`; instants are microseconds.
        """
        ...

    def delete_settled(self, sweep_id: UUID) -> None:
        """Forget a sweep that the ledger has."""
        ...

    def binding(self) -> UUID | None:
        """The ledger that the source is bound to. Raises `ConfigError` if another store
        has the source's name.
        """
        ...

    def bind(self, ledger_id: UUID) -> None:
        """Bind the source to a ledger for good. A source that is bound already stays as it is."""
        ...

    def unsettled(self) -> Backlog:
        """How much the journal holds of the source. Cheap."""
        ...
