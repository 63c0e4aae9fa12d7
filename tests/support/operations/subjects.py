"""Each transport's queues, with what a test needs to see of them behind the library's back."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duesweep.queues.base import Destination

if TYPE_CHECKING:
    from duesweep.queues.operations.base import Transport


HAS_SERVER = bool(os.environ.get("DUESWEEP_TEST_SQLSERVER"))


@dataclass(frozen=True, slots=True)
class Subject:
    """`run` runs a statement as the administrator; its rows. `address` is that of a table of any
    name, `past` an hour ago in SQL. `stand_in` is why a test of locks cannot be run here, or "".
    """

    transport: "Transport"
    config_file: Callable[..., Path]
    run: Callable[[str], list[Any]]
    address: Callable[[str], str]
    quoted: Callable[[Destination], str]
    delayed: str
    past: str
    stand_in: str = ""

    def rows(self, table: Destination) -> list[tuple[str, bytes | None]]:
        """Headers and bodies in a queue, in no order."""
        found = self.run(f"SELECT headers, body FROM {self.quoted(table)}")
        return [(row[0], None if row[1] is None else bytes(row[1])) for row in found]

    def expire(self, table: Destination, condition: str = "1 = 1") -> None:
        """Have messages expired an hour ago."""
        self.run(f"UPDATE {self.quoted(table)} SET expires = {self.past} WHERE {condition}")

    def expiries(self, table: Destination) -> list[datetime | None]:
        """The column, in UTC."""
        return [row[0] for row in self.run(f"SELECT expires FROM {self.quoted(table)}")]

    def drop(self, table: Destination) -> None:
        """Remove a table whose name other tests might choke on."""
        self.run(f"DROP TABLE {self.quoted(table)}")
