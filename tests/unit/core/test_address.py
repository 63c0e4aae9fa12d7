"""Addresses of the transports of SQL Server, PostgreSQL and MSMQ."""

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from duesweep.core.address import (
    PostgreSqlAddresses,
    SqlServerAddresses,
    SqlServerTable,
    TableName,
    bracket_name,
    quote_name,
)
from duesweep.core.errors import UnreadableAddressError

SQL_SERVER = SqlServerAddresses("Sales.Orders", "dbo", "sales")
POSTGRESQL = PostgreSqlAddresses("Sales.Orders", "public")

signs = st.sampled_from("[]@.\"' ")
names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0") | signs, min_size=1
).filter(str.strip)
postgresql_names = names.filter(lambda name: len(name.encode()) <= 63)
sql_names = names.filter(lambda name: len(name.encode("utf-16-le")) // 2 <= 128)
without_at = sql_names.filter(lambda name: "@" not in name)
texts = st.text() | st.text(signs) | st.text(st.sampled_from("t[]@ \0"))


@pytest.mark.parametrize(
    ("address", "catalog", "schema", "table"),
    [
        ("Billing", "sales", "dbo", "Billing"),
        ("my.table", "sales", "dbo", "my.table"),
        ("[my.table]", "sales", "dbo", "[my.table]"),
        ('"a"b', "sales", "dbo", '"a"b'),
        ("t@[my.schema]", "sales", "my.schema", "t"),
        ("t@my.schema", "sales", "my.schema", "t"),
        ("t@[my.sch@ma]", "sales", "my.sch@ma", "t"),
        ("t@[my.sch[[]ma]", "sales", "my.sch[[]ma", "t"),
        ("t@[s]@[c]", "c", "s", "t"),
        ("t@[s]@[c@talog]", "c@talog", "s", "t"),
        ("t@[s]@c", "c", "s", "t"),
        ("t@s@c", "c", "s", "t"),
        ("t@s@c@ignored", "c", "s", "t"),
        ("t@[]@[c]", "c", "dbo", "t"),
        ("t@[]@c", "c", "dbo", "t"),
        ("t@ @ ", "sales", "dbo", "t"),
        ("t@[ ]@[ ]", "sales", "dbo", "t"),
        ("t@", "sales", "dbo", "t"),
        ("t@s@", "sales", "s", "t"),
        ("t@@c", "sales", "@c", "t"),
        ("t@my]schema", "sales", "my]schema", "t"),
        ("t@my]]schema", "sales", "my]]schema", "t"),
        ("t@[my]]schema]", "sales", "my]schema", "t"),
        ("t@my[schema", "sales", "my[schema", "t"),
        ("t@a]b@c", "c", "a]b", "t"),
        ("t@[a]b@c", "c", "[a]b", "t"),
        ("t@[a@b@c", "sales", "[a@b@c", "t"),
        ("t@[", "sales", "[", "t"),
        ("my.tb[e@[my.[sch@ma]@[my.c@ta]]og]", "my.c@ta]og", "my.[sch@ma", "my.tb[e"),
    ],
)
def test_sql_server_address_names_the_table_that_the_transport_would_use(
    address: str, catalog: str, schema: str, table: str
) -> None:
    assert SQL_SERVER.parse(address) == SqlServerTable(catalog, schema, table)


@pytest.mark.parametrize(
    ("address", "table"),
    [
        ("Billing", TableName("public", "Billing")),
        ("Ship.ping", TableName("Ship", "ping")),
        ('"public"."Billing"', TableName("public", "Billing")),
        ('"Billing"', TableName("public", "Billing")),
        ('"Ship.ping"', TableName("public", "Ship.ping")),
        ('Ship."p.i.n.g"', TableName("Ship", "p.i.n.g")),
        ('"Sh.ip".ping', TableName("Sh.ip", "ping")),
        ("Ship.p.i.n.g", TableName("Ship", "p.i.n.g")),
        ('"a""b"."c""d"', TableName('a"b', 'c"d')),
        ('"a"".""b"', TableName("public", 'a"."b')),
        ('""""', TableName("public", '"')),
        ("billing", TableName("public", "billing")),
        ("with space.other one", TableName("with space", "other one")),
        (".Billing", TableName("public", "Billing")),
        (' ."Billing"', TableName("public", "Billing")),
        ("100%.{}", TableName("100%", "{}")),
    ],
)
def test_postgresql_address_names_the_table_that_the_transport_would_use(
    address: str, table: TableName
) -> None:
    assert POSTGRESQL.parse(address) == table


def test_endpoints_own_name_is_one_identifier_even_with_dots() -> None:
    assert POSTGRESQL.parse("Sales.Orders") == TableName("public", "Sales.Orders")
    assert POSTGRESQL.parse("Sales.Other") == TableName("Sales", "Other")


def test_no_address_is_the_endpoints_own_queue_in_its_default_schema() -> None:
    own = SqlServerTable("sales", "dbo", "Sales.Orders")
    assert SQL_SERVER.parse(None) == SQL_SERVER.parse("Sales.Orders") == SQL_SERVER.own_queue == own
    assert SqlServerAddresses("a@b", "dbo", "sales").parse("a@b").table == "a@b"

    assert POSTGRESQL.parse(None) == POSTGRESQL.own_queue == TableName("public", "Sales.Orders")
    elsewhere = PostgreSqlAddresses("Sales.Orders", "my schema")
    for name in ("Billing", "Sales.Orders"):
        assert elsewhere.parse(name) == TableName("my schema", name)


@pytest.mark.parametrize(
    ("addresses", "address"),
    [
        *((SQL_SERVER, one) for one in ("", " ", "\t", "@", "@s", " @[s]@[c]", "t\0", "t@s\0")),
        *((POSTGRESQL, one) for one in ("", " ", "Ship.", 'Ship.""', '""', "\t", ".", "Bill\0ing")),
    ],
)
def test_address_that_names_nothing_is_unreadable(
    addresses: SqlServerAddresses | PostgreSqlAddresses, address: str
) -> None:
    with pytest.raises(UnreadableAddressError, match=r"^The destination"):
        addresses.parse(address)


@pytest.mark.parametrize(
    ("name", "identifier"),
    [("abc", "[abc]"), ("a[bc", "[a[bc]"), ("a]bc", "[a]]bc]"), ("", "[]"), ('a"b', '[a"b]')],
)
def test_identifier_is_bracketed_with_closing_brackets_doubled(name: str, identifier: str) -> None:
    assert bracket_name(name) == identifier
    assert SqlServerTable(name, name, name).sql == ".".join([identifier] * 3)


@given(sql_names, sql_names, without_at)
@example("]", "]@", "[")
@example("[x]", "@", "]")
def test_canonical_form_of_any_table_on_sql_server_is_parsed_back_to_it(
    catalog: str, schema: str, table: str
) -> None:
    name = SqlServerTable(catalog, schema, table)

    assert SQL_SERVER.parse(str(name)) == name


@given(postgresql_names, postgresql_names)
@example('"', '"')
@example(".", '"."')
@example('a"', '.b"')
def test_canonical_form_of_any_table_on_postgresql_is_parsed_back_to_it(
    schema: str, table: str
) -> None:
    name = TableName(schema, table)

    assert POSTGRESQL.parse(str(name)) == name
    assert POSTGRESQL.parse(quote_name(table)) == TableName("public", table)


@given(texts)
def test_any_address_of_sql_server_is_parsed_or_unreadable(address: str) -> None:
    try:
        name = SQL_SERVER.parse(address)
    except UnreadableAddressError:
        return
    assert name.table == address.partition("@")[0]
    assert all(map(str.strip, (name.catalog, name.schema, name.table)))
    assert SQL_SERVER.parse(str(name)) == name


@given(texts)
def test_any_address_of_postgresql_is_parsed_or_unreadable(address: str) -> None:
    try:
        table = POSTGRESQL.parse(address)
    except UnreadableAddressError:
        return
    assume(address != POSTGRESQL.endpoint)
    assert table.table.strip()
    assert table.schema.strip()
