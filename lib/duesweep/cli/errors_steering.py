"""`duesweep errors replay` and `duesweep errors discard`."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duesweep import config as configuration
from duesweep import wiring
from duesweep.cli.agreement import given_by, is_agreed, require_reason
from duesweep.cli.errors_listing import ErrorOptions
from duesweep.cli.ledgers import opened_ledger
from duesweep.cli.signals import stop_on_signals
from duesweep.context import SweepContext
from duesweep.core.change import Command, CommandName
from duesweep.core.error_rows import ErrorFilter, ErrorGroups
from duesweep.errors import ConfigError, ExitCode
from duesweep.exhausted import ExhaustedMessages
from duesweep.ledger.ledger import Ledger
from duesweep.replay import Choice, Discard, Found, Replay, Target, find_errors
from duesweep.replay_ways import Account
from duesweep.report import exhausted as report
from duesweep.report.quantities import count_text
from duesweep.report.tables import print_table
from duesweep.steer import CommandReport, run_command
from duesweep.stop import Stop
from duesweep.texts import make_printable

_SHOWN_FAILURES = 20


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
    """What both commands work with. `verb` as in `replayed`."""

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
        _warn_of_copies(opened.messages, found)
        return _run(call, opened, found, _Act(CommandName.REPLAY, "replayed", question, work))


def discard(call: Call) -> int:
    """Discard what was chosen."""
    with _opened(call) as opened:
        found = find_errors(opened.messages, _filter(call.given))
        work = Discard(opened.context, Choice(opened.messages, found.rows))
        question = f"Discard {count_text(len(found.rows), 'error')}?"
        return _run(call, opened, found, _Act(CommandName.DISCARD, "discarded", question, work))


@dataclass(frozen=True, slots=True)
class _Act:
    """What a command does. `done` is the word for it, `question` is asked first."""

    name: CommandName
    done: str
    question: str
    work: Replay | Discard


@contextmanager
def _opened(call: Call) -> Iterator[_Opened]:
    config = configuration.load(call.file, call.overrides)
    context = wiring.sweep_context(config)
    with opened_ledger(context) as ledger:
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


def _run(call: Call, opened: _Opened, found: Found, act: _Act) -> int:
    given = call.given
    named = _Named.of(found, given.chosen.ids)
    named.tell()
    if not (call.as_json or named.is_exact) and found.rows:
        _print_groups(found)
    if given.dry_run or not found.rows:
        return _end(call, found, act, None, is_whole=not named.unmatched)
    require_reason(given.reason, len(found.rows))
    # Whoever names one error by its id means it.
    if not named.is_exact and not is_agreed(act.question, yes=given.yes):
        return _end(call, found, act, None, is_whole=False)
    command = Command(act.name, given_by(), given.reason)
    with stop_on_signals(stop := Stop()):
        done = run_command(opened.context, opened.ledger, command, act.work, stop)
    return _end(call, found, act, done, is_whole=not named.unmatched)


@dataclass(frozen=True, slots=True)
class _Named:
    """What ids lead to: `unmatched` ones to no error that is to be done, `several` to more than
    one. `texts` say so.
    """

    is_exact: bool
    unmatched: bool
    texts: Sequence[str]

    @classmethod
    def of(cls, found: Found, ids: Sequence[str]) -> "_Named":
        texts, unmatched, several = [], False, False
        for each in ids:
            rows = [row for row in found.rows.values() if each in (row.id.key, row.message_id)]
            if len(rows) > 1:
                several = True
                texts.append(f"{each} means {len(rows)} errors")
            elif not rows:
                unmatched = True
                texts += _unmatched_texts(found, each)
        return cls(bool(ids) and not several, unmatched, texts)

    def tell(self) -> None:
        for text in self.texts:
            _tell(text)


def _unmatched_texts(found: Found, wanted: str) -> list[str]:
    rows = found.done_rows.values()
    done = [row.id for row in rows if wanted in (row.id.key, row.message_id)]
    if not done:
        return [f"the ledger has no error with message id or key {wanted}"]
    told = [report.fate_text(error, found.done[error]) for error in done]
    return [f"{each}; `errors replay --again` replays it once more" for each in told]


def _warn_of_copies(messages: ExhaustedMessages, found: Found) -> None:
    if found.rows:
        for queue, count in sorted(messages.in_error_queues(found.rows).items()):
            _tell(
                f"{count_text(count, 'error')} also in the error queue {queue}: whoever returns "
                "them from there doubles them"
            )


def _print_groups(found: Found) -> None:
    groups = ErrorGroups()
    for error, row in found.rows.items():
        fate = found.done.get(error)
        groups.add(row, None if fate is None else fate.kind)
    print_table(report.GROUP_COLUMNS, [report.group_row(group) for group in groups.sorted()])


def _end(call: Call, found: Found, act: _Act, done: CommandReport | None, *, is_whole: bool) -> int:
    account = act.work.account
    changed = 0 if done is None else done.tally.changed
    code = _exit_code(done, account, is_whole=is_whole)
    if call.as_json:
        print(json.dumps(_document(found, act, done, code)))
    else:
        text = f"{act.done.capitalize()} {count_text(changed, 'error')}"
        print(f"{text} by command {done.command_id}." if done else f"{text}.")
    skipped = len(found.done_rows) + account.done_before
    if skipped and not call.given.chosen.ids:
        _tell(f"{count_text(skipped, 'error')} left out: replayed or discarded before")
    for failure in account.failures[:_SHOWN_FAILURES]:
        _tell(f"{failure.error.key} was not {act.done}: {failure.reason}")
    if account.failed > _SHOWN_FAILURES:
        _tell(f"{account.failed:,} were not {act.done} in all; --json has more reasons")
    if done is not None and done.is_stopped:
        _tell("stopped between two batches; the same command does the rest")
    if done is not None and done.ledger_error:
        _tell(done.ledger_error)
    return code


def _exit_code(done: CommandReport | None, account: Account, *, is_whole: bool) -> ExitCode:
    if done is not None and done.ledger_error:
        return ExitCode.WORK_LEFT
    is_stopped = done is not None and done.is_stopped
    is_cut = is_stopped or account.failed or not is_whole
    return ExitCode.MESSAGES_FAILED if is_cut else ExitCode.DONE


def _document(
    found: Found, act: _Act, done: CommandReport | None, code: ExitCode
) -> dict[str, Any]:
    account = act.work.account
    return {
        "command_id": None if done is None else done.command_id,
        "chosen": len(found.rows),
        act.done: 0 if done is None else done.tally.changed,
        "done_before": len(found.done_rows) + account.done_before,
        "failed": account.failed,
        "failures": [
            {"key": f.error.key, "sweep_id": f.error.sweep_id, "reason": f.reason}
            for f in account.failures
        ],
        "is_stopped": done is not None and done.is_stopped,
        "ledger_error": None if done is None else done.ledger_error,
        "exit_code": int(code),
    }


def _way(target: Target) -> str:
    where = "their destinations" if target.destination is None else target.destination
    return f"to {where}" if target.due is None else f"through the store, to {where}"


def _tell(text: str) -> None:
    print(make_printable(f"duesweep: {text}"), file=sys.stderr)
