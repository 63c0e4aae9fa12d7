"""Finds the queues that the doctor checks besides the endpoint's own and the error queue: the
destinations of waiting messages, and queues of a [[route]] without a wildcard.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from duesweep.checks.finding import Check, Finding, fault, skipped
from duesweep.config import Config
from duesweep.core.errors import DuesweepError
from duesweep.core.routing import NoRouteError, Route, first_route
from duesweep.queues.tables import ROUTED, WAITED_FOR
from duesweep.wiring.dialects import QueueConnection
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
