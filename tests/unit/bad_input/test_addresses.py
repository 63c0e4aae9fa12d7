"""Whatever an address is, it names one table, or it is refused."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duesweep.core.address import MsmqAddress, PostgreSqlAddresses, SqlServerAddresses
from duesweep.core.errors import UnreadableAddressError

POSTGRESQL = PostgreSqlAddresses("Sales.Orders", "public")
SQL_SERVER = SqlServerAddresses("Sales.Orders", "dbo", "nsb")

# Any character, halves of surrogate pairs and NUL too; often those that grammars are made of.
addresses = st.text(st.characters() | st.sampled_from("\"[].@;'- \0\u200b\u202e\ud800"))


@pytest.mark.parametrize("grammar", [POSTGRESQL, SQL_SERVER, MsmqAddress])
@given(address=addresses)
@example(address="@")
@example(address='"')
def test_address_names_what_its_canonical_form_names_or_is_refused(
    grammar: PostgreSqlAddresses | SqlServerAddresses | type[MsmqAddress], address: str
) -> None:
    try:
        found = grammar.parse(address)
    except UnreadableAddressError:
        return

    assert str(found).encode()
    if grammar is not MsmqAddress:
        assert grammar.parse(str(found)) == found


@pytest.mark.parametrize("address", ["{}", "Nowhere@{}", "Nowhere@dbo@{}", "Nowhere@[{}]@nsb"])
def test_sql_server_takes_names_of_128_characters_and_no_longer_ones(address: str) -> None:
    SQL_SERVER.parse(address.format("n" * 128))
    SQL_SERVER.parse(address.format("\N{GRINNING FACE}" * 64))

    for name in ("n" * 129, "\N{GRINNING FACE}" * 64 + "n"):
        with pytest.raises(UnreadableAddressError, match=r"a name of 129 characters"):
            SQL_SERVER.parse(address.format(name))
