"""`duesweep restore`: stores cancelled messages again."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from duesweep import config as configuration
from duesweep.api.caller import given_by, require_reason
from duesweep.api.ledgers import command_ledger
from duesweep.cli.commands import (
    CommandOptions,
    finish,
    may_go_on,
    print_nothing,
)
from duesweep.cli.counting import counted, counting
from duesweep.cli.signals import DONE_STAYS_DONE, stop_on_signals
from duesweep.config.adapters.endpoint import sweep_context
from duesweep.core.change import Command, CommandName, spelled_alike
from duesweep.core.errors import ConfigError, ExitCode, make_printable
from duesweep.core.times import Moment
from duesweep.ledger.ledger import Ledger
from duesweep.report.changes import Words, print_destinations
from duesweep.restore import CancelledId, CancelledMessages, Restore, cancelled_id
from duesweep.steer import run_command, settle_earlier
from duesweep.sweep.job import SweepContext
from duesweep.sweep.stop import Stop

_WORDS = Words(
    CommandName.RESTORE,
    "restored",
    "the ledger has no such cancelled message, or it was restored already (see --again)",
)


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """`command`: the id of the command that cancelled the messages. `due`: their new Due; None: the
    one that they had. `again`: also those that were restored already.
    """

    keys: Sequence[str]
    command: str | None
    due: Moment | None
    again: bool
    common: CommandOptions


def run(file: Path | None, overrides: Sequence[str], options: RestoreOptions) -> int:
    """Choose cancelled messages, ask where a command chose them, and restore them."""
    _refuse_unclear(options)
    context = sweep_context(configuration.load(file, overrides))
    with command_ledger(context) as ledger:
        return _run(context, ledger, options)


def _run(context: SweepContext, ledger: Ledger, options: RestoreOptions) -> int:
    source, common = context.store.source, options.common
    settle_earlier(context, ledger)
    messages = CancelledMessages(ledger, source, options.keys, options.command)
    chosen, destinations = _choose(messages, again=options.again)
    found = {spelled_alike(one.key) for one in chosen}
    asked = len(chosen) + len({spelled_alike(key) for key in options.keys} - found)
    if common.is_dry_run:
        _print_dry_run(source, destinations, asked - len(chosen), common)
        return ExitCode.DONE
    if not chosen:
        return print_nothing(source, _WORDS, asked or 1, common)
    require_reason(common.reason, len(chosen))
    if not options.keys:
        if not common.yes and not common.as_json:
            print_destinations(destinations)
        if not may_go_on(common, CommandName.RESTORE, len(chosen)):
            return ExitCode.MESSAGES_FAILED
    restore = Restore(messages, chosen, context.limits, options.due, again=options.again)
    command = Command(CommandName.RESTORE, given_by(), common.reason)
    with stop_on_signals(stop := Stop(), DONE_STAYS_DONE), counting(_WORDS.done) as tell:
        report = run_command(context, ledger, command, counted(restore.work(), tell), stop=stop)
    for change, reason in restore.refused:
        text = f"duesweep: {change.message.key} was not restored: {reason}"
        print(make_printable(text), file=sys.stderr)
    return finish(report.with_gone(asked - len(chosen)), _WORDS, asked, common)


def _choose(messages: CancelledMessages, *, again: bool) -> tuple[set[CancelledId], Counter[str]]:
    """The messages that may be restored, and where they go."""
    restored = set() if again else messages.restored()
    chosen: dict[CancelledId, str] = {
        cancelled_id(row): row["destination"] or ""
        for row in messages.shown()
        if cancelled_id(row) not in restored
    }
    return set(chosen), Counter(chosen.values())


def _refuse_unclear(options: RestoreOptions) -> None:
    if not options.keys and options.command is None:
        raise ConfigError(
            "`restore` was told no messages",
            advice="give the keys that they had, or --command with the id of the command that "
            "cancelled them",
        )
    if options.command is not None:
        try:
            UUID(options.command)
        except ValueError as error:
            raise ConfigError(
                f"--command {options.command!r} is not the id of a command",
                advice="`cancel` prints its id, and the ledger's `changes` has it as sweep_id",
            ) from error


def _print_dry_run(
    source: str, destinations: Counter[str], missing: int, common: CommandOptions
) -> None:
    total = destinations.total()
    if common.as_json:
        document = {
            "command": CommandName.RESTORE.value,
            "source": source,
            "would_change": total,
            "gone": missing,
            "destinations": dict(destinations.most_common()),
            "exit_code": 0,
        }
        print(json.dumps(document))
        return
    if total:
        print_destinations(destinations)
    print(f"{total:,} would be {_WORDS.done}; nothing was changed.")
