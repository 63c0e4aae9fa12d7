"""Stores that users bring: one that is right, and some that are not."""

from duesweep.core.address import PostgreSqlAddresses, TableName
from duesweep.core.errors import StoreError
from duesweep.drivers.postgresql.session import connect
from duesweep.stores import base
from duesweep.stores.base import StoreSettings
from duesweep.stores.due import Horizon, Upcoming
from duesweep.stores.kinds import POSTGRESQL_KINDS
from duesweep.stores.postgresql import POSTGRESQL
from duesweep.stores.sql_task import SqlTask
from duesweep.stores.store import SqlDriver, SqlStore


class AcmeStore(SqlStore):
    """PostgreSQL's delayed table under a name of our own."""

    def __init__(self, settings: StoreSettings) -> None:
        schema = settings.schema or "public"
        table = TableName(schema, settings.delayed_table or f"{settings.endpoint}.Delayed")
        super().__init__(
            dialect=POSTGRESQL,
            kind=POSTGRESQL_KINDS["postgresql"],
            dsn=settings.dsn,
            source=settings.name or f"acme/{settings.endpoint}",
            candidates=(table,),
            addresses=PostgreSqlAddresses(settings.endpoint, schema),
            writer_time_zone=settings.options.get("zone"),
            timeouts=settings.timeouts,
        )


class BlindStore(AcmeStore):
    """It sweeps, and does nothing for people."""

    def operators(self) -> None:
        return None


class BatchesStore(AcmeStore):
    """Its own tasks know the contract of batches only, and these tell that they were opened."""

    def open_task(self) -> SqlTask:
        raise StoreError("It knows batches only", transient=False)


class ForgetfulStore(AcmeStore):
    """It sweeps, and cannot tell when the next message is due."""

    def open_driver(self) -> SqlDriver:
        session = SqlDriver(connect(self.dsn, self.timeouts.driver), self)
        session.due.next_due = lambda _: Upcoming()  # type: ignore[assignment, method-assign]
        return session


class SlowStore(AcmeStore):
    """It sweeps, but the search for the next message takes too long."""

    def open_driver(self) -> SqlDriver:
        session = SqlDriver(connect(self.dsn, self.timeouts.driver), self)
        session.due.next_due = self._find_too_long  # type: ignore[assignment, method-assign]
        return session

    def _find_too_long(self, _: Horizon) -> Upcoming:
        raise StoreError("The statement took too long", transient=True)


class RaisingStore:
    def __init__(self, settings: StoreSettings) -> None:
        raise RuntimeError(f"no wallet at {settings.dsn}")


class LazilyRaisingStore:
    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    @property
    def source(self) -> str:
        raise KeyError(self._settings.dsn)


class StoreOfNothing:
    def __init__(self) -> None:
        pass


class HalfAStore:
    source = own_queue = "x"
    initialise = open_task = open_driver = print

    def __init__(self, _: StoreSettings) -> None:
        pass


class StrangeStore(HalfAStore, base.Store):
    """All required parts, without a dialect. It expects its tables to exist."""
