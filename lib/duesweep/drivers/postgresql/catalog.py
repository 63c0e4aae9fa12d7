"""What PostgreSQL's catalog says of tables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from duesweep.core.address import TableName, quote_name
from duesweep.drivers.postgresql.session import PostgreSqlSession
from duesweep.drivers.statements import Columns, FoundTable, HiddenRows

# Ordinary and partitioned tables. Foreign tables know neither SKIP LOCKED nor a common
# transaction; views have no rows of their own.
_TABLE_KINDS = {"r", "p"}


def find_table(
    session: PostgreSqlSession, table: TableName, rights: Sequence[str] = ()
) -> FoundTable | None:
    """The table, without its indexes, and which of `rights` the session lacks on it; None if it
    does not exist.
    """
    return find_tables(session, {table: rights}).get(table)


def find_tables(
    session: PostgreSqlSession, tables: Mapping[TableName, Sequence[str]]
) -> Mapping[TableName, FoundTable]:
    """The tables that exist, without their indexes, and which of each one's rights the session
    lacks.
    """
    rows = session.rows(
        "describe_tables",
        schemas=[table.schema for table in tables],
        tables=[table.table for table in tables],
        rights=[",".join(rights) for rights in tables.values()],
    )
    return {(table := TableName(row.schema, row.table)): _found(table, row) for row in rows}


def _found(table: TableName, row: Any) -> FoundTable:
    return FoundTable(
        is_table=row.kind in _TABLE_KINDS,
        columns=dict(zip(row.column_names, row.column_types, strict=True)),
        missing_rights=[
            *row.missing_rights,
            *(f"USAGE on its sequence {sequence}" for sequence in row.missing_sequences),
        ],
        grants=list(_grants(table, row)),
        mark=row.mark,
        is_unlogged=row.is_unlogged,
        has_rules=row.has_rules,
        hidden=None if row.hidden_by is None else _hidden(table, row),
        has_key=row.has_key,
        has_primary_key=row.has_primary_key,
        unidentified=row.published,
        hooks=row.hooks,
    )


def _grants(table: TableName, row: Any) -> Iterator[str]:
    role = quote_name(row.role)
    if row.missing_rights:
        yield f"GRANT {', '.join(row.missing_rights)} ON {table} TO {role}"
        yield f"GRANT USAGE ON SCHEMA {quote_name(table.schema)} TO {role}"
    for sequence in row.missing_sequences:
        yield f"GRANT USAGE ON SEQUENCE {sequence} TO {role}"


def hidden_rows(session: PostgreSqlSession, tables: Sequence[TableName]) -> Sequence[HiddenRows]:
    """Which of these tables, all of one schema, have rows that this role may not see."""
    names = [table.table for table in tables]
    rows = session.rows("hidden_tables", schema=tables[0].schema, tables=names)
    return [_hidden(TableName(tables[0].schema, row.table), row) for row in rows]


def _hidden(table: TableName, row: Any) -> HiddenRows:
    role = quote_name(row.role)
    by = f", by its restrictive policy {row.hidden_by[0]}" if row.hidden_by else ""
    text = f"Row-level security hides or refuses rows of {table} for role {role}{by}"
    statements = [f"ALTER ROLE {role} BYPASSRLS"]
    if not by:
        # It does not lift a restrictive one.
        policy = f"CREATE POLICY duesweep ON {table} TO {role} USING (true) WITH CHECK (true)"
        statements.insert(0, policy)
    return HiddenRows(text, statements)


def similar_tables(session: PostgreSqlSession, table: TableName) -> Sequence[TableName]:
    """Tables of the database whose names end as this one's."""
    rows = session.rows("similar_tables", ending=_ending(table.table))
    return [TableName(row.schema, row.name) for row in rows]


def _ending(name: str) -> str:
    """`.Delayed` of `Sales.Delayed`; the whole name if it has no dot."""
    return "." + name.rpartition(".")[2] if "." in name else name


def column_lists(columns: Columns) -> dict[str, list[str]]:
    """The values of statements that look for tables with these columns."""
    return {
        "typed": [f"{name} {kind}" for name, kinds in columns.items() for kind in kinds],
        "named": [name for name, kinds in columns.items() if not kinds],
    }
