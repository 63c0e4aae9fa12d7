"""The doctor finds each harm and nothing else, and its advice mends it, for each kind of store.

A stand-in for SQL Server cannot show a database that is read-only or cannot read lists,
READ_COMMITTED_SNAPSHOT that is off, or a server's own names of indexes: those are in
tests/unit/doctor/test_sqlserver.py. Missing rights are in test_rights.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duesweep.core.address import quote_name
from duesweep.core.errors import SparkError
from duesweep.operations import doctor
from support.commands import run
from support.config_files import add_routes
from support.diagnosis import Diagnosis, diagnosed
from support.endpoint import Endpoint

Server, Kind = str, str

STORE = "store.dsn"
# What mends a finding: the statements in its advice, or the command that the advice names.
STATEMENTS, SETUP = "statements", "`setup`"
# The one check that finds fault with a database of the tests.
ACCEPTED = ("--ignore", "read-committed-snapshot")


@dataclass(frozen=True, slots=True)
class Harm:
    """A harm to a healthy endpoint: a statement, a call, or settings of its own.

    `finding` is severity, check and subject. Names of tables are in braces, see `_names`. The
    finding or its advice says `words`.
    """

    do: str | Mapping[str, object] | Callable[[Endpoint], object]
    finding: str
    mended_by: str | None = None
    words: tuple[str, ...] = ()

    def harmed(self, healthy: Endpoint) -> Endpoint:
        if isinstance(self.do, Mapping):
            return healthy.having(**self.do)
        if isinstance(self.do, str):
            healthy.execute(self.do.format(**_names(healthy, healthy.within)))
            return healthy
        done = self.do(healthy)
        return done if isinstance(done, Endpoint) else healthy


def _zone(zone: str) -> Callable[[Endpoint], object]:
    return lambda endpoint: endpoint.execute(
        f"ALTER DATABASE {endpoint.server.admin.info.dbname} SET TimeZone = '{zone}'"
    )


def _two_writers(endpoint: Endpoint) -> None:
    for zone in ("Asia/Kolkata", "UTC"):
        dsn = endpoint.server.role(zone[:4].lower(), f"INSERT ON {endpoint.delayed}")
        role = quote_name(str(conninfo_to_dict(dsn)["user"]))
        endpoint.execute(f"ALTER ROLE {role} SET TimeZone = '{zone}'")


def _refer(endpoint: Endpoint) -> None:
    endpoint.delay(due_in_seconds=3_600)
    endpoint.execute(f"CREATE TABLE notes (message uuid REFERENCES {endpoint.delayed})")
    endpoint.execute(f"INSERT INTO notes SELECT id FROM {endpoint.delayed}")


def _read_only(endpoint: Endpoint) -> Endpoint:
    options = "-c default_transaction_read_only=on"
    return endpoint.having(store__dsn=make_conninfo(endpoint.dsn, options=options))


def _unwritable_table(endpoint: Endpoint) -> None:
    table = endpoint.folder / "ledger" / "tombstones"
    table.mkdir(parents=True)
    (table / "_delta_log").symlink_to("/proc/tty")


def _ledger(root: str) -> Harm:
    # Not by rights, which root does not need: neither files nor folders can be made there.
    words = ("cannot be written", "ledger.root")
    return Harm({"ledger__root": root}, f"fault ledger {root}", words=words)


DROP_INDEX = 'DROP INDEX "Sales.Orders.Delayed_Due"'
SET_SEQ = "SELECT setval('\"{}_seq_seq\"', {})"
NO_INDEX, WRONG_DELAYED = "warning table-index {delayed}", "fault table-shape {delayed}"
ZONE = f"writer-time-zone {STORE}"
POSTGRESQL = {
    "no index on due": Harm(DROP_INDEX, NO_INDEX, STATEMENTS),
    "index leaves rows out": Harm(
        DROP_INDEX + "; CREATE INDEX ON {delayed} (due) WHERE id IS NULL", NO_INDEX, STATEMENTS),
    "index on due comes second": Harm(
        DROP_INDEX + "; CREATE INDEX ON {delayed} (headers, due)", NO_INDEX, STATEMENTS),
    "no delayed table": Harm("DROP TABLE {delayed}", "fault table-exists {delayed}", SETUP),
    "type of due": Harm("ALTER TABLE {delayed} ALTER due TYPE timestamp", WRONG_DELAYED),
    "no journal": Harm("DROP TABLE {journal}", "fault table-exists {journal}", SETUP),
    "journal of an earlier version": Harm(
        "ALTER TABLE {journal} DROP COLUMN given", "fault table-shape {journal}",
        words=("let that version settle", SETUP)),
    "no own queue": Harm("DROP TABLE {own}", "fault table-exists {own}", SETUP),
    "no error queue": Harm("DROP TABLE {error}", "fault table-exists {error}", SETUP),
    "headers of the error queue": Harm(
        "ALTER TABLE {error} ALTER headers TYPE varchar", "fault table-shape {error}"),
    "seq over half": Harm(
        SET_SEQ.format("Sales.Orders", 1_100_000_000), "warning seq-headroom {own}", STATEMENTS),
    "seq near its end": Harm(
        SET_SEQ.format("Billing", 2_000_000_000), "fault seq-headroom {billing}", STATEMENTS),
    # Both have to be widened: the column, and its sequence's type.
    "seq at its end, of the column alone": Harm(
        'ALTER SEQUENCE "Billing_seq_seq" AS bigint; ' + SET_SEQ.format("Billing", 2**31 - 1),
        "fault seq-headroom {billing}", STATEMENTS),
    "seq at its end, of the sequence alone": Harm(
        "ALTER TABLE {billing} ALTER seq TYPE bigint; " + SET_SEQ.format("Billing", 2**31 - 1),
        "fault seq-headroom {billing}", STATEMENTS),
    "unlogged delayed table": Harm(
        "ALTER TABLE {delayed} SET UNLOGGED", "warning durability {delayed}", STATEMENTS),
    "unlogged journal": Harm(
        "ALTER TABLE {journal} SET UNLOGGED", "warning durability {journal}", STATEMENTS),
    "unlogged queue": Harm(
        "ALTER TABLE {own} SET UNLOGGED", "warning durability {own}", STATEMENTS),
    "read-only session": Harm(_read_only, f"fault server-writable {STORE}"),
    "name of no table": Harm(
        {"retry__error_queue": "absent."}, "fault sweep-start the sweep",
        words=("names no table",)),
    "ledger": _ledger("/proc/tty"),
    "new ledger": _ledger("/proc/tty/new"),
    "new and deeper ledger": _ledger("/proc/tty/new/and/deeper"),
    "table of the ledger": Harm(_unwritable_table, "fault ledger {ledger}"),
    "writers in a zone whose clocks change": Harm(
        _zone("America/New_York"), f"warning {ZONE}",
        words=("America/New_York", "early or late by 60 min")),
    "writers that disagree": Harm(
        _two_writers, f"fault {ZONE}", words=("store.writer_time_zone",)),
    "another zone in the settings": Harm(
        {"store__writer_time_zone": "Asia/Kolkata"}, f"warning {ZONE}",
        words=("but the writers' settings say UTC",)),
    "foreign key to the delayed table": Harm(
        "CREATE TABLE notes (message uuid REFERENCES {delayed})",
        "warning table-triggers {delayed}", words=("notes", "ON DELETE CASCADE")),
    "row that refers to a message": Harm(
        _refer, "fault table-triggers {delayed}", words=("notes_message_fkey",)),
    "column that the transport does not write": Harm(
        "ALTER TABLE {own} ADD tenant int NOT NULL", "fault table-shape {own}", words=("tenant",)),
    "unknown zone in the settings": Harm(
        {"store__writer_time_zone": "Mars/Olympus"}, f"fault {ZONE}"),
}  # fmt: skip
ADVICE = "Check store.endpoint, store.table_prefix and store.schema; `setup` does not create it"
TIMEOUTS = {
    "no index on time": Harm('DROP INDEX "Sales_Orders_TimeoutData_TimeIdx"', NO_INDEX, STATEMENTS),
    "no table of timeouts": Harm(
        "DROP TABLE {delayed}", "fault table-exists {delayed}", words=(ADVICE,)
    ),
    "type of time": Harm(
        'ALTER TABLE {delayed} ALTER "Time" TYPE timestamptz',
        WRONG_DELAYED,
        words=("Time is timestamp with time zone, not timestamp without",),
    ),
    "no destination": Harm('ALTER TABLE {delayed} DROP COLUMN "Destination"', WRONG_DELAYED),
}
NARROW = "ALTER COLUMN Headers varchar(max)"
SQL_SERVER = {
    "no journal": Harm("DROP TABLE {journal}", "fault table-exists {journal}", words=(SETUP,)),
    "journal of another version": Harm(
        "ALTER TABLE {journal} DROP COLUMN stack", "fault table-shape {journal}", words=(SETUP,)),
    "no own queue": Harm("DROP TABLE {own}", "fault table-exists {own}", words=(SETUP,)),
    "no error queue": Harm("DROP TABLE {error}", "fault table-exists {error}", words=(SETUP,)),
    "no body": Harm("ALTER TABLE {error} DROP COLUMN Body", "fault table-shape {error}"),
    "no index on expires": Harm(
        "DROP INDEX [Index_Expires] ON {error}", "warning table-index {error}"),
    "no index on row version": Harm(
        "DROP INDEX [Index_RowVersion] ON {own}", "warning table-index {own}"),
    "column that the transport does not write": Harm(
        "ALTER TABLE {own} ADD tenant int NOT NULL", "fault table-shape {own}", words=("tenant",)),
    "narrow headers": Harm(f"ALTER TABLE {{error}} {NARROW}", "warning headers-unicode {error}"),
    "narrow delayed headers": Harm(
        f"ALTER TABLE {{delayed}} {NARROW}", "fault headers-unicode {delayed}"),
}  # fmt: skip


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
    whole = endpoint.of_kind(kind or endpoint.kind).having(retry__error_queue="error")
    return whole.set_up("Billing")


def _file(endpoint: Endpoint) -> Path:
    file = endpoint.config_file()
    if endpoint.kind == "msmq":
        add_routes(file, ("*@*", "default", "{queue}"), ("*", "default", "{destination}"))
    return file


def _names(endpoint: Endpoint, name: Callable[[str], str]) -> dict[str, str]:
    delayed, own = endpoint.rows.table(endpoint.name), endpoint.name
    tables = {"delayed": delayed, "own": own, "error": "error", "billing": "Billing"}
    names = {key: name(table) for key, table in tables.items()}
    root = endpoint.folder / "ledger"
    return names | {"journal": name("duesweep_journal"), "ledger": str(root)}


def _diagnosed(endpoint: Endpoint) -> Diagnosis:
    return diagnosed(_file(endpoint), *ACCEPTED)


@pytest.mark.parametrize(("endpoint", "kind"), HARMS, indirect=["endpoint"])
def test_healthy_endpoint_is_0(healthy: Endpoint) -> None:
    found = _diagnosed(healthy)

    assert (found.code, found.to_mend()) == (0, {})
    assert found.of("sweep-start")["severity"] == "ok"


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_writers_whose_clocks_never_change_are_no_fault(healthy: Endpoint, zone: str) -> None:
    _zone(zone)(healthy)

    assert _diagnosed(healthy).to_mend() == {}


@pytest.mark.parametrize(
    ("engine", "installed", "code", "severity"),
    [
        ("auto", True, 3, "warning"),
        ("auto", False, 0, "skipped"),
        ("spark", True, 2, "fault"),
        ("process", True, 0, "skipped"),
    ],
)
def test_doctor_says_that_large_sweeps_run_in_process_and_tries_the_ledger_all_the_same(
    engine: str,
    code: int,
    severity: str,
    healthy: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    *,
    installed: bool,
) -> None:
    def fail(_: object) -> None:
        raise SparkError("Spark did not start: no Java", transient=False, advice="install one")

    monkeypatch.setattr(doctor, "open_spark", fail)
    monkeypatch.setattr(doctor, "has_pyspark", lambda: installed)

    found = diagnosed(healthy.config_file(sweep__engine=engine), with_spark=True)

    start = found.of("spark-start")
    assert (found.code, start["severity"]) == (code, severity), found.text
    assert ("run in process" in start["found"]) is (engine == "auto")
    assert found.of("ledger")["severity"] == "ok"


def test_diagnosis_changes_nothing(healthy: Endpoint) -> None:
    # Of the catalog's own tables the server counts the rows itself, every minute.
    tables = (
        "SELECT relname, reltuples FROM pg_class"
        " WHERE relnamespace = 'public'::regnamespace ORDER BY 1"
    )
    file = _file(healthy)
    before = healthy.fetch(tables), sorted(healthy.folder.rglob("*"))

    found = diagnosed(file)

    assert (found.document["worst"], found.document["endpoint"]) == ("ok", "Sales.Orders")
    assert (healthy.fetch(tables), sorted(healthy.folder.rglob("*"))) == before


@pytest.mark.parametrize(("endpoint", "kind", "harm"), ROWS, indirect=["endpoint"])
def test_harm_is_the_one_finding_and_its_advice_mends_it(harm: Harm, healthy: Endpoint) -> None:
    harmed = harm.harmed(healthy)
    names = _names(healthy, healthy.table)
    severity, check, about = harm.finding.format(**names).split(maxsplit=2)

    found = _diagnosed(harmed)

    assert (found.code, found.to_mend()) == (3, {(check, about): severity})
    (finding,) = [each for each in found.all_of(check) if each["about"] == about]
    text = f"{finding['found']}\n{finding['advice']}"
    assert (finding["severity"], finding["about"]) == (severity, about)
    assert all(words.format(**names) in text for words in harm.words), text
    assert finding["advice"]
    if harm.mended_by is not None:
        _mend(harm.mended_by, harmed, found, check)
        assert _diagnosed(harmed).code == 0
        harmed.delay("Billing")
        assert run("sweep", "--config", str(_file(harmed))).code == 0
        assert len(harmed.queue_rows("Billing")) == 1


def _mend(how: str, harmed: Endpoint, found: Diagnosis, check: str) -> None:
    if how == SETUP:
        assert SETUP in found.of(check)["advice"]
        assert run("setup", "--config", str(_file(harmed))).code == 0
    for statement in found.statements(check):
        harmed.execute(statement)


@pytest.mark.parametrize("endpoint", ["sqlserver"], indirect=True)
def test_advice_on_headers_is_a_statement_that_mends_them(healthy: Endpoint) -> None:
    if healthy.server.stand_in is not None:
        pytest.skip(healthy.server.unsupported("knows no NOT NULL in ALTER COLUMN"))
    healthy.execute(f"ALTER TABLE {healthy.table('error')} {NARROW} NOT NULL")

    _mend(STATEMENTS, healthy, _diagnosed(healthy), "headers-unicode")

    assert _diagnosed(healthy).code == 0


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
    setting: str, dsn: str, healthy: Endpoint
) -> None:
    found = _diagnosed(healthy.having(**{setting.replace(".", "__"): dsn}))

    assert (found.code, found.to_mend()) == (3, {("server-reachable", setting): "fault"})
    assert found.of("sweep-start")["severity"] == "skipped"
    examined = {(each["check"], each["about"]) for each in found.document["findings"]}
    assert (("table-rights", healthy.delayed) in examined) == (setting != STORE)
    assert "s3cret" not in found.text


def test_locked_delayed_table_is_a_fault(healthy: Endpoint) -> None:
    impatient = healthy.having(timeouts__silence_seconds=6)

    with psycopg.connect(healthy.dsn) as other:
        other.execute(f"LOCK TABLE {healthy.delayed}".encode())
        found = _diagnosed(impatient)

    assert (found.code, found.to_mend()) == (3, {("sweep-start", "the sweep"): "fault"})
    assert "another session holds a lock there" in found.of("sweep-start")["found"]


def test_routes_say_where_queues_are_and_which_are_nowhere(healthy: Endpoint) -> None:
    file = _file(healthy.having(queues__here__schema="public"))
    add_routes(file, ("err*", "here", "{destination}"))

    found = diagnosed(file)

    assert (found.code, found.to_mend()) == (3, {("route", "Sales.Orders"): "fault"})
    assert "[[route]]" in found.of("route")["advice"]


@pytest.mark.parametrize(("endpoint", "kind"), [("sqlserver", "msmq")], indirect=["endpoint"])
def test_message_store_without_a_route_is_a_fault(healthy: Endpoint) -> None:
    found = diagnosed(healthy.config_file(), *ACCEPTED)

    assert (found.code, found.to_mend()) == (3, {("route", "[[route]]"): "fault"})


@pytest.mark.parametrize(("endpoint", "kind"), [("sqlserver", "msmq")], indirect=["endpoint"])
def test_two_tables_of_the_message_store_are_a_fault(healthy: Endpoint) -> None:
    healthy.execute(
        f"CREATE TABLE {healthy.table('Sales.Orders.timeouts')} (Id nvarchar(250) NOT NULL PRIMARY"
        " KEY, Destination nvarchar(200), State varbinary(max), Time datetime, Headers"
        " varbinary(max) NOT NULL, RetryCount int)"
    )

    found = _diagnosed(healthy)

    assert found.to_mend()[("one-delayed-table", STORE)] == "fault"
    assert "store.delayed_table" in found.of("one-delayed-table")["advice"]


@pytest.mark.parametrize(
    ("endpoint", "kind", "time"),
    [("postgresql", "sql-persistence", '"Time"'), ("sqlserver", "msmq", "Time")],
    indirect=["endpoint"],
)
def test_messages_without_a_time_are_counted(time: str, healthy: Endpoint) -> None:
    healthy.delay()
    healthy.execute(f"UPDATE {healthy.delayed} SET {time} = NULL")

    found = _diagnosed(healthy)

    notice = found.of("store-notices")
    assert (found.code, notice["severity"]) == (3, "warning")
    assert notice["found"].startswith("1 messages in ")
    assert healthy.rows.table(healthy.name) in notice["found"]
    assert notice["advice"].startswith("Give them")


@pytest.mark.parametrize(
    ("endpoint", "kind"), [("postgresql", "sql-persistence")], indirect=["endpoint"]
)
def test_zone_of_those_who_write_timeouts_does_not_matter(healthy: Endpoint) -> None:
    _zone("America/New_York")(healthy)

    found = _diagnosed(healthy)

    assert (found.code, found.to_mend()) == (0, {})


@pytest.mark.parametrize(
    ("writers", "setting", "code"),
    [
        ("Etc/UTC", "UTC", 0),
        ("GMT", "UTC", 0),
        ("<+00>+00", "Zulu", 0),
        ("Europe/Dublin", "Europe/London", 3),
        # In winter they agree, and in summer they do not.
        ("Europe/Berlin", "Africa/Lagos", 3),
    ],
)
def test_zones_are_compared_by_their_clocks_and_not_by_their_names(
    healthy: Endpoint, writers: str, setting: str, code: int
) -> None:
    _zone(writers)(healthy)

    found = _diagnosed(healthy.having(store__writer_time_zone=setting))

    assert found.code == code
    told = [each["found"] for each in found.all_of("writer-time-zone")]
    differs = ["but the writers' settings say" in each for each in told]
    assert differs == ([setting == "Africa/Lagos"] if code else [])
