"""`duesweep show`: one waiting message, whole, and what the ledger tells of it."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from duesweep import config as configuration
from duesweep.choose import choose, find_by_keys, open_look
from duesweep.cli.filters import DEFAULT_SCAN_LIMIT
from duesweep.config.adapters.endpoint import sweep_context
from duesweep.core.change import MessageFilter, WaitingMessage
from duesweep.core.errors import ConfigError, ExitCode, LedgerError, Problem, make_printable
from duesweep.history import Event, read_history
from duesweep.ledger.ledger import open_for_reading
from duesweep.report import message as report
from duesweep.report.bodies import BodyForm
from duesweep.report.tables import print_table
from duesweep.stores.base import OperatorDriver
from duesweep.sweep.job import SweepContext


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """Which message: by its key or by its message id. `form`: how to show its body; None: as fits
    its content. `body_to`: a new file for its body.
    """

    key: str | None
    message_id: str | None
    form: BodyForm | None = None
    body_to: Path | None = None
    as_json: bool = False

    def __post_init__(self) -> None:
        if (self.key is None) == (self.message_id is None):
            raise ConfigError(
                "A message is shown by its key, or by its message id",
                advice="give either KEY or --message-id ID; `duesweep list` has both",
            )

    @property
    def named(self) -> str:
        """The message in a sentence."""
        return f"key {self.key}" if self.key is not None else f"message id {self.message_id}"


@dataclass(frozen=True, slots=True)
class Found:
    """`problem`: why the history is not known."""

    messages: Sequence[WaitingMessage]
    events: Sequence[Event]
    now: datetime
    problem: Problem | None = None
    is_ledger_lost: bool = False


def run(file: Path | None, overrides: Sequence[str], options: ShowOptions) -> int:
    """Show a message. Exits with 3 if neither the store nor the ledger knows it."""
    config = configuration.load(file, overrides)
    context, own_queue = sweep_context(config), config.store.endpoint
    with open_look(context.store) as session:
        now = session.horizon().server_time
        messages = _find(session, options, own_queue)
    if options.body_to is not None:
        _write_body(options.body_to, messages, options)
    found = _with_history(context, options, messages, now)
    if options.as_json:
        _print_document(context.store.source, found, own_queue)
    else:
        _print(found, options, own_queue)
    return _exit_code(found, context.store.source, options)


def _find(look: OperatorDriver, options: ShowOptions, own_queue: str) -> Sequence[WaitingMessage]:
    if options.key is not None:
        return find_by_keys(look, [options.key], with_body=True)
    wanted = MessageFilter(message_ids=(options.message_id or "",))
    with choose(look, wanted, own_queue, DEFAULT_SCAN_LIMIT) as choice:
        keys = [one.message.key for page in choice for one in page]
    if choice.is_cut and not keys:
        print(
            f"duesweep: {options.named} is not among the {choice.looked_at:,} messages that are "
            "due first; the others were not looked at: give the key",
            file=sys.stderr,
        )
    return look.find(keys, with_body=True)


def _write_body(path: Path, messages: Sequence[WaitingMessage], options: ShowOptions) -> None:
    if len(messages) != 1:
        raise ConfigError(
            f"{len(messages)} stored messages have {options.named}, so --body-to has not one body",
            advice="give the key of one; `duesweep list` has it",
        )
    try:
        # Readable for this user only: a body may hold what others must not see.
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(number, "wb") as file:  # noqa: PTH123 - it is open
            file.write(messages[0].message.body or b"")
    except OSError as error:
        raise ConfigError(
            f"--body-to {path} cannot be written: {error.strerror}", advice="name a new file"
        ) from error


def _with_history(
    context: SweepContext,
    options: ShowOptions,
    messages: Sequence[WaitingMessage],
    now: datetime,
) -> Found:
    message_id = options.message_id or next((m.message.message_id for m in messages), None)
    key = options.key or next((m.message.key for m in messages), None)
    try:
        ledger = open_for_reading(context.ledger_root, context.timeouts)
        events = read_history(ledger, context.store.source, key, message_id)
    except (ConfigError, LedgerError) as error:
        is_lost = isinstance(error, LedgerError)
        return Found(messages, (), now, error.problem, is_ledger_lost=is_lost)
    return Found(messages, events, now)


def _print(found: Found, options: ShowOptions, own_queue: str) -> None:
    for one in found.messages:
        lines = ["message", *report.facts_lines(one, found.now, own_queue)]
        lines += ["", "headers", *report.header_lines(one), ""]
        print("\n".join(lines))
        if one.message.body is not None:
            print("\n".join(report.body_lines(one.message.body, options.form)), end="\n\n")
    if found.events:
        print("history in the ledger")
        print_table(report.EVENT_COLUMNS, [report.event_row(event) for event in found.events])
    elif found.messages and found.problem is None:
        print("history in the ledger: none")


def _print_document(source: str, found: Found, own_queue: str) -> None:
    document = {
        "source": source,
        "now": found.now.isoformat(),
        "messages": [report.whole_document(one, own_queue) for one in found.messages],
        "history": [report.event_document(event) for event in found.events],
        "history_error": None if found.problem is None else str(found.problem),
    }
    print(json.dumps(document))


def _exit_code(found: Found, source: str, options: ShowOptions) -> int:
    sys.stdout.flush()
    if not found.messages:
        where = (
            ""
            if found.problem
            else "; the ledger has its history"
            if found.events
            else (", and the ledger has no row of it")
        )
        _tell(f"{source} has no message with {options.named}{where}")
    if found.problem is not None:
        _tell(f"the history is not shown: {found.problem}")
    if found.is_ledger_lost:
        return ExitCode.WORK_LEFT
    return ExitCode.DONE if found.messages or found.events else ExitCode.MESSAGES_FAILED


def _tell(sentence: str) -> None:
    print(make_printable(f"duesweep: {sentence}"), file=sys.stderr)
