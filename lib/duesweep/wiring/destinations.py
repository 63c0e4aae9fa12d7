"""Which queues the doctor looks at besides the endpoint's own and the error queue: those that
messages wait for, and those that a [[route]] names without a wildcard.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from duesweep.checks.finding import Check, Finding, fault, skipped
from duesweep.config import Config
from duesweep.core.routing import NoRouteError, Route, first_route
from duesweep.errors import DuesweepError
from duesweep.queues.wanted import ROUTED, WAITED_FOR
from duesweep.wiring.dialects import QueueConnection
from duesweep.wiring.services import services

# So many messages are looked at, and so many of their destinations.
_MESSAGES, _MOST = 1_000, 50
_WILDCARDS = re.compile(r"[*?[]")


@dataclass(slots=True)
class Destinations:
    """The store is asked once, when somebody first wants to know."""

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
        """Destinations that no route takes, and how many were not looked at."""
        for destination in self.waiting()[:_MOST]:
            if self.config.route and self._route_of(destination) is None:
                yield fault(
                    Check.ROUTE,
                    destination,
                    f"No [[route]] takes the destination {destination!r}, which messages wait for: "
                    "they fail",
                    f"Add a [[route]] whose destination fits {destination!r}",
                )
        more = len(self.waiting()) - _MOST
        if more > 0:
            text = f"Messages wait for {more} more destinations, whose queues were not looked at"
            yield skipped(Check.ROUTE, "destinations", text)

    def waiting(self) -> Sequence[str]:
        """Distinct destinations of the messages that are due first; none where they cannot be read:
        what keeps the doctor from it is said of the store.
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
