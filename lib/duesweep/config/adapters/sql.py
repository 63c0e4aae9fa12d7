"""A server of databases: its stores, queue tables, their setup, and the doctor's checks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from duesweep.config import Config
from duesweep.config.adapters import Needs, QueueConnection, named_by, timeouts_of
from duesweep.core.address import Addresses
from duesweep.core.errors import ConfigError
from duesweep.core.finding import Finding
from duesweep.drivers.servers import SERVERS
from duesweep.queues.tables import QueueTables
from duesweep.stores.dialect import WantedTable
from duesweep.stores.setup import SqlSetup
from duesweep.stores.store import SqlStore
from duesweep.stores.tables import examine


@dataclass(frozen=True, slots=True)
class SqlAdapter:
    """`tables` are the queue tables of its dialect."""

    tables: type[QueueTables]

    def addresses(self, connection: QueueConnection) -> Addresses:
        """How the addresses on a connection are read. Without a schema of the connection's, they
        are in the store's if that has this dialect or is custom, else in the dialect's own.
        """
        store, dialect = connection.config.store, self.tables.dialect.statements
        shared = store.db_schema if store.is_custom or store.dialect == dialect else None
        schema = connection.section.db_schema or shared or SERVERS[dialect].schema
        with named_by(f"store.endpoint or {connection.setting}.schema"):
            return self.tables.dialect.addresses(store.endpoint, schema, connection.server_dsn)

    def store(self, config: Config) -> SqlStore:
        """It has candidates for its delayed table: an older version's has another name."""
        settings, dsn = config.store, config.store.dsn.get_secret_value()
        dialect = self.tables.dialect
        kind = dialect.kinds[settings.kind]
        schema = settings.db_schema or settings.server.schema
        with named_by("store.endpoint or store.schema"):
            addresses = dialect.addresses(settings.endpoint, schema, dsn)
        setting = "endpoint" if settings.delayed_table is None else "delayed_table"
        names = kind.table_names(settings.endpoint, settings.table_prefix)
        if settings.delayed_table is not None:
            names = [settings.delayed_table]
        with named_by(f"store.schema or store.{setting}"):
            candidates = tuple(replace(addresses.own_queue, table=name) for name in names)
        first = candidates[0]
        return SqlStore(
            dialect=dialect,
            dsn=dsn,
            source=settings.name or f"{dialect.database_of(dsn)}/{first.schema}.{first.table}",
            candidates=candidates,
            addresses=addresses,
            kind=kind,
            timeouts=timeouts_of(config),
            writer_time_zone=settings.writer_time_zone,
            batch_bytes=config.sweep.batch_bytes,
            jdbc_url=settings.jdbc_url.get_secret_value() if settings.jdbc_url else None,
        )

    def wanted(self, role: str, table: Any) -> WantedTable:
        """What delivery needs of a queue table."""
        return self.tables.wanted(role, table)

    def queue(self, connection: QueueConnection) -> QueueTables:
        """The queues of a connection."""
        store = connection.config.store
        self.refuse_without_server(connection)
        return self.tables(
            self.addresses(connection),
            connection.dsn,
            setting=connection.setting,
            holds_own_queue=not connection.config.route and store.knows_own_queue,
            timeouts=timeouts_of(connection.config),
        )

    def queue_table(self, connection: QueueConnection, address: str | None) -> Any:
        """The table of a queue on a connection; None: the own queue. Raises a `MessageError` for an
        address that can name none.
        """
        return self.addresses(connection).parse(address)

    def setup_step(self, connection: QueueConnection, queues: Mapping[Any, str]) -> SqlSetup:
        """The step that creates these queues, which have roles, without a store's tables: on a
        connection of their own, or next to a custom store.
        """
        return SqlSetup(
            dialect=self.tables.dialect,
            dsn=connection.server_dsn,
            setting=connection.server_setting,
            queues=[self.wanted(role, table) for table, role in queues.items()],
            timeouts=timeouts_of(connection.config),
            readable=tuple(queues) if connection.section.readable_body else (),
        )

    def examine(
        self,
        config: Config,
        connection: QueueConnection | None,
        queues: Callable[[], Sequence[tuple[str, Any]]],
    ) -> Iterator[Finding]:
        """The doctor's findings, made when they are read: on the store's database, or on
        `connection`'s server. `queues` returns the role and table of each queue there. Raises
        `DuesweepError` if it is out of reach.
        """
        return examine(
            self.tables.dialect,
            connection.server_dsn if connection else config.store.dsn.get_secret_value(),
            connection.server_setting if connection else "store.dsn",
            lambda: [self.wanted(role, table) for role, table in queues()],
            queue_columns=self.tables.columns,
            store=self.store(config) if connection is None else None,
            timeouts=timeouts_of(config),
        )

    def needs(self, dsns: Sequence[str]) -> Needs:
        """What executors have to load for these dsns."""
        server = SERVERS[self.tables.dialect.statements]
        return Needs([server.driver], server.odbc_drivers(dsns))

    def refuse_without_server(self, connection: QueueConnection) -> None:
        """Raise `ConfigError` if queues of this kind cannot be on the store's server."""
        dialect, kind = connection.config.store.dialect, self.tables.dialect.statements
        if connection.dsn is None and dialect in SERVERS.keys() - {kind}:
            raise ConfigError(
                f"{connection.setting} is of kind {kind}, but the store is in "
                f"{SERVERS[dialect].title}",
                advice="give it a dsn",
            )
