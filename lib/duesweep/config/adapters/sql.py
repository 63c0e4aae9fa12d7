"""The parts that both dialects share: queue tables, their setup, and
the doctor's checks.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from duesweep.config import Config
from duesweep.config.adapters import Adapter, QueueConnection, Service, timeouts_of
from duesweep.config.rules import SERVERS
from duesweep.core.errors import ConfigError
from duesweep.drivers.statements import Columns
from duesweep.queues.tables import Addresses, QueueTables
from duesweep.stores.dialect import Dialect
from duesweep.stores.setup import SqlSetup
from duesweep.stores.tables import WantedTable, examine


class SqlAdapter(Adapter):
    """`tables` are the dialect's queue tables, which have `columns`."""

    dialect: ClassVar[Dialect]
    tables: ClassVar[type[QueueTables]]
    columns: ClassVar[Columns]

    @abstractmethod
    def addresses(self, connection: QueueConnection) -> Addresses:
        """How the addresses on a connection are read."""

    def wanted(self, role: str, table: Any) -> WantedTable:
        return self.tables.wanted(role, table)

    def queue(self, connection: QueueConnection) -> QueueTables:
        store = connection.config.store
        self.refuse_without_server(connection)
        return self.tables(
            self.addresses(connection),
            store.dsn.get_secret_value(),
            connection.dsn.get_secret_value() if connection.dsn else None,
            setting=connection.setting,
            holds_own_queue=not connection.is_routed and store.knows_own_queue,
            timeouts=connection.timeouts,
        )

    def queue_table(self, connection: QueueConnection, address: str | None) -> Any:
        return self.addresses(connection).parse(address)

    def setup_step(self, connection: QueueConnection, queues: Mapping[Any, str]) -> SqlSetup:
        return SqlSetup(
            dialect=self.dialect,
            dsn=connection.server_dsn,
            setting=connection.server_setting,
            queues=[self.wanted(role, table) for table, role in queues.items()],
            timeouts=connection.timeouts,
            readable=tuple(queues) if connection.section.readable_body else (),
        )

    def service(
        self,
        config: Config,
        connection: QueueConnection | None,
        queues: Callable[[], Sequence[tuple[str, Any]]],
    ) -> Service:
        setting = connection.server_setting if connection else "store.dsn"
        findings = partial(
            examine,
            self.dialect,
            connection.server_dsn if connection else config.store.dsn.get_secret_value(),
            setting,
            lambda: [self.wanted(role, table) for role, table in queues()],
            queue_columns=self.columns,
            store=self.store(config) if connection is None else None,
            timeouts=timeouts_of(config),
        )
        return Service(setting, findings)

    def refuse_without_server(self, connection: QueueConnection) -> None:
        """Raise `ConfigError` if queues of this kind cannot be on the store's server."""
        dialect, kind = connection.config.store.dialect, self.dialect.statements
        if connection.dsn is None and dialect in SERVERS.keys() - {kind}:
            raise ConfigError(
                f"{connection.setting} is of kind {kind}, but the store is in {SERVERS[dialect]}",
                advice="give it a dsn",
            )
