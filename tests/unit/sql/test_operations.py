"""The statements of the transports' own operations: for ugly names, and as T-SQL."""

import re
from uuid import UUID

import pytest
import sqlglot
from sqlglot import exp

from duesweep.core.address import PostgreSqlAddresses, SqlServerAddresses, SqlServerTable
from duesweep.drivers.sqlserver.binding import bind
from duesweep.drivers.sqlserver.names import LONGEST_LOCK, table_names
from duesweep.sql import statement
from duesweep.stores.relational.locks import settle_lock, sweep_lock
from duesweep.stores.sqlserver.driver import batches_lock

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
ADDRESSES = (
    "my.tb[e@[my.[sch@ma]",
    "a]b@[]]]@[c]]d]",
    "it's \"quoted\"@[o'clock]",
    "two words; DROP TABLE x --",
    "{braces} @schema",
    "50% ? @seconds@[@headers]",
    "naïve☃",
)
# Aliases, procedures, and the TOP of a DELETE, in which sqlglot sees a table.
_NOT_TABLES = {("q",), ("Waiting",), ("sp_getapplock",), ("sp_releaseapplock",), ("TOP",)}
every_statement = pytest.mark.parametrize("name", STATEMENTS)
every_address = pytest.mark.parametrize("address", ADDRESSES)


def _table(address: str) -> SqlServerTable:
    return SqlServerAddresses("Sales.Orders", "dbo", "my.c@ta]og").parse(address)


def _sent(name: str, address: str = "Billing") -> tuple[str, list[object]]:
    role, values = STATEMENTS[name]
    return bind(name, table_names(**{role: _table(address)}), {value: value for value in values})


def test_names_are_bracketed_and_stand_in_literals_with_their_quotes_doubled() -> None:
    assert _table("my.tb[e@[my.[sch@ma]@[a]]b]").sql == "[a]]b].[my.[sch@ma].[my.tb[e]"
    assert _table("a]b").sql == "[my.c@ta]]og].[dbo].[a]]b]"
    assert table_names(queue=_table("it's")) == {
        "queue": "[my.c@ta]]og].[dbo].[it's]",
        "queue_local": "[dbo].[it's]",
        "queue_literal": "[my.c@ta]]og].[dbo].[it''s]",
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


@every_statement
@every_address
def test_statement_for_an_ugly_name_is_tsql_that_names_that_table_only(
    name: str, address: str
) -> None:
    text, _ = _sent(name, address)

    trees = sqlglot.parse(text, dialect="tsql")
    tables = {
        tuple(part.name for part in table.parts)
        for tree in trees
        if tree is not None
        for table in tree.find_all(exp.Table)
    }
    named = _table(address)
    assert tables <= {(named.catalog, named.schema, named.table)} | _NOT_TABLES
    assert named.sql in text


@every_statement
def test_values_are_markers_in_their_order(name: str) -> None:
    text, values = _sent(name)

    assert text.count("?") == len(values)
    assert set(values) == set(STATEMENTS[name][1])
    assert not re.search(r"(?<![@\w])@[a-z]", text)


def test_receive_takes_the_first_unlocked_row_and_leaves_nocount_as_it_was() -> None:
    assert _sent("receive", "my.tb[e@[a]]b]")[0] == (
        "DECLARE @Nocount varchar(3) = 'OFF';\n"
        "IF ((512 & @@OPTIONS) = 512) SET @Nocount = 'ON';\n"
        "SET NOCOUNT ON;\n"
        "DECLARE @Now datetime = GETUTCDATE();\n"
        "DELETE q\n"
        "OUTPUT deleted.Id AS id, deleted.Headers AS headers, deleted.Body AS body,\n"
        "    deleted.Expires AS expires, @Now AS utc_now\n"
        "FROM [my.c@ta]]og].[a]]b].[my.tb[e] AS q WITH (ROWLOCK)\n"
        "WHERE q.RowVersion = (\n"
        "    SELECT TOP (1) RowVersion FROM [my.c@ta]]og].[a]]b].[my.tb[e]"
        " WITH (UPDLOCK, READPAST, ROWLOCK) ORDER BY RowVersion\n"
        ");\n"
        "IF @Nocount = 'OFF' SET NOCOUNT OFF;\n"
    )


@pytest.mark.parametrize("name", [*_OF_OLDER_SHAPE, "send", "send_later", "receive"])
def test_statement_that_sets_nocount_restores_it(name: str) -> None:
    text, _ = _sent(name)

    assert text.startswith("DECLARE @Nocount varchar(3) = 'OFF';\nIF ((512 & @@OPTIONS) = 512)")
    assert text.endswith("IF @Nocount = 'OFF' SET NOCOUNT OFF;\n")


@every_statement
def test_statement_asks_for_no_lock_of_a_table_and_for_what_both_servers_know(name: str) -> None:
    text, _ = _sent(name)

    assert not re.search(r"\b(TABLOCKX?|MERGE|HOLDLOCK|PAGLOCK)\b", text)
    assert not re.search(r"\bWITH \w+ AS \(", text)
    if re.search(r"\bDELETE\b|\bUPDATE \[", text):
        assert "ROWLOCK" in text


@every_address
@pytest.mark.parametrize("name", sorted(set(STATEMENTS) - set(_OF_OLDER_SHAPE)))
def test_postgresql_names_that_table_only(name: str, address: str) -> None:
    table = PostgreSqlAddresses("Sales.Orders", "my.[sch@ma").parse(
        '"' + address.replace('"', '""') + '"'
    )
    text = re.sub("--.*", "", statement("postgresql", name)).format(
        **{STATEMENTS[name][0]: str(table)}
    )
    marked = re.sub(r"%\(\w+\)s", "1", text.replace(str(table), '"the_table"'))

    for tree in sqlglot.parse(marked, dialect="postgres"):
        if tree is not None:
            assert {found.name for found in tree.find_all(exp.Table)} <= {"the_table"}
    assert table.table == address
