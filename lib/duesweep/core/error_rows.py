"""Messages that exhausted their attempts, as the ledger's `errors` tell of them. Without I/O."""

import hashlib
import json
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from duesweep.core.change import ChangeKind
from duesweep.core.patterns import fits_any, fits_destination
from duesweep.core.waiting import spellings

_GROUP_DIGITS = 8


class ErrorId(NamedTuple):
    """Which row of `errors` it is: the sweep that gave the message up, and the message's key."""

    sweep_id: str
    key: str


class ErrorRow(NamedTuple):
    """A row of `errors`, less what is large. `destination` None: the endpoint's own queue."""

    id: ErrorId
    message_id: str | None
    message_type: str | None
    destination: str | None
    attempts: int
    first_failed_at: datetime
    last_failed_at: datetime
    error_class: str
    error_text: str

    @property
    def group(self) -> str:
        """The short id of its group, which stays the same: rows with the same class of error,
        destination and message type.
        """
        text = json.dumps([self.error_class, self.destination, self.message_type])
        return hashlib.sha256(text.encode()).hexdigest()[:_GROUP_DIGITS]


@dataclass(frozen=True, slots=True)
class ErrorFilter:
    """Which errors an operator means. All conditions have to hold; no condition: all errors.

    `ids` are message ids or keys. `error_class`, `destination` and `message_type` are patterns in
    which `*` stands for any text; a class may be given without its module. `since` and `until` are
    about the last failure; `until` is not included.
    """

    ids: tuple[str, ...] = ()
    group: str | None = None
    error_class: str | None = None
    destination: str | None = None
    message_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it means all errors."""
        return self == ErrorFilter()

    def matches(self, row: ErrorRow) -> bool:
        """Whether it means this one."""
        return (
            self._is_named(row)
            and self._is_in_time(row.last_failed_at)
            and fits_any(self.error_class, (row.error_class, row.error_class.rpartition(".")[2]))
            and self._fits_destination(row.destination)
            and fits_any(self.message_type, [row.message_type])
        )

    def _fits_destination(self, address: str | None) -> bool:
        pattern = self.destination
        return pattern is None or (address is not None and fits_destination(address, pattern))

    def _is_named(self, row: ErrorRow) -> bool:
        if self.group is not None and row.group != self.group:
            return False
        return not self.ids or not _names(self.ids).isdisjoint((row.id.key, row.message_id))

    def _is_in_time(self, failed_at: datetime) -> bool:
        begins = self.since is None or failed_at >= self.since
        return begins and (self.until is None or failed_at < self.until)


@lru_cache(maxsize=1)
def _names(ids: tuple[str, ...]) -> set[str | None]:
    """What an error with one of these ids may be called; the same for all rows."""
    return {*spellings(ids)}


@dataclass(slots=True)
class ErrorGroup:
    """Errors of the same class, destination and message type. `open` ones are neither replayed nor
    discarded. `example` is the last one that failed, an open one if there is any.
    """

    id: str
    example: ErrorRow
    first: datetime
    last: datetime
    open: int = 0
    replayed: int = 0
    discarded: int = 0
    _example_is_open: bool = field(default=False, repr=False)

    def add(self, row: ErrorRow, fate: ChangeKind | None) -> None:
        """Count a row."""
        is_open = fate is None
        self.open += is_open
        self.discarded += fate is ChangeKind.DISCARDED
        self.replayed += fate not in {None, ChangeKind.DISCARDED}
        self.first, self.last = (
            min(self.first, row.last_failed_at),
            max(self.last, row.last_failed_at),
        )
        rank = is_open, row.last_failed_at
        if rank >= (self._example_is_open, self.example.last_failed_at):
            self.example, self._example_is_open = row, is_open

    @property
    def count(self) -> int:
        """All of them."""
        return self.open + self.replayed + self.discarded


class ErrorGroups:
    """Puts errors into groups, one after another. Holds an example of each group."""

    def __init__(self) -> None:
        self._groups: dict[str, ErrorGroup] = {}

    def add(self, row: ErrorRow, fate: ChangeKind | None) -> None:
        """Add an error, and what became of it since; None: nothing."""
        group = self._groups.get(row.group)
        if group is None:
            group = ErrorGroup(row.group, row, row.last_failed_at, row.last_failed_at)
            self._groups[row.group] = group
        group.add(row, fate)

    def sorted(self) -> list[ErrorGroup]:
        """The groups, those with the most open errors first."""
        return sorted(self._groups.values(), key=lambda g: (-g.open, -g.count, g.id))
