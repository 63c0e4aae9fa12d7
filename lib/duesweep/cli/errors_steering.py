"""`duesweep errors replay` and `duesweep errors discard`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from duesweep import config as configuration
from duesweep.api.ledgers import command_ledger
from duesweep.cli.commands import confirm, counting
from duesweep.cli.errors_listing import ErrorOptions
from duesweep.cli.errors_telling import (
    Act,
    CommandOptions,
    End,
    Named,
    print_groups,
    warn_of_copies,
)
from duesweep.cli.signals import DONE_STAYS_DONE, stop_on_signals
from duesweep.cli.unknown import print_unknown
from duesweep.config.adapters.endpoint import sweep_context
from duesweep.core.change import Command, CommandName
from duesweep.core.errors import ConfigError
from duesweep.core.exhausted import ErrorFilter
from duesweep.exhausted import ExhaustedMessages
from duesweep.ledger.ledger import Ledger
from duesweep.operations.change import given_by, require_reason, run_command, settle_earlier
from duesweep.operations.messages import refuse_unknown
from duesweep.operations.replay import Choice, Discard, Found, Replay, Target, find_errors
from duesweep.report.quantities import count_text
from duesweep.sweep.job import SweepContext
from duesweep.sweep.stop import Stop


@dataclass(frozen=True, slots=True)
class Call:
    """A command as it was called; `everything`: it is about all errors."""

    file: Path | None
    overrides: Sequence[str]
    chosen: ErrorOptions
    common: CommandOptions
    everything: bool = False


@dataclass(frozen=True, slots=True)
class _Opened:
    """What both commands work with."""

    context: SweepContext
    endpoint: str
    ledger: Ledger
    messages: ExhaustedMessages


def replay(call: Call, target: Target, *, again: bool) -> int:
    """Replay what was chosen."""
    with _opened(call) as opened:
        found = find_errors(opened.messages, _filter(call), again=again)
        choice = Choice(opened.messages, found.rows, again)
        work = Replay(opened.context, opened.endpoint, choice, target)
        if target.due is None and found.rows:
            opened.context.queue.check(None)
        question = f"Replay {count_text(len(found.rows), 'error')} {_way(target)}"
        warn_of_copies(opened.messages, found)
        return _run(call, opened, found, Act(CommandName.REPLAY, "replayed", question, work))


def discard(call: Call) -> int:
    """Discard what was chosen."""
    with _opened(call) as opened:
        found = find_errors(opened.messages, _filter(call))
        work = Discard(opened.context, Choice(opened.messages, found.rows))
        question = f"Discard {count_text(len(found.rows), 'error')}"
        return _run(call, opened, found, Act(CommandName.DISCARD, "discarded", question, work))


@contextmanager
def _opened(call: Call) -> Iterator[_Opened]:
    config = configuration.load(call.file, call.overrides)
    context = sweep_context(config)
    with command_ledger(context) as ledger:
        messages = ExhaustedMessages(ledger, context.store.source)
        messages.check()
        # Dead commands may have replayed what the ledger calls open.
        settle_earlier(context, ledger)
        yield _Opened(context, config.store.endpoint, ledger, messages)


def _filter(call: Call) -> ErrorFilter:
    chosen = call.chosen.chosen()
    if chosen.is_empty and not call.everything:
        raise ConfigError(
            "Nothing says which errors are meant",
            advice="give message ids or keys, a filter such as --group, or --all",
        )
    if call.everything and not chosen.is_empty:
        raise ConfigError(
            "--all is given with ids or a filter", advice="give --all, or what is meant, not both"
        )
    return chosen


def _run(call: Call, opened: _Opened, found: Found, act: Act) -> int:
    common = call.common
    named = Named.of(found, call.chosen.ids)
    end = End(opened.context.store.source, found, act, named, is_dry_run=common.is_dry_run)
    named.tell()
    if not (found.rows or found.done_rows):
        unknown = opened.messages.unknown_destination(call.chosen.chosen())
        refuse_unknown(opened.context, unknown, "error", "`duesweep errors list` shows the errors")
        print_unknown(unknown, "error")
        end = replace(end, unknown=unknown)
    if not (common.as_json or named.is_exact) and found.rows:
        print_groups(found)
    if not common.is_dry_run and found.rows:
        require_reason(common.reason, len(found.rows))
        # Whoever names one error by its id means it.
        if named.is_exact or common.yes or confirm(act.question):
            command = Command(act.name, given_by(), common.reason)
            with stop_on_signals(stop := Stop(), DONE_STAYS_DONE), counting(act.done) as tell:
                done = run_command(
                    opened.context, opened.ledger, command, act.work, stop=stop, tell=tell
                )
            end = replace(end, done=done)
        else:
            end = replace(end, is_declined=True)
    end.print_all(as_json=common.as_json)
    return end.exit_code


def _way(target: Target) -> str:
    where = "their destinations" if target.destination is None else target.destination
    return f"to {where}" if target.due is None else f"through the store, to {where}"
