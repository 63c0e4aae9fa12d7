"""Stores that users bring: one that is right, and some that are not."""

from datetime import datetime

from duesweep.core.address import PostgreSqlAddresses, TableName
from duesweep.drivers.postgresql.session import connect
from duesweep.errors import StoreError
from duesweep.stores.postgresql.driver import PostgreSqlDriverSession
from duesweep.stores.postgresql.store import PostgreSqlStore
from duesweep.stores.values import Horizon, StoreSettings


class AcmeStore(PostgreSqlStore):
    """PostgreSQL's delayed table under a name of our own."""

    def __init__(self, settings: StoreSettings) -> None:
        schema = settings.schema or "public"
        super().__init__(
            dsn=settings.dsn,
            source=settings.name or f"acme/{settings.endpoint}",
            delayed=TableName(schema, settings.delayed_table or f"{settings.endpoint}.Delayed"),
            addresses=PostgreSqlAddresses(settings.endpoint, schema),
            writer_time_zone=settings.options.get("zone"),
            timeouts=settings.timeouts,
        )


class BlindStore(AcmeStore):
    """It sweeps, and cannot show what waits."""

    def open_driver(self) -> PostgreSqlDriverSession:
        return BlindSession(connect(self.dsn, self.timeouts.driver), self)


class BlindSession(PostgreSqlDriverSession):
    look = None


class ForgetfulStore(AcmeStore):
    """It sweeps, and cannot tell when the next message is due."""

    def open_driver(self) -> PostgreSqlDriverSession:
        return ForgetfulSession(connect(self.dsn, self.timeouts.driver), self)


class ForgetfulSession(PostgreSqlDriverSession):
    next_due = None


class SlowStore(AcmeStore):
    """It sweeps, but the search for the next message takes too long."""

    def open_driver(self) -> PostgreSqlDriverSession:
        return SlowSession(connect(self.dsn, self.timeouts.driver), self)


class SlowSession(PostgreSqlDriverSession):
    def next_due(self, _: Horizon) -> datetime | None:
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


class StrangeStore(HalfAStore):
    """All that is asked for, and nothing to do with a dialect. It expects its tables to exist."""

    open_messages = print
