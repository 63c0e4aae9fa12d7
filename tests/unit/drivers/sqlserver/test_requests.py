"""The requests of Microsoft's driver, against a server that speaks its protocol."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager

import pytest

from duesweep.core.account import Account, SliceEnd
from duesweep.core.address import SqlServerTable
from duesweep.core.errors import (
    DestinationError,
    DuesweepError,
    SilentServiceError,
    StoreError,
    TransactionLostError,
    UnusualBatchError,
)
from duesweep.core.message import Delivered
from duesweep.core.policy import DEFAULT_TIMEOUTS, SessionWaits
from duesweep.drivers.sqlserver.errors import destination_errors
from duesweep.drivers.sqlserver.session import SqlServerSession, connect
from duesweep.queues.sqlserver import SqlServerQueueTable
from duesweep.stores.checks_sqlserver import SQL_SERVER_TABLES
from duesweep.stores.dialect import WantedTable
from duesweep.stores.sqlserver_task import SqlServerTask
from duesweep.stores.task import Forwarded, Moved
from duesweep_testing.sweeps import move_into
from support.sqlserver_location import ADDRESSES, RUN, location
from support.tds_server import Request, TdsServer, counted, error, rows, tds_server

pytestmark = pytest.mark.usefixtures("odbc")

_LATE_SECONDS = 20.0
_WAITS = SessionWaits(connect_seconds=5, answer_seconds=2, lock_seconds=1)


@contextmanager
def _session(server: TdsServer, waits: SessionWaits = _WAITS) -> Iterator[SqlServerSession]:
    dsn = f"Server=127.0.0.1,{server.port};Database=nsb;Uid=u;Pwd=p;Encrypt=no"
    with connect(dsn, waits) as session:
        server.requests.clear()
        yield session.named(
            {
                **{"attempts": "[dbo].[a]", "delayed": "[dbo].[d]"},
                **{"due": "Due", "key": "RowVersion", "key_type": "bigint", "seek": ""},
            }
        )


def test_session_is_ready_one_request_after_its_login() -> None:
    with tds_server() as server:
        dsn = f"Server=127.0.0.1,{server.port};Database=nsb;Uid=u;Pwd=p;Encrypt=no"
        for _ in range(2):
            server.requests.clear()
            connect(dsn, _WAITS).__exit__()

    # At its first login to a server, pyodbc asks for the lengths of four types.
    asked = [one.text for one in server.requests if "sp_datatype_info" not in one.procedure]
    assert [text.count("SET ") for text in asked] == [5]


def _declared(server: TdsServer) -> Sequence[tuple[str, tuple[str, ...]]]:
    return [
        (one.text, tuple(each.declared for each in one.parameters))
        for one in server.requests
        if one.procedure == "sp_prepexec"
    ]


def _answered(request: Request) -> bytes | None:
    return rows(["message_key", "attempts:int"]) if "SELECT" in request.text else counted(1)


@pytest.mark.parametrize("keys", [("a", "b" * 100), ("b" * 100, "c" * 2_000), ("a", "é" * 3_999)])
def test_statement_is_the_same_for_the_server_however_long_its_values_are(
    keys: tuple[str, str],
) -> None:
    with tds_server(_answered) as server, _session(server) as session:
        for key in keys:
            session.rows("read_attempts", source="nsb", keys=key, separator="|")

        first, second = _declared(server)
        assert first == second
        assert first[1] == ("nvarchar(4000)",) * 3


def test_values_that_are_longer_than_a_column_may_be_have_one_more_declaration() -> None:
    with tds_server(_answered) as server, _session(server) as session:
        for length in (4_001, 50_000, 400_000):
            session.rows("read_attempts", source="nsb", keys="k" * length, separator="|")

        [(_, declared)] = set(_declared(server))
        assert sorted(declared) == ["nvarchar(4000)", "nvarchar(4000)", "nvarchar(max)"]


def test_day_of_small_ticks_has_few_statements_and_declarations() -> None:
    with tds_server(_answered) as server, _session(server) as session:
        for tick in range(288):
            keys = "|".join(f"{number:08}" for number in range(1 + tick % 40))
            session.rows("read_attempts", source="nsb", keys=keys, separator="|")

        assert len(set(_declared(server))) == 1


_DUE, _HEADERS = "2026-11-21 09:21:19.0033333", '{"NServiceBus.MessageId":"x"}'
_BEGUN = rows(
    ["is_open:int", "is_stopping:int", "has_pauses:int", "server_us:int"],
    [1, 0, 0, 1_800_000_000_000_000],
)
_NO_COUNTERS = rows(["message_key", "attempts:int", "is_eligible:int"])
_READ = rows(
    ["message_key", "due", "headers", "destination", "body_bytes:int"],
    ["7", _DUE, _HEADERS, None, 5],
)
_CLAIMED = rows(
    [
        *("message_key", "due", "due_us:int", "instant_us:int"),
        *("headers", "body", "destination", "attempts:int"),
    ],
    ["7", _DUE, 1, 1, _HEADERS, None, None, 0],
)
# In this order, by a part of the request.
_ANSWERS = {
    "AS deletes_expressions": rows(["deletes_expressions:int", "seeks:int"], [1, 1]),
    "AS waiting": _BEGUN + rows(["waiting:int"], [0]),
    "AS is_stopping": _BEGUN + _NO_COUNTERS + _READ,
    "CROSS APPLY": _CLAIMED + _NO_COUNTERS,
    "AS is_open": rows(["is_open:int"], [1]) + counted(1),
    "XACT_STATE": rows(["state:int"], [1]),
    "DELETE": counted(1) + rows(["messages:int"], [1]),
    "": counted(1),
}


def _of_a_slice(request: Request) -> bytes | None:
    """The answers to the requests of a slice whose sweep is open: a message that is due."""
    return next(answer for part, answer in _ANSWERS.items() if part in request.text)


def _move(task: SqlServerTask) -> Moved:
    queue = SqlServerQueueTable(ADDRESSES.parse("Sales"), has_recoverable=False)
    moved = move_into(task, RUN, [Forwarded(None, [_DUE])], lambda _: queue)
    task.finish_moved(RUN, 0, moved, moved.server_us)
    return moved


def test_slice_of_one_batch_has_few_requests() -> None:
    """A begin, a batch that moves, and an end."""
    with tds_server(_of_a_slice) as server, _session(server) as session:
        task = SqlServerTask(session, location())
        begin = len(server.requests)
        moved = _move(task)
        batch = len(server.requests)
        task.end_slice(RUN, 0, SliceEnd(Account(claimed=1), None))

    assert moved.tombstones.keys == ["7"]
    requests = [one.procedure for one in server.requests]
    assert requests == ["sp_prepexec"] * 4
    assert (begin, batch - begin, len(requests) - batch) == (1, 2, 1)


@pytest.mark.parametrize(
    ("number", "of_batch", "of_end"),
    [
        (547, UnusualBatchError, StoreError),
        (1222, UnusualBatchError, StoreError),
        (208, UnusualBatchError, StoreError),
        (50_000, UnusualBatchError, StoreError),
        (1205, TransactionLostError, TransactionLostError),
        (596, StoreError, StoreError),
    ],
)
def test_transaction_in_one_request_that_fails_is_rolled_back_and_classified(
    number: int, of_batch: type[Exception], of_end: type[Exception]
) -> None:
    def refuse(request: Request) -> bytes | None:
        is_whole = "COMMIT TRANSACTION" in request.text
        return error(number, "It is so.") if is_whole else _of_a_slice(request)

    with tds_server(refuse) as server, _session(server) as session:
        task = SqlServerTask(session, location())
        with pytest.raises(DuesweepError) as caught:
            _move(task)
        assert type(caught.value) is of_batch
        with pytest.raises(DuesweepError) as caught:
            task.end_slice(RUN, 0, SliceEnd(Account(claimed=1), None))
        assert type(caught.value) is of_end

    undone = [one.text.partition(" TRANSACTION;")[0] for one in server.requests[3::2]]
    assert undone == ["IF @@TRANCOUNT > 0 ROLLBACK"] * 2


def test_careful_batch_has_few_requests_besides_its_deliveries() -> None:
    with tds_server(_of_a_slice) as server, _session(server) as session:
        task = SqlServerTask(session, location())
        server.requests.clear()
        with task.transaction():
            claim = task.claim(RUN, [_DUE])
            delivered = [Delivered(message, "Sales") for message in claim.messages]
            task.finish(RUN, 0, delivered, claim.server_us)

    begin, fence, claimed, state, removed, journalled, commit = server.requests
    assert [one.text for one in (state, commit)] == ["SELECT XACT_STATE()", "COMMIT TRANSACTION"]
    assert "BEGIN TRANSACTION" in begin.text
    assert "sp_getapplock" in fence.text
    assert "CROSS APPLY" in claimed.text
    assert "DELETE" in removed.text
    assert "INSERT" in journalled.text


def test_server_that_sends_the_driver_on_to_another_port_is_watched_there() -> None:
    with _node() as node:
        port = int(node.stdout.readline() if node.stdout else "")
        with tds_server(redirects_to=port) as gateway, _session(gateway) as session:
            assert gateway.logins == 1
            # The driver waits for the rest of the rows without any limit.
            ended = _in_a_thread(
                lambda: session.rows("read_attempts", source="nsb", keys="a", separator="|")
            )
            wait([ended], _LATE_SECONDS)
            is_ended = ended.done()
            node.kill()
            assert is_ended
            assert type(ended.exception()) is SilentServiceError


@contextmanager
def _node() -> Iterator["subprocess.Popen[str]"]:
    """A server of another process, as both ends of a connection in one process are its sockets. It
    prints its port, sends the beginning of an answer to a statement, and falls silent.
    """
    command = [sys.executable, "-m", "support.tds_server"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _in_a_thread(work: Callable[[], object]) -> "Future[object]":
    ended: Future[object] = Future()

    def run() -> None:
        try:
            ended.set_result(work())
        except DuesweepError as error:
            ended.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return ended


@pytest.mark.parametrize(
    ("number", "transient"),
    [(596, True), (927, True), (3906, True), (40549, True), (916, False), (208, False)],
)
def test_error_of_the_server_passes_or_not_by_its_number(number: int, *, transient: bool) -> None:
    def refuse(request: Request) -> bytes | None:
        return error(number, "It is so.") if "attempts" in request.text else None

    with tds_server(refuse) as server, _session(server) as session:
        with pytest.raises(StoreError) as caught:
            session.rows("read_attempts", source="nsb", keys="a", separator="|")

        assert caught.value.transient is transient
        assert f"({number})" in str(caught.value)


@pytest.mark.parametrize("number", [206, 911, 916])
def test_queue_is_at_fault_whatever_state_the_driver_makes_of_its_error(number: int) -> None:
    def refuse(request: Request) -> bytes | None:
        return error(number, "It is so.") if "SELECT" in request.text else None

    with (
        tds_server(refuse) as server,
        _session(server) as session,
        pytest.raises(DuesweepError) as caught,
        destination_errors("Billing"),
    ):
        session._raw.execute("SELECT 1")  # noqa: SLF001 - as an insert does

    assert type(caught.value) is DestinationError


def test_count_of_a_trigger_is_not_taken_for_the_statements_own() -> None:
    counts = counted(5) + counted(3) + rows(["messages:int"], [3])

    with (
        tds_server(lambda one: counts if one.procedure == "sp_prepexec" else None) as server,
        _session(server) as session,
    ):
        assert session.row("remove", messages="[]").messages == 3


def test_rights_are_asked_for_by_a_name_without_the_database_too() -> None:
    table = SqlServerTable("nsb", "dbo", "Sales.Delayed")
    answer = rows(["name"]) + rows(["name", "grantee", "is_granted:int"])

    with (
        tds_server(lambda one: answer if one.procedure == "sp_prepexec" else None) as server,
        _session(server) as session,
    ):
        SQL_SERVER_TABLES.find(session, [WantedTable(table, rights=("SELECT",))])

        [asked] = [one for one in server.requests if "HAS_PERMS_BY_NAME" in one.text]
        values = [one.value for one in asked.parameters]
        assert values[-3:] == ["nsb", "[dbo].[Sales.Delayed]", "[nsb].[dbo].[Sales.Delayed]"]


def test_defaults_open_a_session_too() -> None:
    with tds_server() as server, _session(server, DEFAULT_TIMEOUTS.task) as session:
        assert session.execute("clear_attempts", source="nsb", keys="a", separator="|") >= -1
