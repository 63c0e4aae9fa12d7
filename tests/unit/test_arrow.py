"""Columns of Arrow, made without `pyarrow.array`."""

import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.stores.tombstone import make_column

_INT32, _INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
# Lone surrogates have no bytes in UTF-8.
_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), _TEXT),
        (pa.int32(), _INT32),
        (pa.int64(), _INT64),
        (pa.timestamp("us", tz="UTC"), _INT64),
        (pa.float64(), st.floats(allow_nan=False)),
        (pa.binary(), st.binary()),
        (pa.map_(pa.string(), pa.string()), st.lists(st.tuples(_TEXT, _TEXT))),
    ],
    ids=str,
)
def test_column_is_that_of_pyarrow(kind: pa.DataType, values: st.SearchStrategy[Any]) -> None:
    @given(st.lists(values | st.none()))
    def check(listed: list[Any]) -> None:
        column = make_column(listed, kind)

        column.validate(full=True)
        assert column.equals(pa.array(listed, kind))

    check()


@pytest.mark.parametrize("value", [2**63, "a\ud800"])
def test_value_that_does_not_fit_is_refused(value: Any) -> None:
    kind = pa.string() if isinstance(value, str) else pa.int64()

    with pytest.raises((OverflowError, UnicodeEncodeError)):
        make_column([value], kind)


_WITHOUT_PANDAS = """
import sys
from duesweep.stores.tombstone import make_column
from duesweep.ledger.rows import SCHEMAS
fields = {field.name: field.type for schema in SCHEMAS.values() for field in schema}
for name in fields.keys() - {"headers", "body"}:
    make_column([None, None], fields[name])
sys.exit("pandas" in sys.modules)
"""


def test_ledgers_columns_but_for_headers_and_bodies_do_without_pandas() -> None:
    assert find_spec("pandas") is not None

    command = [sys.executable, "-c", _WITHOUT_PANDAS]
    assert subprocess.run(command, check=False).returncode == 0
