"""The contract of the journal: the outcomes that the ledger has not got, as settle reads them."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from duesweep.core.account import SweepSummary
from duesweep.core.change import CommandName, UnsettledCommand


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A sweep or command whose outcomes the ledger may not have yet. `is_alive`: a session
    lives for it: its driver's, or its settler's. `command` None: a sweep.
    """

    sweep_id: UUID
    started_at: datetime
    is_closed: bool
    is_alive: bool
    sealed_at: datetime | None
    command: CommandName | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many messages, bytes and sweeps a journal holds that the ledger has not got."""

    rows: int
    bytes: int
    sweeps: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """The messages that a sealed sweep exhausted or a `command` changed: messages from one id of
    the journal's to another, both included.
    """

    sweep_id: UUID
    command: bool
    first_id: int
    last_id: int


class Journal(Protocol):
    """The journal of a source: its sweeps and commands from closed to forgotten."""

    source: str

    def settling(self) -> AbstractContextManager[str | None]:
        """Be the source's only settler in the block. Never waits: if another session is, yields
        which process that is, and since when, as a sentence's beginning: "Process 7 on web1, with
        the lease since 2026-11-30 12:03:04 UTC,".
        """

    def unsettled(self) -> Sequence[Unsettled]:
        """The source's sweeps and commands that are not settled, the oldest first. Cheap."""

    def adopt(self, sweep_id: UUID) -> bool:
        """Take a dead sweep or command, as the settler: only this session may settle it until it is
        the settler no more. False: another session lives for it.
        """

    def seal(self, sweep_id: UUID) -> None:
        """Note when a closed sweep was first settled."""

    def summary(self, sweep_id: UUID) -> tuple[SweepSummary, bool]:
        """The sweep's row for `sweeps`, and whether the retry counters changed."""

    def batches(self, sweep_id: UUID) -> Iterator[Sequence[bytes]]:
        """The deliveries of a sealed sweep, an Arrow IPC stream a batch
        (`duesweep.stores.tombstone`), in pieces bounded in memory; always the same pieces.
        """

    def pieces(self, sweep_id: UUID, *, command: bool) -> Sequence[Piece]:
        """The messages that a sealed sweep exhausted, or a sealed command changed, in bounded
        pieces; always the same pieces.
        """

    def piece_rows(self, piece: Piece) -> Sequence[Any]:
        """The messages of a piece. They have the columns of the ledger's `tombstones` and `errors`
        that are not the same in all rows or, of a command, the columns of `changes` but `source`,
        and `attempts`; headers are text, instants microseconds.
        """

    def retries_rows(self, most: int) -> Iterator[Sequence[Any]]:
        """The source's retry counters, at most `most` at a time, with the columns of the ledger's
        `retries` but `source`; instants are microseconds.
        """

    def delete_settled(self, sweep_id: UUID, *, is_in_ledger: bool = True) -> None:
        """Forget a sweep that the ledger has; or a closed one that claimed nothing, which it need
        not have.
        """

    def backlog(self) -> Backlog:
        """How much the journal holds of the source. Cheap."""

    def command(self, sweep_id: UUID) -> UnsettledCommand | None:
        """The operator's command; None: it is a sweep."""
        return None
