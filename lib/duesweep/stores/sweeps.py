"""The contract of open sweeps: the life of a sweep, or of an operator's command."""

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from duesweep.core.change import Command
from duesweep.stores.due import Horizon, Slices


@dataclass(frozen=True, slots=True)
class SweepRun:
    """An open sweep, as its tasks know it."""

    sweep_id: UUID
    horizon: Horizon


class Sweeps(Protocol):
    """The sweeps of a source. One lives by the session that opened it: when that is closed, or its
    process ends, the sweep counts as dead. A command is kept as a sweep is.
    """

    def open(
        self, horizon: Horizon, *, engine: str | None = None, command: Command | None = None
    ) -> SweepRun:
        """Open a sweep, which drops the counters of messages that are gone; or a `command`, which
        does not. `engine` is noted for the ledger.
        """

    def note_slices(self, run: SweepRun, plan: Slices) -> int:
        """Note that the open sweep also has these slices, and the run's horizon. Returns how many
        slices it had before: its tasks count them on.
        """

    def progress(self, sweep_id: UUID) -> tuple[int, int]:
        """Batches and messages done so far by an open sweep."""

    def stop(self, sweep_id: UUID, after_seconds: float) -> None:
        """Let an open sweep stop in this many seconds, by the server's clock. After that its
        tasks' `claim` and `move` raise `SweepStoppedError`; `finish` and `end_slice` do not. An
        earlier stop stays as it is. Does nothing to a closed sweep.
        """

    def release(self, sweep_id: UUID) -> None:
        """Let others settle a closed sweep while this session lives."""

    def close(
        self,
        sweep_id: UUID,
        *,
        abandoned: bool,
        remaining: int | Horizon,
        reason: str | None = None,
        waits: bool = True,
    ) -> bool:
        """Close a sweep once its batches in flight have ended; False when it was closed already.
        Unless it `waits`, False also while batches are in flight, or another session has it.
        `remaining` messages or more are still due. A horizon: whether any is due by it is counted
        when the batches have ended, and need not be counted if all slices are complete.
        `reason`: why its dispatch was cut short; None if it was not.
        """
