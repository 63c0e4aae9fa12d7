"""How long anybody waits for a server that says nothing: all from one setting.

A peer may acknowledge what it is sent and never answer (a pooler that is stuck, a server that is
frozen), so that neither its own time-outs nor keep-alives end the wait.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

# PostgreSQL's client library waits for two at the least.
_SHORTEST_CONNECT_SECONDS = 2.0
_LONGEST_CONNECT_SECONDS = 10.0
# A tenth of a millisecond for each message: what a cold disk takes to find one.
_SECONDS_PER_MILLION = 100.0
# What a server may take for a statement, of what its client waits: a server that is slow then says
# so itself, and one that does not is silent.
_SERVERS_PART = Fraction(3, 4)
_LONGEST_TASK_LOCK_SECONDS = 2.0
_LONGEST_DRIVER_LOCK_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What one session waits for, in seconds: to be opened (login included), for one answer, and
    on the server for a lock and for a statement. `idle_seconds` is what the server grants between
    two statements of a transaction, before it takes its client for dead; 0: for ever.
    """

    connect_seconds: float
    answer_seconds: float
    lock_seconds: float
    idle_seconds: float = 0.0

    @property
    def statement_seconds(self) -> float:
        """What the server may take for a statement: less than its client waits."""
        return float(self.answer_seconds * _SERVERS_PART)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """`silence_seconds`: a service that falls silent ends the sweep within this, in all. That is
    one answer that a task waits for, its attempt at a new session, and one answer that the driver
    waits for.
    """

    silence_seconds: float = 60.0

    @property
    def connect_seconds(self) -> float:
        """For a session to be opened, login included."""
        seconds = max(_SHORTEST_CONNECT_SECONDS, self.silence_seconds / 6)
        return min(_LONGEST_CONNECT_SECONDS, seconds)

    @property
    def batch_seconds(self) -> float:
        """For one answer that a task waits for: a statement, a COPY, a COMMIT, a confirm."""
        return self.silence_seconds / 3

    @property
    def driver_seconds(self) -> float:
        """For one answer that the driver waits for."""
        return self.silence_seconds * 2 / 3

    def plan_seconds(self, messages: int) -> float:
        """For one answer about all that is due, where so many messages are known to be."""
        return self.driver_seconds + _SECONDS_PER_MILLION * messages / 1_000_000

    def read_seconds(self, messages: int) -> float:
        """For one answer that Spark waits for, about so many messages. Spark reads four times; then
        the driver asks its own session for a sign of life.
        """
        return self.silence_seconds / 5 + _SECONDS_PER_MILLION * messages / 1_000_000

    @property
    def task(self) -> Limits:
        """Of a task's session: it never waits for another's row, and for tables only briefly."""
        lock_seconds = min(_LONGEST_TASK_LOCK_SECONDS, self.batch_seconds / 4)
        idle_seconds = 2 * self.silence_seconds
        return Limits(self.connect_seconds, self.batch_seconds, lock_seconds, idle_seconds)

    @property
    def driver(self) -> Limits:
        """Of the driver's session: it waits for batches in flight."""
        lock_seconds = min(_LONGEST_DRIVER_LOCK_SECONDS, self.driver_seconds / 2)
        idle_seconds = 10 * self.silence_seconds
        return Limits(self.connect_seconds, self.driver_seconds, lock_seconds, idle_seconds)

    @property
    def handler(self) -> Limits:
        """Of a session in whose transaction somebody's own code runs, for as long as it takes."""
        return replace(self.driver, idle_seconds=0.0)


DEFAULT_TIMEOUTS = Timeouts()
