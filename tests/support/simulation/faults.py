"""Which fault happens at a step: an error, a lost connection, a frozen or a killed process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from support.simulation.scheduler import Connection, KilledError, Process, Scheduler


class Fault(StrEnum):
    """The faults of a step of a session."""

    ERROR = "error"
    LOST = "connection lost"
    FROZEN = "frozen"
    KILLED = "killed"


# A process is frozen for this long, in seconds. Servers end sessions that keep a transaction open
# for longer than the limit, as duesweep sets it for its batches.
_FREEZES = (0.5, 5.0, 40.0, 200.0)
_TRANSACTION_SECONDS = 30.0
# No process waits for longer for a frozen one.
LEASE_SECONDS = 10.0


@dataclass(slots=True)
class Faults:
    """At most `most` faults in a run, one in `rarity` steps. `happened` are the ones until now."""

    seed: object
    scheduler: Scheduler
    rarity: int
    most: int
    happened: list[str] = field(default_factory=list)
    is_over: bool = False
    _chance: Random = field(init=False)

    def __post_init__(self) -> None:
        self._chance = Random(f"{self.seed}, faults")

    def strike(
        self,
        what: str,
        connection: Connection,
        error: Callable[[str], Exception],
        *,
        kinds: tuple[Fault, ...] = tuple(Fault),
    ) -> None:
        """Let a fault happen, or none. Raises `error` of a text, or `KilledError`."""
        is_struck = self._chance.randrange(self.rarity) == 0
        kind = self._chance.choice(kinds)
        seconds = self._chance.choice(_FREEZES)
        if self.is_over or not is_struck or len(self.happened) >= self.most:
            return
        actor = self.scheduler.current
        self.happened.append(f"{self.scheduler.time:.3f} {actor.name}: {kind} at {what}")
        match kind:
            case Fault.ERROR:
                raise error(f"{what} failed")
            case Fault.LOST:
                connection.lose()
                raise error(f"The connection was lost at {what}")
            case Fault.FROZEN:
                self._freeze(actor.process, seconds)
                self.scheduler.step("is frozen")
            case Fault.KILLED:
                self.scheduler.kill(actor.process)
                raise KilledError

    def harm(self, processes: Sequence[Process]) -> None:
        """Let a fault happen to a process that may be waiting: it loses a connection, is frozen or
        killed.
        """
        living = [each for each in processes if not each.is_dead]
        kind = self._chance.choice((Fault.LOST, Fault.FROZEN, Fault.KILLED))
        seconds = self._chance.choice(_FREEZES)
        if self.is_over or not living or len(self.happened) >= self.most:
            return
        process = self._chance.choice(living)
        self.happened.append(f"{self.scheduler.time:.3f} {process.name}: {kind}")
        match kind:
            case Fault.LOST if process.connections:
                self._chance.choice(process.connections).lose()
            case Fault.FROZEN:
                self._freeze(process, seconds)
            case Fault.KILLED:
                self.scheduler.kill(process)

    def _freeze(self, process: Process, seconds: float) -> None:
        """Freeze a process, as SIGSTOP does. Its leases end, and its connections stay, but for ones
        that the server ends.
        """
        thaws = self.scheduler.time + seconds
        process.frozen_until = thaws
        self.scheduler.at(
            self.scheduler.time + LEASE_SECONDS, lambda: self._end_leases(process, thaws)
        )
        # The server may be restarted in that time, or a firewall forget the connection.
        is_forgotten = self._chance.random() < 0.3
        for connection in process.connections:
            if connection.is_in_transaction or is_forgotten:
                ends = self.scheduler.time + (1.0 if is_forgotten else _TRANSACTION_SECONDS)
                self.scheduler.at(ends, lambda lost=connection: self._end_if_frozen(lost, thaws))

    def _end_leases(self, process: Process, thaws: float) -> None:
        if process.frozen_until == thaws > self.scheduler.time:
            process.end_leases()

    def _end_if_frozen(self, connection: Connection, thaws: float) -> None:
        if connection.process.frozen_until == thaws > self.scheduler.time:
            connection.lose()
