"""Addresses of the MSMQ transport."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.address import MsmqAddress, SqlServerTable
from duesweep.core.errors import UnreadableAddressError

names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0") | st.sampled_from("@.[]\" '"),
    min_size=1,
).filter(str.strip)
queues = names.filter(lambda name: "@" not in name)


@pytest.mark.parametrize(
    ("address", "queue", "machine"),
    [
        ("Billing@HOST-2", "Billing", "HOST-2"),
        ("Ship.ping@HOST-1", "Ship.ping", "HOST-1"),
        ("Billing", "Billing", None),
        ("Billing@", "Billing", None),
        ("Billing@ ", "Billing", None),
        ("Billing@.", "Billing", "."),
        ("Billing@10.0.0.1", "Billing", "10.0.0.1"),
        ("with space@HOST", "with space", "HOST"),
        ("Billing@[dbo]", "Billing", "[dbo]"),
        ("Billing@[dbo]@[sales]", "Billing", "[dbo]@[sales]"),
        ("Billing@@x", "Billing", "@x"),
    ],
)
def test_address_names_a_queue_and_its_machine(
    address: str, queue: str, machine: str | None
) -> None:
    assert MsmqAddress.parse(address) == MsmqAddress(queue, machine)


@pytest.mark.parametrize("address", [None, "", " ", "@", "@HOST", " @HOST", "Bill\0ing", "q@h\0"])
def test_address_that_names_no_queue_is_unreadable(address: str | None) -> None:
    with pytest.raises(UnreadableAddressError):
        MsmqAddress.parse(address)


@given(queues, st.none() | names)
def test_written_address_is_parsed_back(queue: str, machine: str | None) -> None:
    address = MsmqAddress(queue, machine)

    assert MsmqAddress.parse(str(address)) == address


@given(names, names, queues)
def test_queue_of_a_sql_server_address_is_its_table(catalog: str, schema: str, table: str) -> None:
    assert MsmqAddress.parse(str(SqlServerTable(catalog, schema, table))).queue == table


@given(st.text() | st.text(st.sampled_from("q@ \0")))
def test_any_address_is_parsed_or_unreadable_and_never_anything_else(text: str) -> None:
    try:
        address = MsmqAddress.parse(text)
    except UnreadableAddressError:
        return
    assert address.queue.strip()
    assert address.machine is None or address.machine.strip()
    assert MsmqAddress.parse(str(address)) == address
