"""Real servers for the tests, with a database or a schema of its own for each."""

import logging
import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import structlog
from hypothesis import HealthCheck, settings

from duesweep.operations.demo.server import EmbeddedServer
from duesweep.sweep.in_process import InProcessEngine
from support.ports import free_port
from support.postgresql_server import create_database, drop_database, endpoint_in_postgresql
from support.services import is_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from duesweep.sweep.job import Engine
    from support.endpoint import Endpoint
    from support.ledger_reader import LedgerReader
    from support.rabbitmq.broker import Broker
    from support.rabbitmq.broker_server import BrokerServer
    from support.sqlserver_server import SqlServer, SqlServerEndpoint

_TESTS = Path(__file__).parent
SQL_SERVER_VARIABLE = "DUESWEEP_TEST_SQLSERVER"

# pika's log of every refusal would bury the output of a failed test.
logging.getLogger("pika").setLevel(logging.CRITICAL)

# A loaded machine is no defect, and examples of one machine are of no use in the tree.
settings.register_profile(
    "duesweep", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("duesweep")


# Workers begin with the longest tests, and end with the shortest.
_ORDER = ("faults", "spark", "installed", "acceptance", "golden", "contract", "unit")
_BROKER = {"broker", "broker_server"}

_IN_MEMORY = "/dev/shm"
_ROOM_BYTES = 6_000_000_000
_OURS = "duesweep-tests-"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of one of the two dear servers run on one worker, so that there are one Spark session
    and one RabbitMQ node in a run. A test's variant on Spark is `long`, unless the test is marked
    `on_spark`: in process it is the same but for the engine or the ledger's writer.
    """
    for item in items:
        is_variant = _is_variant_on_spark(item)
        if _is_on_sql_server(item):
            item.add_marker(pytest.mark.sqlserver)
        if is_variant and item.get_closest_marker("on_spark") is None:
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("xdist_group") is not None:
            continue
        fixtures = set(getattr(item, "fixturenames", ()))
        if is_variant or "spark" in fixtures:
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif fixtures & _BROKER:
            item.add_marker(pytest.mark.xdist_group("rabbitmq"))
    if hasattr(config, "workerinput"):
        for item in items:
            _show_group(item)
        items.sort(key=_turn)


def _show_group(item: pytest.Item) -> None:
    """pytest-xdist takes a test's group from the end of its id. Version 3.8 writes it where pytest
    9.2 does not look, so that groups have no effect (pytest-xdist's issue 1386).
    """
    group = item.get_closest_marker("xdist_group")
    if group is not None and hasattr(item, "_id"):
        item._id = item.id.parse(f"{item.nodeid}@{group.args[0]}")  # noqa: SLF001


def _is_variant_on_spark(item: pytest.Item) -> bool:
    if _TESTS / "unit" in item.path.parents:
        return False
    callspec = getattr(item, "callspec", None)
    return callspec is not None and "spark" in callspec.params.values()


def _is_on_sql_server(item: pytest.Item) -> bool:
    """By its fixtures, or by the parameters from which a fixture chooses the server."""
    if _TESTS / "unit" in item.path.parents:
        return False
    callspec = getattr(item, "callspec", None)
    chosen = "" if callspec is None else callspec.id
    has_fixture = "sqlserver" in getattr(item, "fixturenames", ())
    return has_fixture or "sqlserver" in chosen or "msmq" in chosen


def _turn(item: pytest.Item) -> tuple[bool, int]:
    is_alone = item.get_closest_marker("xdist_group") is None
    return is_alone, _ORDER.index(item.path.relative_to(_TESTS).parts[0])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """All that is skipped for want of one service makes one line of the summary."""
    report = yield
    if isinstance(report.longrepr, tuple) and "docs/testing.md" in report.longrepr[2]:
        report.longrepr = (__file__, 1, report.longrepr[2])
    return report


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> Iterator[None]:
    """Remove settings from the environment: they override files, and could name a real database."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith("DUESWEEP_") and "__" in n]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="session", autouse=True)
def _signals_work() -> None:
    """If a shell started the tests in the background, or by nohup, they and the processes that
    they start would ignore these.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command that ran in this process logs to a stderr that pytest has closed since."""
    yield
    structlog.reset_defaults()


def _memory() -> str | None:
    """A file system in memory with room for the servers of all workers, if there is one: on a disk
    PostgreSQL takes half a second to drop a database.
    """
    try:
        return _IN_MEMORY if shutil.disk_usage(_IN_MEMORY).free > _ROOM_BYTES else None
    except OSError:
        return None


def _remove_left_overs(place: Path) -> None:
    """Stop the servers of runs that were killed, and remove their folders, which have the number of
    the run's process in their names.
    """
    for folder in place.glob(f"{_OURS}*-*"):
        if Path("/proc", folder.name.removeprefix(_OURS).partition("-")[0]).exists():
            continue
        for file in folder.glob("**/postmaster.pid"):
            # Another run may do this too, and the number may be another process's by now.
            with suppress(OSError):
                process = Path("/proc", file.read_text().partition("\n")[0])
                if (process / "cwd").readlink() == file.parent:
                    os.kill(int(process.name), signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _open_folder() -> Iterator[Path]:
    place = Path(_memory() or tempfile.gettempdir())
    if Path("/proc/self").exists():
        _remove_left_overs(place)
    with tempfile.TemporaryDirectory(prefix=f"{_OURS}{os.getpid()}-", dir=place) as folder:
        # As root the server runs under a user of its own, who must get in. Not in pytest's own
        # folder, which every run of pytest closes to others again.
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder for a server of the test's own."""
    with _open_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """A PostgreSQL server whose default time zone is UTC."""
    with (
        _open_folder() as folder,
        EmbeddedServer(
            folder,
            port=free_port(),
            trusts_all=True,
            TimeZone="UTC",
            max_prepared_transactions="5",
        ) as server,
    ):
        yield server


@pytest.fixture
def database(server: EmbeddedServer) -> Iterator[str]:
    """The administrator's dsn of a new database."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        create_database(admin, name)
        yield server.dsn_of(name)
        drop_database(admin, name)


@pytest.fixture
def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> "Iterator[Endpoint[Any]]":
    """Endpoint Sales.Orders in a new database, without tables as yet. Parameters are a server and,
    if it is not the transport's own, the kind of its delayed table; see also `ON_BOTH_SERVERS`.
    """
    server, _, kind = getattr(request, "param", "postgresql").partition(" ")
    if server == "sqlserver":
        in_sqlserver: SqlServerEndpoint = request.getfixturevalue("sqlserver_endpoint")
        yield in_sqlserver.of_kind(kind or server)
        return
    database: str = request.getfixturevalue("database")
    with psycopg.connect(database, autocommit=True) as admin:
        yield endpoint_in_postgresql(database, tmp_path, admin).of_kind(kind or server)


@pytest.fixture(scope="session")
def odbc() -> None:
    """The shared libraries of ODBC, the machine's, or unpacked by scripts/services.py."""
    from duesweep.core.errors import OdbcDriverError  # noqa: PLC0415
    from duesweep.drivers.sqlserver.dsn import odbc  # noqa: PLC0415

    try:
        odbc()
    except OdbcDriverError:
        is_missing("unixODBC")


@pytest.fixture(scope="session")
def sqlserver() -> "Iterator[SqlServer]":
    """The SQL Server that DUESWEEP_TEST_SQLSERVER names, with databases of the tests' own."""
    dsn = os.environ.get(SQL_SERVER_VARIABLE)
    if not dsn:
        pytest.skip(f"{SQL_SERVER_VARIABLE} names no SQL Server (docs/testing.md)")
    from support.sqlserver_server import sql_server  # noqa: PLC0415 - loads ODBC

    with sql_server(dsn) as server:
        yield server


@pytest.fixture
def sqlserver_endpoint(sqlserver: "SqlServer", tmp_path: Path) -> "Iterator[SqlServerEndpoint]":
    """Endpoint Sales.Orders of the SQL Server transport in a schema of its own, without tables."""
    from support.sqlserver_server import endpoint_in_sqlserver  # noqa: PLC0415

    yield endpoint_in_sqlserver(sqlserver, tmp_path, f"s{uuid.uuid4().hex[:12]}")
    for database in (sqlserver.database, sqlserver.other):
        database.drop_tables()


@pytest.fixture
def msmq_endpoint(sqlserver_endpoint: "SqlServerEndpoint") -> "SqlServerEndpoint":
    """The same with the MSMQ transport's delayed message store."""
    return sqlserver_endpoint.of_kind("msmq")


@pytest.fixture(scope="session")
def broker_server() -> "Iterator[BrokerServer]":
    """A RabbitMQ node."""
    from support.rabbitmq.broker_server import installed, running  # noqa: PLC0415 - most tests do without

    scripts = installed()
    if scripts is None:
        is_missing("rabbitmq-server")
    with _open_folder() as folder, running(scripts, folder) as server:
        yield server


@pytest.fixture
def broker(broker_server: "BrokerServer") -> "Iterator[Broker]":
    """A vhost of its own."""
    from support.rabbitmq.broker import Broker  # noqa: PLC0415

    broker = Broker(broker_server, f"v{uuid.uuid4().hex[:12]}")
    yield broker
    broker.close()


@pytest.fixture
def no_spark_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test of this process may have started a session; this one finds none."""
    monkeypatch.delitem(sys.modules, "pyspark.sql", raising=False)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "SparkSession":
    """One Spark session for all tests of a run that sweep in pytest's process."""
    from duesweep import config as configuration  # noqa: PLC0415 - unit tests do without Spark
    from duesweep.drivers.spark import spark_session  # noqa: PLC0415

    if "PYTEST_XDIST_WORKER" in os.environ:
        try:
            (tmp_path_factory.getbasetemp().parent / "spark").mkdir()
        except FileExistsError:
            pytest.fail('Spark runs on another worker: mark this test xdist_group("spark")')
    # With retries, as on a cluster: plain local[N] never retries a task.
    session = spark_session(configuration.spark_start(), master="local[2,4]")
    # To compile Java for each query of a few rows took an eighth of all CPU. Commands from the
    # shell run with Spark's own settings.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


@pytest.fixture(params=["in-process", "spark"])
def engine(request: pytest.FixtureRequest) -> "Engine":
    """The engine that dispatches the slices. A test's promise holds for both."""
    if request.param == "spark":
        from duesweep.sweep.spark import SparkEngine  # noqa: PLC0415 - loads Spark

        return SparkEngine(request.getfixturevalue("spark"))
    return InProcessEngine()


@pytest.fixture
def ledger(request: pytest.FixtureRequest, endpoint: "Endpoint[Any]") -> "LedgerReader":
    """The ledger of `endpoint`. Spark starts only for who asks for a DataFrame."""
    from support.ledger_reader import LedgerReader  # noqa: PLC0415

    return LedgerReader(endpoint.folder / "ledger", lambda: request.getfixturevalue("spark"))
