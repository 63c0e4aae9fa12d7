"""Servers of SQL Server that cannot be reached, and some that accept a session and fall silent."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from duesweep.core.errors import ExitCode, StoreError
from duesweep.core.policy import DEFAULT_TIMEOUTS, SessionWaits
from duesweep.core.result import exit_code_of
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.drivers.sqlserver.session import connect
from duesweep.drivers.sqlserver.silence import refuse_closed_port
from support.waiting import until

pytestmark = pytest.mark.usefixtures("odbc")

_WAITS = SessionWaits(connect_seconds=1, answer_seconds=1, lock_seconds=1)
# The first answer of a session: a version, and no encryption.
_PRELOGIN = bytes.fromhex("0401001a0000010000000b00060100110001ff10000000000002")
# The driver alone waits for ever; a machine with much to do is late.
_LATE_SECONDS = 60.0
# Less than the driver takes to give up.
_AT_ONCE_SECONDS = 5


@contextmanager
def _server(answer: bytes) -> Iterator[int]:
    """A server that sends only this once to each client. Yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sessions: list[socket.socket] = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    sessions.append(listener.accept()[0])
                    sessions[-1].recv(4_096)
                    sessions[-1].sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            for session in sessions:
                session.close()
            thread.join()


def _dsn(port: int) -> str:
    return f"Server=127.0.0.1,{port};Database=nsb;Uid=u;Pwd=p;Encrypt=no"


@pytest.mark.parametrize("answer", [b"", _PRELOGIN], ids=["nothing", "first answer only"])
def test_login_that_is_not_answered_ends(answer: bytes) -> None:
    with _server(answer) as port:
        started = time.monotonic()

        with pytest.raises(StoreError, match=r"timeouts\.silence_seconds") as caught:
            connect(_dsn(port), _WAITS)

        assert time.monotonic() - started < _LATE_SECONDS
    assert caught.value.transient
    assert f"127.0.0.1,{port}/nsb has not answered for 1 s" in str(caught.value)


def test_server_that_is_not_there_is_not_called_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    # With a partner, it is the driver that finds out whether the server is there.
    dsn = f"{_dsn(port)};Failover_Partner=127.0.0.1,{port}"
    with pytest.raises(StoreError, match=r"No connection to .* within 1 s; .*name and port"):
        connect(dsn, _WAITS)


def test_other_connections_that_are_made_meanwhile_are_left_alone() -> None:
    with _server(_PRELOGIN) as port, _server(b"here") as other:
        made: list[socket.socket] = []

        def connect_elsewhere() -> None:
            made.append(socket.create_connection(("127.0.0.1", other)))

        timer = threading.Timer(0.2, connect_elsewhere)
        timer.start()
        with pytest.raises(StoreError):
            connect(_dsn(port), _WAITS)
        timer.join()

        made[0].sendall(b"hello")
        assert made[0].recv(10) == b"here"
        made[0].close()


def test_session_that_could_not_be_opened_leaves_no_thread() -> None:
    with _server(_PRELOGIN) as port, pytest.raises(StoreError):
        connect(_dsn(port), _WAITS)

    until(lambda: "sqlserver-watch" not in _threads())


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port without a listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_session_at_a_port_that_refuses_it_fails_at_once_and_says_so(closed_port: int) -> None:
    started = time.monotonic()

    with pytest.raises(StoreError) as caught:
        connect(f"Server=127.0.0.1,{closed_port};Database=nsb;Uid=u", DEFAULT_TIMEOUTS.driver)

    assert time.monotonic() - started < _AT_ONCE_SECONDS
    assert str(caught.value) == (
        f"Cannot connect to SQL Server at 127.0.0.1,{closed_port}/nsb: port {closed_port} of "
        "127.0.0.1 refuses the connection; check that it runs, and that its name and port in the "
        "dsn are right"
    )
    assert caught.value.transient
    assert exit_code_of(caught.value) == ExitCode.WORK_LEFT


def test_name_that_is_unknown_fails_at_once_and_says_so() -> None:
    with pytest.raises(StoreError, match=r"nowhere\.invalid is unknown here"):
        refuse_closed_port(OdbcDsn.parse("Server=tcp:nowhere.invalid,1433"))


def test_port_that_somebody_listens_at_is_left_to_the_driver() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        refuse_closed_port(OdbcDsn.parse(f"Server=127.0.0.1,{server.getsockname()[1]}"))


@pytest.mark.parametrize(
    "server",
    ["127.0.0.1,{};Failover_Partner=other,1433", "np:nowhere.invalid", "nowhere.invalid\\instance"],
    ids=["one that may lead elsewhere", "a named pipe", "an instance whose port is not known"],
)
def test_server_whose_port_does_not_decide_is_left_to_the_driver(
    server: str, closed_port: int
) -> None:
    refuse_closed_port(OdbcDsn.parse(f"Server={server.format(closed_port)}"))


@pytest.mark.parametrize(
    ("server", "host"),
    [("db.example,1433", "db.example"), ("tcp:[::1],1433", "::1"), ("(local)", "localhost")],
)
def test_host_is_the_servers_without_protocol_port_and_brackets(server: str, host: str) -> None:
    assert OdbcDsn.parse(f"Server={server}").host == host
