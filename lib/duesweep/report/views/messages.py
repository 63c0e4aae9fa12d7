"""Waiting messages and what commands do to them, as blocks."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from duesweep.core.change import CommandName
from duesweep.core.errors import shorten
from duesweep.core.quantities import count_text, duration_text, short_time, size_text, time_text
from duesweep.core.routing import UnknownDestination
from duesweep.report.bodies import view_body
from duesweep.report.text import Block, Cell, Column, Facts, Line, Note, Row, Table

if TYPE_CHECKING:
    from duesweep.operations.change import ChosenMessages
    from duesweep.operations.command import Changed, Chosen
    from duesweep.operations.messages import (
        Listing,
        Shown,
        Waiting,
        WholeMessage,
    )
    from duesweep.operations.pauses import ListedPause, Pauses, Resumed

# Of a list that is ordered by time, the time goes last, after all but the key.
COLUMNS = (
    Column("due (UTC)", least=None, rank=1),
    Column("in", least=None, rank=3),
    Column("destination", least=12, rank=2),
    Column("type", rank=6),
    Column("message id", least=None, rank=5),
    Column("key", least=None),
    Column("attempts", is_number=True, rank=4),
)
FAILING_COLUMNS = (
    Column("attempts", is_number=True, rank=4),
    Column("next attempt (UTC)", least=None, rank=1),
    Column("destination", least=12, rank=3),
    Column("type", rank=5),
    Column("key", least=None),
    Column("reason", least=20, rank=2),
)
EVENT_COLUMNS = (
    Column("at (UTC)", least=None),
    Column("what", least=None),
    Column("detail", least=20),
    Column("sweep or command", least=None, rank=1),
)
PAUSE_COLUMNS = (
    Column("destination", least=None),
    Column("since (UTC)", least=None, rank=3),
    Column("until (UTC)", least=None, rank=1),
    Column("by", least=8, rank=4),
    Column("reason", least=12, rank=2),
)
_BUCKET_COLUMNS = (Column("due", least=None), Column("messages", is_number=True))
DESTINATION_COLUMNS = (Column("destination", least=12), Column("messages", is_number=True))
_MOST_DESTINATIONS = 10
_SHOWN_FAILURES = 20
_MILLISECOND = timedelta(milliseconds=1)
# Of unreadable headers.
_LONGEST_HEADERS = 4_000
# Why a message is not there that a command should change.
_GONE = {
    CommandName.RESTORE: "the ledger has no such cancelled message, or it was restored already "
    "(see --again)",
    **dict.fromkeys(
        (CommandName.REPLAY, CommandName.DISCARD), "they were replayed or discarded before"
    ),
}


def first_messages(
    messages: Sequence["Waiting"], now: datetime, *, is_failing: bool = False
) -> Iterator[Block]:
    """The messages that come first; for failed ones, the reason."""
    if messages:
        yield (
            Table(FAILING_COLUMNS, [_failing_row(one, now) for one in messages])
            if is_failing
            else Table(COLUMNS, [_row(one, now) for one in messages])
        )
        yield Line()


def counts(listing: "Listing", *, is_failing: bool = False) -> Iterator[Block]:
    """How many messages come due how soon, and how many were looked at."""
    rows = [(name.replace("_", " "), f"{count:,}") for name, count in listing.counts.items()]
    if is_failing and not listing.total and not listing.is_cut:
        yield Line("No failing message was found.")
    else:
        yield Table(_BUCKET_COLUMNS, [*rows, ("all", f"{listing.total:,}")])
    yield from unknown(listing.unknown_destination, "message that was looked at")
    if listing.looked_at is not None:
        looked_at = f"looked at {count_text(listing.looked_at, 'message')}"
        cut = (
            " and stopped, so the counts may be too low; raise "
            f"--scan-limit above {listing.scan_limit:,}, or choose fewer with --due-before"
        )
        yield Note(looked_at + cut if listing.is_cut else looked_at)
    left = listing.total - len(listing.messages)
    if left and listing.messages:
        yield Note(f"{left:,} more: raise --limit to see them")


def unknown(
    found: UnknownDestination | None, what: str, *, with_json: bool = False
) -> Iterator[Block]:
    """That no such thing is for the destination, and similar ones."""
    if found is not None:
        ending = f"; {found.similar_text}" if found.similar else ""
        text = f"no {what} is for the destination {shorten(found.pattern)!r}{ending}"
        yield Note(text, with_json)


def shown(found: "Shown") -> Iterator[Block]:
    """Each message whole, and the history."""
    if found.looked_at is not None:
        looked_at = (
            f"{found.named} is not among the {found.looked_at:,} messages that are due first"
        )
        yield Note(f"{looked_at}; the others were not looked at: give the key", with_json=True)
    for one in found.messages:
        yield Line("message")
        yield _facts(one, found.now)
        yield Line()
        unread = shorten(one.headers_text, _LONGEST_HEADERS)
        yield from headers_and_body(
            one.headers,
            [f"cannot be read: {one.headers_error}", unread],
            one.body,
            "; --body-to FILE writes all of it",
        )
    if found.history:
        yield Line("history in the ledger")
        rows = [
            ["" if one.at is None else short_time(one.at), one.what, one.detail, one.sweep_id or ""]
            for one in found.history
        ]
        yield Table(EVENT_COLUMNS, rows)
        if not found.messages and found.looked_at is None:
            yield Line()
            yield Line(f"No message with {found.named} is in the store any more.")
    elif found.messages and found.history_error is None:
        yield Line("history in the ledger: none")
    elif not found.messages:
        where = "" if found.history_error else ", and the ledger has no row of it"
        yield Note(f"{found.source} has no message with {found.named}{where}", with_json=True)
    if found.history_error is not None:
        yield Note(f"the history is not shown: {found.history_error}", with_json=True)


def chosen(found: "Chosen") -> Iterator[Block]:
    """The destinations of the messages that a command is to change."""
    names = list(found.destinations.items())
    others = sum(count for _, count in names[_MOST_DESTINATIONS:])
    rows = [(name, f"{count:,}") for name, count in names[:_MOST_DESTINATIONS]]
    yield Table(DESTINATION_COLUMNS, [*rows, ("others", f"{others:,}")] if others else rows)
    yield Line()


def chosen_messages(found: "ChosenMessages") -> Iterator[Block]:
    """The same, and the first of the messages."""
    yield from chosen(found)
    yield Table(COLUMNS, [_row(one, found.now) for one in found.messages])
    if more := found.would_change - len(found.messages):
        yield Note(f"and {more:,} more")


def question(found: "Chosen") -> str:
    """The question before the messages or errors are changed."""
    command = found.command
    return f"{command.verb.capitalize()} {count_text(found.would_change, command.noun)}"


def would_change(found: "Chosen") -> Iterator[Block]:
    """The end of a dry run."""
    yield Line(f"{found.would_change:,} would be {found.command.done}; nothing was changed.")
    yield from _gone(found.command, found.gone)


def changed(found: "Changed") -> Iterator[Block]:
    """The result of a command on messages or errors, and then the reasons for the rest."""
    command = found.command
    yield from _failed(found)
    text = f"{found.source}: {command.done} {count_text(found.changed, command.noun)}."
    yield Line(f"{text} {_id_sentence(found)}" if found.changed else text)
    yield from _not_done(
        command,
        found.held,
        "a sweep or another session holds them now. If they still wait afterwards, run the command "
        "again",
    )
    yield from _gone(command, found.gone)
    if not found.failures:
        yield from _not_done(
            command,
            found.refused,
            "they have no Due to start from, or would be due outside of the years 1 to 9999; set "
            "one with --to",
        )
    if found.is_stopped:
        yield Note(f"stopped; {count_text(found.left, command.noun)} not looked at")
    if found.ledger_error is not None:
        yield Note(found.ledger_error)


def _not_done(command: CommandName, count: int, why: str) -> Iterator[Block]:
    if count:
        yield Note(f"{count_text(count, command.noun)} not {command.done}: {why}")


def _gone(command: CommandName, count: int) -> Iterator[Block]:
    return _not_done(command, count, _GONE.get(command, "not in the store"))


def _failed(found: "Changed") -> Iterator[Block]:
    """Why messages or errors were not changed: the first ones, and how many there are."""
    done = found.command.done
    for failure in found.failures[:_SHOWN_FAILURES]:
        yield Note(f"{failure.key} was not {done}: {failure.reason}", with_json=True)
    if found.failures and found.refused > _SHOWN_FAILURES:
        more = f"{found.refused:,} were not {done} in all; --json has more reasons"
        yield Note(more, with_json=True)


def _id_sentence(found: "Changed") -> str:
    """The use of the id of a command on messages or errors."""
    if found.command is CommandName.CANCEL:
        return f"Undo with `duesweep restore --command {found.command_id} --reason TEXT`."
    next_sweep = "A sweep delivers them. " if found.command is CommandName.REPLAY else ""
    return f"{next_sweep}Command ID in the ledger's `changes`: {found.command_id}."


def paused(found: "Pauses", pattern: str) -> Iterator[Block]:
    """The effect of a new pause."""
    for one in found.of(pattern):
        end = "you resume it" if one.until is None else time_text(one.until)
        text = f"{found.source}: {shorten(pattern)} is paused until {end}."
        yield Line(f"{text} Running batches end within about 5 s.")


def resumed(found: "Resumed") -> Iterator[Block]:
    """The effect of the end of a pause, and other pauses of the destination."""
    pattern, holding = found.pattern, found.holding(found.pattern)
    if found.resumed:
        continues = "" if holding else " Delivery continues with the next batch."
        yield Line(f"{found.source}: resumed {pattern}.{continues}")
    else:
        known = ", ".join(one.what or "" for one in found.pauses)
        others = f"the paused destinations are: {known}" if known else "no destination is"
        yield Note(f"{pattern} is not paused; {others}", with_json=True)
    for one in holding:
        yield Note(
            f"the pause of {one.what} still holds {pattern}; end it with: "
            f"resume {shlex.quote(one.what or '')}",
            with_json=True,
        )


def pauses(found: "Pauses") -> Iterator[Block]:
    """The pauses in force."""
    if found.pauses:
        yield pause_table(found.pauses)
    else:
        yield Line(f"{found.source}: nothing is paused.")


def pause_table(found: Sequence["ListedPause"]) -> Table:
    """Pauses, each with its author and reason."""
    rows = [
        (
            one.what or "",
            short_time(one.paused_at),
            "" if one.until is None else short_time(one.until),
            one.given_by,
            one.reason,
        )
        for one in found
    ]
    return Table(PAUSE_COLUMNS, rows)


def _row(waiting: "Waiting", now: datetime) -> Row:
    attempts = str(waiting.attempts)
    return [
        "never" if waiting.due is None else short_time(waiting.due),
        _wait_text(waiting.due, now),
        waiting.destination or "",
        waiting.message_type or "",
        waiting.message_id or "",
        waiting.key,
        Cell(attempts, "yellow") if waiting.attempts else attempts,
    ]


def _failing_row(waiting: "Waiting", now: datetime) -> Row:
    if waiting.due is None:
        when = "never"
    else:
        start = max(waiting.due, waiting.next_attempt_at or now, now)
        when = "next sweep" if start == now else short_time(start)
    return [
        f"{waiting.attempts:,}",
        when,
        waiting.destination or "",
        waiting.message_type or "",
        waiting.key,
        waiting.error or "",
    ]


def _wait_text(due: datetime | None, now: datetime) -> str:
    """How long it is until a message is due, or since it was."""
    if due is None:
        return ""
    milliseconds = abs(due - now) / _MILLISECOND
    return duration_text(milliseconds) if due > now else f"{duration_text(milliseconds)} ago"


def _facts(message: "WholeMessage", now: datetime) -> Facts:
    """The facts of the message without its headers and its body."""
    facts = {
        "key": message.key,
        "message id": message.message_id,
        "type": message.message_type,
        "destination": message.destination,
        "due": _due_text(message, now),
        "failures": _failures_text(message, now),
        "last error": message.error,
        "body": "none" if message.body is None else size_text(message.body_bytes),
    }
    return Facts({name: value for name, value in facts.items() if value})


def headers_and_body(
    headers: Mapping[str, str | None] | None,
    unread: Iterable[str],
    body: bytes | None,
    rest: str = "",
) -> Iterator[Block]:
    """Headers and body of a message. `unread` are the lines in place of headers that cannot be
    read; `rest` says how to get the rest of a long body.
    """
    yield Line("headers")
    if headers is None:
        yield from map(Line, unread)
    else:
        yield Facts({name: "(null)" if text is None else text for name, text in headers.items()})
    yield Line()
    if body is not None:
        view = view_body(body)
        cut = f", the beginning{rest}" if view.is_cut else ""
        yield Line(f"body ({size_text(len(body))}, as {view.form}{cut})")
        yield from map(Line, view.lines)
        yield Line()


def _due_text(message: "WholeMessage", now: datetime) -> str:
    if message.due is None:
        return "never"
    wait = _wait_text(message.due, now)
    return f"{time_text(message.due)} ({wait if message.due <= now else f'in {wait}'})"


def _failures_text(message: "WholeMessage", now: datetime) -> str:
    failures, eligible = message.attempts, message.next_attempt_at
    if eligible is None or eligible <= now:
        return str(failures)
    wait = _wait_text(eligible, now)
    return f"{failures}; in back-off until {time_text(eligible)} (in {wait})"
