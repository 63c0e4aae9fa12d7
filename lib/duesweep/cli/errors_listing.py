"""`duesweep errors list` and `duesweep errors show`: they read the ledger, and nothing else."""

import heapq
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from duesweep import config as configuration
from duesweep.api.ledgers import command_ledger
from duesweep.cli.unknown import print_unknown, unknown_document
from duesweep.config.adapters.endpoint import sweep_context
from duesweep.core.change import ChangeKind
from duesweep.core.errors import ConfigError, ExitCode, make_printable
from duesweep.core.exhausted import ErrorFilter, ErrorGroups, ErrorRow
from duesweep.core.times import Moment
from duesweep.exhausted import ExhaustedMessages, Fate
from duesweep.report import exhausted as report
from duesweep.report.tables import print_table


@dataclass(frozen=True, slots=True)
class ErrorOptions:
    """What was given to choose errors."""

    ids: tuple[str, ...] = ()
    group: str | None = None
    error_class: str | None = None
    destination: str | None = None
    message_type: str | None = None
    since: Moment | None = None
    until: Moment | None = None

    def chosen(self) -> ErrorFilter:
        """The filter, by this machine's clock."""
        now = datetime.now(UTC)
        return ErrorFilter(
            ids=self.ids,
            group=self.group,
            error_class=self.error_class,
            destination=self.destination,
            message_type=self.message_type,
            since=None if self.since is None else self.since.at(now),
            until=None if self.until is None else self.until.at(now),
        )


@dataclass(frozen=True, slots=True)
class ListOptions:
    """`limit`: how many groups are shown, or errors of the group that was given."""

    chosen: ErrorOptions
    limit: int
    with_discarded: bool = False
    as_json: bool = False


# An error, and what was done with it.
_Seen = tuple[ErrorRow, Fate | None]


def list_errors(file: Path | None, overrides: Sequence[str], options: ListOptions) -> int:
    """List groups, or the errors of one group."""
    with _messages(file, overrides) as (source, messages):
        seen = _look(messages, options)
        if options.chosen.group is not None:
            _list_rows(source, seen, options)
        else:
            _list_groups(source, seen, options, messages)
    return ExitCode.DONE


def show(file: Path | None, overrides: Sequence[str], message: str, *, as_json: bool) -> int:
    """Show all errors of a message, the last one first."""
    with _messages(file, overrides) as (source, messages):
        rows = list(messages.rows(ErrorFilter(ids=(message,))))
        code = ExitCode.DONE if rows else ExitCode.MESSAGES_FAILED
        if not rows:
            print(
                make_printable(
                    f"duesweep: the ledger has no error of {source} with message id or key "
                    f"{message}"
                ),
                file=sys.stderr,
            )
        rows.sort(key=lambda row: row.last_failed_at, reverse=True)
        fates = messages.fates() if rows else {}
        if as_json:
            documents = [
                report.details_document(
                    row, fates.get(row.id), messages.details(row.id), messages.changes(row.id)
                )
                for row in rows
            ]
            print(json.dumps({"source": source, "errors": documents, "exit_code": int(code)}))
        else:
            for row in rows:
                details, changes = messages.details(row.id), messages.changes(row.id)
                print("\n".join(report.details_lines(row, details, changes)), end="\n\n")
    return code


@contextmanager
def _messages(
    file: Path | None, overrides: Sequence[str]
) -> Iterator[tuple[str, ExhaustedMessages]]:
    context = sweep_context(configuration.load(file, overrides))
    source = context.store.source
    with command_ledger(context) as ledger:
        messages = ExhaustedMessages(ledger, source)
        messages.check()
        yield source, messages


def _look(messages: ExhaustedMessages, options: ListOptions) -> Iterator[_Seen]:
    fates = messages.fates()
    for row in messages.rows(options.chosen.chosen()):
        fate = fates.get(row.id)
        is_discarded = fate is not None and fate.kind is ChangeKind.DISCARDED
        if options.with_discarded or not is_discarded:
            yield row, fate


def _list_groups(
    source: str, seen: Iterator[_Seen], options: ListOptions, messages: ExhaustedMessages
) -> None:
    groups = ErrorGroups()
    for row, fate in seen:
        groups.add(row, None if fate is None else fate.kind)
    found = groups.sorted()
    shown = found[: options.limit]
    wanted = options.chosen.chosen()
    unknown = None if found else messages.unknown_destination(wanted)
    if options.as_json:
        documents = [report.group_document(group) for group in shown]
        counts = {"groups_in_all": len(found), "open": sum(group.open for group in found)}
        told = {"unknown_destination": unknown_document(unknown)}
        print(json.dumps({"source": source, **counts, "groups": documents, **told}))
        return
    if not found:
        none = "no message has exhausted its attempts" if wanted.is_empty else "no error is meant"
        failing = "`duesweep list --failing` shows messages that have failed and are tried again"
        print(make_printable(f"{source}: {none}. {failing}."))
        print_unknown(unknown, "error")
        return
    print_table(report.GROUP_COLUMNS, [report.group_row(group) for group in shown])
    _tell_rest(len(found) - len(shown))


def _list_rows(source: str, seen: Iterator[_Seen], options: ListOptions) -> None:
    total = 0

    def counted() -> Iterator[_Seen]:
        nonlocal total
        for each in seen:
            total += 1
            yield each

    shown = heapq.nlargest(
        options.limit, counted(), key=lambda each: (each[0].last_failed_at, each[0].id)
    )
    if options.as_json:
        documents = [report.error_document(row, fate) for row, fate in shown]
        print(json.dumps({"source": source, "errors_in_all": total, "errors": documents}))
        return
    if not shown:
        raise ConfigError(
            f"There is no error of group {options.chosen.group}",
            advice="list the groups with `errors list`, discarded ones with --discarded",
        )
    print_table(report.ROW_COLUMNS, [report.error_row(row, fate) for row, fate in shown])
    _tell_rest(total - len(shown))


def _tell_rest(left: int) -> None:
    if left:
        print(f"duesweep: {left:,} more, which --limit shows", file=sys.stderr)
