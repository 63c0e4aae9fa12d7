"""What SQL Server's catalog says of a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from duesweep.core.address import SqlServerTable, bracket_name
from duesweep.core.errors import StoreError
from duesweep.drivers.sqlserver.session import SqlServerSession
from duesweep.drivers.statements import FoundTable, HiddenRows, Session


def is_there(session: Session, table: SqlServerTable) -> bool:
    """Whether a table of this name exists; a view is none."""
    return bool(session.row("find_table", name=table.sql).found)


def find_table(
    session: SqlServerSession, table: SqlServerTable, rights: Sequence[str] = ()
) -> FoundTable | None:
    """The table, without its indexes, and which of `rights` this user lacks on it; None if this
    user sees no such table. The table's database has to exist, and to be open to this user.
    """
    catalog = session.named({"catalog": bracket_name(table.catalog)})
    rows = catalog.rows("describe_table", schema=table.schema, table=table.table, name=table.sql)
    if not rows:
        return None
    asked = session.rows("describe_rights", name=table.sql) if rights else ()
    missing = [row for row in asked if row.name in rights and not row.is_granted]
    return FoundTable(
        is_table=all(row.kind == "BASE TABLE" for row in rows),
        columns={row.name: row.type.lower() for row in rows},
        missing_rights=[row.name for row in missing],
        grants=_grants(table, missing),
        mark=rows[0].mark,
        hooks=[f"trigger {rows[0].hook}"] if rows[0].hook else [],
        hidden=next(_hidden(catalog, [table]), None) if rows[0].policies else None,
    )


def find_tables(
    session: SqlServerSession, tables: Mapping[SqlServerTable, Sequence[str]]
) -> Mapping[SqlServerTable, FoundTable]:
    """The tables that this user sees, and which of each one's rights it lacks. In a database that
    it cannot open it sees none.
    """
    found = {}
    for table, rights in tables.items():
        try:
            one = find_table(session, table, rights)
        except StoreError:
            if _is_open(session, table.catalog):
                raise
            continue
        if one is not None:
            found[table] = one
    return found


def _is_open(session: Session, catalog: str) -> bool:
    """Whether there is such a database, and this login can open it."""
    database = session.row("describe_catalog", catalog=catalog)
    return bool(database.found and database.is_open)


def _grants(table: SqlServerTable, missing: Sequence[Any]) -> Sequence[str]:
    if not missing:
        return ()
    # GRANT takes no table of another database.
    beside = f"{bracket_name(table.schema)}.{bracket_name(table.table)}"
    rights, user = ", ".join(row.name for row in missing), bracket_name(missing[0].grantee)
    return [f"USE {bracket_name(table.catalog)}; GRANT {rights} ON {beside} TO {user}"]


def hidden_rows(
    session: SqlServerSession, tables: Sequence[SqlServerTable]
) -> Sequence[HiddenRows]:
    """Which of these tables, all of one schema, have rows that this user may not see, as far as it
    sees policies.
    """
    catalog = session.named({"catalog": bracket_name(tables[0].catalog)})
    first = tables[0]
    rows = catalog.rows("describe_table", schema=first.schema, table=first.table, name=first.sql)
    return list(_hidden(catalog, tables)) if rows and rows[0].policies else ()


def _hidden(catalog: SqlServerSession, tables: Sequence[SqlServerTable]) -> Iterator[HiddenRows]:
    known = {table.table.lower(): table for table in tables}
    for row in catalog.rows("hidden_tables", schema=tables[0].schema):
        if (table := known.get(row.table.lower())) is not None:
            policy = f"{bracket_name(row.policy_schema)}.{bracket_name(row.policy)}"
            does, kind = ("filters", "FILTER") if row.is_filtered else ("blocks", "BLOCK")
            beside = f"{bracket_name(table.schema)}.{bracket_name(table.table)}"
            yield HiddenRows(
                f"The security policy {policy} {does} rows of {table.sql}",
                [f"ALTER SECURITY POLICY {policy} DROP {kind} PREDICATE ON {beside}"],
            )


def similar_tables(session: SqlServerSession, table: SqlServerTable) -> Sequence[SqlServerTable]:
    """Tables of the database whose names end as this one's."""
    catalog = session.named({"catalog": bracket_name(table.catalog)})
    ending = "." + table.table.rpartition(".")[2] if "." in table.table else table.table
    rows = catalog.rows("similar_tables", ending=ending)
    return [replace(table, schema=row.schema, table=row.name) for row in rows]


def with_indexes(session: SqlServerSession, table: SqlServerTable, found: FoundTable) -> FoundTable:
    """`found` with the first columns of its indexes that can be used."""
    catalog = session.named({"catalog": bracket_name(table.catalog)})
    rows = catalog.rows("describe_indexes", name=table.sql)
    # Some servers give the names of an index's columns in lower case.
    written = {name.lower(): name for name in found.columns}
    firsts = [(written[row.column_name.lower()], bool(row.is_partial)) for row in rows]
    return replace(
        found,
        indexed=frozenset(name for name, is_partial in firsts if not is_partial),
        indexed_in_part=frozenset(name for name, is_partial in firsts if is_partial),
    )
