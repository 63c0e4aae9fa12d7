"""Python's values as columns of Arrow.

`pyarrow.array` imports pandas where it is installed, only to see whether it was given one of its
objects: 0.3 s of CPU and 54 MB, in each tick and in each Python worker.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def make_column(values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
    """`values` (None: NULL) as a column. Texts, whole numbers, floating-point numbers, and instants
    in microseconds are done here; other types are `pyarrow.array`'s.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow, and idle sweeps do not need it

    if pa.types.is_string(kind):
        buffers = _text_buffers(values)
    elif pa.types.is_int32(kind):
        buffers = [array("i", (0 if value is None else value for value in values))]
    elif pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
        buffers = [array("q", (0 if value is None else value for value in values))]
    elif pa.types.is_float64(kind):
        buffers = [array("d", (0 if value is None else value for value in values))]
    else:
        return pa.array(values, kind)
    found = [_validity(values), *map(pa.py_buffer, buffers)]
    return pa.Array.from_buffers(kind, len(values), found)


def _text_buffers(values: Sequence[str | None]) -> list[Any]:
    """Where each text begins in bytes, and all texts."""
    texts = ["" if value is None else value for value in values]
    joined = "".join(texts)
    data = joined.encode()
    lengths = map(len, texts if len(data) == len(joined) else (text.encode() for text in texts))
    return [array("i", accumulate(lengths, initial=0)), data]


def _validity(values: Sequence[Any]) -> "pa.Buffer | None":
    """A bit for each value: 0 for NULL. None where there is no NULL."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    if None not in values:
        return None
    bits = "".join("0" if value is None else "1" for value in reversed(values))
    return pa.py_buffer(int(bits, 2).to_bytes(-(-len(values) // 8), "little"))
