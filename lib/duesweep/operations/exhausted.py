"""Messages that exhausted their attempts: in groups, one by one, whole; and their fates.

All is read from the ledger. Unsettled rows of a journal are not in it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, NamedTuple

from duesweep.core.change import ChangeKind, spellings
from duesweep.core.errors import ConfigError, ExitCode
from duesweep.core.exhausted import ErrorFilter, ErrorId, ErrorRow, KeptMessage
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
from duesweep.sweep.pairing import require_own

_CHANGES = (ChangeKind.REPLAYED.value, ChangeKind.DISCARDED.value)
_LARGE = ("headers", "headers_text", "body", "stack")
_CHANGED = ("changed_at", "change", "queue", "new_key", "given_by", "reason", "sweep_id")
_KEPT = ("sweep_id", "message_key", "destination", "headers", "headers_text", "body")
# A longer list costs more than the files that it lets a reader skip.
_MOST_SWEEPS = 500


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

    def chosen(self, wanted: ErrorFilter) -> Iterator[ErrorRow]:
        """The errors that a filter means, in no order."""
        return filter(wanted.matches, self._asked("find_errors", wanted, hidden=""))

    def counted(self, chosen: ErrorFilter, *, with_discarded: bool = True) -> Sequence[ErrorRow]:
        """The errors that a filter means, counted."""
        found = self._asked("count_errors", chosen, hidden=_hidden(with_discarded=with_discarded))
        # The storage chooses ids; all else is the same for all that are counted together.
        return [*filter(replace(chosen, ids=()).matches, found)]

    def last(
        self,
        chosen: ErrorFilter,
        counted: Sequence[ErrorRow],
        most: int,
        *,
        with_discarded: bool = True,
    ) -> Iterator[ErrorRow]:
        """The `most` last errors of the ones that were counted, the last failure first."""
        groups: list[Condition] = [
            Among("error_class", [*{one.error_class for one in counted}]),
            Among("destination", [*{one.destination for one in counted}]),
            Among(ENCLOSED_TYPES, [*{one.enclosed_types for one in counted}]),
        ]
        hidden = _hidden(with_discarded=with_discarded)
        wanted = groups if chosen.has_patterns else ()
        return self._asked("last_errors", chosen, *wanted, hidden=hidden, most=most)

    def _asked(
        self, question: str, chosen: ErrorFilter, *groups: Condition, **values: str | int
    ) -> Iterator[ErrorRow]:
        named = [Named(sorted(spellings(chosen.ids)))] if chosen.ids else []
        between = Between("last_failed_at", chosen.since, chosen.until)
        tables: Asked = {
            "errors": [self._source, between, *named, *groups],
            "changes": [self._source, Among("change", _CHANGES)],
        }
        for found in self.ledger.ask(question, tables, **values):
            change = found["change"] and ChangeKind(found["change"])
            yield ErrorRow(**found | {"change": change})

    def unknown_destination(self, chosen: ErrorFilter) -> UnknownDestination | None:
        """The filter's destination, if no error was ever for it."""
        if chosen.destination is None:
            return None
        found = self.ledger.ask("find_destinations", {"errors": [self._source]})
        return find_unknown(chosen.destination, {row["destination"] for row in found})

    def done(self) -> set[ErrorId]:
        """The errors that were replayed or discarded."""
        columns, changes = ("of", "message_key"), Among("change", _CHANGES)
        rows = self.ledger.rows("changes", columns, self._source, changes)
        return {ErrorId(row["of"], row["message_key"]) for row in rows}

    def kept(self, chosen: Mapping[ErrorId, ErrorRow]) -> Iterator[tuple[ErrorId, KeptMessage]]:
        """The whole rows of these errors, with headers and bodies, as a stream."""
        # The storage skips most rows that were not chosen.
        first = min(row.last_failed_at for row in chosen.values())
        around = self._source, Between("last_failed_at", first), *_among_sweeps(chosen)
        for row in self.ledger.rows("errors", _KEPT, *around):
            error = ErrorId(row["sweep_id"], row["message_key"])
            if error in chosen:
                kept = (row["headers"], row["headers_text"] or "", row["body"])
                yield error, KeptMessage(error.key, row["destination"], *kept)

    def whole(self, message: str) -> Iterator["WholeError"]:
        """All errors of the message with this message id or key, the last one first."""
        found = self.chosen(ErrorFilter(ids=(message,)))
        for row in sorted(found, key=lambda each: each.last_failed_at, reverse=True):
            of_key, sweeps = Among("message_key", [row.key]), [row.sweep_id]
            of_it = self._source, of_key, Among("sweep_id", sweeps)
            large, *_ = self.ledger.rows("errors", _LARGE, *of_it)
            changes = self.ledger.rows(
                "changes", _CHANGED, self._source, of_key, Among("of", sweeps)
            )
            yield WholeError(
                **_facts(row),
                **large,
                changes=sorted(changes, key=lambda change: change["changed_at"]),
            )

    def in_error_queues(self, chosen: Collection[ErrorId]) -> dict[str, int]:
        """How many of these errors have a copy in an error queue, by queue: operators may also
        replay them from there.
        """
        tables: Asked = {"tombstones": [self._source, *_among_sweeps(chosen)]}
        copies = self.ledger.ask("find_copies", tables)
        of_chosen = (
            row for row in copies if ErrorId(row["sweep_id"], row["message_key"]) in chosen
        )
        return dict(Counter(row["queue"] for row in of_chosen))


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
    error_text: str | None
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


class ErrorExample(NamedTuple):
    """One of a group."""

    message_id: str | None
    key: str
    sweep_id: str
    error_text: str | None


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
    example: ErrorExample


def grouped(counted: Iterable[ErrorRow]) -> Sequence[ErrorGroup]:
    """Errors in groups, with the most open errors first."""
    groups: defaultdict[str, list[ErrorRow]] = defaultdict(list)
    for each in counted:
        groups[each.group].append(each)
    found = [_group(*each) for each in groups.items()]
    return sorted(found, key=lambda group: (-group.open, -group.count, group.group))


def _group(name: str, alike: Sequence[ErrorRow]) -> ErrorGroup:
    by_rank = sorted(alike, key=lambda each: (each.change is None, each.last_failed_at))
    row = by_rank[-1]
    states: Counter[ChangeKind | None] = Counter()
    for each in alike:
        states[each.change] += each.messages
    return ErrorGroup(
        group=name,
        error_class=row.error_class,
        destination=row.destination,
        message_type=row.message_type,
        count=states.total(),
        open=states[None],
        replayed=states[ChangeKind.REPLAYED],
        discarded=states[ChangeKind.DISCARDED],
        first_failed_at=min(each.failed_from for each in alike),
        last_failed_at=max(each.last_failed_at for each in alike),
        example=ErrorExample(row.message_id, row.key, row.sweep_id, row.error_text),
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
            session.check_sight()
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
        found = [ListedError(**_facts(each)) for each in last]
    return ErrorListing(endpoint.source, total, found)


def show_errors(endpoint: Endpoint, message: str) -> ShownErrors:
    """All errors of the message with this message id or key, whole. The exit code is 3 if it has
    none.
    """
    with open_errors(endpoint) as messages:
        found = list(messages.whole(message))
    code = ExitCode.DONE if found else ExitCode.MESSAGES_FAILED
    return ShownErrors(endpoint.source, found, code, message)


def _facts(row: ErrorRow) -> dict[str, Any]:
    return {each.name: getattr(row, each.name) for each in fields(ListedError)}


def _among_sweeps(chosen: Collection[ErrorId]) -> Iterator[Condition]:
    sweeps = {error.sweep_id for error in chosen}
    if len(sweeps) <= _MOST_SWEEPS:
        yield Among("sweep_id", sorted(sweeps))


def _hidden(*, with_discarded: bool) -> str:
    return "" if with_discarded else ChangeKind.DISCARDED.value
