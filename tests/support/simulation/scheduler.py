"""Many actors in one thread. At each step one scheduler decides which one continues, how much time
passes, and which fault happens; all of it follows from a seed.

An actor is a greenlet, so only a step gives control away. A process is a group of actors: they are
frozen together, and die together.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from greenlet import greenlet

# How long a step takes, in seconds. Most are short, some are as long as a lock's wait.
_STEPS = (0.0, 0.001, 0.003, 0.02, 0.1)


class KilledError(BaseException):
    """The actor's process is dead: none of its code may do anything any more."""


@dataclass(slots=True, eq=False)
class Process:
    """A process of the operating system."""

    name: str
    frozen_until: float = 0.0
    is_dead: bool = False
    # The kernel closes them when the process dies, or the server when it has waited too long.
    connections: list["Connection"] = field(default_factory=list)
    # Each ends the leases of a session, whether or not that has lost its connection.
    leases: list[Callable[[], None]] = field(default_factory=list)

    def end_leases(self) -> None:
        """They are over, or the process is known to be gone."""
        for end in self.leases:
            end()


class Connection:
    """A connection of a process to a server."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.is_lost = self.is_in_transaction = False
        process.connections.append(self)

    def lose(self) -> None:
        """The server ends it, and rolls back its open transaction."""
        self.is_lost = True
        if self in self.process.connections:
            self.process.connections.remove(self)


@dataclass(slots=True, eq=False)
class Actor:
    """A thread of a process. `error` ended it."""

    name: str
    process: Process
    body: greenlet
    wakes_at: float = 0.0
    waits_for: Callable[[], bool] | None = None
    is_over: bool = False
    error: BaseException | None = None


class Scheduler:
    """Decides at each step. `time` is in seconds; `trace` has the steps, if it is kept. An actor
    may end with an `expected` error.
    """

    def __init__(
        self,
        seed: object,
        expected: tuple[type[BaseException], ...] = (),
        *,
        keeps_trace: bool = False,
    ) -> None:
        self._expected = (KilledError, *expected)
        self.chance = Random(f"{seed}, order")
        self.time = 0.0
        self.steps = 0
        self.trace: list[str] | None = [] if keeps_trace else None
        self._actors: list[Actor] = []
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._current: Actor | None = None
        self._hub = greenlet.getcurrent()

    @property
    def current(self) -> Actor:
        """The actor that runs."""
        assert self._current is not None, "no actor runs"
        return self._current

    def spawn(self, process: Process, name: str, work: Callable[[], object]) -> Actor:
        """An actor of a process, which does this work."""

        def body() -> None:
            try:
                work()
            except KilledError as error:
                actor.error = error
            except BaseException as error:  # noqa: BLE001 - it is judged where the actor is awaited
                actor.error = error
            actor.is_over = True

        actor = Actor(name, process, greenlet(body, self._hub), self.time)
        self._actors.append(actor)
        return actor

    def at(self, time: float, work: Callable[[], object]) -> None:
        """Do something at a time, from outside of all processes."""
        self._timers.append((time, len(self._timers), work))

    def step(self, what: str) -> None:
        """Let others continue before the current actor does `what`. Raises `KilledError`."""
        self.steps += 1
        if self.trace is not None:
            self.trace.append(f"{self.time:.3f} {self.current.name}: {what}")
        self.time += self.chance.choice(_STEPS)
        self._pause(self.time, None)

    def sleep(self, seconds: float) -> None:
        """Let so much time pass for the current actor."""
        self._pause(self.time + seconds, None)

    def wait_for(self, condition: Callable[[], bool], seconds: float = float("inf")) -> bool:
        """Wait until a condition holds. Returns whether it did within the time."""
        if not condition():
            self._pause(self.time + seconds, condition)
        return condition()

    def kill(self, process: Process) -> None:
        """Kill a process. Its connections are closed at once."""
        process.is_dead = True
        process.end_leases()
        for connection in list(process.connections):
            connection.lose()

    def run(self, until: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Run until a time, or until it is over. Raises the first unexpected error of an actor."""
        while self.time < until and not is_over():
            self._fire_timers()
            ready = [actor for actor in self._actors if self._is_ready(actor)]
            if not ready:
                self.time = self._next_time(until)
                continue
            self._resume(self.chance.choice(ready))

    def end(self) -> None:
        """Let the actors of dead processes end."""
        while dead := [actor for actor in self._actors if actor.process.is_dead]:
            self._resume(dead[0])

    def _resume(self, actor: Actor) -> None:
        self._current = actor
        actor.waits_for = None
        try:
            if not actor.process.is_dead:
                actor.body.switch()
            elif actor.body:
                actor.body.throw(KilledError())
            else:
                # It has not begun.
                actor.is_over = True
        finally:
            self._current = None
        if actor.is_over:
            self._actors.remove(actor)
            if actor.error is not None and not isinstance(actor.error, self._expected):
                raise actor.error

    def _pause(self, until: float, condition: Callable[[], bool] | None) -> None:
        actor = self.current
        actor.wakes_at, actor.waits_for = until, condition
        if actor.process.is_dead:
            raise KilledError
        self._hub.switch()

    def _is_ready(self, actor: Actor) -> bool:
        if actor.process.is_dead:
            return True
        if actor.process.frozen_until > self.time:
            return False
        return actor.wakes_at <= self.time or (actor.waits_for is not None and actor.waits_for())

    def _next_time(self, until: float) -> float:
        times = [max(actor.wakes_at, actor.process.frozen_until) for actor in self._actors]
        times += [time for time, *_ in self._timers]
        times += [
            actor.process.frozen_until
            for actor in self._actors
            if actor.waits_for is not None and actor.process.frozen_until > self.time
        ]
        return min([until, *times])

    def _fire_timers(self) -> None:
        due = [timer for timer in self._timers if timer[0] <= self.time]
        for timer in sorted(due, key=lambda one: one[:2]):
            self._timers.remove(timer)
            timer[2]()
