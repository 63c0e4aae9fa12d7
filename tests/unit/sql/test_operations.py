"""The statements of the transports' own operations: for ugly names, and as T-SQL."""

import re
from collections.abc import Sequence
from uuid import UUID

import sqlglot
from sqlglot import exp

from duesweep.core.address import SqlServerAddresses, SqlServerTable, TableName
from duesweep.drivers.sqlserver.binding import LONGEST_LOCK, bind, table_names
from duesweep.stores.relational.locks import settle_lock, sweep_lock
from duesweep.stores.sqlserver.driver import batches_lock
from support.sql_statements import POSTGRESQL, SQL_SERVER, SqlStatement, broken

# Which tables and which values each of them takes.
STATEMENTS = {
    "create_queue": ("queue", ()),
    "create_subscriptions": ("subscriptions", ()),
    "add_body_string": ("queue", ()),
    "send": ("queue", ("id", "seconds", "milliseconds", "headers", "body")),
    "send_recoverable": ("queue", ("id", "seconds", "milliseconds", "headers", "body")),
    "send_later": (
        "delayed",
        ("days", "hours", "minutes", "seconds", "milliseconds", "headers", "body"),
    ),
    "receive": ("queue", ()),
    "receive_with_columns": ("queue", ()),
    "peek": ("queue", ("batch",)),
    "purge": ("queue", ("batch",)),
    "purge_expired": ("queue", ("batch",)),
    "subscribe": ("subscriptions", ("queue_address", "endpoint", "topic")),
    "unsubscribe": ("subscriptions", ("endpoint", "topic")),
    "list_subscribers": ("subscriptions", ("topic",)),
}
# PostgreSQL's queue tables have one shape.
_OF_OLDER_SHAPE = ("send_recoverable", "receive_with_columns")
_VALUE = re.compile(r"(?<![@\w])@[a-z]")
_KEEP_NOCOUNT = "DECLARE @Nocount varchar(3) = 'OFF';\nIF ((512 & @@OPTIONS) = 512)"
_RESTORE_NOCOUNT = "IF @Nocount = 'OFF' SET NOCOUNT OFF;\n"
# One that holds every sign that ends or opens something.
UGLY = """a]b [c]] 'd' "e"; DROP TABLE x -- {f} 50% %(g)s ? @seconds @[@headers]"""
# Aliases, procedures, and the TOP of a DELETE, in which sqlglot sees a table.
_NOT_TABLES = {("q",), ("Waiting",), ("sp_getapplock",), ("sp_releaseapplock",), ("TOP",)}


def _table(address: str) -> SqlServerTable:
    return SqlServerAddresses("Sales.Orders", "dbo", "my.c@ta]og").parse(address)


def _sent(name: str, table: SqlServerTable | None = None) -> tuple[str, list[object]]:
    role, values = STATEMENTS[name]
    names = table_names(**{role: table or _table("Billing")})
    return bind(name, names, {value: value for value in values})


def test_names_are_bracketed_and_stand_in_literals_with_their_quotes_doubled() -> None:
    assert _table("my.tb[e@[my.[sch@ma]@[a]]b]").sql == "[a]]b].[my.[sch@ma].[my.tb[e]"
    assert _table("a]b").sql == "[my.c@ta]]og].[dbo].[a]]b]"
    assert table_names(queue=_table("it's")) == {
        "queue": "[my.c@ta]]og].[dbo].[it's]",
        "queue_local": "[dbo].[it's]",
        "queue_literal": "[my.c@ta]]og].[dbo].[it''s]",
        "queue_schema": "dbo",
        "queue_lock": "[my.c@ta]]og].[dbo].[it''s]_lock",
    }


def test_lock_of_a_long_name_is_cut_where_the_server_cuts_the_transports() -> None:
    table = SqlServerTable("c" * 100, "'" * 50, "t" * 100)
    lock = table_names(queue=table)["queue_lock"]

    assert len(f"{table.sql}_lock") > LONGEST_LOCK
    assert lock.replace("''", "'") == f"{table.sql}_lock"[:LONGEST_LOCK]
    assert lock.replace("''", "").count("'") == 0


def test_names_of_a_sweeps_own_locks_are_never_cut() -> None:
    sweep_id = UUID(int=2**128 - 1)

    names = [settle_lock("s" * 400), sweep_lock(sweep_id), f"{batches_lock(sweep_id)}/exhausted"]

    assert max(map(len, names)) <= LONGEST_LOCK


def test_statement_for_an_ugly_name_is_tsql_that_names_that_table_only() -> None:
    named = SqlServerTable("my.c@ta]og", UGLY, UGLY)

    def fault(each: SqlStatement) -> str | None:
        text, _ = _sent(each.name, named)
        tables = {
            tuple(part.name for part in table.parts)
            for tree in sqlglot.parse(text, dialect="tsql")
            if tree is not None
            for table in tree.find_all(exp.Table)
        }
        others = tables - {(named.catalog, named.schema, named.table)} - _NOT_TABLES
        return str(others) if others or named.sql not in text else None

    assert broken(fault, _ours(SQL_SERVER)) == []


def test_statement_of_postgresql_for_an_ugly_name_names_that_table_only() -> None:
    table = TableName(UGLY, UGLY)

    def fault(each: SqlStatement) -> str | None:
        text = each.code.format(**{STATEMENTS[each.name][0]: str(table)})
        marked = re.sub(r"%\(\w+\)s", "1", text.replace(str(table), '"the_table"'))
        others = {
            found.name
            for tree in sqlglot.parse(marked, dialect="postgres")
            if tree is not None
            for found in tree.find_all(exp.Table)
        } - {"the_table"}
        return str(others) if others else None

    assert broken(fault, _ours(POSTGRESQL)) == []


def test_values_are_markers_in_their_order() -> None:
    def fault(each: SqlStatement) -> str | None:
        text, values = _sent(each.name)
        as_told = text.count("?") == len(values) and set(values) == set(STATEMENTS[each.name][1])
        return None if as_told and not _VALUE.search(text) else f"{values} in {text}"

    assert broken(fault, _ours(SQL_SERVER)) == []


def test_statement_that_sets_nocount_restores_it() -> None:
    def fault(each: SqlStatement) -> str | None:
        text, _ = _sent(each.name)
        restores = text.startswith(_KEEP_NOCOUNT) and text.endswith(_RESTORE_NOCOUNT)
        return None if restores or "SET NOCOUNT" not in text else "does not restore NOCOUNT"

    assert broken(fault, _ours(SQL_SERVER)) == []
    setting = [each.name for each in _ours(SQL_SERVER) if "SET NOCOUNT" in each.code]
    assert sorted(setting) == sorted([*_OF_OLDER_SHAPE, "receive", "send", "send_later"])


def test_statement_asks_for_no_lock_of_a_table_and_for_what_both_servers_know() -> None:
    def fault(each: SqlStatement) -> str | None:
        if found := re.findall(r"\b(?:TABLOCKX?|MERGE|HOLDLOCK|PAGLOCK|WITH \w+ AS \()", each.code):
            return str(found)
        changes = re.search(r"\bDELETE\b|\bUPDATE \{", each.code)
        return "no ROWLOCK" if changes and "ROWLOCK" not in each.code else None

    assert broken(fault, _ours(SQL_SERVER)) == []


def _ours(statements: Sequence[SqlStatement]) -> list[SqlStatement]:
    return [each for each in statements if each.name in STATEMENTS]
