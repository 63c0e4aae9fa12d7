"""The doctor finds each harm and nothing else, and its advice mends it, for each kind of store.

A stand-in for SQL Server cannot show a database that is read-only or cannot read lists,
READ_COMMITTED_SNAPSHOT that is off, or a server's own names of indexes: those are in
tests/unit/doctor/test_sqlserver.py. Missing rights are in test_rights.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duesweep.cli.app import main
from duesweep.core.address import quote_name
from support.diagnosis import Diagnosis, diagnosed
from support.endpoint import Endpoint
from support.routes import add_routes

Capture = pytest.CaptureFixture[str]
Server, Kind = str, str

STORE = "store.dsn"
# What mends a finding: the statements in its advice, or the command that the advice names.
STATEMENTS, SETUP = "statements", "`setup`"
# The one check that finds fault with a database of the tests.
ACCEPTED = ("--ignore", "read-committed-snapshot")


@dataclass(frozen=True, slots=True)
class Harm:
    """What is done to a healthy endpoint: a statement, or a call; and `settings` of its own.

    `finding` is severity, check and subject. Names of tables are in braces, see `_names`. The
    finding or its advice says `words`.
    """

    do: str | Callable[[Endpoint], object]
    finding: str
    mended_by: str | None = None
    words: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)


def _zone(zone: str) -> Callable[[Endpoint], object]:
    def set_zone(endpoint: Endpoint) -> None:
        database = endpoint.server.admin.info.dbname
        endpoint.execute(f"ALTER DATABASE {database} SET TimeZone = '{zone}'")

    return set_zone


def _two_writers(endpoint: Endpoint) -> None:
    for zone in ("Asia/Kolkata", "UTC"):
        dsn = endpoint.server.role(zone[:4].lower(), f"INSERT ON {endpoint.delayed}")
        role = quote_name(str(conninfo_to_dict(dsn)["user"]))
        endpoint.execute(f"ALTER ROLE {role} SET TimeZone = '{zone}'")


def _nothing(_: Endpoint) -> None:
    """The settings alone are wrong."""


def _ledger(root: str) -> Harm:
    # Not by rights, which root does not need: neither files nor folders can be made there.
    words = ("cannot be written", "ledger.root")
    return Harm(_nothing, f"fault ledger {root}", None, words, {"ledger__root": root})


DROP_INDEX = 'DROP INDEX "Sales.Orders.Delayed_Due"'
SET_SEQ = "SELECT setval('\"{}_seq_seq\"', {})"
NO_INDEX, WRONG_DELAYED = "warning table-index {delayed}", "fault table-shape {delayed}"
POSTGRESQL = {
    "no index on due": Harm(DROP_INDEX, NO_INDEX, STATEMENTS),
    "index leaves rows out": Harm(
        DROP_INDEX + "; CREATE INDEX ON {delayed} (due) WHERE id IS NULL", NO_INDEX, STATEMENTS
    ),
    "index on due comes second": Harm(
        DROP_INDEX + "; CREATE INDEX ON {delayed} (headers, due)", NO_INDEX, STATEMENTS
    ),
    "no delayed table": Harm("DROP TABLE {delayed}", "fault table-exists {delayed}", SETUP),
    "type of due": Harm("ALTER TABLE {delayed} ALTER due TYPE timestamp", WRONG_DELAYED),
    "no journal": Harm("DROP TABLE {journal}", "fault table-exists {journal}", SETUP),
    "journal of an earlier version": Harm(
        "ALTER TABLE {journal} DROP COLUMN given", "fault table-shape {journal}", SETUP
    ),
    "no own queue": Harm("DROP TABLE {own}", "fault table-exists {own}", SETUP),
    "no error queue": Harm("DROP TABLE {error}", "fault table-exists {error}", SETUP),
    "headers of the error queue": Harm(
        "ALTER TABLE {error} ALTER headers TYPE varchar", "fault table-shape {error}"
    ),
    "seq over half": Harm(
        SET_SEQ.format("Sales.Orders", 1_100_000_000), "warning seq-headroom {own}", STATEMENTS
    ),
    "seq near its end": Harm(
        SET_SEQ.format("Billing", 2_000_000_000), "fault seq-headroom {billing}", STATEMENTS
    ),
    "seq at its end": Harm(
        SET_SEQ.format("Billing", 2**31 - 1), "fault seq-headroom {billing}", STATEMENTS
    ),
    "name of no table": Harm(
        _nothing,
        "fault sweep-start the sweep",
        words=("names no table",),
        settings={"retry__error_queue": "absent."},
    ),
    "ledger": _ledger("/proc/tty"),
    "new ledger": _ledger("/proc/tty/new"),
    "new and deeper ledger": _ledger("/proc/tty/new/and/deeper"),
    "writers in a zone whose clocks change": Harm(
        _zone("America/New_York"),
        f"warning writer-time-zone {STORE}",
        words=("America/New_York", "240 min"),
    ),
    "writers in a zone without changes": Harm(
        _zone("Asia/Kolkata"), f"ok writer-time-zone {STORE}", words=("330 min",)
    ),
    "origin of the zone": Harm(
        _zone("Asia/Kolkata"),
        f"ok server-time-zone {STORE}",
        words=("Asia/Kolkata (from: database)",),
    ),
    "writers that disagree": Harm(
        _two_writers, f"fault writer-time-zone {STORE}", words=("store.writer_time_zone",)
    ),
    "another zone in the settings": Harm(
        _nothing,
        f"warning writer-time-zone {STORE}",
        settings={"store__writer_time_zone": "Asia/Kolkata"},
    ),
    "unknown zone in the settings": Harm(
        _nothing,
        f"fault writer-time-zone {STORE}",
        settings={"store__writer_time_zone": "Mars/Olympus"},
    ),
}
TIMEOUTS = {
    "no index on time": Harm('DROP INDEX "Sales_Orders_TimeoutData_TimeIdx"', NO_INDEX, STATEMENTS),
    "no table of timeouts": Harm(
        "DROP TABLE {delayed}",
        "fault table-exists {delayed}",
        words=(
            "Check store.endpoint, store.table_prefix and store.schema; `setup` does not create it",
        ),
    ),
    "type of time": Harm('ALTER TABLE {delayed} ALTER "Time" TYPE timestamptz', WRONG_DELAYED),
    "no destination": Harm('ALTER TABLE {delayed} DROP COLUMN "Destination"', WRONG_DELAYED),
}
NARROW = "ALTER COLUMN Headers varchar(max)"
SQL_SERVER = {
    "no journal": Harm("DROP TABLE {journal}", "fault table-exists {journal}", words=(SETUP,)),
    "journal of another version": Harm(
        "ALTER TABLE {journal} DROP COLUMN stack", "fault table-shape {journal}", words=(SETUP,)
    ),
    "no own queue": Harm("DROP TABLE {own}", "fault table-exists {own}", words=(SETUP,)),
    "no error queue": Harm("DROP TABLE {error}", "fault table-exists {error}", words=(SETUP,)),
    "no body": Harm("ALTER TABLE {error} DROP COLUMN Body", "fault table-shape {error}"),
    "no index on expires": Harm(
        "DROP INDEX [Index_Expires] ON {error}", "warning table-index {error}"
    ),
    "no index on row version": Harm(
        "DROP INDEX [Index_RowVersion] ON {own}", "warning table-index {own}"
    ),
    "narrow headers": Harm(f"ALTER TABLE {{error}} {NARROW}", "warning headers-unicode {error}"),
    "narrow delayed headers": Harm(
        f"ALTER TABLE {{delayed}} {NARROW}", "fault headers-unicode {delayed}"
    ),
}


def _no_index(column: str) -> Harm:
    name = f"[Index_{column}]"
    create = f"CREATE NONCLUSTERED INDEX {name} ON {{delayed}} ([{column}])"
    return Harm(f"DROP INDEX {name} ON {{delayed}}", NO_INDEX, STATEMENTS, (create,))


HARMS: Mapping[tuple[Server, Kind], Mapping[str, Harm]] = {
    ("postgresql", "postgresql"): POSTGRESQL,
    ("postgresql", "sql-persistence"): TIMEOUTS,
    ("sqlserver", "sqlserver"): SQL_SERVER | {"no index on due": _no_index("Due")},
    ("sqlserver", "msmq"): {"no index on time": _no_index("Time")},
    ("sqlserver", "sql-persistence"): {"no index on time": _no_index("Time")},
}
ROWS = [
    pytest.param(*kind, harm, id="-".join([*kind, name]))
    for kind, harms in HARMS.items()
    for name, harm in harms.items()
]


@pytest.fixture
def kind() -> str | None:
    """The kind of store, the server's transport if it is None."""
    return None


@pytest.fixture
def healthy(endpoint: Endpoint, kind: str | None) -> Endpoint:
    return endpoint.of_kind(kind or endpoint.kind).set_up("Billing", retry__error_queue="error")


def _file(endpoint: Endpoint, **settings: object) -> Path:
    file = endpoint.config_file(**{"retry__error_queue": "error"} | settings)
    if endpoint.kind == "msmq":
        add_routes(file, ("*@*", "default", "{queue}"), ("*", "default", "{destination}"))
    return file


def _names(endpoint: Endpoint, name: Callable[[str], str]) -> dict[str, str]:
    tables = {
        "delayed": endpoint.rows.table(endpoint.name),
        "own": endpoint.name,
        "error": "error",
        "billing": "Billing",
        "journal": "duesweep_journal",
    }
    return {key: name(table) for key, table in tables.items()}


def _diagnosed(capsys: Capture, file: Path) -> Diagnosis:
    return diagnosed(capsys, file, *ACCEPTED)


@pytest.mark.parametrize(("endpoint", "kind"), HARMS, indirect=["endpoint"])
def test_healthy_endpoint_is_0(capsys: Capture, healthy: Endpoint) -> None:
    found = _diagnosed(capsys, _file(healthy))

    assert (found.code, found.to_mend()) == (0, {})
    assert found.of("sweep-start")["severity"] == "ok"
    assert found.of("server-version")["severity"] == "ok"


def test_diagnosis_changes_nothing(capsys: Capture, healthy: Endpoint) -> None:
    # Of the catalog's own tables the server counts the rows itself, every minute.
    tables = (
        "SELECT relname, reltuples FROM pg_class"
        " WHERE relnamespace = 'public'::regnamespace ORDER BY 1"
    )
    file = _file(healthy)
    before = healthy.fetch(tables), sorted(healthy.folder.rglob("*"))

    found = diagnosed(capsys, file)

    assert (found.document["worst"], found.document["endpoint"]) == ("ok", "Sales.Orders")
    assert (healthy.fetch(tables), sorted(healthy.folder.rglob("*"))) == before


@pytest.mark.parametrize(("endpoint", "kind", "harm"), ROWS, indirect=["endpoint"])
def test_harm_is_the_one_finding_and_its_advice_mends_it(
    harm: Harm, capsys: Capture, healthy: Endpoint
) -> None:
    if isinstance(harm.do, str):
        healthy.execute(harm.do.format(**_names(healthy, healthy.within)))
    else:
        harm.do(healthy)
    file = _file(healthy, **harm.settings)
    names = _names(healthy, healthy.table)
    severity, check, about = harm.finding.format(**names).split(maxsplit=2)

    found = _diagnosed(capsys, file)

    is_well = severity == "ok"
    expected = (0, {}) if is_well else (3, {(check, about): severity})
    assert (found.code, found.to_mend()) == expected
    finding = found.of(check)
    text = f"{finding['found']}\n{finding['advice']}"
    assert (finding["severity"], finding["about"]) == (severity, about)
    assert all(words.format(**names) in text for words in harm.words), text
    assert is_well or finding["advice"]
    if harm.mended_by is not None:
        _mend(harm.mended_by, healthy, file, found, check)
        assert _diagnosed(capsys, file).code == 0
        healthy.delay("Billing")
        assert main(["sweep", "--config", str(file)]) == 0
        assert len(healthy.queue_rows("Billing")) == 1


def _mend(how: str, healthy: Endpoint, file: Path, found: Diagnosis, check: str) -> None:
    if how == SETUP:
        assert SETUP in found.of(check)["advice"]
        assert main(["setup", "--config", str(file)]) == 0
    for statement in found.statements(check):
        healthy.execute(statement)


@pytest.mark.parametrize("endpoint", ["sqlserver"], indirect=True)
def test_advice_on_headers_is_a_statement_that_mends_them(
    capsys: Capture, healthy: Endpoint
) -> None:
    if healthy.server.stand_in is not None:
        pytest.skip(healthy.server.unsupported("knows no NOT NULL in ALTER COLUMN"))
    healthy.execute(f"ALTER TABLE {healthy.table('error')} {NARROW} NOT NULL")
    found = _diagnosed(capsys, _file(healthy))

    _mend(STATEMENTS, healthy, _file(healthy), found, "headers-unicode")

    assert _diagnosed(capsys, _file(healthy)).code == 0


@pytest.mark.parametrize(
    ("endpoint", "setting", "dsn"),
    [
        ("postgresql", "store.dsn", "postgresql://q:s3cret@127.0.0.1:1/postgres"),
        ("postgresql", "queues.default.dsn", "postgresql://q:s3cret@127.0.0.1:1/postgres"),
        ("sqlserver", "store.dsn", "Server=127.0.0.1,1;Database=nsb;Uid=sweeper;Pwd=s3cret"),
    ],
    indirect=["endpoint"],
)
def test_server_out_of_reach_is_a_fault_and_the_rest_is_looked_at(
    setting: str, dsn: str, capsys: Capture, healthy: Endpoint
) -> None:
    found = _diagnosed(capsys, _file(healthy, **{setting.replace(".", "__"): dsn}))

    assert (found.code, found.to_mend()) == (3, {("server-reachable", setting): "fault"})
    assert found.of("sweep-start")["severity"] == "skipped"
    examined = {(each["check"], each["about"]) for each in found.document["findings"]}
    assert (("table-exists", healthy.delayed) in examined) == (setting != STORE)
    assert "s3cret" not in found.text


def test_session_that_is_read_only_is_a_fault(capsys: Capture, healthy: Endpoint) -> None:
    dsn = make_conninfo(healthy.dsn, options="-c default_transaction_read_only=on")

    found = _diagnosed(capsys, _file(healthy, store__dsn=dsn))

    assert (found.code, found.to_mend()) == (3, {("server-writable", STORE): "fault"})


def test_routes_say_where_queues_are_and_which_are_nowhere(
    capsys: Capture, healthy: Endpoint
) -> None:
    file = _file(healthy, queues__here__schema="public")
    add_routes(file, ("err*", "here", "{destination}"))

    found = _diagnosed(capsys, file)

    assert (found.code, found.to_mend()) == (3, {("route", "Sales.Orders"): "fault"})
    assert "[[route]]" in found.of("route")["advice"]


@pytest.mark.parametrize(("endpoint", "kind"), [("sqlserver", "msmq")], indirect=["endpoint"])
def test_message_store_without_a_route_is_a_fault(capsys: Capture, healthy: Endpoint) -> None:
    found = _diagnosed(capsys, healthy.config_file())

    assert (found.code, found.to_mend()) == (3, {("route", "[[route]]"): "fault"})


@pytest.mark.parametrize(("endpoint", "kind"), [("sqlserver", "msmq")], indirect=["endpoint"])
def test_two_tables_of_the_message_store_are_a_fault(capsys: Capture, healthy: Endpoint) -> None:
    healthy.execute(
        f"CREATE TABLE {healthy.table('Sales.Orders.timeouts')} (Id nvarchar(250) NOT NULL PRIMARY"
        " KEY, Destination nvarchar(200), State varbinary(max), Time datetime, Headers"
        " varbinary(max) NOT NULL, RetryCount int)"
    )

    found = _diagnosed(capsys, _file(healthy))

    assert found.to_mend()[("one-delayed-table", STORE)] == "fault"
    assert "store.delayed_table" in found.of("one-delayed-table")["advice"]
    assert found.of("lock-escalation")["severity"] == "skipped"


@pytest.mark.parametrize(
    ("endpoint", "kind", "time"),
    [("postgresql", "sql-persistence", '"Time"'), ("sqlserver", "msmq", "Time")],
    indirect=["endpoint"],
)
def test_messages_without_a_time_are_counted(time: str, capsys: Capture, healthy: Endpoint) -> None:
    healthy.delay()
    healthy.execute(f"UPDATE {healthy.delayed} SET {time} = NULL")

    found = _diagnosed(capsys, _file(healthy))

    notice = found.of("store-notices")
    assert (found.code, notice["severity"]) == (3, "warning")
    assert notice["found"].startswith("1 messages in ")
    assert healthy.rows.table(healthy.name) in notice["found"]
    assert notice["advice"].startswith("Give them")


@pytest.mark.parametrize(
    ("endpoint", "kind"), [("postgresql", "sql-persistence")], indirect=["endpoint"]
)
def test_zone_of_those_who_write_timeouts_does_not_matter(
    capsys: Capture, healthy: Endpoint
) -> None:
    _zone("America/New_York")(healthy)

    found = _diagnosed(capsys, _file(healthy))

    assert (found.code, found.to_mend()) == (0, {})
    checks = {finding["check"] for finding in found.document["findings"]}
    assert not checks & {"writer-time-zone", "server-time-zone"}
