"""What `setup` creates, and where."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from duesweep.config import Config
from duesweep.core.routing import NoRouteError, Route, first_route, own_route
from duesweep.errors import ConfigError
from duesweep.stores.base import Store
from duesweep.wiring import custom
from duesweep.wiring.context import own_names
from duesweep.wiring.dialects import SetupStep, connections, dialect, queue_kind, refuse_apart


@dataclass(frozen=True, slots=True)
class Installer:
    """Sets an endpoint up, place by place. `brought` is the class of a store that sets itself up,
    and does not say what it creates.
    """

    steps: Sequence[SetupStep]
    custom: str | None = None

    def script(self) -> str:
        """All statements, for whoever is to run them; comments say where, if there is a choice."""
        if len(self.steps) == 1:
            return self.steps[0].script()
        return "\n".join(
            f"-- In the database that {step.setting} names:\n{step.script()}" for step in self.steps
        )

    def install(self, *, rebind: bool) -> Sequence[object]:
        """Create what is missing; the tables created."""
        return [table for step in self.steps for table in step.install(rebind=rebind)]


@dataclass(frozen=True, slots=True)
class CustomStoreStep:
    """A store that users bring sets itself up."""

    store: Store
    setting: str = "store.dsn"

    def script(self) -> str:
        """There are no statements to show."""
        return f"-- {type(self.store).__name__} sets itself up."

    def install(self, *, rebind: bool) -> Sequence[object]:
        """Let it; it does not say what it created. Raises `ConfigError` for `rebind`."""
        if rebind:
            raise ConfigError(
                f"--rebind frees the journals that duesweep keeps, and {type(self.store).__name__} "
                "keeps its own",
                advice="leave --rebind out, and free that one by the store's own means",
            )
        self.store.set_up_infrastructure()
        return []


def installer(config: Config) -> Installer:
    """What sets this configuration's endpoint up."""
    own = custom.store(config) if config.store.is_custom else None
    services = _queues_by_connection(config)
    beside: tuple[object, ...] = ()
    steps: list[SetupStep] = []
    for name, connection in connections(config).items():
        if own is not None:
            refuse_apart(connection, own)
        kind = queue_kind(connection.kind)
        queues = kind.queue_tables(connection, services.get(name, []))
        if connection.is_beside and own is None:
            beside += queues
        elif queues:
            steps.append(kind.queue_step(connection, queues))
    if own is not None:
        return Installer([CustomStoreStep(own), *steps], type(own).__name__)
    return Installer([dialect(config.store.dialect).store_step(config, beside), *steps])


def _queues_by_connection(config: Config) -> Mapping[str, list[str | None]]:
    """The endpoint's own queue (None) and the error queue, each with the connection it is on."""
    wanted: list[str | None] = []
    if config.store.knows_own_queue:
        wanted.append(None)
    if config.retry.error_queue:
        wanted.append(config.retry.error_queue)
    if not config.route:
        (only,) = connections(config)
        return {only: wanted}
    routes = [Route(r.destination, r.connection, r.queue) for r in config.route]
    found: dict[str, list[str | None]] = {}
    for address in wanted:
        try:
            if address is None:
                route, written = own_route(routes, own_names(config))
            else:
                route, written = first_route(routes, address), address
        except NoRouteError as error:
            if address is not None:
                # As a sweep says it.
                raise ConfigError(f"retry.error_queue: {error}", advice="add one for it") from error
            # Its messages fail, as everything does that no route takes; the doctor says so.
            continue
        found.setdefault(route.connection, []).append(route.name_of(written))
    return found
