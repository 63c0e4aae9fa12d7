"""The statements: each has a comment, is used, and takes known names and values only."""

import re
from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp

import duesweep
from duesweep.sql import statement, statements

PACKAGE = Path(duesweep.__file__).parent
DIALECTS = ("postgresql", "sqlserver")
NAMES = {dialect: set(statements(dialect)) for dialect in DIALECTS}
ALL = sorted((dialect, name) for dialect, names in NAMES.items() for name in names)
# Spark puts these into a query of its own, and can bind no values.
FOR_JDBC = {"plan_claim_keys", "read_changes", "read_exhausted", "read_retries"}
SOURCES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
    for path in PACKAGE.rglob("*.py")
}
# Sources on these paths are of no use to the dialect's statements.
OF_OTHERS = {"postgresql": ("sqlserver", "msmq"), "sqlserver": ("postgresql",)}

TABLES = {
    *("attempts", "bindings", "changes", "delayed", "journal", "limits", "pauses", "queue"),
    *("subscriptions", "sweeps"),
    "index",
}
# Besides the tables. In T-SQL a catalog cannot be bound, and a name stands in literals too.
NAMES_IN = {
    "postgresql": {
        *(
            "id",
            "headers",
            "body",
            "due",
            "due_type",
            "utc",
            "destination",
            "pausable",
            "query",
            "key",
            "slice",
        ),
    },
    "sqlserver": {
        *("catalog", "due", "key", "key_type", "key_text", "collate", "body", "destination"),
        *("retry_count", "pausable", "query", "slice"),
        *(f"{table}_{kind}" for table in TABLES for kind in ("literal", "lock", "local")),
    },
}
LITERALS = {"horizon", "source", "sweep_id", "first_id", "last_id", "paused"}
# What PostgreSQL's statements hold in braces, for the parser; the other names are columns.
POSTGRESQL_NAMES = (
    dict.fromkeys(NAMES_IN["postgresql"], '"c""ol"')
    | dict.fromkeys(TABLES, '"my.sch@ma"."a\'b""c"')
    | dict.fromkeys(LITERALS, "''")
    | {"index": '"in""dex"', "utc": " AT TIME ZONE 'UTC'", "query": "SELECT 1 AS id", "slice": "0"}
)


def _comment(dialect: str, name: str) -> str:
    return "\n".join(re.findall("^ *--(.*)", statement(dialect, name), re.MULTILINE))


def _code(dialect: str, name: str) -> str:
    return re.sub("--.*", "", statement(dialect, name)).strip()


def _is_reading(dialect: str, name: str) -> bool:
    """Whether a statement returns rows of tables that it names, and changes nothing."""
    return statement(dialect, name).startswith("-- Returns") and "FROM {" in _code(dialect, name)


every_statement = pytest.mark.parametrize(("dialect", "name"), ALL)


def test_there_are_statements() -> None:
    for names in NAMES.values():
        assert {"claim", "remove", "raise_attempts", "journal_batch", "seal"} <= names
        assert names >= FOR_JDBC


def test_dialects_have_the_same_statements_except_those_that_only_one_needs() -> None:
    only_postgresql = {
        # a session's time zone and memory; queue tables are copied into
        *("set_zone", "session_zone", "writer_zones", "set_lock_wait", "set_idle_wait"),
        *("describe_schema", "lock_creation"),
        # only a role with VIEW SERVER STATE may ask SQL Server
        "lock_holder",
        # messages are removed as they are claimed
        *("take", "find_delete_hooks", "check_constraints_at_once"),
        # the instant of a Due depends on the writers' zone
        "read_instants",
        # the hint is part of T-SQL's statement
        "set_first_rows_fast",
    }
    only_sqlserver = {
        # the index on Due of a table that is there; what queue tables lack
        *("create_due_index", "queue_indexes"),
        # by spans of Due; the MSMQ store; two shapes of queue tables
        *("count_waiting", "count_some_waiting", "remove_first", "follow_rescheduled"),
        *("create_msmq_delayed", "store_msmq_message", "raise_retry_counts", "remove_by_id"),
        *("hold_by_id", "count_present_by_id", "reschedule_by_id"),
        *("insert_message", "insert_recoverable_message", "send_recoverable"),
        "receive_with_columns",
        *("describe_catalog", "describe_rights", "describe_server", "find_table", "read_lists"),
        *("last_message", "count_arrived", "probe_queue"),
    }

    assert _core(NAMES["postgresql"]) - NAMES["sqlserver"] == only_postgresql
    assert _core(NAMES["sqlserver"]) - NAMES["postgresql"] == only_sqlserver


def _core(names: set[str]) -> set[str]:
    """Without the doctor's, which asks each server what only that one can answer."""
    return {name for name in names if not name.startswith("doctor_")}


@every_statement
def test_first_line_says_what_the_statement_does(dialect: str, name: str) -> None:
    assert re.match(r"-- [A-Z][a-z]+s .{10,}\n", statement(dialect, name))


@every_statement
def test_comment_takes_no_names_and_no_values(dialect: str, name: str) -> None:
    """A table's name may hold a line break: it would end the comment."""
    assert not re.search("[{}%]", _comment(dialect, name))


@pytest.mark.parametrize(("dialect", "name"), [each for each in ALL if _is_reading(*each)])
def test_statement_that_reads_tables_says_how_it_locks(dialect: str, name: str) -> None:
    assert re.search("[Ll]ock|holds", _comment(dialect, name))


@every_statement
def test_statement_is_named_where_its_dialect_can_use_it(dialect: str, name: str) -> None:
    named = [
        path
        for path, source in SOURCES.items()
        if f'"{name}"' in source and not any(other in path for other in OF_OTHERS[dialect])
    ]

    assert named, f"{name} in sql/{dialect}/ is not used"


@every_statement
def test_only_known_names_and_literals_are_put_into_the_text(dialect: str, name: str) -> None:
    text = statement(dialect, name)
    placeholders = re.findall(r"\{(\w+)\}", text)
    known = TABLES | NAMES_IN[dialect] | (LITERALS if name in FOR_JDBC else set())

    assert set(placeholders) <= known
    assert text.count("{") == text.count("}") == len(placeholders)


@pytest.mark.parametrize("name", sorted(NAMES["postgresql"]))
def test_statement_of_postgresql_parses_with_ugly_names(name: str) -> None:
    text = statement("postgresql", name).replace("/* bounds */", "(0, now(), 'a', now(), 'b')")
    marked = re.sub(r"%\(\w+\)s", "$1", text.format(**POSTGRESQL_NAMES)).replace("%%", "%")

    parsed = sqlglot.parse(marked, read="postgres")

    assert any(parsed)
    # What it does not know it takes for a command, unread.
    unread = [part.sql(comments=False) for part in parsed if isinstance(part, exp.Command)]
    known = re.compile(
        r"SET CONSTRAINTS ALL IMMEDIATE|ALTER TABLE .* SET STORAGE EXTERNAL"
        r"|DO \$\$BEGIN PERFORM pg_advisory_xact_lock\(hashtextextended\('\S+', 0\)\); END\$\$"
    )
    assert not [text for text in unread if not known.fullmatch(text)]


@pytest.mark.parametrize("name", sorted(NAMES["postgresql"]))
def test_values_are_bound_by_name_or_there_are_none(name: str) -> None:
    text = statement("postgresql", name)
    if name in FOR_JDBC or name.startswith("create_"):
        assert "%" not in text
    else:
        assert "%" not in re.sub(r"%\([a-z_]+\)s|%%", "", text)


@pytest.mark.parametrize("name", sorted(FOR_JDBC))
@pytest.mark.parametrize("dialect", DIALECTS)
def test_query_for_jdbc_is_a_subquery_without_values(dialect: str, name: str) -> None:
    code = _code(dialect, name)

    assert ";" not in code
    assert not re.search(r"%\(|(?<!@)@[a-z]", code)


@pytest.mark.parametrize("name", sorted(NAMES["postgresql"] - FOR_JDBC))
def test_name_of_postgresql_holds_one_statement(name: str) -> None:
    code = _code("postgresql", name)
    if not name.startswith("create_"):
        assert code.index(";") == len(code) - 1
