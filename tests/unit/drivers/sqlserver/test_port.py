"""A server that nobody can reach is told at once, and not after the driver's login time-out."""

import socket
import time
from collections.abc import Iterator

import pytest

from duesweep.core.timeouts import DEFAULT_TIMEOUTS
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.drivers.sqlserver.session import connect
from duesweep.drivers.sqlserver.watch import refuse_closed_port
from duesweep.errors import ExitCode, StoreError

# Less than Microsoft's driver takes to give up.
_AT_ONCE_SECONDS = 5


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that nobody listens at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.usefixtures("odbc")
def test_session_at_a_port_that_refuses_it_fails_at_once_and_says_so(closed_port: int) -> None:
    started = time.monotonic()

    with pytest.raises(StoreError) as caught:
        connect(f"Server=127.0.0.1,{closed_port};Database=nsb;Uid=u", DEFAULT_TIMEOUTS.driver)

    assert time.monotonic() - started < _AT_ONCE_SECONDS
    assert str(caught.value) == (
        f"No SQL Server takes a session at 127.0.0.1,{closed_port}/nsb: port {closed_port} of "
        "127.0.0.1 refuses the connection; check that it runs, and that its name and port in the "
        "dsn are right"
    )
    assert caught.value.transient
    assert caught.value.exit_code == ExitCode.WORK_LEFT


def test_name_that_is_unknown_fails_at_once_and_says_so() -> None:
    with pytest.raises(StoreError, match=r"nowhere\.invalid is unknown here"):
        refuse_closed_port(OdbcDsn.parse("Server=tcp:nowhere.invalid,1433"))


def test_port_that_somebody_listens_at_is_left_to_the_driver() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        refuse_closed_port(OdbcDsn.parse(f"Server=127.0.0.1,{server.getsockname()[1]}"))


def test_dsn_that_may_lead_elsewhere_is_left_to_the_driver(closed_port: int) -> None:
    dsn = f"Server=127.0.0.1,{closed_port};Failover_Partner=other,1433"
    refuse_closed_port(OdbcDsn.parse(dsn))


@pytest.mark.parametrize("server", ["np:nowhere.invalid", "nowhere.invalid\\instance"])
def test_server_without_a_known_port_is_left_to_the_driver(server: str) -> None:
    refuse_closed_port(OdbcDsn.parse(f"Server={server}"))


@pytest.mark.parametrize(
    ("server", "host"),
    [("db.example,1433", "db.example"), ("tcp:[::1],1433", "::1"), ("(local)", "localhost")],
)
def test_host_is_the_servers_without_protocol_port_and_brackets(server: str, host: str) -> None:
    assert OdbcDsn.parse(f"Server={server}").host == host
