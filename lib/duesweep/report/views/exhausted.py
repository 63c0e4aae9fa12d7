"""Messages that exhausted their attempts, and their fates, as blocks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from duesweep.core.quantities import count_text, short_time, size_text, time_text
from duesweep.report.text import Block, Cell, Column, Facts, Line, Note, Row, Table
from duesweep.report.views.messages import headers_and_body, unknown

if TYPE_CHECKING:
    from duesweep.operations.exhausted import (
        ErrorGroup,
        ErrorListing,
        GroupListing,
        ListedError,
        ShownErrors,
        WholeError,
    )
    from duesweep.operations.replay import ChosenErrors

GROUP_COLUMNS = (
    Column("group", least=None),
    Column("open", is_number=True, rank=1),
    Column("replayed", is_number=True, rank=7),
    Column("discarded", is_number=True, rank=8),
    Column("first (UTC)", least=None, rank=9),
    Column("last (UTC)", least=None, rank=2),
    Column("error", least=12, rank=4),
    Column("destination", least=12, rank=3),
    Column("type", least=12, rank=10),
    Column("example", least=None, rank=6),
    Column("text", least=12, rank=5),
)
ERROR_COLUMNS = (
    Column("failed (UTC)", least=None, rank=2),
    Column("state", least=None, rank=1),
    Column("message id", least=None),
    Column("error", least=12, rank=4),
    Column("destination", least=12, rank=3),
    Column("type", least=12, rank=6),
    Column("text", least=12, rank=5),
)


def groups(found: "GroupListing") -> Iterator[Block]:
    """Groups of errors, or a sentence that none exist."""
    if found.groups:
        yield group_table(found.groups)
        yield from _rest(found.groups_in_all - len(found.groups))
        return
    none = "no error matches" if found.is_filtered else "no message has exhausted its attempts"
    failing = "`duesweep list --failing` shows messages that have failed and are tried again"
    yield Line(f"{found.source}: {none}. {failing}.")
    yield from unknown(found.unknown_destination, "error")


def errors(found: "ErrorListing") -> Iterator[Block]:
    """Errors one by one."""
    yield Table(ERROR_COLUMNS, [_error_row(one) for one in found.errors])
    yield from _rest(found.errors_in_all - len(found.errors))


def shown(found: "ShownErrors") -> Iterator[Block]:
    """All of each error, the longest last."""
    if not found.errors:
        yield Note(
            f"the ledger has no error of {found.source} with message id or key {found.named}",
            with_json=True,
        )
    for one in found.errors:
        yield from _whole(one)
        yield Line()


def remarks(found: "ChosenErrors") -> Iterator[Block]:
    """Warnings before errors are chosen. They may also be replayed from an error queue."""
    for queue, count in sorted(found.copies.items()):
        yield Note(
            f"the error queue {queue} has copies of {count_text(count, 'error')}: if you return "
            "them from there as well, they are delivered twice",
            with_json=True,
        )
    for text in _named(found):
        yield Note(text, with_json=True)
    yield from unknown(found.unknown_destination, "error", with_json=True)


def chosen(found: "ChosenErrors") -> Iterator[Block]:
    """The errors that a command is to change, by groups."""
    yield group_table(found.groups)


def _named(found: "ChosenErrors") -> Iterator[str]:
    """The sentences on ids that do not lead to one error."""
    for each in found.ids:
        rows, before = found.by_id[each]
        if len(rows) > 1:
            yield f"{each} means {len(rows)} errors"
        elif not rows and not before:
            yield f"the ledger has no error with message id or key {each}"
        elif not rows:
            for row in before:
                done = _change_text(row._replace(new_key=None)._asdict())
                yield f"{row.key} was {done}; to replay it again, add --again"


def group_table(found: Sequence["ErrorGroup"]) -> Table:
    """Groups of errors."""
    return Table(GROUP_COLUMNS, [_group_row(group) for group in found])


def _group_row(group: "ErrorGroup") -> Row:
    return [
        group.group,
        Cell(f"{group.open:,}", "red") if group.open else "0",
        f"{group.replayed:,}",
        f"{group.discarded:,}",
        short_time(group.first_failed_at),
        short_time(group.last_failed_at),
        short_class(group.error_class),
        group.destination or "",
        group.message_type or "",
        group.example.message_id or group.example.key,
        group.example.error_text or "",
    ]


def _error_row(error: "ListedError") -> Row:
    return [
        short_time(error.last_failed_at),
        Cell(error.state, "red") if error.state == "open" else error.state,
        error.message_id or error.key,
        short_class(error.error_class),
        error.destination or "",
        error.message_type or "",
        error.error_text or "",
    ]


def _whole(error: "WholeError") -> Iterator[Block]:
    yield Facts(
        {
            "message id": error.message_id or "none",
            "key": error.key,
            "type": error.message_type or "unknown",
            "destination": error.destination or "unknown",
            "group": error.group,
            "sweep": error.sweep_id,
            "attempts": f"{error.attempts}, from {time_text(error.first_failed_at)} to "
            f"{time_text(error.last_failed_at)}",
            "error": f"{error.error_class}: {error.error_text or 'without a text'}",
            "body": "none" if error.body is None else size_text(len(error.body)),
        },
        indent="",
    )
    for change in error.changes:
        yield Line(_change_text(change))
    yield Line()
    # If they cannot be read, their text has to say why.
    unread = (error.headers_text or "").splitlines()
    headers = None if error.headers is None else dict(error.headers)
    yield from headers_and_body(headers, unread, error.body)
    yield Line("stack")
    yield from map(Line, (error.stack or "").splitlines())


def _change_text(change: Mapping[str, Any]) -> str:
    """An operator's act on an error, as a sentence."""
    where = f" to {change['queue']}" if change["queue"] else ""
    where += f" into the store as {change['new_key']}" if change.get("new_key") else ""
    why = f": {change['reason']}" if change["reason"] else ""
    when = time_text(change["changed_at"])
    return f"{change['change']}{where} on {when} by {change['given_by']}{why}"


def _rest(left: int) -> Iterator[Block]:
    if left:
        yield Note(f"{left:,} more: raise --limit to see them")


def short_class(name: str) -> str:
    """The class without its module."""
    return name.rpartition(".")[2]
