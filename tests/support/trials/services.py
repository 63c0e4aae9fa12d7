"""The servers of a job that runs trials: started once, with ports and folders of their own."""

import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from duesweep.operations.demo.server import EmbeddedServer
from support.faults.small_disk import SmallDisk, small_disk
from support.pooler import pooler
from support.ports import free_port
from support.rabbitmq.broker_server import BrokerServer, installed, running
from support.trials.processes import SparkDriver

if TYPE_CHECKING:
    from support.sqlserver_server import SqlServer

SQL_SERVER_VARIABLE = "DUESWEEP_TEST_SQLSERVER"
# It hands its processes round, and soon tries a server again that was away.
_POOL = {"server_round_robin": 1, "server_login_retry": 1}
_FAKETIME = "/usr/lib/*/faketime/libfaketime.so.1"


class Services:
    """The servers, started with the first trial that needs them, and stopped in the end. `broker`
    returns a node that was started elsewhere.
    """

    def __init__(self, folder: Path, broker: Callable[[], BrokerServer] | None = None) -> None:
        self.folder = folder
        self._broker = broker
        self._stack = ExitStack()
        self._spark: SparkDriver | None = None

    def __enter__(self) -> "Services":
        return self

    def __exit__(self, *error: object) -> None:
        self.drop_spark()
        self._stack.close()

    @cached_property
    def server(self) -> EmbeddedServer:
        """PostgreSQL. Its committed rows survive an immediate stop."""
        server = EmbeddedServer(
            self.folder, port=free_port(), trusts_all=True, TimeZone="UTC", synchronous_commit="on"
        )
        return self._stack.enter_context(server)

    @cached_property
    def pooler_port(self) -> int:
        """The port of a pooler before that server."""
        folder, port = self.folder / "pooler", free_port()
        folder.mkdir()
        # It has a user of its own.
        folder.chmod(0o755)
        self._stack.enter_context(
            pooler(self.server.dsn, folder, "transaction", port=port, **_POOL)
        )
        return port

    @cached_property
    def queue_server(self) -> EmbeddedServer:
        """PostgreSQL for queues apart from the store. Ten seconds may pass before it writes a
        commit to its disk, unless the session asks for more.
        """
        folder = self.folder / "queues"
        folder.mkdir()
        server = EmbeddedServer(
            folder,
            port=free_port(),
            trusts_all=True,
            TimeZone="UTC",
            synchronous_commit="on",
            wal_writer_delay="10s",
        )
        return self._stack.enter_context(server)

    @cached_property
    def broker(self) -> BrokerServer:
        if self._broker is not None:
            return self._broker()
        scripts = installed()
        assert scripts is not None, "rabbitmq-server is not installed"
        folder = self.folder / "rabbitmq"
        folder.mkdir()
        return self._stack.enter_context(running(scripts, folder))

    @cached_property
    def disk(self) -> SmallDisk:
        return self._stack.enter_context(small_disk(self.folder / "disk"))

    @cached_property
    def sql_server(self) -> "SqlServer | None":
        """SQL Server, or its stand-in."""
        dsn = os.environ.get(SQL_SERVER_VARIABLE)
        if not dsn:
            return None
        from support.sqlserver_server import sql_server  # noqa: PLC0415 - loads ODBC

        return self._stack.enter_context(sql_server(dsn))

    @property
    def spark(self) -> SparkDriver:
        """A driver with a warm session; a new one, if the last has died."""
        if self._spark is None or not self._spark.is_alive:
            self.drop_spark()
            self._spark = SparkDriver(self.folder)
        return self._spark

    def drop_spark(self) -> None:
        """End the driver, and all that it has started."""
        if self._spark is not None:
            self._spark.end()
            self._spark = None


def faketime() -> Path | None:
    """The library that shows a process another time; None where it is not installed."""
    return next(iter(sorted(Path("/").glob(_FAKETIME.lstrip("/")))), None)


def can_mount() -> bool:
    """Whether this user may mount a small disk."""
    return os.geteuid() == 0 and shutil.which("mount") is not None
