"""New ids, and arrays of UUIDs in PostgreSQL's binary format."""

import time
import uuid
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st
from psycopg.adapt import PyFormat, Transformer

from duesweep.drivers.postgresql.wire import KeysDumper, new_ids
from duesweep.drivers.statements import Keys


def test_ids_are_uuids_of_version_7_that_begin_with_the_time() -> None:
    before = time.time_ns() // 1_000_000
    ids = list(islice(new_ids(), 600))
    after = time.time_ns() // 1_000_000

    assert {(one.version, one.variant) for one in ids} == {(7, uuid.RFC_4122)}
    assert all(before <= one.int >> 80 <= after for one in ids)


def test_only_version_variant_and_time_are_the_same_in_all_ids() -> None:
    ids = list(islice(new_ids(), 600))
    always_set = always_clear = (1 << 128) - 1
    for one in ids:
        always_set &= one.int
        always_clear &= ~one.int
    same = always_set | always_clear
    random_bits = ((1 << 80) - 1) & ~(0xF << 76) & ~(0b11 << 62)

    assert same & random_bits == 0


@given(st.lists(st.uuids(), max_size=20))
def test_array_is_what_psycopg_makes_of_the_same_uuids(uuids: list[uuid.UUID]) -> None:
    transformer = Transformer()
    expected = transformer.get_dumper([uuid.UUID(int=0)], PyFormat.BINARY)

    dumped = KeysDumper(Keys).dump(Keys(map(str, uuids)))

    if uuids:
        assert dumped == expected.upgrade(uuids, PyFormat.BINARY).dump(uuids)
    assert KeysDumper(Keys).dump(Keys(each.hex for each in uuids)) == dumped
