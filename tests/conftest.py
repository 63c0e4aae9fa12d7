"""A real PostgreSQL for the tests, a database of its own for each."""

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from endpoint import Endpoint
from hypothesis import settings

from duesweep.demo.server import EmbeddedServer

if TYPE_CHECKING:
    from ledger_reader import LedgerReader
    from pyspark.sql import SparkSession

# A loaded machine is no defect, and examples of one machine are of no use in the tree.
settings.register_profile("duesweep", deadline=None, database=None)
settings.load_profile("duesweep")


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> Iterator[None]:
    """The environment goes over any file: a setting left there could be somebody's database."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith("DUESWEEP_") and "__" in n]:
            patch.delenv(name)
        yield


@contextmanager
def _open_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="duesweep-tests-") as folder:
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
    with _open_folder() as folder, EmbeddedServer(folder, TimeZone="UTC") as server:
        yield server


@pytest.fixture
def database(server: EmbeddedServer) -> Iterator[str]:
    """The administrator's dsn of a new database."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
        yield server.dsn_of(name)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def endpoint(database: str, tmp_path: Path) -> Iterator[Endpoint]:
    """Endpoint Sales.Orders in a new database, without tables as yet."""
    with psycopg.connect(database, autocommit=True) as admin:
        yield Endpoint(database, tmp_path, admin)


@pytest.fixture(scope="session")
def spark() -> "SparkSession":
    """One Spark session for all tests that sweep in this process."""
    from duesweep import config as configuration  # noqa: PLC0415 - unit tests do without Spark
    from duesweep.session import spark_session  # noqa: PLC0415

    # With retries, as on a cluster: plain local[N] never retries a task.
    return spark_session(configuration.jars(), master="local[2,4]")


@pytest.fixture
def ledger(spark: "SparkSession", endpoint: Endpoint) -> "LedgerReader":
    """The ledger of `endpoint`."""
    from ledger_reader import LedgerReader  # noqa: PLC0415

    return LedgerReader(spark, endpoint.folder / "ledger")
