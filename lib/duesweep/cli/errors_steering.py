"""`duesweep errors replay` and `duesweep errors discard`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from duesweep import config as configuration
from duesweep import wiring
from duesweep.api.caller import given_by, require_reason
from duesweep.api.ledgers import command_ledger
from duesweep.cli.agreement import is_agreed
from duesweep.cli.errors_listing import ErrorOptions
from duesweep.cli.errors_telling import Act, End, Named, print_groups, warn_of_copies
from duesweep.cli.signals import stop_on_signals
from duesweep.context import SweepContext
from duesweep.core.change import Command, CommandName
from duesweep.core.error_rows import ErrorFilter
from duesweep.errors import ConfigError
from duesweep.exhausted import ExhaustedMessages
from duesweep.ledger.ledger import Ledger
from duesweep.replay import Choice, Discard, Found, Replay, Target, find_errors
from duesweep.report.quantities import count_text
from duesweep.steer import run_command
from duesweep.stop import Stop


@dataclass(frozen=True, slots=True)
class Given:
    """What was given to both commands."""

    chosen: ErrorOptions
    reason: str | None = None
    everything: bool = False
    yes: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A command as it was called."""

    file: Path | None
    overrides: Sequence[str]
    given: Given
    as_json: bool = False


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
        found = find_errors(opened.messages, _filter(call.given), again=again)
        choice = Choice(opened.messages, found.rows, again)
        work = Replay(opened.context, opened.endpoint, choice, target)
        if target.due is None and found.rows:
            opened.context.queue.check(None)
        question = f"Replay {count_text(len(found.rows), 'error')} {_way(target)}?"
        warn_of_copies(opened.messages, found)
        return _run(call, opened, found, Act(CommandName.REPLAY, "replayed", question, work))


def discard(call: Call) -> int:
    """Discard what was chosen."""
    with _opened(call) as opened:
        found = find_errors(opened.messages, _filter(call.given))
        work = Discard(opened.context, Choice(opened.messages, found.rows))
        question = f"Discard {count_text(len(found.rows), 'error')}?"
        return _run(call, opened, found, Act(CommandName.DISCARD, "discarded", question, work))


@contextmanager
def _opened(call: Call) -> Iterator[_Opened]:
    config = configuration.load(call.file, call.overrides)
    context = wiring.sweep_context(config)
    with command_ledger(context) as ledger:
        messages = ExhaustedMessages(ledger, context.store.source)
        messages.check()
        yield _Opened(context, config.store.endpoint, ledger, messages)


def _filter(given: Given) -> ErrorFilter:
    chosen = given.chosen.chosen()
    if chosen.is_empty and not given.everything:
        raise ConfigError(
            "Nothing says which errors are meant",
            advice="give message ids or keys, a filter such as --group, or --all",
        )
    if given.everything and not chosen.is_empty:
        raise ConfigError(
            "--all is given with ids or a filter", advice="give --all, or what is meant, not both"
        )
    return chosen


def _run(call: Call, opened: _Opened, found: Found, act: Act) -> int:
    given = call.given
    named = Named.of(found, given.chosen.ids)
    end = End(found, act, named, is_dry_run=given.dry_run)
    named.tell()
    if not (call.as_json or named.is_exact) and found.rows:
        print_groups(found)
    if not given.dry_run and found.rows:
        require_reason(given.reason, len(found.rows))
        # Whoever names one error by its id means it.
        if named.is_exact or is_agreed(act.question, yes=given.yes):
            command = Command(act.name, given_by(), given.reason)
            with stop_on_signals(stop := Stop()):
                done = run_command(opened.context, opened.ledger, command, act.work, stop)
            end = replace(end, done=done)
        else:
            end = replace(end, is_declined=True)
    end.print_all(as_json=call.as_json)
    return end.exit_code


def _way(target: Target) -> str:
    where = "their destinations" if target.destination is None else target.destination
    return f"to {where}" if target.due is None else f"through the store, to {where}"
