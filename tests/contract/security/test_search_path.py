"""Names that others may replace: every statement means the server's own functions, operators, types
and tables, whatever the search path of the role or the database is.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duesweep.core.address import quote_name
from duesweep.core.errors import ConfigError
from duesweep.core.policy import DEFAULT_TIMEOUTS
from duesweep.drivers.postgresql.session import connect
from duesweep.drivers.postgresql.start import SessionStart
from duesweep.drivers.statements import topics
from support.commands import Ran
from support.endpoint import Endpoint
from support.pooler import pooler
from support.postgresql_server import PostgreSqlServer

# Raises where the server runs one of these in place of its own. IMMUTABLE: so the planner also runs
# it, if all arguments are known.
_HIJACK = """
CREATE FUNCTION evil.{name}({arguments}) RETURNS {result} LANGUAGE plpgsql IMMUTABLE AS
$$BEGIN RAISE EXCEPTION 'hijacked %', {signature}; END$$
"""
_OPERATOR = "CREATE OPERATOR evil.{name} (FUNCTION = evil.{function}, {sides})"
_PLAIN_TYPES = "t.typtype = 'b' AND t.typcategory <> 'A' AND t.typname !~ '^(_|pg_|reg)'"
# Functions of the server that our statements and PostgreSQL's JDBC driver call, or may call.
_FUNCTIONS = """
SELECT p.proname AS name, pg_get_function_identity_arguments(p.oid) AS arguments,
       format_type(p.prorettype, NULL) AS result, p.oid::regprocedure::text AS signature
FROM pg_proc p
WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND p.provariadic = 0
  AND p.proname = ANY($1) AND NOT p.proretset
  AND NOT EXISTS (
    SELECT FROM unnest(array_append(p.proargtypes::oid[], p.prorettype)) AS used (oid)
    JOIN pg_type t ON t.oid = used.oid WHERE t.typtype = 'p'
  )
"""
_OPERATORS = f"""
SELECT o.oprname AS name, format_type(o.oprleft, NULL) AS first,
       format_type(o.oprright, NULL) AS second, format_type(o.oprresult, NULL) AS result
FROM pg_operator o
JOIN pg_type t ON t.oid = o.oprleft
WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprname = ANY($1) AND o.oprleft <> 0
  AND {_PLAIN_TYPES}
  AND EXISTS (SELECT FROM pg_type r WHERE r.oid = o.oprright AND r.typtype = 'b')
  AND EXISTS (SELECT FROM pg_type r WHERE r.oid = o.oprresult AND r.typtype = 'b')
"""
_TABLES = (
    *("pg_settings", "pg_class", "pg_namespace", "pg_attribute", "pg_locks", "pg_index"),
    *("pg_stat_activity", "pg_roles", "pg_database", "pg_db_role_setting", "pg_inherits"),
    *("pg_trigger", "pg_rewrite", "pg_type", "pg_am", "pg_sequence", "pg_depend"),
)
_TYPES = ("text", "uuid", "timestamptz", "jsonb", "bytea", "tid", "oid", "float8", "regclass")


@pytest.fixture
def hostile(endpoint: Endpoint[PostgreSqlServer]) -> Iterator[Endpoint[PostgreSqlServer]]:
    """An endpoint in whose database a schema has functions, operators, types and tables with the
    names of the server's own. The role's search path has this schema first.
    """
    endpoint.set_up("Billing", "error", retry__error_queue="error")
    _replace_everything(endpoint)
    dsn = endpoint.server.role(
        "swept", "ALL ON ALL TABLES IN SCHEMA public", "ALL ON SCHEMA public"
    )
    role = quote_name(str(conninfo_to_dict(dsn)["user"]))
    endpoint.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}")
    endpoint.execute(f"GRANT USAGE ON SCHEMA evil TO {role}")
    endpoint.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA evil TO {role}")
    endpoint.execute(f"ALTER ROLE {role} SET search_path = evil, pg_catalog, public")
    yield endpoint.having(
        store__dsn=dsn,
        retry__error_queue="error",
        retry__max_attempts=2,
        retry__initial_seconds=0,
        retry__max_seconds=0,
    )
    endpoint.execute(f"DROP OWNED BY {role}")
    endpoint.execute(f"DROP ROLE {role}")


def _replace_everything(endpoint: Endpoint[Any]) -> None:
    texts = " ".join(topics("postgresql").values())
    called = {*re.findall(r"\b(\w+)\(", texts), "version", "current_schema", "pg_get_expr"}
    called |= {"set_config", "current_setting", "pg_backend_pid"}
    operators = set(re.findall(r"(?<= )[-+*/<>=~!@#%^&|?]+(?= )", texts)) | {"=", "<>", "~~", "||"}
    statements = ["CREATE SCHEMA evil"]
    for row in endpoint.fetch(_FUNCTIONS, list(called)):
        values = row._asdict() | {
            "signature": f"$s${row.signature}$s$",
            "name": quote_name(row.name),
        }
        statements.append(_HIJACK.format(**values))
    for number, row in enumerate(endpoint.fetch(_OPERATORS, list(operators))):
        function, signature = f"operator_{number}", f"$s${row.first} {row.name} {row.second}$s$"
        arguments, sides = (
            f"{row.first}, {row.second}",
            f"LEFTARG = {row.first}, RIGHTARG = {row.second}",
        )
        statements.append(
            _HIJACK.format(
                name=function, arguments=arguments, result=row.result, signature=signature
            )
        )
        statements.append(_OPERATOR.format(name=row.name, function=function, sides=sides))
    # Without an exact match in pg_catalog, these are better ones than any of the server's.
    statements += [
        _HIJACK.format(
            name="concatenated", arguments="name, text", result="text", signature="'name || text'"
        ),
        "CREATE OPERATOR evil.|| (FUNCTION = evil.concatenated, LEFTARG = name, RIGHTARG = text)",
        _HIJACK.format(
            name="div", arguments="numeric, bigint", result="numeric", signature="'div'"
        ),
    ]
    statements += [f"CREATE TABLE evil.{name} (hijacked int)" for name in _TABLES]
    statements += [f"CREATE DOMAIN evil.{name} AS int CHECK (VALUE = 0)" for name in _TYPES]
    endpoint.execute("BEGIN")
    for statement in statements:
        endpoint.execute(statement)
    endpoint.execute("COMMIT")
    assert len(statements) > 300


def _done(ran: Ran, code: int = 0) -> Ran:
    assert "hijacked" not in f"{ran}", ran
    assert ran.code == code, ran
    return ran


def _run_every_command(endpoint: Endpoint[PostgreSqlServer]) -> None:
    """Whatever moves, shows, changes or checks messages, with some that fail and exhaust."""
    endpoint.delay_many(5, ["Billing", "Nowhere"])
    endpoint.delay('"public"."Billing"', headers='{"odd": "one", "x": null}')
    _done(endpoint.run("plan"))
    _done(endpoint.run("sweep"), 3)
    _done(endpoint.run("sweep"), 3)
    keys = endpoint.delay_many(3, due_in_seconds=3_600)
    for arguments in (
        *(("list",), ("show", keys[0]), ("list", "--failing"), ("errors", "list")),
        ("cancel", keys[0], "--reason", "test", "--yes"),
        ("reschedule", keys[1], "--to", "now", "--reason", "test", "--yes"),
        ("pause", "Ship*", "--reason", "test"),
        ("paused",),
        ("resume", "Ship*"),
        ("queue", "create", "Nowhere"),
        ("errors", "replay", "--all", "--reason", "test", "--yes"),
        ("queue", "send", "Billing", "--body", "x"),
        ("queue", "send", "Sales.Orders", "--delay", "1h", "--body", "x"),
        ("queue", "peek", "Billing"),
        ("queue", "receive", "Billing"),
        ("subscriptions", "add", "Event", "Billing", "--subscriber", "Billing"),
        ("sweep",),
        ("maintain",),
        ("audit",),
        ("report", "--out", str(endpoint.folder / "report.html")),
        ("setup",),
    ):
        _done(endpoint.run(*arguments))


def test_commands_run_the_servers_own_functions(hostile: Endpoint[PostgreSqlServer]) -> None:
    _run_every_command(hostile)
    _done(hostile.run("doctor", "--no-spark"))


def test_commands_through_a_pool_run_the_servers_own_functions(
    hostile: Endpoint[PostgreSqlServer], open_folder: Path
) -> None:
    dsn = str(hostile.settings["store__dsn"])
    with pooler(dsn, open_folder, "transaction", server_round_robin=1) as pooled:
        _run_every_command(hostile.having(store__dsn=pooled))


@pytest.mark.xdist_group("spark")
@pytest.mark.usefixtures("spark")
def test_spark_runs_the_servers_own_functions(hostile: Endpoint[PostgreSqlServer]) -> None:
    hostile.delay_many(5, ["Billing", "Nowhere"])

    ran = _done(hostile.run("sweep", "--json", sweep__spark_from=0, ledger__writer="spark"), 3)

    assert (ran.document["engine"], ran.document["dispatched"]) == ("spark", 3)


@pytest.mark.parametrize("by", ["dsn", "PGOPTIONS"])
def test_path_of_the_dsn_or_the_environment_is_replaced(
    by: str,
    hostile: Endpoint[PostgreSqlServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options, dsn = "-c search_path=evil,pg_catalog", hostile.dsn
    if by == "dsn":
        dsn = make_conninfo(dsn, options=options)
    else:
        monkeypatch.setenv("PGOPTIONS", options)

    with connect(dsn, DEFAULT_TIMEOUTS.task) as session:
        assert session.row("session_zone").zone == "UTC"


def test_printed_statements_begin_with_the_servers_own_names(
    hostile: Endpoint[PostgreSqlServer],
) -> None:
    ran = _done(hostile.run("setup", "--print-sql", store__schema="fresh"))

    hostile.execute("CREATE SCHEMA fresh")
    with psycopg.connect(hostile.dsn, autocommit=True) as administrator:
        administrator.execute("SET search_path = evil, pg_catalog")
        # Types and functions of the other schema could also end it.
        with contextlib.suppress(psycopg.Error):
            administrator.execute(ran.out.encode())
    found = hostile.fetch("SELECT count(*) AS n FROM pg_tables WHERE schemaname = 'fresh'")
    assert found[0].n > 5


@pytest.mark.parametrize(
    ("path", "is_safe"),
    [
        ('"$user", public', True),
        ("pg_catalog, pg_temp", True),
        ("pg_catalog,evil", True),
        ("evil, pg_catalog", False),
        ('"my pg_catalog", "pg_catalog"', False),
        ("not_pg_catalog", True),
    ],
)
def test_behind_a_pooler_spark_needs_a_path_that_begins_with_the_servers_names(
    path: str, *, is_safe: bool
) -> None:
    start = SessionStart(is_pooled=True, search_path=path)
    if is_safe:
        assert start.jdbc_settings() == {"prepareThreshold": "0"}
    else:
        with pytest.raises(ConfigError, match="ALTER ROLE … SET search_path = pg_catalog, pg_temp"):
            start.jdbc_settings()
    direct = SessionStart(is_pooled=False, search_path=path)
    assert direct.jdbc_settings() == {"currentSchema": "pg_catalog, pg_temp"}
