"""Computes all limits on waiting for a silent server from one setting.

A peer may accept what it is sent and never answer, for example a pooler that is stuck or a server
that is frozen. Then neither the server's own time-outs nor keep-alives end the wait.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

# PostgreSQL's client library never waits less than 2 s.
_SHORTEST_CONNECT_SECONDS = 2.0
_LONGEST_CONNECT_SECONDS = 10.0
# 0.1 ms for each message: the time to find one on a cold disk.
_SECONDS_PER_MILLION = 100.0
# The server's limit for a statement, as a part of its client's. So a slow server reports its own
# time-out before the client gives up, and a server that reports nothing is silent.
_SERVERS_PART = Fraction(3, 4)
_LONGEST_TASK_LOCK_SECONDS = 2.0
_LONGEST_DRIVER_LOCK_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How many seconds one session waits: for its opening (login included), for one answer, and
    on the server for a lock. `idle_seconds`: if a client sends nothing for so long within a
    transaction, the server takes it for dead; 0: no limit.
    """

    connect_seconds: float
    answer_seconds: float
    lock_seconds: float
    idle_seconds: float = 0.0

    @property
    def statement_seconds(self) -> float:
        """The server's limit for one statement, shorter than its client's wait."""
        return float(self.answer_seconds * _SERVERS_PART)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """`silence_seconds`: if a service falls silent, the sweep ends within this time. That covers
    one wait of a task, its attempt to open a new session, and one wait of the driver.
    """

    silence_seconds: float = 60.0

    @property
    def connect_seconds(self) -> float:
        """The limit for opening a session, login included."""
        seconds = max(_SHORTEST_CONNECT_SECONDS, self.silence_seconds / 6)
        return min(_LONGEST_CONNECT_SECONDS, seconds)

    @property
    def batch_seconds(self) -> float:
        """The limit for one answer to a task: a statement, a COPY, a COMMIT, a confirm."""
        return self.silence_seconds / 3

    @property
    def driver_seconds(self) -> float:
        """The limit for one answer to the driver."""
        return self.silence_seconds * 2 / 3

    def plan_seconds(self, messages: int) -> float:
        """The limit for one answer about all due messages, if about `messages` are due."""
        return self.driver_seconds + _SECONDS_PER_MILLION * messages / 1_000_000

    def read_seconds(self, messages: int) -> float:
        """The limit for one answer to Spark about `messages` messages. Spark tries four times.
        Then the driver asks on its own session whether the server still answers.
        """
        return self.silence_seconds / 5 + _SECONDS_PER_MILLION * messages / 1_000_000

    @property
    def task(self) -> Limits:
        """The limits of a task's session. It never waits for rows, and briefly for tables."""
        lock_seconds = min(_LONGEST_TASK_LOCK_SECONDS, self.batch_seconds / 4)
        idle_seconds = 2 * self.silence_seconds
        return Limits(self.connect_seconds, self.batch_seconds, lock_seconds, idle_seconds)

    @property
    def driver(self) -> Limits:
        """The limits of the driver's session. It waits for batches in flight."""
        lock_seconds = min(_LONGEST_DRIVER_LOCK_SECONDS, self.driver_seconds / 2)
        idle_seconds = 10 * self.silence_seconds
        return Limits(self.connect_seconds, self.driver_seconds, lock_seconds, idle_seconds)

    @property
    def handler(self) -> Limits:
        """The limits of a session in whose transaction a user's handler runs, without a limit."""
        return replace(self.driver, idle_seconds=0.0)


DEFAULT_TIMEOUTS = Timeouts()
