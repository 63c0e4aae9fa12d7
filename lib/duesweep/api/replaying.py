"""Replays errors of the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duesweep.api.caller import require_reason
from duesweep.api.ledgers import command_ledger
from duesweep.config import Config
from duesweep.config.adapters.endpoint import sweep_context
from duesweep.core.change import Command
from duesweep.core.exhausted import ErrorFilter
from duesweep.exhausted import ExhaustedMessages
from duesweep.replay import Choice, Replay, Target, find_errors
from duesweep.replay_ways import Failure
from duesweep.steer import CommandReport, run_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class ErrorsReport:
    """What became of the errors that were chosen. `done` None: there was nothing to do.
    `done_before` were replayed or discarded before; `failures` are the first of the `failed`.
    """

    chosen: int
    done_before: int
    done: CommandReport | None = None
    failed: int = 0
    failures: Sequence[Failure] = ()


def replay(
    config: Config,
    wanted: ErrorFilter,
    target: Target,
    command: Command,
    *,
    spark: "SparkSession | None" = None,
) -> ErrorsReport:
    """Replay the errors that a filter means, except those that were replayed or discarded."""
    context = sweep_context(config)
    with command_ledger(context, spark) as ledger:
        messages = ExhaustedMessages(ledger, context.store.source)
        messages.check()
        found = find_errors(messages, wanted)
        if not found.rows:
            return ErrorsReport(0, len(found.done_rows))
        require_reason(command.reason, len(found.rows))
        if target.due is None:
            context.queue.check(None)
        work = Replay(context, config.store.endpoint, Choice(messages, found.rows), target)
        done = run_command(context, ledger, command, work)
    account = work.account
    before = len(found.done_rows) + account.done_before
    return ErrorsReport(len(found.rows), before, done, account.failed, tuple(account.failures))
