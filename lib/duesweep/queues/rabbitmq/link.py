"""A task's connection to its broker: opened when needed, and again after a loss, with a limit."""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from duesweep.core.errors import ConfigError, DestinationError, DuesweepError, Problem, QueueError
from duesweep.core.policy import CLAIM_SECONDS, PAUSE_PER_TRY
from duesweep.core.world import Clock
from duesweep.drivers.rabbitmq.connection import Brokers, Channel, RabbitMqConnection
from duesweep.drivers.rabbitmq.errors import ChannelClosedError, UnansweredError
from duesweep.drivers.rabbitmq.publisher import Publisher

Found = TypeVar("Found")

_TRIES = 3
_PAUSE_SECONDS = 0.5
# For this time no destination connects again, so that one try serves all destinations.
_REST_SECONDS = 1.0
# After this many batches in a row without any answer, the broker counts as down.
_MAX_FRUITLESS = 3


class _OutOfReach(NamedTuple):
    """Why brokers could not be reached the last time, and until when no session tries again."""

    problem: Problem
    until: float


# By the URLs, in this process. Messages for other destinations wait for each try, so sessions share
# its result, and the next one is a single try.
_out_of_reach: dict[tuple[str, ...], _OutOfReach] = {}
# By the URLs, in this process: the endpoints that did not answer while others of the broker did. If
# one of them is tried alone, and is silent again, the broker is not at fault.
_silent: dict[tuple[str, ...], set[str]] = defaultdict(set)


class Link:
    """One connection at a time, with one channel for questions and one for publications."""

    def __init__(self, brokers: Brokers, max_in_flight: int, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self._brokers = brokers
        # Claimed rows stay locked while this waits.
        self._answer_seconds = min(2 * CLAIM_SECONDS, brokers.timeouts.batch_seconds)
        self._max_in_flight = max_in_flight
        self._connection: RabbitMqConnection | None = None
        self._channel: Channel | None = None
        self._publisher: Publisher | None = None
        self._down: Problem | None = None
        # When to try again a broker that is down; never if the fault does not pass by itself.
        self._try_at = math.inf
        self._fruitless = 0
        self.silent = _silent[brokers.urls]

    def connect(self) -> RabbitMqConnection:
        """The open connection. Raises `DestinationError` if the broker is unavailable."""
        if self._down is not None and self.clock.seconds() < self._try_at:
            raise self._error(self._down)
        if self._connection is None or self._connection.loss is not None:
            self.close()
            self._connection = self._connect_anew()
            self._down = None
        if self._connection.blocked_reason is not None:
            raise DestinationError(self._connection.blocked_reason)
        return self._connection

    @property
    def channel(self) -> Channel:
        """The channel for questions."""
        connection = self.connect()
        if self._channel is None:
            self._channel = Channel(connection)
        return self._channel

    def publisher(self) -> Publisher:
        """The channel for publications; a new one if the last has ended."""
        self.connect()
        if self._publisher is None or self._publisher.fault is not None:
            self._publisher = self.ask(lambda: Publisher(self.connect(), self._max_in_flight))
        return self._publisher

    def ask(self, act: Callable[[], Found]) -> Found:
        """Call `act`, which asks the broker something. If the connection breaks, call it again
        on a new one.

        Raises `ChannelClosedError` for a refusal, `DestinationError` if there is no answer.
        """
        for is_last in (False, True):
            try:
                return act()
            except UnansweredError as error:
                # A broker that has not answered one question is not asked another.
                self._give_up(error.problem)
                raise self._error(error.problem) from error
            except (ChannelClosedError, DestinationError):
                raise
            except QueueError as error:
                if is_last:
                    raise DestinationError.of(error.problem) from error
                self.close()
        raise AssertionError("unreachable")

    def note(self, fault: QueueError | None, *, is_fruitful: bool) -> None:
        """Note after a batch what ended its publisher, and whether the broker answered anything."""
        self._fruitless = 0 if is_fruitful else self._fruitless + 1
        # A broker that answers late would get the same messages again.
        if isinstance(fault, UnansweredError) or (fault and self._fruitless >= _MAX_FRUITLESS):
            self._give_up(fault.problem)

    @property
    def longest_wait_seconds(self) -> float:
        """How long a batch may wait for its confirms."""
        return self._brokers.timeouts.batch_seconds

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._channel = self._publisher = None

    def _give_up(self, down: Problem, seconds: float = math.inf) -> None:
        """Do not use the broker for `seconds`; by default for the rest of the slice."""
        self._down, self._try_at = down, self.clock.seconds() + seconds

    def _error(self, down: Problem) -> DestinationError:
        is_passing = self._try_at < math.inf
        return DestinationError.of(down, transient=is_passing)

    def _connect_anew(self) -> RabbitMqConnection:
        began, urls = self.clock.seconds(), self._brokers.urls
        before = _out_of_reach.get(urls)
        if before is not None and began < before.until:
            self._give_up(before.problem, before.until - began)
            raise self._error(before.problem)
        deadline = began + min(CLAIM_SECONDS, self._brokers.timeouts.connect_seconds)
        for tries_left in reversed(range(1 if before else _TRIES)):
            try:
                connection = RabbitMqConnection(self._brokers, self._answer_seconds)
            except (QueueError, ConfigError) as error:
                now = self.clock.seconds()
                is_last, is_wrong = not tries_left or now > deadline, isinstance(error, ConfigError)
                if is_last or is_wrong:
                    rest = max(_REST_SECONDS, PAUSE_PER_TRY * (now - began))
                    self._give_up(error.problem, math.inf if is_wrong else rest)
                    if not is_wrong:
                        _out_of_reach[urls] = _OutOfReach(error.problem, now + rest)
                    raise self._error(error.problem) from error
                self.clock.sleep(_PAUSE_SECONDS)
            else:
                _out_of_reach.pop(urls, None)
                return connection
        raise AssertionError("unreachable")


def service_error(error: DestinationError) -> DuesweepError:
    """Why no destination can be reached: the error of a setting, or of the broker."""
    if isinstance(error.__cause__, ConfigError):
        return error.__cause__
    return QueueError.of(error.problem, transient=True)
