"""The statements of SQL Server, recorded in two ways. Without a server: each as the driver renders
it, for each kind of delayed table. With a server: the calls of the ODBC driver, with
the kinds of the parameters, and for sweeps in each form, the statements of each batch, by
transactions. The latter was recorded on Babelfish 4.4, a stand-in (docs/testing.md).

The numbers of round trips count calls of the ODBC driver, which may ask the server more
than once for each.
"""

import re
from dataclasses import replace
from typing import Any

import pytest

from duesweep.core.address import SqlServerTable, bracket_name
from duesweep.drivers.sqlserver.binding import bind, table_names
from duesweep.drivers.statements import statements
from duesweep.stores import leases
from duesweep.stores.dialect import JOURNAL_TABLES
from duesweep.stores.kinds import SQL_SERVER_KINDS
from support.endpoint import Endpoint
from support.golden import statement_world as use
from support.golden.odbc import RecordingOdbc
from support.golden.recorded import ROOT, compare
from support.golden.statement_world import FORMS, World, run_form
from support.golden.statements import in_sqlserver, told_sessions, told_statements
from support.golden.wire import Exchange, Statement

RECORDED = ROOT / "sql" / "sqlserver"
TABLES = (*JOURNAL_TABLES, "delayed", "queue", "subscriptions")
_VALUE = re.compile(r"(?<![@\w])@([a-z]\w*)")
# In a text for Spark, which takes no parameters.
_TIME = re.compile(r"N'20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d+'")


def _rendered(name: str, kind: str) -> str:
    """A statement as it is sent, below the names of its values in their order."""
    tables = {each: SqlServerTable("nsb", "dbo", each) for each in TABLES}
    names = table_names(**tables) | {
        "catalog": bracket_name("nsb"),
        "index": bracket_name(SQL_SERVER_KINDS[kind].index),
        **dict.fromkeys(("horizon", "source", "sweep_id", "first_id", "last_id"), "N''"),
        **dict.fromkeys(("bounds", "paused", "query", "slice", "key", "chunk", "most"), "<sql>"),
        "first_format": "<first format>",
        "format": "<format>",
        # As on SQL Server with an index on Due.
        "seek": ", FORCESEEK",
        **SQL_SERVER_KINDS[kind].names,
    }
    values = {found: found for found in _VALUE.findall(statements("sqlserver")[name])}
    text, order = bind(name, names, values)
    head = [f"-- name: {name}", *([f"-- {', '.join(map(str, order))}"] if order else [])]
    return "\n".join([*head, text])


def test_every_statement_as_it_is_rendered() -> None:
    rendered = {
        kind: [_rendered(name, kind) for name in sorted(statements("sqlserver"))]
        for kind in SQL_SERVER_KINDS
    }
    usual = rendered["sqlserver"]

    compare(
        RECORDED / "rendered",
        {
            f"{kind}.sql": "\n".join(
                text for text in texts if kind == "sqlserver" or text not in usual
            )
            for kind, texts in rendered.items()
        },
    )


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> RecordingOdbc:
    from duesweep.drivers.sqlserver.dsn import odbc  # noqa: PLC0415 - loads ODBC

    # A slow sweep would renew its leases, on a session of its own.
    monkeypatch.setattr(leases, "RENEWAL_SECONDS", 3_600.0)
    recorder = RecordingOdbc(odbc().connect)
    monkeypatch.setattr(odbc(), "connect", recorder.connect)
    return recorder


# Babelfish reserves too slowly for a limit.
@pytest.mark.parametrize("form", sorted(set(FORMS) - {"limit"}))
def test_sweep_in_each_form(
    sqlserver_endpoint: Endpoint[Any], recorder: RecordingOdbc, form: str
) -> None:
    world = World.of(sqlserver_endpoint)
    FORMS[form].prepare(world)
    recorder.sessions()

    run_form(world, FORMS[form])

    sent = told_sessions(_with_names(world, recorder.sessions()), in_sqlserver)
    compare(RECORDED / f"sweep_{form}", {"sent.txt": sent})


def test_every_statement_with_the_kinds_of_its_parameters(
    sqlserver_endpoint: Endpoint[Any], recorder: RecordingOdbc
) -> None:
    world = World.of(sqlserver_endpoint)
    recorder.sessions()
    for each in (use.sweep, use.look, use.change, use.replay, use.use_queues, use.use_messages):
        each(world)
    use.tidy_up(world)

    told = told_statements(_with_names(world, recorder.sessions()), in_sqlserver)

    compare(RECORDED / "statements", {"transport.sql": told})


def _with_names(world: World, sessions: list[list[Exchange]]) -> list[list[Exchange]]:
    """With the same names of database and schema, and without times, in each run."""
    server, schema = world.endpoint.server, world.endpoint.schema

    def named(statement: Statement) -> Statement:
        text = statement.text.replace(server.database.name, "nsb").replace(schema, "dbo")
        return replace(statement, text=_TIME.sub("N'<time>'", text))

    return [
        [replace(each, statements=[named(one) for one in each.statements]) for each in session]
        for session in sessions
    ]
