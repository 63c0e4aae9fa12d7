"""Messages that exhausted their attempts: in groups, one by one, whole; and their fates.

All is read from the ledger. Unsettled rows of a journal are not in it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from duesweep.core.change import ChangeKind, spellings
from duesweep.core.errors import ConfigError, ExitCode
from duesweep.core.exhausted import ErrorFilter, ErrorId, ErrorRow, KeptMessage
from duesweep.core.message import first_type
from duesweep.core.result import Listed, Result
from duesweep.core.routing import UnknownDestination, find_unknown
from duesweep.ledger.base import (
    ENCLOSED_TYPES,
    Among,
    Asked,
    Between,
    Condition,
    LedgerRow,
    Named,
)
from duesweep.ledger.ledger import Ledger
from duesweep.operations.endpoint import Endpoint
from duesweep.operations.opening import command_ledger
from duesweep.sweep.settle import require_own

_CHANGES = (ChangeKind.REPLAYED.value, ChangeKind.DISCARDED.value)
_ROW = (
    *("sweep_id", "message_key", "message_id", "destination", "attempts", "first_failed_at"),
    *("last_failed_at", "error_class", "error_text", ENCLOSED_TYPES),
)
_LARGE = ("headers", "headers_text", "body", "stack")
_KEPT = ("sweep_id", "message_key", "destination", "headers", "headers_text", "body")
# A longer list costs more than the files that it lets a reader skip.
_MOST_SWEEPS = 500


@dataclass(frozen=True, slots=True)
class Fate:
    """The last thing that an operator did with an error: a row of `changes`."""

    kind: ChangeKind
    changed_at: datetime
    given_by: str | None
    reason: str | None
    queue: str | None
    command_id: str
    new_key: str | None = None


class Alike(NamedTuple):
    """Errors with the same class, destination, types and fate; None: they are open. `last` is the
    error with the last failure, `messages` how many they are, and `failed_from` when the first of
    them failed.
    """

    last: ErrorRow
    fate: ChangeKind | None
    messages: int
    failed_from: datetime
    types: str | None = None

    @classmethod
    def one(cls, row: ErrorRow, fate: ChangeKind | None) -> "Alike":
        """A single error."""
        return cls(row, fate, 1, row.last_failed_at)


class ExhaustedMessages:
    """One source's rows of the ledger's `errors`."""

    def __init__(self, ledger: Ledger, source: str) -> None:
        self.source = source
        self.ledger = ledger
        self._source = Among("source", [source])

    def check(self) -> None:
        """Raise `ConfigError` if the ledger is missing or has lost tables: it would seem
        that nothing has failed, or that nothing was replayed.
        """
        identity = self.ledger.read()
        identity.refuse_incomplete(self.ledger.root)
        if identity.ledger_id is None:
            raise ConfigError(
                f"There is no ledger at {self.ledger.root}",
                advice="check ledger.root; the first sweep of a new endpoint creates the ledger",
            )

    def rows(self, chosen: ErrorFilter) -> Iterator[ErrorRow]:
        """The errors that a filter means, in no order."""
        for found in self.ledger.rows("errors", _ROW, *self._conditions(chosen)):
            row = _row(found)
            if chosen.matches(row):
                yield row

    def counted(self, chosen: ErrorFilter, *, with_discarded: bool = True) -> Sequence["Alike"]:
        """The errors that a filter means, counted."""
        found = self._asked("count_errors", chosen, (), with_discarded=with_discarded)
        # The storage chooses ids; all else is the same for all that are counted together.
        named = replace(chosen, ids=())
        return [alike for alike in found if named.matches(alike.last)]

    def last(
        self,
        chosen: ErrorFilter,
        counted: Sequence["Alike"],
        most: int,
        *,
        with_discarded: bool = True,
    ) -> Iterator["Alike"]:
        """The `most` last errors of the ones that were counted, the last failure first."""
        groups: list[Condition] = [
            Among("error_class", [*{one.last.error_class for one in counted}]),
            Among("destination", [*{one.last.destination for one in counted}]),
            Among(ENCLOSED_TYPES, [*{one.types for one in counted}]),
        ]
        wanted = groups if chosen.has_patterns else ()
        return self._asked("last_errors", chosen, wanted, with_discarded=with_discarded, most=most)

    def _asked(
        self,
        question: str,
        chosen: ErrorFilter,
        groups: Iterable[Condition],
        *,
        with_discarded: bool,
        **values: int,
    ) -> Iterator["Alike"]:
        tables: Asked = {
            "errors": [*self._conditions(chosen), *groups],
            "changes": [self._source, Among("change", _CHANGES)],
        }
        hidden = "" if with_discarded else ChangeKind.DISCARDED.value
        for found in self.ledger.ask(question, tables, hidden=hidden, **values):
            types = found["enclosed_types"]
            row = _row(found | {ENCLOSED_TYPES: types})
            fate = None if found["change"] is None else ChangeKind(found["change"])
            yield Alike(row, fate, found["messages"], found["failed_from"], types)

    def unknown_destination(self, chosen: ErrorFilter) -> UnknownDestination | None:
        """The filter's destination, if no error was ever for it."""
        if chosen.destination is None:
            return None
        found = self.ledger.ask("find_destinations", {"errors": [self._source]})
        return find_unknown(chosen.destination, {row["destination"] for row in found})

    def fates(self) -> dict[ErrorId, Fate]:
        """The fates of errors; open ones are not in it."""
        columns = (
            "of",
            "message_key",
            "change",
            "changed_at",
            "given_by",
            "reason",
            "queue",
            "new_key",
        )
        found: dict[ErrorId, Fate] = {}
        changes = Among("change", _CHANGES)
        for row in self.ledger.rows("changes", (*columns, "sweep_id"), self._source, changes):
            error, fate = ErrorId(row["of"], row["message_key"]), _fate(row)
            if error not in found or found[error].changed_at <= fate.changed_at:
                found[error] = fate
        return found

    def kept(self, chosen: Mapping[ErrorId, ErrorRow]) -> Iterator[tuple[ErrorId, KeptMessage]]:
        """The whole rows of these errors, with headers and bodies, as a stream."""
        for row in self.ledger.rows("errors", _KEPT, *self._around(chosen)):
            error = ErrorId(row["sweep_id"], row["message_key"])
            if error in chosen:
                yield error, _kept(row)

    def whole(self, message: str) -> Iterator["WholeError"]:
        """All errors of the message with this message id or key, the last one first."""
        chosen = ErrorFilter(ids=(message,))
        if not (named := {row.id: row for row in self.rows(chosen)}):
            return
        changes = self._changes({error.key for error in named})
        conditions = (*self._conditions(chosen), *self._around(named))
        found = list(self.ledger.rows("errors", (*_ROW, *_LARGE), *conditions))
        for whole in sorted(found, key=lambda row: row["last_failed_at"], reverse=True):
            row = _row(whole)
            of_it = changes[row.id]
            fates = [ChangeKind(each["change"]) for each in of_it if each["change"] in _CHANGES]
            large = {name: whole[name] for name in _LARGE}
            yield WholeError(**_facts(row, fates[-1] if fates else None), **large, changes=of_it)

    def _changes(self, keys: Collection[str]) -> Mapping[ErrorId, Sequence[LedgerRow]]:
        """What operators did with the errors of these messages, the first thing first."""
        columns = ("changed_at", "change", "queue", "new_key", "given_by", "reason", "sweep_id")
        of_keys = self._source, Among("message_key", sorted(keys))
        found: defaultdict[ErrorId, list[LedgerRow]] = defaultdict(list)
        rows = self.ledger.rows("changes", (*columns, "of", "message_key"), *of_keys)
        for row in sorted(rows, key=lambda row: row["changed_at"]):
            found[ErrorId(row.pop("of"), row.pop("message_key"))].append(row)
        return found

    def in_error_queues(self, chosen: Collection[ErrorId]) -> dict[str, int]:
        """How many of these errors have a copy in an error queue, by queue: operators may also
        replay them from there.
        """
        counts: dict[str, int] = {}
        columns = ("sweep_id", "message_key", "queue")
        exhausted = Among("outcome", ["exhausted"])
        conditions = (self._source, exhausted, *_among_sweeps(chosen))
        for row in self.ledger.rows("tombstones", columns, *conditions):
            is_copied = ErrorId(row["sweep_id"], row["message_key"]) in chosen
            if is_copied and row["queue"] is not None:
                counts[row["queue"]] = counts.get(row["queue"], 0) + 1
        return counts

    def _conditions(self, chosen: ErrorFilter) -> Iterator[Condition]:
        yield self._source
        yield Between("last_failed_at", chosen.since, chosen.until)
        if chosen.ids:
            yield Named(sorted(spellings(chosen.ids)))

    def _around(self, chosen: Mapping[ErrorId, ErrorRow]) -> Iterator[Condition]:
        """What lets the storage skip rows that were not chosen."""
        yield self._source
        yield Between("last_failed_at", min(row.last_failed_at for row in chosen.values()))
        yield from _among_sweeps(chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedError:
    """An error without large columns. `state` is `open`, or its last fate."""

    key: str
    sweep_id: str
    group: str
    message_id: str | None
    message_type: str | None
    destination: str | None
    attempts: int
    first_failed_at: datetime
    last_failed_at: datetime
    error_class: str
    error_text: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeError(ListedError):
    """An error, whole. `headers` None: they cannot be read. `changes`: what operators did with it,
    the first thing first.
    """

    headers: Mapping[str, str | None] | None
    headers_text: str | None
    body: bytes | None
    stack: str | None
    changes: Sequence[LedgerRow]


class Example(NamedTuple):
    """One of a group."""

    message_id: str | None
    key: str
    sweep_id: str
    error_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroup:
    """Errors of the same class, destination and message type. `open` ones are neither replayed nor
    discarded. `example` is the last one that failed, an open one if there is any.
    """

    group: str
    error_class: str
    destination: str | None
    message_type: str | None
    count: int
    open: int
    replayed: int
    discarded: int
    first_failed_at: datetime
    last_failed_at: datetime
    example: Example


@dataclass(slots=True)
class _Counted:
    """A group while errors are counted; `states` has how many are in each."""

    row: ErrorRow
    rank: tuple[bool, datetime]
    first: datetime
    last: datetime
    states: Counter[ChangeKind | None] = field(default_factory=Counter)


def grouped(counted: Iterable[Alike]) -> Sequence[ErrorGroup]:
    """Errors in groups, with the most open errors first. Holds one error of each group."""
    groups: dict[str, _Counted] = {}
    for row, fate, messages, failed_from, _ in counted:
        failed_at = row.last_failed_at
        rank = fate is None, failed_at
        one = groups.setdefault(row.group, _Counted(row, rank, failed_from, failed_at))
        one.states[fate] += messages
        one.first, one.last = min(one.first, failed_from), max(one.last, failed_at)
        if rank >= one.rank:
            one.row, one.rank = row, rank
    found = [_group(*each) for each in groups.items()]
    return sorted(found, key=lambda group: (-group.open, -group.count, group.group))


def _group(name: str, counted: _Counted) -> ErrorGroup:
    row, states = counted.row, counted.states
    return ErrorGroup(
        group=name,
        error_class=row.error_class,
        destination=row.destination,
        message_type=row.message_type,
        count=states.total(),
        open=states[None],
        replayed=states[ChangeKind.REPLAYED],
        discarded=states[ChangeKind.DISCARDED],
        first_failed_at=counted.first,
        last_failed_at=counted.last,
        example=Example(row.message_id, row.id.key, row.id.sweep_id, row.error_text),
    )


@dataclass(frozen=True, slots=True)
class GroupListing(Listed):
    """The `groups` with the most `open` errors that fit a filter. `unknown_destination`:
    the filter's, if no error was ever for it.
    """

    source: str
    groups_in_all: int
    open: int
    groups: Sequence[ErrorGroup]
    unknown_destination: UnknownDestination | None
    is_filtered: bool = field(repr=False)


@dataclass(frozen=True, slots=True)
class ErrorListing(Listed):
    """The last errors that fit a filter."""

    source: str
    errors_in_all: int
    errors: Sequence[ListedError]


@dataclass(frozen=True, slots=True)
class ShownErrors(Result):
    """All errors of a message that is `named`, the last one first."""

    source: str
    errors: Sequence[WholeError]
    exit_code: ExitCode
    named: str = field(repr=False)


@contextmanager
def open_errors(endpoint: Endpoint) -> Iterator[ExhaustedMessages]:
    """The exhausted messages of an endpoint. Raises `ConfigError` if the ledger belongs to another
    journal, and as `ExhaustedMessages.check`.
    """
    with command_ledger(endpoint.context, endpoint.spark) as ledger:
        with endpoint.context.store.open_driver() as session:
            require_own(session.binding, ledger)
        messages = ExhaustedMessages(ledger, endpoint.source)
        messages.check()
        yield messages


def error_groups(
    endpoint: Endpoint,
    wanted: ErrorFilter | None = None,
    *,
    most: int = 50,
    with_discarded: bool = False,
) -> GroupListing:
    """Exhausted messages in groups, with the most open ones first."""
    wanted = wanted or ErrorFilter()
    with open_errors(endpoint) as messages:
        found = grouped(messages.counted(wanted, with_discarded=with_discarded))
        return GroupListing(
            source=messages.source,
            groups_in_all=len(found),
            open=sum(group.open for group in found),
            groups=found[:most],
            unknown_destination=None if found else messages.unknown_destination(wanted),
            is_filtered=not wanted.is_empty,
        )


def errors(
    endpoint: Endpoint,
    wanted: ErrorFilter | None = None,
    *,
    most: int = 50,
    with_discarded: bool = False,
) -> ErrorListing:
    """Exhausted messages, the last failures first."""
    chosen = wanted or ErrorFilter()
    with open_errors(endpoint) as messages:
        counted = messages.counted(chosen, with_discarded=with_discarded)
        total = sum(each.messages for each in counted)
        last = messages.last(chosen, counted, most, with_discarded=with_discarded) if total else ()
        found = [ListedError(**_facts(each.last, each.fate)) for each in last]
    return ErrorListing(endpoint.source, total, found)


def show_errors(endpoint: Endpoint, message: str) -> ShownErrors:
    """All errors of the message with this message id or key, whole. The exit code is 3 if it has
    none.
    """
    with open_errors(endpoint) as messages:
        found = list(messages.whole(message))
    code = ExitCode.DONE if found else ExitCode.MESSAGES_FAILED
    return ShownErrors(endpoint.source, found, code, message)


def _facts(row: ErrorRow, fate: ChangeKind | None) -> dict[str, Any]:
    facts = row._asdict()
    error: ErrorId = facts.pop("id")
    state = "open" if fate is None else fate.value
    return facts | {**error._asdict(), "group": row.group, "state": state}


def _among_sweeps(chosen: Collection[ErrorId]) -> Iterator[Condition]:
    sweeps = {error.sweep_id for error in chosen}
    if len(sweeps) <= _MOST_SWEEPS:
        yield Among("sweep_id", sorted(sweeps))


def _row(row: LedgerRow) -> ErrorRow:
    return ErrorRow(
        id=ErrorId(row["sweep_id"], row["message_key"]),
        message_id=row["message_id"],
        message_type=first_type(row[ENCLOSED_TYPES]),
        destination=row["destination"],
        attempts=row["attempts"],
        first_failed_at=row["first_failed_at"],
        last_failed_at=row["last_failed_at"],
        error_class=row["error_class"],
        error_text=row["error_text"],
    )


def _kept(row: Mapping[str, Any]) -> KeptMessage:
    text = row["headers_text"] or ""
    return KeptMessage(row["message_key"], row["destination"], row["headers"], text, row["body"])


def _fate(row: LedgerRow) -> Fate:
    return Fate(
        kind=ChangeKind(row["change"]),
        changed_at=row["changed_at"],
        given_by=row["given_by"],
        reason=row["reason"],
        queue=row["queue"],
        command_id=row["sweep_id"],
        new_key=row["new_key"],
    )
