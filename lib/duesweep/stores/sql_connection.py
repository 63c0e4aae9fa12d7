"""The connection of a driver's session on a relational store, which its parts share."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from duesweep.core.policy import Pause
from duesweep.drivers.statements import Session
from duesweep.stores.dialect import Location
from duesweep.stores.leases import Leases
from duesweep.stores.summary import aware
from duesweep.stores.tables import estimated_rows


class SqlConnection:
    """A session on a delayed table and the journal next to it."""

    def __init__(self, session: Session, location: Location) -> None:
        self.source = location.source
        self.location = location
        self.delayed = location.find_delayed(session)
        self.session = session.named(location.names(self.delayed))
        self.leases = Leases(
            self.session,
            lambda: location.dialect.connect(location.dsn, location.timeouts.driver),
            location.world,
        )
        self._zone: str | None = None

    @property
    def zone(self) -> str:
        """The writers' zone."""
        if self._zone is None:
            self._zone = self.location.dialect.zone(self.session, self.location) or "UTC"
        return self._zone

    def patient(self, messages: int) -> AbstractContextManager[None]:
        """While a statement is about this many messages, it may take its time."""
        return self.session.wait_longer(self.location.timeouts.plan_seconds(messages))

    def looking_at_all(self) -> AbstractContextManager[None]:
        """While a statement looks at all messages, due or not, it may take its time."""
        return self.patient(estimated_rows(self.session, self.delayed))


class SqlPart:
    """One part of a driver's session."""

    def __init__(self, at: SqlConnection) -> None:
        self.source = at.source
        self._at = at
        self._session = at.session
        self._location = at.location
        self._dialect = at.location.dialect
        self._kind = at.location.kind
        self._delayed = at.delayed


def read_pauses(statements: Session, source: str) -> Sequence[Pause]:
    """The pauses of a source in force, by the server's clock."""
    return [
        Pause(
            row.pattern,
            aware(row.paused_at),
            None if row.until_at is None else aware(row.until_at),
            row.given_by,
            row.reason,
        )
        for row in statements.rows("read_pauses", source=source)
    ]
