"""The command `setup`: its tables and their places, and its errors without rights."""

import re
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from duesweep.stores.dialect import JOURNAL_TABLES
from support.commands import run
from support.config_files import add_routes
from support.diagnosis import diagnosed
from support.endpoint import Endpoint
from support.sweeps import run_sweep

OWN_TABLES = {f"duesweep_{name}" for name in JOURNAL_TABLES}
STORE_TABLES = {"Sales.Orders.Delayed", "SubscriptionRouting"} | OWN_TABLES
TABLES = (
    "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
)


@pytest.fixture
def queues_dsn(endpoint: Endpoint) -> Iterator[str]:
    name = f"{endpoint.server.admin.info.dbname}_queues"
    endpoint.execute(f"CREATE DATABASE {name}")
    yield make_conninfo(endpoint.dsn, dbname=name)
    endpoint.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _tables(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        return {name for (name,) in connection.execute(TABLES.encode())}


def test_setup_creates_what_the_transport_would(endpoint: Endpoint) -> None:
    created, again = (endpoint.run("setup", retry__error_queue="error") for _ in range(2))

    assert (created.code, again.code) == (0, 0)
    assert 'created "public"."Sales.Orders.Delayed"' in created.out
    assert 'created "public"."SubscriptionRouting"' in created.out
    assert "Everything exists already" in again.out
    columns = endpoint.fetch(
        "SELECT table_name, column_name, data_type FROM information_schema.columns"
        " WHERE table_name IN ('Sales.Orders', 'Sales.Orders.Delayed', 'error',"
        " 'SubscriptionRouting')"
    )
    assert len(columns) == 5 + 4 + 5 + 3
    indexes = endpoint.fetch(
        "SELECT indexname FROM pg_indexes WHERE tablename = 'Sales.Orders.Delayed'"
    )
    names = {f"Sales.Orders.Delayed_{name}" for name in ("pkey", "Due")}
    assert {row.indexname for row in indexes} == names


def test_printed_setup_is_what_a_dba_can_run_quietly_and_again(endpoint: Endpoint) -> None:
    whole = endpoint.having(retry__error_queue="error", queues__default__readable_body=True)
    script = whole.run("setup", "--print-sql").out.encode()
    assert _tables(endpoint.dsn) == set()
    notices: list[str | None] = []

    with psycopg.connect(endpoint.dsn) as dba:
        dba.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        answer = dba.execute(script + script)
        tables = [answer.description]
        while answer.nextset():
            tables.append(answer.description)

    assert notices == []
    assert len(tables) > 20
    assert set(tables) == {None}
    assert whole.run("sweep").code == 0


def test_printed_setup_runs_no_trigger_of_who_created_a_table_before(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay("Billing")
    run_sweep(endpoint)
    bindings = endpoint.own_table("bindings")
    endpoint.execute(f"ALTER TABLE {bindings} DROP COLUMN place")
    endpoint.execute("CREATE TABLE public.runs (role name)")
    endpoint.execute(
        "CREATE FUNCTION run() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO public.runs VALUES (current_user); RETURN NULL; END $$"
    )
    endpoint.execute(
        f"CREATE TRIGGER run AFTER INSERT OR UPDATE OR DELETE ON {bindings}"
        " FOR EACH STATEMENT EXECUTE FUNCTION run()"
    )

    endpoint.execute(endpoint.run("setup", "--print-sql").out)

    assert [row.place for row in endpoint.fetch(f"SELECT place FROM {bindings}")] == [None]
    assert endpoint.fetch("SELECT role FROM public.runs") == []


@pytest.mark.parametrize("options", [(), ("--print-sql",)])
@pytest.mark.parametrize("name", ["sales.orders", "Sales_Orders", "Slaes.Orders", "Sales.Order"])
def test_endpoint_that_is_misspelt_gets_no_tables(
    name: str, options: tuple[str, ...], endpoint: Endpoint
) -> None:
    before = _tables(endpoint.set_up().dsn)

    ran = endpoint.named(name).run("setup", *options)

    assert (ran.code, 'but "public"."Sales.Orders.Delayed"' in ran.err) == (2, True), ran
    assert "--new-endpoint" in ran.err
    assert _tables(endpoint.dsn) == before


@pytest.mark.parametrize("name", ["Sales.Billing", "Sales.Orders2", "Sales.Orders.EU", "Orders"])
def test_other_endpoint_of_the_same_database_needs_no_option(name: str, endpoint: Endpoint) -> None:
    endpoint.set_up()

    assert endpoint.named(name).run("setup").code == 0

    assert f"{name}.Delayed" in _tables(endpoint.dsn)
    assert endpoint.named(name).run("setup").code == 0


def test_new_endpoint_with_almost_the_same_name_is_created_and_the_doctor_warns_of_it(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up().delay(None, due_in_seconds=900)
    other = endpoint.named("sales.orders")
    missing = diagnosed(other.config_file()).of("table-exists")
    assert 'Did you mean "public"."Sales.Orders.Delayed"?' in missing["advice"]

    assert other.run("setup", "--new-endpoint").code == 0

    warned = diagnosed(other.config_file())
    assert warned.to_mend() == {("table-exists", '"public"."sales.orders.Delayed"'): "warning"}
    assert (
        'while "public"."Sales.Orders.Delayed" has messages' in warned.of("table-exists")["found"]
    )
    other.delay(None, due_in_seconds=900)
    assert diagnosed(other.config_file()).to_mend() == {}
    assert diagnosed(endpoint.config_file()).to_mend() == {}


def test_queues_are_created_in_their_own_database(endpoint: Endpoint, queues_dsn: str) -> None:
    whole = endpoint.having(queues__default__dsn=queues_dsn, retry__error_queue="error")

    assert whole.run("setup").code == 0

    assert _tables(queues_dsn) == {"Sales.Orders", "error"}
    assert _tables(endpoint.dsn) == STORE_TABLES
    assert whole.run("sweep").code == 0


def test_printed_setup_says_which_part_is_for_which_database(
    endpoint: Endpoint, queues_dsn: str
) -> None:
    whole = endpoint.having(queues__default__dsn=queues_dsn)
    printed = whole.run("setup", "--print-sql").out
    parts = re.split("^-- In the database that .* names:$", printed, flags=re.MULTILINE)
    first, of_store, of_queues = parts

    for dsn, script in ((endpoint.dsn, of_store), (queues_dsn, of_queues)):
        with psycopg.connect(dsn) as dba:
            dba.execute(script.encode())

    assert (first, _tables(queues_dsn)) == ("", {"Sales.Orders"})
    assert whole.run("sweep").code == 0


@pytest.mark.parametrize(
    ("arguments", "settings", "expected"),
    [
        ((), {"store__schema": "absent"}, 'There is no schema "absent"'),
        ((), {"retry__error_queue": "absent.error"}, 'There is no schema "absent"'),
        ((), {"retry__error_queue": "public."}, "names no table"),
        (("--grant-to", "sweeper"), {}, "Add --print-sql"),
    ],
)
def test_setup_that_cannot_create_is_a_wrong_setting_and_creates_nothing(
    endpoint: Endpoint, arguments: tuple[str, ...], settings: dict[str, str], expected: str
) -> None:
    ran = endpoint.run("setup", *arguments, **settings)

    assert (ran.code, expected in ran.err) == (2, True)
    assert _tables(endpoint.dsn) == set()


@pytest.mark.parametrize("command", [["setup"], ["setup", "--print-sql"], ["sweep"]])
def test_error_queue_that_no_route_takes_is_refused_by_setup_as_by_a_sweep(
    endpoint: Endpoint, command: list[str]
) -> None:
    if command == ["sweep"]:
        endpoint.set_up()
    before = _tables(endpoint.dsn)
    file = endpoint.config_file(queues__here__schema="public", retry__error_queue="error")
    add_routes(file, ("Sales.*", "here", "{destination}"))

    ran = run(*command, "--config", str(file))

    assert (ran.code, ran.err) == (
        2,
        "duesweep: retry.error_queue: No [[route]] takes the destination 'error'. "
        "Add a [[route]] for it\n",
    )
    assert _tables(endpoint.dsn) == before


@pytest.mark.parametrize("setting", ["store__dsn", "queues__default__dsn"])
def test_setup_of_a_read_only_database_is_a_wrong_setting(endpoint: Endpoint, setting: str) -> None:
    dsn = make_conninfo(endpoint.dsn, options="-c default_transaction_read_only=on")

    ran = endpoint.run("setup", **{setting: dsn})

    assert ran.code == 2
    assert f"{setting.replace('__', '.')} opens is read-only" in ran.err


OTHER_SHAPES = {
    "Sales.Orders.Delayed": (
        "headers text, body bytea, due timestamp",
        "it lacks id uuid, due is timestamp without time zone, not timestamp with time zone",
    ),
    "Sales.Orders": ("id uuid, headers varchar", "it lacks body bytea"),
    "error": ("id integer", "it lacks body bytea"),
    "duesweep_pauses": ("source text", "it lacks given_by "),
}


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(("table", "shape"), OTHER_SHAPES.items(), ids=OTHER_SHAPES)
def test_table_of_another_shape_is_refused_by_its_columns_and_nothing_is_created(
    endpoint: Endpoint, table: str, shape: tuple[str, str], *, beside: bool
) -> None:
    columns, told = shape
    endpoint.execute(f'CREATE TABLE "{table}" ({columns})')
    # Queues in the store's database may have a connection of their own.
    queues = {"queues__default__dsn": endpoint.dsn} if beside else {}

    ran = endpoint.run("setup", retry__error_queue="error", **queues)

    assert (ran.code, told in ran.err, f'"{table}"' in ran.err) == (2, True, True), ran
    assert _tables(endpoint.dsn) == {table}


def test_journal_of_another_version_is_refused_and_setup_leaves_it_alone(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up()
    journal = endpoint.own_table("journal")
    endpoint.execute(f"ALTER TABLE {journal} DROP COLUMN given")
    before = endpoint.fetch(f"SELECT * FROM {journal}")

    swept, done = endpoint.run("sweep"), endpoint.run("setup")

    assert (swept.code, done.code) == (2, 2)
    assert "it lacks given bigint" in swept.err
    assert "let that version settle its sweeps" in swept.err
    assert done.err == swept.err
    assert endpoint.fetch(f"SELECT * FROM {journal}") == before


@pytest.mark.parametrize("is_there", [False, True])
def test_queues_with_readable_bodies_take_what_a_sweep_delivers(
    endpoint: Endpoint, *, is_there: bool
) -> None:
    """Setup gives them the readable bodies that they lack."""
    if is_there:
        endpoint.set_up()
    readable = endpoint.having(queues__default__readable_body=True)
    done = readable.run("setup")
    readable.delay(None, body=b"read \xe9 me")

    assert readable.run("sweep").code == 0

    (row,) = endpoint.fetch('SELECT bodystring FROM "Sales.Orders"')
    assert row.bodystring == r"read \351 me"
    added = 'added the columns that "public"."Sales.Orders" lacked\n'
    assert (done.code, done.out == added) == (0, is_there)
    assert "Everything exists already" in readable.run("setup").out
