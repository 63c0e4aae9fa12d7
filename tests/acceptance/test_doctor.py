"""The doctor on PostgreSQL: what is wrong, that alone, and the exit code."""

from collections.abc import Callable

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duesweep.core.address import quote_name
from support.diagnosis import diagnosed
from support.endpoint import Endpoint

DELAYED = '"public"."Sales.Orders.Delayed"'
OWN = '"public"."Sales.Orders"'
ERROR = '"public"."error"'
STORE = "store.dsn"

Capture = pytest.CaptureFixture[str]


def _headers_as_varchar(endpoint: Endpoint) -> None:
    endpoint.execute("ALTER TABLE error ALTER headers TYPE varchar")


def _due_without_zone(endpoint: Endpoint) -> None:
    endpoint.execute(f"ALTER TABLE {DELAYED} ALTER due TYPE timestamp")


BROKEN: dict[str, tuple[str | Callable[[Endpoint], None], dict[tuple[str, str], str]]] = {
    "index on due": (
        'DROP INDEX "Sales.Orders.Delayed_Due"',
        {("table-index", DELAYED): "warning"},
    ),
    "index leaves rows out": (
        f'DROP INDEX "Sales.Orders.Delayed_Due"; CREATE INDEX ON {DELAYED} (due) WHERE id IS NULL',
        {("table-index", DELAYED): "warning"},
    ),
    "index on due comes second": (
        f'DROP INDEX "Sales.Orders.Delayed_Due"; CREATE INDEX ON {DELAYED} (headers, due)',
        {("table-index", DELAYED): "warning"},
    ),
    "delayed table": (f"DROP TABLE {DELAYED}", {("table-exists", DELAYED): "fault"}),
    "type of due": (_due_without_zone, {("table-shape", DELAYED): "fault"}),
    "journal": (
        "DROP TABLE duesweep_journal",
        {("table-exists", '"public"."duesweep_journal"'): "fault"},
    ),
    "journal of another version": (
        "ALTER TABLE duesweep_journal DROP COLUMN stack",
        {("table-shape", '"public"."duesweep_journal"'): "fault"},
    ),
    "own queue": (f"DROP TABLE {OWN}", {("table-exists", OWN): "fault"}),
    "error queue": (f"DROP TABLE {ERROR}", {("table-exists", ERROR): "fault"}),
    "headers of the error queue": (_headers_as_varchar, {("table-shape", ERROR): "fault"}),
    "seq over half": (
        "SELECT setval('\"Sales.Orders_seq_seq\"', 1100000000)",
        {("seq-headroom", OWN): "warning"},
    ),
    "seq of any queue near its end": (
        "SELECT setval('\"Billing_seq_seq\"', 2000000000)",
        {("seq-headroom", '"public"."Billing"'): "fault"},
    ),
}


@pytest.fixture
def healthy(endpoint: Endpoint) -> Endpoint:
    return endpoint.set_up("Billing", retry__error_queue="error")


def test_what_is_well_is_0_and_changes_nothing(capsys: Capture, healthy: Endpoint) -> None:
    # Of the catalog's own tables the server counts the rows itself, every minute.
    tables = (
        "SELECT relname, reltuples FROM pg_class"
        " WHERE relnamespace = 'public'::regnamespace ORDER BY 1"
    )
    before = healthy.fetch(tables)

    found = diagnosed(capsys, healthy.config_file(retry__error_queue="error"))

    assert (found.code, found.to_mend(), found.document["worst"]) == (0, {}, "ok")
    assert found.document["endpoint"] == "Sales.Orders"
    assert found.of("sweep-start")["severity"] == "ok"
    assert healthy.fetch(tables) == before
    assert not (healthy.folder / "ledger").exists()


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_wrong_is_said_and_nothing_else(
    what: str, capsys: Capture, healthy: Endpoint
) -> None:
    harm, expected = BROKEN[what]
    if isinstance(harm, str):
        for text in harm.split("; "):
            healthy.execute(text)
    else:
        harm(healthy)

    found = diagnosed(capsys, healthy.config_file(retry__error_queue="error"))

    assert (found.code, found.to_mend()) == (3, expected)
    assert all(
        f["advice"] for f in found.document["findings"] if f["severity"] in expected.values()
    )


def test_advice_on_an_index_is_a_statement_that_mends_it(
    capsys: Capture, healthy: Endpoint
) -> None:
    healthy.execute('DROP INDEX "Sales.Orders.Delayed_Due"')
    file = healthy.config_file(retry__error_queue="error")

    healthy.execute(diagnosed(capsys, file).of("table-index")["advice"])

    assert diagnosed(capsys, file).code == 0


def test_advice_on_seq_is_statements_that_mend_it(capsys: Capture, healthy: Endpoint) -> None:
    healthy.execute("SELECT setval('\"Billing_seq_seq\"', 2147483647)")
    file = healthy.config_file(retry__error_queue="error")

    widen, raise_limit, _ = diagnosed(capsys, file).of("seq-headroom")["advice"].split("; ")
    healthy.execute(widen)
    healthy.execute(raise_limit)

    assert diagnosed(capsys, file).code == 0
    healthy.execute("INSERT INTO \"Billing\" (id, headers) VALUES (gen_random_uuid(), '{}')")


@pytest.mark.parametrize(
    ("revoked", "table"),
    [
        ("DELETE", DELAYED),
        ("UPDATE", DELAYED),
        ("INSERT", '"public"."duesweep_journal"'),
        ("DELETE", '"public"."duesweep_sweeps"'),
        ("INSERT", OWN),
        ("INSERT", ERROR),
    ],
)
def test_missing_right_is_named_with_the_grant(
    revoked: str, table: str, capsys: Capture, healthy: Endpoint
) -> None:
    dsn = _sweeper(healthy)
    file = healthy.config_file(store__dsn=dsn, retry__error_queue="error")
    assert diagnosed(capsys, file).code == 0
    healthy.execute(f"REVOKE {revoked} ON {table} FROM {_role_of(dsn)}")

    found = diagnosed(capsys, file)

    assert (found.code, found.to_mend()) == (3, {("table-rights", table): "fault"})
    advice = found.of("table-rights")["advice"]
    assert advice.startswith(f"GRANT {revoked} ON {table} TO {_role_of(dsn)}")


def test_sequence_that_may_not_be_drawn_from(capsys: Capture, healthy: Endpoint) -> None:
    dsn = _sweeper(healthy)
    healthy.execute(f'REVOKE ALL ON SEQUENCE "error_seq_seq" FROM {_role_of(dsn)}')

    found = diagnosed(capsys, healthy.config_file(store__dsn=dsn, retry__error_queue="error"))

    assert found.to_mend() == {("table-rights", ERROR): "fault"}
    assert "GRANT USAGE ON SEQUENCE public.error_seq_seq" in found.of("table-rights")["advice"]
    assert "1 queue tables are closed" in found.of("seq-headroom")["found"]


def test_server_out_of_reach_is_a_fault_and_the_rest_is_looked_at(
    capsys: Capture, healthy: Endpoint
) -> None:
    file = healthy.config_file(
        queues__default__dsn="postgresql://q:s3cret@127.0.0.1:1/postgres",
        retry__error_queue="error",
    )

    found = diagnosed(capsys, file)

    assert (found.code, found.to_mend()) == (
        3,
        {("server-reachable", "queues.default.dsn"): "fault"},
    )
    assert ("table-exists", DELAYED) in {
        (f["check"], f["about"]) for f in found.document["findings"]
    }
    assert "s3cret" not in found.text


def test_store_out_of_reach_is_a_fault(capsys: Capture, healthy: Endpoint) -> None:
    found = diagnosed(
        capsys, healthy.config_file(store__dsn="postgresql://q:s3cret@127.0.0.1:1/postgres")
    )

    assert (found.code, found.to_mend()) == (3, {("server-reachable", STORE): "fault"})
    assert found.of("sweep-start")["severity"] == "skipped"
    assert "s3cret" not in found.text


def test_read_only_session(capsys: Capture, healthy: Endpoint) -> None:
    dsn = make_conninfo(healthy.dsn, options="-c default_transaction_read_only=on")

    found = diagnosed(capsys, healthy.config_file(store__dsn=dsn, retry__error_queue="error"))

    assert (found.code, found.to_mend()) == (3, {("server-writable", STORE): "fault"})


def test_what_only_a_sweep_finds_is_a_fault_too(capsys: Capture, healthy: Endpoint) -> None:
    found = diagnosed(capsys, healthy.config_file(retry__error_queue="absent."))

    assert (found.code, found.to_mend()) == (3, {("sweep-start", "the sweep"): "fault"})
    assert "names no table" in found.of("sweep-start")["found"]


def test_routes_say_where_queues_are_and_which_are_nowhere(
    capsys: Capture, healthy: Endpoint
) -> None:
    file = healthy.config_file(queues__here__schema="public", retry__error_queue="error")
    route = '[[route]]\ndestination = "err*"\nconnection = "here"\n'
    file.write_text(file.read_text(encoding="utf-8") + route, encoding="utf-8")

    found = diagnosed(capsys, file)

    assert (found.code, found.to_mend()) == (3, {("route", "Sales.Orders"): "fault"})
    assert "[[route]]" in found.of("route")["advice"]


def _sweeper(endpoint: Endpoint) -> str:
    return endpoint.server.role(
        "sweeper",
        "ALL ON ALL TABLES IN SCHEMA public",
        "USAGE ON ALL SEQUENCES IN SCHEMA public",
        "USAGE ON SCHEMA public",
    )


def _role_of(dsn: str) -> str:
    return quote_name(str(conninfo_to_dict(dsn)["user"]))
