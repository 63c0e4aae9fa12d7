"""Several queue connections as one queue: the route of a destination selects the connection."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from duesweep.core.errors import (
    ConfigError,
    DestinationError,
    DuesweepError,
    MessageError,
    Problem,
    StoreError,
    TransactionLostError,
    may_pass,
)
from duesweep.core.message import Message
from duesweep.core.policy import PAUSE_PER_TRY
from duesweep.core.routing import Allowed, NoRouteError, Route, first_route, own_route
from duesweep.core.world import StoreClock, World
from duesweep.queues.base import Confirmation, Destination, Queue, QueueSession
from duesweep.stores.base import DriverSession
from duesweep.stores.task import Table, TaskSession

# For this time a broken connection is not opened again, so that one try serves all destinations.
_REST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RoutedQueue(Queue):
    """`connections` by name. `own_names` are the names of the endpoint's own queue in routes. To
    destinations that are not `allowed` nothing is delivered.
    """

    connections: Mapping[str, Queue]
    routes: tuple[Route, ...]
    own_names: tuple[str, ...]
    allowed: Allowed = field(default_factory=Allowed)
    world: World = field(default_factory=World)

    @property
    def shares_transaction(self) -> bool:
        return all(queue.shares_transaction for queue in self.connections.values())

    @property
    def longest_delay(self) -> int:
        return max(queue.longest_delay for queue in self.connections.values())

    def notices(self, store: DriverSession) -> Sequence[Problem]:
        """The faults of its connections. One that is out of reach has none: it only blocks its
        own destinations.
        """
        found: list[Problem] = []
        for queue in self.connections.values():
            with suppress(StoreError):
                found += queue.notices(store)
        return found

    def route(self, address: str) -> tuple[str, str]:
        route = first_route(self.routes, address)
        return route.connection, route.name_of(address)

    @contextmanager
    def open(self, store: TaskSession) -> Iterator["RoutedQueueSession"]:
        """Open a session on each connection. If one is out of reach, only its destinations are
        blocked.
        """
        with ExitStack() as stack:
            session = RoutedQueueSession(
                self, lambda name: stack.enter_context(self.connections[name].open(store))
            )
            for name in self.connections:
                session.open(name)
            yield session

    def check(self, error_queue: str | None, store: DriverSession) -> None:
        """Check each connection, and the error queue on the connection of its route."""
        holder, name = None, None
        if error_queue is not None:
            try:
                holder, name = self.route(error_queue)
            except NoRouteError as error:
                raise ConfigError(
                    f"retry.error_queue: {error}", advice="add a [[route]] for it"
                ) from error
        for connection, queue in self.connections.items():
            try:
                queue.check(name if connection == holder else None, store)
            except StoreError as error:
                # A connection that is out of reach only blocks its own destinations later.
                if connection == holder or queue.shares_transaction or not error.transient:
                    raise


@dataclass(frozen=True, slots=True)
class RoutedDestination:
    """A destination on one of the connections."""

    connection: str
    destination: Destination

    def __str__(self) -> str:
        return str(self.destination)


@dataclass(frozen=True, slots=True)
class _Blocked:
    """Why a connection is unavailable, and when to open it again."""

    text: str
    until: float


class RoutedQueueSession(QueueSession):
    """One task's session on all its queues. `sessions` are the open ones, by connection;
    `open_session` opens one.
    """

    def __init__(self, queue: RoutedQueue, open_session: Callable[[str], QueueSession]) -> None:
        self.sessions: dict[str, QueueSession] = {}
        self._queue = queue
        self._clock = queue.world.clock
        self._open_session = open_session
        self._blocked: dict[str, _Blocked] = {}
        # Connections with deliveries that are not committed.
        self._used: set[str] = set()

    def open(self, connection: str) -> None:
        """Open a session on a connection. If it is out of reach, stop delivering to it, unless its
        service is the store's.
        """
        began = self._clock.seconds()
        try:
            self.sessions[connection] = self._open_session(connection)
        except DuesweepError as error:
            if self._queue.connections[connection].shares_transaction:
                raise
            self._block(connection, error, self._clock.seconds() - began)

    def _block(self, connection: str, error: DuesweepError, took_seconds: float = 0) -> None:
        """Stop delivering to a connection, for a while or for the rest of the slice: the longer,
        the longer it took to find out, because other destinations wait for that.
        """
        self.sessions.pop(connection, None)
        self._used.discard(connection)
        pause_seconds = max(_REST_SECONDS, PAUSE_PER_TRY * took_seconds)
        rest_seconds = pause_seconds if may_pass(error) else math.inf
        text = f"queues.{connection}: {error}"
        self._blocked[connection] = _Blocked(text, self._clock.seconds() + rest_seconds)

    def resolve(self, address: str | None) -> RoutedDestination:
        routes = self._queue.routes
        if address is None:
            route, written = own_route(routes, self._queue.own_names)
        else:
            self._queue.allowed.check(address)
            route, written = first_route(routes, address), address
        session = self._session(route.connection)
        return RoutedDestination(route.connection, session.resolve(route.name_of(written)))

    def longest_delay(self, destination: Destination) -> int:
        session, own = self._session_of(destination)
        return session.longest_delay(own)

    def deliver(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        session, own = self._session_of(destination)
        return self._send(destination, lambda: session.deliver(own, messages))

    def table(self, destination: Destination) -> Table | None:
        session, own = self._session_of(destination)
        return session.table(own)

    def defer(
        self, destination: Destination, messages: Sequence[Message], clock: StoreClock
    ) -> dict[str, MessageError]:
        session, own = self._session_of(destination)
        return self._send(destination, lambda: session.defer(own, messages, clock))

    def confirm(self, seconds: float) -> Confirmation:
        """Ask each connection that has deliveries. All answer within `seconds` in all."""
        deadline = self._clock.seconds() + seconds
        refused: dict[str, MessageError] = {}
        unconfirmed: list[str] = []
        for name in sorted(self._used):
            answer = self.sessions[name].confirm(max(0, deadline - self._clock.seconds()))
            refused |= answer.refused
            unconfirmed += answer.unconfirmed
        return Confirmation(refused, frozenset(unconfirmed))

    def commit(self) -> None:
        self._end(lambda session: session.commit())

    def rollback(self) -> None:
        self._end(lambda session: session.rollback())

    def _end(self, end: Callable[[QueueSession], None]) -> None:
        for name in sorted(self._used):
            end(self.sessions[name])
        self._used.clear()

    def _send(
        self, destination: Destination, send: Callable[[], dict[str, MessageError]]
    ) -> dict[str, MessageError]:
        assert isinstance(destination, RoutedDestination)  # from `resolve`
        name = destination.connection
        self._used.add(name)
        try:
            return send()
        except (DestinationError, TransactionLostError):
            raise
        except StoreError as error:
            if self._queue.connections[name].shares_transaction:
                raise
            # Its deliveries of this batch are lost: the batch starts again without it.
            self._block(name, error)
            raise TransactionLostError.of(error.problem) from error

    def _session_of(self, destination: Destination) -> tuple[QueueSession, Destination]:
        assert isinstance(destination, RoutedDestination)  # from `resolve`
        return self._session(destination.connection), destination.destination

    def _session(self, connection: str) -> QueueSession:
        blocked = self._blocked.get(connection)
        if connection not in self.sessions and blocked and self._clock.seconds() >= blocked.until:
            self.open(connection)
        if connection not in self.sessions:
            blocked = self._blocked[connection]
            raise DestinationError(blocked.text, transient=blocked.until < math.inf)
        return self.sessions[connection]
