"""What a server says of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Names of columns, and the types that each may have; none: any type.
Columns = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class FoundTable:
    """`columns` are names to types. `missing_rights`: those of the rights that were asked about
    which this user lacks. `indexed` are the first columns of its indexes, `indexed_in_part` those
    of indexes that leave rows out. `mark` says the format of duesweep's own tables.
    """

    is_table: bool
    columns: Mapping[str, str]
    missing_rights: Sequence[str] = ()
    indexed: frozenset[str] = field(default_factory=frozenset)
    indexed_in_part: frozenset[str] = field(default_factory=frozenset)
    mark: str | None = None
