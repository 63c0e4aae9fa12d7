"""Arrays of UUIDs in PostgreSQL's binary format."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from psycopg.adapt import PyFormat, Transformer

from duesweep.drivers.postgresql.wire import UuidArray


@given(st.lists(st.uuids(), max_size=20))
def test_array_is_what_psycopg_makes_of_the_same_uuids(uuids: list[UUID]) -> None:
    transformer = Transformer()
    expected = transformer.get_dumper([UUID(int=0)], PyFormat.BINARY)

    dumped = UuidArray.of([str(each) for each in uuids])

    if uuids:
        assert dumped == expected.upgrade(uuids, PyFormat.BINARY).dump(uuids)
    assert UuidArray.of([each.hex for each in uuids]) == dumped
