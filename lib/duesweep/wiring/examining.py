"""Finds what the doctor checks: each database that the configuration names, with its queues: the
endpoint's own, the error queue, the destinations of waiting messages, and queues of a [[route]]
without a wildcard.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from duesweep.checks.finding import Check, Finding, fault, fault_of, ok, skipped
from duesweep.config import Config, route_notice
from duesweep.core.errors import ConfigError, DuesweepError
from duesweep.core.routing import NoRouteError, Route, first_route, own_route
from duesweep.doctor.examine import Examination, Service
from duesweep.doctor.spark import Needs
from duesweep.queues.tables import ERROR, OWN, ROUTED, WAITED_FOR
from duesweep.wiring.context import own_names, sweep_context
from duesweep.wiring.dialects import QueueConnection, connections, queue_kind
from duesweep.wiring.services import services

# The doctor reads this many messages, and checks this many of their destinations.
_MESSAGES, _MOST = 1_000, 50
_WILDCARDS = re.compile(r"[*?[]")


@dataclass(slots=True)
class Destinations:
    """The destinations to check. The store is asked once, at the first use."""

    config: Config
    _waiting: Sequence[str] | None = field(default=None, init=False)

    def of(self, connection: QueueConnection) -> Iterator[tuple[str, str | None]]:
        """Roles and addresses of queues that are tables on a connection."""
        if connection.kind == "rabbitmq":
            return
        for destination in self.waiting()[:_MOST]:
            if not self.config.route:
                yield WAITED_FOR, destination
            elif (route := self._route_of(destination)) and route.connection == connection.name:
                yield WAITED_FOR, route.name_of(destination)
        for route in self._routes():
            if route.connection == connection.name and not _WILDCARDS.search(route.pattern):
                yield ROUTED, route.name_of(route.pattern)

    def findings(self) -> Iterator[Finding]:
        """Findings for destinations that no route takes, and for those that were not checked."""
        for destination in self.waiting()[:_MOST]:
            if self.config.route and self._route_of(destination) is None:
                yield fault(
                    Check.ROUTE,
                    destination,
                    f"No [[route]] takes the destination {destination!r} of waiting messages: they "
                    "fail",
                    f"Add a [[route]] whose destination fits {destination!r}",
                )
        more = len(self.waiting()) - _MOST
        if more > 0:
            text = f"Messages wait for {more} more destinations; their queues were not checked"
            yield skipped(Check.ROUTE, "destinations", text)

    def waiting(self) -> Sequence[str]:
        """Distinct destinations of the messages that are due first. None where they cannot be read:
        the store's own findings say why.
        """
        if self._waiting is None:
            store = self.config.store
            try:
                found = (
                    ()
                    if store.is_custom
                    else services(store.dialect).waiting(self.config, _MESSAGES)
                )
            except DuesweepError:
                found = ()
            self._waiting = found
        return self._waiting

    def _route_of(self, destination: str) -> Route | None:
        try:
            return first_route(self._routes(), destination)
        except NoRouteError:
            return None

    def _routes(self) -> Sequence[Route]:
        return [Route(r.destination, r.connection, r.queue) for r in self.config.route]


# The address of each queue, by its role.
_Roles = dict[str, str | None]


def examination(config: Config) -> Examination:
    """What the doctor has to check. Connects to nothing; raises `ConfigError` as a sweep does."""
    roles, routes = _roles_by_connection(config)
    return Examination(
        sweep_context(config), list(_services(config, roles)), routes, _needs(config)
    )


def _services(config: Config, roles: dict[str, _Roles]) -> Iterator[Service]:
    found = connections(config)
    destinations = Destinations(config)

    def queues(*connections: QueueConnection) -> Sequence[tuple[str, object]]:
        tables: dict[object, str] = {}
        for connection in connections:
            asked = [*roles.get(connection.name, {}).items(), *destinations.of(connection)]
            for role, table in _tables(connection, asked):
                tables.setdefault(table, role)
        return [(role, table) for table, role in tables.items()]

    if not config.store.is_custom:
        beside = [connection for connection in found.values() if connection.is_beside]
        look = partial(queues, *beside)
        yield services(config.store.dialect).service(config, None, look)
        yield Service("store.dsn", destinations.findings)
    for connection in found.values():
        if not connection.is_beside:
            look = partial(queues, connection)
            yield services(connection.kind).service(config, connection, look)


def _tables(
    connection: QueueConnection, roles: Iterable[tuple[str, str | None]]
) -> Sequence[tuple[str, object]]:
    """Roles and tables of queues on a connection. An address that cannot be read is left out: the
    sweep refuses it with a reason.
    """
    tables: list[tuple[str, object]] = []
    for role, address in roles:
        try:
            (table,) = queue_kind(connection.kind).queue_tables(connection, [address])
        except ConfigError:
            continue
        tables.append((role, table))
    return tables


def _roles_by_connection(config: Config) -> tuple[dict[str, _Roles], Sequence[Finding]]:
    wanted: _Roles = {}
    if config.store.knows_own_queue:
        wanted[OWN] = None
    if config.retry.error_queue is not None:
        wanted[ERROR] = config.retry.error_queue
    if not config.route:
        (only,) = connections(config)
        return {only: wanted}, list(_check_routes(config))
    routes = [Route(r.destination, r.connection, r.queue) for r in config.route]
    roles: dict[str, _Roles] = {}
    findings: list[Finding] = []
    for role, address in wanted.items():
        written = config.store.endpoint if address is None else address
        try:
            if address is None:
                route, written = own_route(routes, own_names(config))
            else:
                route = first_route(routes, written)
        except NoRouteError as error:
            findings.append(_route_fault(role, written, error))
            continue
        roles.setdefault(route.connection, {})[role] = route.name_of(written)
        text = f"The {role} is {route.name_of(written)} on queues.{route.connection}"
        findings.append(ok(Check.ROUTE, written, text))
    return roles, findings


def _check_routes(config: Config) -> Iterator[Finding]:
    notice = route_notice(config)
    if notice is not None:
        yield fault_of(Check.ROUTE, "[[route]]", notice)


def _route_fault(role: str, written: str, error: NoRouteError) -> Finding:
    text = f"{error}. It is the {role}: messages for it fail"
    return fault(Check.ROUTE, written, text, f"Add a [[route]] whose destination fits {written!r}")


def _needs(config: Config) -> Needs:
    """What executors have to load, for the store and all connections."""
    dsns: dict[str, list[str]] = {}
    if not config.store.is_custom:
        dsns[config.store.dialect] = [config.store.dsn.get_secret_value()]
    for connection in connections(config).values():
        own = [connection.dsn.get_secret_value()] if connection.dsn else []
        dsns.setdefault(connection.kind, []).extend(own)
    found = [services(kind).needs(own) for kind, own in dsns.items()]
    modules = ["duesweep", "pyarrow", *(name for needs in found for name in needs.modules)]
    return Needs(modules, [name for needs in found for name in needs.odbc_drivers])
