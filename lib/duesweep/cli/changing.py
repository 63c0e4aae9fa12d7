"""`duesweep cancel` and `duesweep reschedule`: change waiting messages that a filter means."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from duesweep import config as configuration
from duesweep.api.caller import given_by, require_reason
from duesweep.api.choosing import FoundMessages, find_messages
from duesweep.api.ledgers import command_ledger
from duesweep.change_messages import NewDue, cancel_chosen, reschedule_chosen
from duesweep.cli.commands import (
    CommandOptions,
    finish,
    may_go_on,
    print_nothing,
)
from duesweep.cli.counting import counted, counting
from duesweep.cli.filters import FilterOptions
from duesweep.cli.signals import DONE_STAYS_DONE, stop_on_signals
from duesweep.cli.unknown import refuse_unknown, unknown_document
from duesweep.config.adapters.endpoint import sweep_context
from duesweep.core.change import Command, CommandName, MessageFilter
from duesweep.core.errors import ConfigError, ExitCode
from duesweep.report.changes import Words, print_destinations
from duesweep.report.tables import print_table
from duesweep.report.waiting import COLUMNS, message_document, message_row
from duesweep.steer import run_command
from duesweep.sweep.stop import Stop

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """`everything`: all messages that wait. `due`: the new Due; None: they are cancelled."""

    chosen: FilterOptions
    scan_limit: int
    everything: bool
    common: CommandOptions
    due: NewDue | None = None

    @property
    def words(self) -> Words:
        """What is said of the command."""
        if self.due is None:
            return Words(CommandName.CANCEL, "cancelled")
        return Words(CommandName.RESCHEDULE, "rescheduled")


def run(file: Path | None, overrides: Sequence[str], options: ChangeOptions) -> int:
    """Choose, show and ask where a filter chose, and change."""
    _refuse_unclear(options)
    config = configuration.load(file, overrides)
    context, own_queue = sweep_context(config), config.store.endpoint
    with counting("looked at") as tell:
        found = find_messages(context, own_queue, options.chosen.at, options.scan_limit, tell=tell)
    refuse_unknown(context, found.unknown, "waiting message", "`duesweep list` shows the messages")
    asked = len(found.lock_keys) + found.missing
    common = options.common
    if common.is_dry_run:
        _print_dry_run(found, own_queue, options, context.store.source)
        return ExitCode.DONE
    if not found.lock_keys:
        return print_nothing(
            context.store.source,
            options.words,
            asked,
            common,
            unknown=unknown_document(found.unknown),
        )
    require_reason(common.reason, len(found.lock_keys))
    if not _is_exact(found.wanted) or options.everything:
        if not common.yes and not common.as_json:
            _show(found, own_queue)
        if not may_go_on(common, options.words.command, len(found.lock_keys)):
            return ExitCode.MESSAGES_FAILED
    command = Command(options.words.command, given_by(), common.reason)
    limits = context.limits
    work = (
        cancel_chosen(found.chosen, limits)
        if options.due is None
        else reschedule_chosen(found.chosen, limits, options.due)
    )
    with (
        stop_on_signals(stop := Stop(), DONE_STAYS_DONE),
        command_ledger(context) as ledger,
        counting(options.words.done) as tell,
    ):
        report = run_command(context, ledger, command, counted(work, tell), stop=stop)
    return finish(report.with_gone(found.missing), options.words, asked, common)


def _refuse_unclear(options: ChangeOptions) -> None:
    is_empty = options.chosen == FilterOptions()
    if is_empty and not options.everything:
        raise ConfigError(
            f"`{options.words.command}` was told no messages",
            advice="give keys or a filter, or --all for all messages that wait",
        )
    if options.everything and not is_empty:
        raise ConfigError(
            "--all means all messages that wait, and cannot be used with keys or a filter",
            advice="leave one of them out",
        )


def _is_exact(wanted: MessageFilter) -> bool:
    """Whether it names each message."""
    named = MessageFilter(keys=wanted.keys, message_ids=wanted.message_ids)
    return wanted == named and not wanted.is_empty


def _show(found: FoundMessages, own_queue: str) -> None:
    print_destinations(found.destinations)
    print_table(COLUMNS, [message_row(one, found.now, own_queue) for one in found.first])
    more = len(found.lock_keys) - len(found.first)
    if more:
        print(f"duesweep: and {more:,} more", file=sys.stderr)


def _print_dry_run(
    found: FoundMessages, own_queue: str, options: ChangeOptions, source: str
) -> None:
    if options.common.as_json:
        document = {
            "command": options.words.command.value,
            "source": source,
            "would_change": len(found.lock_keys),
            "gone": found.missing,
            "destinations": dict(found.destinations.most_common()),
            "messages": [message_document(one, own_queue) for one in found.first],
            "unknown_destination": unknown_document(found.unknown),
            "exit_code": 0,
        }
        print(json.dumps(document))
        return
    if found.lock_keys:
        _show(found, own_queue)
    print(f"{len(found.lock_keys):,} would be {options.words.done}; nothing was changed.")
