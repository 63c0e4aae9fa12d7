"""Statements that commands print without a server, except the ones that tests/golden records."""

from pathlib import Path

import pytest

from support.commands import Ran, run

POSTGRESQL = "postgresql://db.example/nsb"
SQL_SERVER = "Server=db.example;Database=n]sb;Uid=sweeper;Pwd=s3cret"
JOURNAL = ("journal", "attempts", "sweeps", "bindings", "changes", "pauses", "limits", "leases")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _run(kind: str, *arguments: str, **settings: object) -> Ran:
    given = {"store.kind": kind, "store.endpoint": "Sales.Orders", "ledger.root": "/ledger"}
    given |= {name.replace("__", "."): value for name, value in settings.items()}
    options = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    with pytest.MonkeyPatch.context() as patch:
        is_postgresql = kind == "postgresql"
        patch.setenv("DUESWEEP_STORE__DSN", POSTGRESQL if is_postgresql else SQL_SERVER)
        ran = run(*arguments, *options)
    assert "s3cret" not in ran.told
    return ran


def _printed(kind: str, *arguments: str, **settings: object) -> str:
    ran = _run(kind, *arguments, "--print-sql", **settings)
    assert ran.code == 0, ran.err
    return ran.out


@pytest.mark.parametrize(
    ("kind", "delayed", "own"),
    [
        ("sqlserver", "Sales.Orders.Delayed", {"[dbo].[Sales.Orders]"}),
        ("msmq", "Sales.Orders.delayed", set()),
    ],
)
def test_grants_on_sql_server(kind: str, delayed: str, own: set[str]) -> None:
    grant = ("setup", "--grant-to", "swe]eper")

    text = _printed(kind, *grant, retry__error_queue="error@[dbo]@[other]")

    of_nsb, of_other = text.split("\nGO\n")[-2:]
    tables = {f"[dbo].[duesweep_{name}]" for name in JOURNAL}
    assert set(of_nsb.splitlines()) == {
        "USE [n]]sb];",
        f"GRANT SELECT, UPDATE, DELETE ON [dbo].[{delayed}] TO [swe]]eper];",
        *(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO [swe]]eper];" for table in tables),
        *(f"GRANT SELECT, INSERT ON {table} TO [swe]]eper];" for table in own),
    }
    use, granted, *notes = of_other.splitlines()
    assert (use, granted) == (
        *("USE [other];", "GRANT SELECT, INSERT ON [dbo].[error] TO [swe]]eper];"),
    )
    assert all(line.startswith("--") for line in notes)


def test_grants_on_rabbitmq_are_left_to_its_own_tool() -> None:
    broker = {"queues__default__kind": "rabbitmq", "queues__default__url": "amqp://broker.example"}

    text = _printed("postgresql", "setup", "--grant-to", "sweeper", **broker)

    assert 'DELETE ON "public"."Sales.Orders.Delayed" TO "sweeper";' in text
    assert "rabbitmqctl set_permissions" in text


@pytest.mark.parametrize(
    ("kind", "settings", "added"),
    [
        ("postgresql", {}, 'ALTER TABLE "own"."{}" ADD COLUMN IF NOT EXISTS bodystring'),
        (
            "postgresql",
            {"queues__default__dsn": "postgresql://db.example/queues"},
            'ALTER TABLE "own"."{}" ADD COLUMN IF NOT EXISTS bodystring',
        ),
        ("sqlserver", {}, "ALTER TABLE [n]]sb].[own].[{}] ADD BodyString"),
    ],
    ids=["postgresql", "on a connection of their own", "sqlserver"],
)
def test_queues_have_readable_bodies_where_their_section_says_so(
    kind: str, settings: dict[str, str], added: str
) -> None:
    whole = {"store__schema": "own", "retry__error_queue": "error", **settings}
    text = _printed(kind, "setup", **whole, queues__default__readable_body="true")

    assert "odystring" not in _printed(kind, "setup", **whole).lower()
    for queue in ("Sales.Orders", "error"):
        assert added.format(queue) in text


def test_statements_for_a_queue_on_sql_server_are_batches_in_its_own_database() -> None:
    create = ("queue", "create", "Billing@[s]@[other]", "--readable-body")

    first, created, readable = _printed("sqlserver", *create).split("GO\n")

    assert "USE [other];" in first
    assert "CREATE TABLE [other].[s].[Billing]" in created
    assert "ADD BodyString AS" in readable


def test_address_or_connection_that_there_is_not_is_refused() -> None:
    address = _run("postgresql", "queue", "create", "public.", "--print-sql")
    connection = _run("postgresql", "queue", "peek", "Billing", "--connection", "nope")

    assert (address.code, address.out) == (2, "")
    assert connection == Ran(
        2, "", "duesweep: Unknown connection nope. Name one of default with --connection\n"
    )
