"""Which queue each role needs and on which connection; the steps of `setup` that create them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from duesweep.config import Config
from duesweep.config.adapters import adapter, connections, named_by, sql_adapter
from duesweep.config.adapters.context import (
    check_shared_transaction,
    own_names,
    routes_of,
    store_of,
)
from duesweep.core.errors import ConfigError, DuesweepError, MessageError
from duesweep.core.routing import (
    Allowed,
    DestinationNotAllowedError,
    NoRouteError,
    first_route,
    own_route,
)
from duesweep.queues.tables import ERROR, OWN, ROUTED, SUBSCRIPTION_TABLE, WAITED_FOR
from duesweep.stores import tables
from duesweep.stores.base import Store
from duesweep.stores.setup import SqlSetup
from duesweep.stores.store import SqlStore

if TYPE_CHECKING:
    from duesweep.queues.rabbitmq.topology import RabbitMqSetup

    # The set-up of one database; `setting` names it.
    SetupStep: TypeAlias = SqlSetup | RabbitMqSetup | "CustomStoreStep"

# Which setting has the name of a role's queue.
_SETTINGS = {OWN: "store.endpoint", ERROR: "retry.error_queue"}


@dataclass(frozen=True, slots=True)
class WantedQueue:
    """A queue that a role needs. `written` is its address in messages and settings; `name` is that
    on `connection`, None for the endpoint's own queue if no route names it. `problem`: no route
    fits it, or nothing may be delivered to it, so it is on no connection.
    """

    role: str
    written: str
    connection: str = ""
    name: str | None = None
    problem: MessageError | None = None

    @property
    def advice(self) -> str:
        """What to do about the problem."""
        if isinstance(self.problem, DestinationNotAllowedError):
            return "correct sweep.allow_destinations"
        return f"add a [[route]] whose destination fits {self.written!r}"


def required_queues(config: Config) -> Sequence[WantedQueue]:
    """The endpoint's own queue, if it is a table, and the error queue, if there is one."""
    wanted: list[WantedQueue] = []
    if config.store.knows_own_queue:
        wanted.append(_find(config, OWN, None))
    if config.retry.error_queue is not None:
        wanted.append(_find(config, ERROR, config.retry.error_queue))
    return wanted


def destination_queues(config: Config, destinations: Iterable[str]) -> Sequence[WantedQueue]:
    """The queues that messages for these destinations go to."""
    allowed = Allowed(config.sweep.allow_destinations, config.retry.error_queue)
    wanted: list[WantedQueue] = []
    for destination in destinations:
        try:
            allowed.check(destination)
            wanted.append(_find(config, WAITED_FOR, destination))
        except DestinationNotAllowedError as error:
            wanted.append(WantedQueue(WAITED_FOR, destination, problem=error))
    return wanted


def waiting_destinations(config: Config, most: int) -> Sequence[str]:
    """Destinations of the `most` messages that are due first, without the endpoint's own queue. Of
    a custom store: none.
    """
    if config.store.is_custom:
        return ()
    store = store_of(config)
    assert isinstance(store, SqlStore)  # all stores of duesweep are
    return tables.waiting_destinations(store, most)


def routed_queues(config: Config) -> Iterator[WantedQueue]:
    """The queues that a [[route]] names, whatever the destination is."""
    for route in routes_of(config):
        if route.only_queue is not None:
            yield WantedQueue(ROUTED, route.pattern, route.connection, route.only_queue)


def _find(config: Config, role: str, address: str | None) -> WantedQueue:
    routes = routes_of(config)
    written = config.store.endpoint if address is None else address
    if not routes:
        (only,) = connections(config)
        return WantedQueue(role, written, only, address)
    try:
        if address is None:
            route, written = own_route(routes, own_names(config))
        else:
            route = first_route(routes, address)
    except NoRouteError as error:
        return WantedQueue(role, written, problem=error)
    return WantedQueue(role, written, route.connection, route.name_of(written))


@dataclass(frozen=True, slots=True)
class CustomStoreStep:
    """Lets a custom store set itself up, if it can."""

    store: Store
    setting: str = "store.dsn"

    @property
    def _sets_itself_up(self) -> bool:
        return type(self.store).set_up_infrastructure is not Store.set_up_infrastructure

    def script(self) -> str:
        """A comment: there are no statements to show."""
        name = type(self.store).__name__
        if self._sets_itself_up:
            return f"-- {name} sets itself up."
        return f"-- {name} expects its tables to exist."

    def grants(self, role: str) -> str:  # noqa: ARG002 - the store knows its tables
        """A comment: there are no statements to show."""
        return f"-- Grant what {type(self.store).__name__} needs as its own documentation says."

    def install(self, *, rebind: bool) -> Sequence[str]:
        """Let the store set itself up. Raises `ConfigError` for `rebind`."""
        if rebind:
            raise ConfigError(
                f"--rebind frees duesweep's journals only, but {type(self.store).__name__} has a "
                "journal of its own",
                advice="leave --rebind out, and free that journal with the store's own tools",
            )
        name = type(self.store).__name__
        if not self._sets_itself_up:
            return [f"{name} has no set_up_infrastructure(), so its tables must exist already."]
        self.store.set_up_infrastructure()
        return [f"{name} has run its own setup."]


def setup_steps(config: Config) -> Sequence["SetupStep"]:
    """What `setup` creates, one database after another, the store's first."""
    own = store_of(config)
    wanted = required_queues(config)
    for one in wanted:
        if one.problem is not None and one.role == ERROR:
            # The same text as a sweep's. Messages for the own queue fail, as all do that no route
            # takes: the doctor says so.
            raise ConfigError(
                f"retry.error_queue: {one.problem}", advice="add a [[route]] for it"
            ) from one.problem
    beside: dict[Any, str] = {}
    readable: tuple[Any, ...] = ()
    steps: list[SetupStep] = []
    for name, connection in connections(config).items():
        if config.store.is_custom:
            check_shared_transaction(connection, own)
        kind = adapter(connection.kind)
        queues: dict[Any, str] = {}
        for one in wanted:
            if one.connection == name:
                with named_by(_SETTINGS[one.role]):
                    queues.setdefault(kind.queue_table(connection, one.name), one.role)
        if connection.is_beside and not config.store.is_custom:
            beside |= queues
            readable += tuple(queues) if connection.section.readable_body else ()
        elif queues:
            steps.append(kind.setup_step(connection, queues))
    if config.store.is_custom:
        return [CustomStoreStep(own), *steps]
    assert isinstance(own, SqlStore)  # all stores of duesweep are
    # Other products keep no subscriptions with their timeouts.
    knows_transport = own.kind.has_own_queue
    subscriptions = own.addresses.parse(SUBSCRIPTION_TABLE) if knows_transport else None
    tables = sql_adapter(config.store.dialect)
    wanted_queues = [tables.wanted(role, table) for table, role in beside.items()]
    step = own.setup_step(queues=wanted_queues, readable=readable, subscriptions=subscriptions)
    return [step, *steps]


def queue_step(config: Config, addresses: Iterable[str | None]) -> SqlSetup:
    """What creates the queue tables at these addresses, next to the store; None: the own queue."""
    (connection,) = connections(config).values()
    kind = sql_adapter(connection.kind)
    queues = {kind.queue_table(connection, address): WAITED_FOR for address in addresses}
    return kind.setup_step(connection, queues)


def refuse_misspelt(steps: "Sequence[SetupStep]", *, needs_store: bool = True) -> None:
    """Raise `ConfigError` if the store's delayed table would be new next to one that may be meant.
    Unless it `needs_store`, nothing if that cannot be asked.
    """
    step, problem = steps[0], None
    try:
        problem = step.misspelt() if isinstance(step, SqlSetup) else None
    except DuesweepError:
        if needs_store:
            raise
    if problem is not None:
        raise ConfigError.of(problem)


def refuse_other_tables(steps: "Sequence[SetupStep]") -> None:
    """Raise `ConfigError` if a table is there with another shape. Nothing is created yet."""
    for step in steps:
        if isinstance(step, SqlSetup):
            step.check()
