"""A session whose peer accepts data and never answers: each wait ends in time."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from duesweep.core.address import TableName
from duesweep.core.errors import DestinationError, SilentServiceError, StoreError
from duesweep.core.policy import SessionWaits, Timeouts
from duesweep.drivers.postgresql import session as postgresql
from duesweep.drivers.postgresql import wire
from duesweep.drivers.rabbitmq.connection import Brokers, RabbitMqConnection
from duesweep.drivers.statements import UndoneError
from support.endpoint import Endpoint
from support.proxy import Moment, Proxy, Way, proxied
from support.rabbitmq.sessions import connections, queue_of, sent, session_of
from support.waiting import in_time, until

POSTGRESQL, RABBITMQ = "postgresql", "rabbitmq"
PLAIN, ENCRYPTED = "sqlserver", "sqlserver-tls"

_ANSWER_SECONDS = 1
# To open a session may take long on a machine with much to do.
_BRIEF = SessionWaits(connect_seconds=20, answer_seconds=_ANSWER_SECONDS, lock_seconds=0.5)
_IMPATIENT = replace(_BRIEF, connect_seconds=2)
# Enough that a wait for each takes twice the time that all of them have.
_ASKED_AGAIN = 30
_SILENT = rf"has not answered for {_ANSWER_SECONDS} s.*timeouts\.silence_seconds"

Step = Callable[[Any], object]


@dataclass(frozen=True)
class Peer:
    """A service behind `proxy`. `connect` only connects, and is impatient. `ask` is a question that
    any session may ask, and `error` is raised without an answer; after that the session
    says `ended`. `execute` runs a statement past the proxy; `held` is the name of a new table.
    """

    proxy: Proxy
    open: Callable[[SessionWaits], AbstractContextManager[Any]]
    connect: Callable[[], object]
    ask: Step
    error: type[StoreError]
    ended: str
    execute: Step | None = None
    held: str = "held"


def _ask_database(session: Any) -> None:
    session.row("describe_session")


def _database(proxy: Proxy, connect: Any, dsn: str, ended: str, execute: Step) -> Peer:
    return Peer(
        proxy,
        lambda waits: connect(dsn, waits),
        lambda: connect(dsn, _IMPATIENT),
        _ask_database,
        SilentServiceError,
        ended,
        execute,
    )


def _dsn(endpoint: Endpoint, proxy: Proxy) -> str:
    return make_conninfo(endpoint.dsn, host="127.0.0.1", port=proxy.port)


@contextmanager
def _postgresql(request: pytest.FixtureRequest) -> Iterator[Peer]:
    endpoint: Endpoint = request.getfixturevalue("endpoint")
    with proxied(endpoint.server.admin.info.port) as proxy:
        peer = _database(
            proxy, postgresql.connect, _dsn(endpoint, proxy), "closed", endpoint.server.execute
        )
        # Its sessions have no schema to create a table in.
        yield replace(peer, held="public.held")


@contextmanager
def _sqlserver(request: pytest.FixtureRequest) -> Iterator[Peer]:
    from duesweep.drivers.sqlserver.dsn import OdbcDsn  # noqa: PLC0415 - loads ODBC
    from duesweep.drivers.sqlserver.session import connect  # noqa: PLC0415 - loads ODBC

    database = request.getfixturevalue("sqlserver").database
    pairs = OdbcDsn.parse(database.dsn).pairs
    encrypted = {"encrypt": "yes", "trustservercertificate": "yes"}
    with proxied(OdbcDsn.parse(database.dsn).port) as proxy:
        own = {"server": f"127.0.0.1,{proxy.port}"}
        own |= encrypted if request.param == ENCRYPTED else {"encrypt": "no"}
        yield _database(proxy, connect, OdbcDsn(pairs | own).text(), _SILENT, database.execute)


@contextmanager
def _rabbitmq(request: pytest.FixtureRequest) -> Iterator[Peer]:
    broker = request.getfixturevalue("broker")
    broker.create("Billing", x_queue_type="classic")
    before = connections()
    with proxied(broker.server.amqp) as proxy:
        url = broker.server.url(broker.vhost, proxy.port)
        timeouts = Timeouts(3 * _ANSWER_SECONDS)
        yield Peer(
            proxy,
            lambda _: session_of(queue_of(url, timeouts=timeouts)),
            lambda: RabbitMqConnection(Brokers((url,), "queues.default", timeouts=timeouts)),
            lambda session: session.resolve("Shipping"),
            DestinationError,
            _SILENT,
        )
        until(lambda: connections() <= before)


_PEERS: dict[str, Callable[[pytest.FixtureRequest], AbstractContextManager[Peer]]] = {
    POSTGRESQL: _postgresql,
    PLAIN: _sqlserver,
    ENCRYPTED: _sqlserver,
    RABBITMQ: _rabbitmq,
}


@pytest.fixture
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    with _PEERS[request.param](request) as peer:
        yield peer
        _begun.clear()


def _case(name: str, *values: object, called: str = "") -> Any:
    marks = [pytest.mark.xdist_group("rabbitmq")] if name == RABBITMQ else []
    return pytest.param(name, *values, marks=marks, id=f"{name} {called}".strip())


def _peers(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("peer", [_case(name) for name in names], indirect=True)


_CONNECTING = {
    POSTGRESQL: [0, 1, 300, b"set_config"],
    PLAIN: [0, 20, 60, 500, 1_500],
    ENCRYPTED: [0, 20, 60, 500, 1_500],
    # To just before its last word.
    RABBITMQ: [0, 8, 300, 490, 505, 520, 530],
}


@pytest.mark.parametrize(
    ("peer", "last"),
    [_case(name, last, called=str(last)) for name, each in _CONNECTING.items() for last in each],
    indirect=["peer"],
)
def test_connection_is_not_waited_for(peer: Peer, last: int | bytes) -> None:
    """The peer answers this many bytes, or all before a request."""
    if isinstance(last, bytes):
        peer.proxy.fall_silent_at(last)
    else:
        peer.proxy.hold_after(last, Way.TO_CLIENT)

    with in_time(), pytest.raises(StoreError, match=f"[:,]{peer.proxy.port}") as caught:
        peer.connect()

    assert caught.value.transient


def _fall_silent(proxy: Proxy) -> None:
    proxy.fall_silent(hides_ends=True)


@dataclass(frozen=True)
class Wait:
    """`wanted` is waited for, after `before`, from a peer that has fallen silent by `silence`."""

    wanted: Step
    before: Step = lambda _: None
    silence: Callable[[Proxy], None] = _fall_silent


def _ask_in_transaction(session: Any) -> None:
    with session.transaction(), session.transaction():
        _ask_database(session)


# The transactions that have begun, by their sessions.
_begun: dict[Any, AbstractContextManager[None]] = {}


def _begin(session: Any) -> None:
    transaction = session.transaction()
    transaction.__enter__()
    _begun[session] = transaction


def _commit(session: Any) -> None:
    _begun.pop(session).__exit__(None, None, None)


def _hold(proxy: Proxy) -> None:
    """It answers more than a session's beginning, and less than `_many`."""
    proxy.hold_after(50_000, Way.TO_CLIENT)


def _many(session: Any) -> Any:
    """Statements whose subscriptions are 900 addresses of 200 letters."""
    letters = ", ".join(f"('{number:x>100}')" for number in range(30))
    rows = f"(VALUES {letters}) a (x) CROSS JOIN (VALUES {letters}) b (x)"
    text = f"(SELECT CONCAT(a.x, b.x) AS queueaddress, 't' AS topic FROM {rows}) AS many"
    return session.named({"subscriptions": text})


def _insert(session: Any) -> None:
    names = {"queue": "tempdb..duesweep_none"}
    session.insert_messages("none", "insert_message", names, [("{}", b"body")])


_DATABASE = {
    "statement": Wait(_ask_database),
    "statement within a savepoint": Wait(_ask_in_transaction),
    "script": Wait(lambda session: session.script("SELECT 1")),
    "BEGIN": Wait(_begin),
    "COMMIT": Wait(_commit, _begin),
    "rows": Wait(lambda session: _many(session).rows("list_subscribers", topic="t"), silence=_hold),
}
_SQL_SERVER = _DATABASE | {
    "state": Wait(lambda session: session.require_transaction(), _begin),
    "insert": Wait(_insert),
    "row after row": Wait(
        lambda session: _many(session).read_while(
            lambda _: True, ("list_subscribers", {"topic": "t"}, {}), what="list_subscribers"
        ),
        silence=_hold,
    ),
}
_WAITS = {
    POSTGRESQL: _DATABASE,
    PLAIN: _SQL_SERVER,
    ENCRYPTED: _SQL_SERVER,
    RABBITMQ: {
        "question": Wait(lambda session: session.resolve("Billing")),
        "channel": Wait(lambda session: session.deliver("Billing", sent(1))),
    },
}


@pytest.mark.parametrize(
    ("peer", "wait"),
    [
        _case(peer, one, called=what)
        for peer, waits in _WAITS.items()
        for what, one in waits.items()
    ],
    indirect=["peer"],
)
def test_answer_is_not_waited_for_twice(peer: Peer, wait: Wait) -> None:
    with in_time(), peer.open(_BRIEF) as session:
        wait.before(session)
        wait.silence(peer.proxy)
        with pytest.raises(peer.error, match=_SILENT) as caught:
            wait.wanted(session)

        with in_time(_ASKED_AGAIN * _ANSWER_SECONDS / 2):
            for _ in range(_ASKED_AGAIN):
                with pytest.raises(StoreError, match=peer.ended):
                    peer.ask(session)

    # A slice opens a new session of its store. It leaves a silent broker alone.
    assert caught.value.transient is (peer.error is SilentServiceError)


@_peers(POSTGRESQL, PLAIN, ENCRYPTED)
@pytest.mark.parametrize("is_rolled_back", [False, True])
def test_end_of_a_transaction_and_of_its_session_are_not_waited_for(
    peer: Peer, *, is_rolled_back: bool
) -> None:
    with in_time(), peer.open(_BRIEF) as session:
        _begin(session)
        _ask_database(session)
        peer.proxy.fall_silent(hides_ends=True)
        if is_rolled_back:
            _roll_back(session)


def _roll_back(session: Any) -> None:
    try:
        _begun.pop(session).__exit__(UndoneError, UndoneError(), None)
    except SilentServiceError:
        # PostgreSQL's driver says so. SQL Server's does not: a session that is gone has no more
        # transaction.
        return


@_peers(RABBITMQ)
@pytest.mark.parametrize(
    ("silence", "count"), [(_fall_silent, 10), (Proxy.freeze, 4_000)], ids=["silent", "full socket"]
)
def test_confirms_and_the_end_of_a_session_are_not_waited_for(
    peer: Peer, silence: Callable[[Proxy], None], count: int
) -> None:
    messages = sent(count, size=8_000)
    with in_time(), peer.open(_BRIEF) as session:
        destination = session.resolve("Billing")
        session.deliver(destination, sent(1))
        session.confirm(60)
        silence(peer.proxy)
        session.deliver(destination, messages)
        answer = session.confirm(60)

    assert answer.unconfirmed == {one.key for one in messages}
    assert answer.refused == {}


def _at(*awaited: bytes, **how: Any) -> Callable[[Proxy], None]:
    return lambda proxy: proxy.fall_silent_at(*awaited, **how)


@_peers(POSTGRESQL)
@pytest.mark.parametrize(
    ("megabytes", "silence", "arrived"),
    [
        pytest.param(0, _at(b"PGCOPY"), 0, id="small copy"),
        pytest.param(40, _at(b"PGCOPY"), 0, id="large copy"),
        pytest.param(40, _at(b"PGCOPY", freezes=True), 0, id="full socket"),
        pytest.param(0, _at(b"COMMIT"), 0, id="COMMIT"),
        pytest.param(0, _at(b"COMMIT", moment=Moment.AFTER), 1, id="answer to COMMIT"),
    ],
)
def test_copy_and_its_commit_are_not_waited_for(
    peer: Peer, endpoint: Endpoint, megabytes: int, silence: Callable[[Proxy], None], arrived: int
) -> None:
    endpoint.set_up("Billing")
    rows = [("{}", b"x" * 1_000_000)] * megabytes or [("{}", b"")]
    with in_time(), peer.open(_BRIEF) as session:
        silence(peer.proxy)

        with pytest.raises(SilentServiceError, match=_SILENT), session.transaction():
            session.copy_messages(TableName("public", "Billing"), rows)

    peer.proxy.heal()
    until(lambda: len(endpoint.queue_rows("Billing")) == arrived)


@_peers(PLAIN, ENCRYPTED)
def test_array_of_parameters_is_not_waited_for(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_time(), peer.open(_BRIEF) as session:
        # Pyodbc holds Python's lock while it sends an array, so the proxy could not begin then.
        def last_message(*_: object) -> SimpleNamespace:
            peer.proxy.fall_silent()
            return SimpleNamespace(number=0)

        monkeypatch.setattr(type(session), "_fetch_row", last_message)

        with pytest.raises(SilentServiceError, match=_SILENT):
            _insert(session)


@_peers(POSTGRESQL)
def test_server_that_is_asked_for_its_time_zone_is_not_waited_for(
    peer: Peer, endpoint: Endpoint
) -> None:
    dsn, database = _dsn(endpoint, peer.proxy), endpoint.server.admin.info.dbname
    # Which hides the server's, so that it takes a session of another kind.
    endpoint.execute(f"ALTER ROLE postgres IN DATABASE {database} SET TimeZone = 'Asia/Kolkata'")
    with in_time(), peer.open(_IMPATIENT) as session:
        assert postgresql.server_time_zone(session, dsn) == "UTC"
        peer.proxy.fall_silent_at(b"SHOW TimeZone")

        assert postgresql.server_time_zone(session, dsn) is None


@_peers(POSTGRESQL)
def test_session_that_was_idle_is_asked_for_a_sign_of_life_first(
    peer: Peer, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = replace(_BRIEF, connect_seconds=3, answer_seconds=600)
    with in_time(), postgresql.connect(_dsn(endpoint, peer.proxy), waits) as session:
        # As if it had waited for its tasks.
        monkeypatch.setattr(wire, "monotonic", lambda: time.monotonic() + 30)
        _ask_database(session)
        monkeypatch.setattr(wire, "monotonic", lambda: time.monotonic() + 60)
        peer.proxy.fall_silent(hides_ends=True)

        with pytest.raises(SilentServiceError, match="has not answered for 3 s"):
            _ask_database(session)


class _Hurried(SessionWaits):
    """The server gives up a statement long before its client does."""

    @property
    def statement_seconds(self) -> float:
        return 1


@pytest.mark.parametrize(
    ("peer", "refusal"),
    [_case(POSTGRESQL, "57014"), _case(PLAIN, "timeout expired")],
    indirect=["peer"],
)
def test_server_that_is_slow_is_not_called_silent(peer: Peer, refusal: str) -> None:
    waits = _Hurried(20, 20, lock_seconds=60)
    with peer.open(waits) as holder, peer.open(waits) as waiter:
        held = peer.held
        holder.script(f"CREATE TABLE {held} (id int)")
        holder.script(f"INSERT INTO {held} VALUES (1)")
        _begin(holder)
        holder.script(f"UPDATE {held} SET id = 2")
        with pytest.raises(StoreError, match=refusal):
            waiter.script(f"UPDATE {held} SET id = 3")
    _drop_held(peer)


@_peers(POSTGRESQL)
def test_answer_that_comes_in_pieces_may_take_longer_than_one_of_them(peer: Peer) -> None:
    with peer.open(replace(_BRIEF, answer_seconds=1.5)) as session:
        session.script("SET statement_timeout = 0")

        session.script(
            "DO $$ BEGIN FOR i IN 1..10 LOOP RAISE NOTICE 'x'; PERFORM pg_sleep(0.25);"
            " END LOOP; END $$"
        )


@_peers(POSTGRESQL)
def test_statement_about_many_messages_may_take_longer(peer: Peer) -> None:
    with peer.open(replace(_BRIEF, answer_seconds=1)) as session:
        with session.wait_longer(30):
            session.script("SELECT pg_sleep(1.5)")

        with pytest.raises(StoreError, match="57014"):
            session.script("SELECT pg_sleep(30)")
        # It is still there.
        _ask_database(session)


@_peers(POSTGRESQL, PLAIN)
def test_session_that_was_closed_has_ended_on_the_server(peer: Peer) -> None:
    with peer.open(_BRIEF) as session:
        held = peer.held
        session.script(f"CREATE TABLE {held} (id int)")
        _begin(session)
        session.script(f"INSERT INTO {held} VALUES (1)")

    _drop_held(peer)


def _drop_held(peer: Peer) -> None:
    """It waits for the holder of the table."""
    assert peer.execute is not None
    peer.execute(f"DROP TABLE {peer.held}")
