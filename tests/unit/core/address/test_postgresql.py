"""Addresses of the PostgreSQL transport."""

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from duesweep.core.address import PostgreSqlAddresses, TableName, quote_name
from duesweep.core.errors import UnreadableAddressError

ADDRESSES = PostgreSqlAddresses("Sales.Orders", "public")

names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1
).filter(str.strip)


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
def test_address_names_the_table_that_the_transport_would_use(
    address: str, table: TableName
) -> None:
    assert ADDRESSES.parse(address) == table


def test_endpoints_own_name_is_one_identifier_even_with_dots() -> None:
    assert ADDRESSES.parse("Sales.Orders") == TableName("public", "Sales.Orders")
    assert ADDRESSES.parse("Sales.Other") == TableName("Sales", "Other")


def test_no_address_is_the_endpoints_own_queue() -> None:
    assert ADDRESSES.parse(None) == ADDRESSES.own_queue == TableName("public", "Sales.Orders")


def test_unqualified_name_is_in_the_endpoints_default_schema() -> None:
    addresses = PostgreSqlAddresses("Sales.Orders", "my schema")

    assert addresses.parse("Billing") == TableName("my schema", "Billing")
    assert addresses.parse("Sales.Orders") == TableName("my schema", "Sales.Orders")


@pytest.mark.parametrize("address", ["", " ", "Ship.", 'Ship.""', '""', "\t", ".", "Bill\0ing"])
def test_address_that_names_no_table_is_unreadable(address: str) -> None:
    with pytest.raises(UnreadableAddressError):
        ADDRESSES.parse(address)


@given(names, names)
@example('"', '"')
@example(".", '"."')
@example('a"', '.b"')
def test_canonical_form_of_any_table_is_parsed_back_to_it(schema: str, table: str) -> None:
    name = TableName(schema, table)

    assert ADDRESSES.parse(str(name)) == name


@given(names)
def test_quoted_name_without_schema_is_one_identifier(table: str) -> None:
    assert ADDRESSES.parse(quote_name(table)) == TableName("public", table)


@given(st.text())
def test_any_address_is_parsed_or_unreadable_and_never_anything_else(address: str) -> None:
    try:
        table = ADDRESSES.parse(address)
    except UnreadableAddressError:
        return
    assume(address != ADDRESSES.endpoint)
    assert table.table.strip()
    assert table.schema.strip()
