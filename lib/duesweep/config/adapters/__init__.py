"""Which module a kind of server means. Only this package knows which adapter a setting means.

A kind's module is imported when it is needed: the driver of another kind may be missing.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module  # noqa: TID251 - of this package and of queues
from typing import TYPE_CHECKING, cast

from duesweep.config import Config, QueueConfig
from duesweep.core.errors import ConfigError, MessageError
from duesweep.core.policy import Timeouts
from duesweep.drivers.servers import SERVERS

if TYPE_CHECKING:
    from duesweep.config.adapters.rabbitmq import RabbitMqAdapter
    from duesweep.config.adapters.sql import SqlAdapter


@dataclass(frozen=True, slots=True)
class QueueConnection:
    """A section [queues.<name>] of a configuration, with its defaults. `kind`: of its server;
    `dsn`: of its own database, None if it has none. `needs_ladder`: it has to hold messages until
    they are due.
    """

    config: Config
    name: str
    section: QueueConfig
    kind: str
    dsn: str | None = field(repr=False)
    needs_ladder: bool

    @property
    def server_dsn(self) -> str:
        """The dsn of the database that its queue tables are in: its own, else the store's."""
        return self.dsn or self.config.store.dsn.get_secret_value()

    @property
    def server_setting(self) -> str:
        """The setting that has `server_dsn`."""
        return f"{self.setting}.dsn" if self.dsn else "store.dsn"

    @property
    def is_beside(self) -> bool:
        """Whether its queues are on the store's own server, and in its transaction."""
        return self.kind != "rabbitmq" and self.dsn is None

    @property
    def setting(self) -> str:
        return f"queues.{self.name}"


@dataclass(frozen=True, slots=True)
class Needs:
    """The modules that every executor must import. `odbc_drivers` are named in dsns; "" is the
    driver that came with duesweep.
    """

    modules: Sequence[str]
    odbc_drivers: Sequence[str] = ()


def adapter(kind: str) -> "SqlAdapter | RabbitMqAdapter":
    """The adapter of a kind of server."""
    if kind in SERVERS:
        return sql_adapter(kind)
    return cast("RabbitMqAdapter", import_module(f"{__name__}.{kind}").ADAPTER)


def sql_adapter(kind: str) -> "SqlAdapter":
    """The adapter of a server of databases, which may have a store."""
    tables = import_module(f"duesweep.queues.{kind}").TABLES
    return cast("SqlAdapter", import_module(f"{__name__}.sql").SqlAdapter(tables))


def connections(config: Config, *, needs_ladder: bool = False) -> dict[str, QueueConnection]:
    """The queue connections by name. Without any section it is one, on the store's own server.
    `needs_ladder`: connections to RabbitMQ have to hold messages until they are due.
    """
    ahead = needs_ladder or bool(config.sweep.look_ahead_seconds)
    dialect = config.store.dialect
    return {
        name: QueueConnection(
            config,
            name,
            section,
            section.kind or dialect,
            section.dsn.get_secret_value() if section.dsn else None,
            ahead,
        )
        for name, section in config.connections.items()
    }


@contextmanager
def named_by(setting: str) -> Iterator[None]:
    """In the block, an address or a name that is wrong is the fault of this setting."""
    try:
        yield
    except MessageError as error:
        advice = error.advice or "correct the setting"
        raise ConfigError(f"{setting}: {error.text}", advice=advice) from error


def timeouts_of(config: Config) -> Timeouts:
    """The limits on waiting for a silent service. A batch for another server waits for that one."""
    is_alone = all(each.is_beside for each in connections(config).values())
    return Timeouts(**dict(config.timeouts), is_alone=is_alone)
