"""Addresses of the SQL Server transport."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duesweep.core.address import SqlServerAddresses, SqlServerTable, bracket_name
from duesweep.core.errors import UnreadableAddressError

ADDRESSES = SqlServerAddresses("Sales.Orders", "dbo", "sales")

ugly = st.sampled_from("[]@.\"' ")
names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0") | ugly, min_size=1
).filter(lambda name: name.strip() and len(name.encode("utf-16-le")) // 2 <= 128)
tables = names.filter(lambda name: "@" not in name)


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
def test_address_names_the_table_that_the_transport_would_use(
    address: str, catalog: str, schema: str, table: str
) -> None:
    assert ADDRESSES.parse(address) == SqlServerTable(catalog, schema, table)


@pytest.mark.parametrize(
    "address", ["t@[s]@[c]", "my.table@[dbo]@[sales]", "my.tb[e@[my.[sch@ma]@[my.c@ta]]og]"]
)
def test_canonical_address_stays_as_it_is(address: str) -> None:
    assert str(ADDRESSES.parse(address)) == address


def test_no_address_is_the_endpoints_own_queue() -> None:
    own = SqlServerTable("sales", "dbo", "Sales.Orders")

    assert ADDRESSES.parse(None) == ADDRESSES.parse("Sales.Orders") == ADDRESSES.own_queue == own


def test_endpoints_own_name_is_a_table_even_with_an_at_sign() -> None:
    addresses = SqlServerAddresses("a@b", "dbo", "sales")

    assert addresses.parse("a@b") == SqlServerTable("sales", "dbo", "a@b")


@pytest.mark.parametrize("address", ["", " ", "\t", "@", "@s", " @[s]@[c]", "t\0", "t@s\0"])
def test_address_that_names_no_table_is_unreadable(address: str) -> None:
    with pytest.raises(UnreadableAddressError, match=r"^The destination "):
        ADDRESSES.parse(address)


def test_sql_name_is_bracketed_in_all_three_parts() -> None:
    assert SqlServerTable("c]d", "my s", "t.[1]").sql == "[c]]d].[my s].[t.[1]]]"


@pytest.mark.parametrize(
    ("name", "identifier"),
    [("abc", "[abc]"), ("a[bc", "[a[bc]"), ("a]bc", "[a]]bc]"), ("", "[]"), ('a"b', '[a"b]')],
)
def test_identifier_is_bracketed_with_closing_brackets_doubled(name: str, identifier: str) -> None:
    assert bracket_name(name) == identifier


@given(names, names, tables)
@example("]", "]@", "[")
@example("[x]", "@", "]")
def test_canonical_form_of_any_table_is_parsed_back_to_it(
    catalog: str, schema: str, table: str
) -> None:
    name = SqlServerTable(catalog, schema, table)

    assert ADDRESSES.parse(str(name)) == name


@given(st.text() | st.text(ugly) | st.text(st.sampled_from("t[]@")))
def test_any_address_is_parsed_or_unreadable_and_never_anything_else(address: str) -> None:
    try:
        name = ADDRESSES.parse(address)
    except UnreadableAddressError:
        return
    assert name.table == address.partition("@")[0]
    assert all(map(str.strip, (name.catalog, name.schema, name.table)))
    assert ADDRESSES.parse(str(name)) == name
