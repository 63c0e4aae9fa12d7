"""The claim keys of a slice: the part of the plan that its task reads."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Any

from duesweep.stores.task import BETWEEN_FORWARDS, Forwarded

# With more destinations, this many messages are sorted together.
_MANY_FORWARDS, _SORTED_TOGETHER = 16, 100_000


@dataclass(frozen=True, slots=True)
class ClaimKeys:
    """The claim keys of a slice, and the sizes of their messages in bytes, in the same order.
    `total` is how many keys the slice has. None: the read returned nothing, not even the row that
    every slice has. `forwards` are their destinations, as `Forwarded` has them; empty: the store
    does not say.
    """

    keys: Sequence[str]
    sizes: Sequence[int]
    total: int | None
    forwards: Sequence[str | None] = ()

    def places(self, *, in_order: bool) -> Sequence[int]:
        """The places of the keys in the order in which they are claimed: by their Due. If there are
        many destinations, and it need not be `in_order`, the keys of some 100,000 messages that go
        to one destination come together, so that a batch has few statements.
        """
        count = len(self.keys)
        if in_order or len(set(self.forwards)) <= _MANY_FORWARDS:
            return range(count)
        places: list[int] = []
        for start in range(0, count, _SORTED_TOGETHER):
            end = min(count, start + _SORTED_TOGETHER)
            places += sorted(range(start, end), key=lambda place: self.forwards[place] or "")
        return places

    def groups(self, batch: Iterable[int]) -> list[Forwarded]:
        """The keys at these places, by destination."""
        if not self.forwards:
            return [Forwarded(None, [self.keys[place] for place in batch])]
        found: dict[str | None, list[str]] = {}
        for place in batch:
            found.setdefault(self.forwards[place], []).append(self.keys[place])
        return [Forwarded(forward, keys) for forward, keys in found.items()]

    @property
    def fault(self) -> str | None:
        """Why keys of the slice are missing; None where it is complete.

        If the read breaks off in the JVM, the task sees an ordinary end of the data.
        """
        if self.total == len(self.keys):
            return None
        planned = "its" if self.total is None else f"{self.total}"
        return (
            f"The task read {len(self.keys)} of {planned} keys: the session that read them "
            "from the store ended early (DUESWEEP_SPARK_LOG=warn shows why); the next sweep plans "
            "the rest again"
        )


def read_claim_keys(rows: Iterable[Any]) -> ClaimKeys:
    """All claim keys of a slice, from the rows of `Slices.claim_keys_query`, which come in any
    order. They are read to the end before anything is claimed: an open JDBC cursor holds a
    snapshot, and the server cannot vacuum the rows that the sweep removes.
    """
    keys: list[str] = []
    sizes = array("q")
    forwards: list[str | None] = []
    total: int | None = None
    for row in sorted(rows, key=lambda row: getattr(row, "chunk", None) or 0):
        total = row.total or 0
        if row.claim_keys:
            keys += row.claim_keys.split(",")
            sizes.extend(map(int, row.sizes.split(",")))
            forwards += _forwards(getattr(row, "forwards", None), len(keys) - len(forwards))
    is_known = any(forward is not None for forward in forwards)
    return ClaimKeys(keys, sizes, total, forwards if is_known else ())


def _forwards(joined: str | None, count: int) -> list[str | None]:
    """The `count` destinations; None each if one of them has the separator."""
    found = [] if joined is None else joined.split(BETWEEN_FORWARDS)
    return [intern(each) for each in found] if len(found) == count else [None] * count
