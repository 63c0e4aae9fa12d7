"""Finds what `setup` creates, and in which databases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from duesweep.config import Config
from duesweep.core.errors import ConfigError
from duesweep.core.routing import NoRouteError, Route, first_route, own_route
from duesweep.stores.base import Store
from duesweep.wiring import custom
from duesweep.wiring.context import own_names
from duesweep.wiring.dialects import (
    SetupStep,
    check_shared_transaction,
    connections,
    dialect,
    queue_kind,
)

_MORE_GRANTS = """\
-- Queues of other endpoints: `duesweep doctor --print-sql`, run as this role, prints the grants for
-- those that messages wait for. `duesweep queue send --delay` takes INSERT on the delayed table."""


@dataclass(frozen=True, slots=True)
class Installer:
    """Sets an endpoint up, one database after another. `custom` says what a custom store has done
    for it, because it does not say what it creates.
    """

    steps: Sequence[SetupStep]
    custom: str | None = None

    def script(self, grant_to: str | None = None) -> str:
        """All statements, with those that grant the role `grant_to` what sweeps need. If there are
        several databases, comments say where each has to run.
        """
        parts = []
        for step in self.steps:
            if len(self.steps) > 1:
                parts.append(f"-- In the database that {step.setting} names:")
            parts.append(step.script())
            if grant_to is not None:
                parts.append(step.grants(grant_to))
        return "\n".join([*parts, *([] if grant_to is None else [_MORE_GRANTS])])

    def install(self, *, rebind: bool) -> Sequence[object]:
        """Create what is missing. Returns the created tables."""
        return [table for step in self.steps for table in step.install(rebind=rebind)]


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

    def grants(self, role: str) -> str:  # noqa: ARG002 - the store knows what it needs
        """A comment: there are no statements to show."""
        return f"-- Grant what {type(self.store).__name__} needs as its own documentation says."

    def install(self, *, rebind: bool) -> Sequence[object]:
        """Let the store set itself up. Returns nothing: it does not say what it created. Raises
        `ConfigError` for `rebind`.
        """
        if rebind:
            raise ConfigError(
                f"--rebind frees duesweep's journals only, but {type(self.store).__name__} has a "
                "journal of its own",
                advice="leave --rebind out, and free that journal with the store's own tools",
            )
        if self._sets_itself_up:
            self.store.set_up_infrastructure()
        return []

    @property
    def done(self) -> str:
        """What `install` has done."""
        name = type(self.store).__name__
        if self._sets_itself_up:
            return f"{name} has run its own setup."
        return f"{name} has no set_up_infrastructure(), so what it needs has to exist already."


def installer(config: Config) -> Installer:
    """The installer of this configuration's endpoint."""
    own = custom.store(config) if config.store.is_custom else None
    services = _queues_by_connection(config)
    beside: tuple[object, ...] = ()
    readable: tuple[object, ...] = ()
    steps: list[SetupStep] = []
    for name, connection in connections(config).items():
        if own is not None:
            check_shared_transaction(connection, own)
        kind = queue_kind(connection.kind)
        queues = kind.queue_tables(connection, services.get(name, []))
        if connection.is_beside and own is None:
            beside += queues
            readable += queues if connection.section.readable_body else ()
        elif queues:
            steps.append(kind.queue_step(connection, queues))
    if own is not None:
        step = CustomStoreStep(own)
        return Installer([step, *steps], step.done)
    return Installer([dialect(config.store.dialect).store_step(config, beside, readable), *steps])


def _queues_by_connection(config: Config) -> Mapping[str, list[str | None]]:
    """The endpoint's own queue (None) and the error queue, by their connections."""
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
                # The same text as a sweep's.
                raise ConfigError(
                    f"retry.error_queue: {error}", advice="add a [[route]] for it"
                ) from error
            # Messages for the own queue fail, as all do that no route takes. The doctor says so.
            continue
        found.setdefault(route.connection, []).append(route.name_of(written))
    return found
