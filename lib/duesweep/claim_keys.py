"""The claim keys of a slice, as a task reads them."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ClaimKeys:
    """The claim keys of a slice, and the sizes of their messages in bytes, in the same order.
    `total` is how many keys the slice has. None: the read returned nothing, not even the row that
    every slice has.
    """

    keys: Sequence[str]
    sizes: Sequence[int]
    total: int | None

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
    """All claim keys of a slice, from the rows of `Slices.claim_keys_query`. They are read to the
    end before anything is claimed: an open JDBC cursor holds a snapshot, and the server cannot
    vacuum what the sweep removes.
    """
    keys: list[str] = []
    sizes = array("q")
    total: int | None = None
    for row in rows:
        total = row.total or 0
        if row.claim_keys:
            keys += row.claim_keys.split(",")
            sizes.extend(map(int, row.sizes.split(",")))
    return ClaimKeys(keys, sizes, total)
