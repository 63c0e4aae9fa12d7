"""`duesweep handover`: moves all of a store's messages to RabbitMQ."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from duesweep import config as configuration
from duesweep.cli.signals import stop_on_signals
from duesweep.config.adapters.endpoint import handover_context
from duesweep.core.errors import ConfigError, ExitCode, make_printable
from duesweep.report.quantities import count_text
from duesweep.sweep.job import SweepContext
from duesweep.sweep.stop import Stop

# The format of NServiceBus's own migration tool.
_WIRE_FORMAT = "%Y-%m-%d %H:%M:%S:%f Z"


@dataclass(frozen=True, slots=True)
class HandoverOptions:
    """`cutoff` is the text of the option."""

    cutoff: str | None
    dry_run: bool
    abort: bool
    as_json: bool


def run(
    file: Path | None, endpoint: str | None, overrides: Sequence[str], options: HandoverOptions
) -> int:
    """Hand over, count what would go (`dry_run`), or stop a handover that runs (`abort`)."""
    if options.abort and (options.dry_run or options.cutoff):
        raise ConfigError(
            "--abort cannot be used with --dry-run or --cutoff", advice="remove the others"
        )
    cutoff = parse_cutoff(options.cutoff) if options.cutoff else None
    context = handover_context(configuration.load(file, overrides, endpoint))
    if options.abort:
        return _abort(context)
    _check(context)
    return _preview(context, cutoff, options) if options.dry_run else _run(context, cutoff, options)


def parse_cutoff(text: str) -> datetime:
    """The instant of a cut-off's text. Raises `ConfigError` for a text without time or zone."""
    try:
        return datetime.strptime(text, _WIRE_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"--cutoff {text!r} is not a time", advice="write one as in 2026-12-01T08:00:00Z"
        ) from error
    if moment.tzinfo is None:
        raise ConfigError(
            f"--cutoff {text!r} has no time zone", advice="write one as in 2026-12-01T08:00:00Z"
        )
    return moment


def _check(context: SweepContext) -> None:
    """Raise what would stop a handover, before Spark starts."""
    from duesweep.handover import longest_delay  # noqa: PLC0415 - takes pyspark

    longest_delay(context)
    with context.store.open_driver() as session:
        session.check()
        context.queue.check(context.error_queue)
        for notice in session.notices():
            print(make_printable(f"duesweep: {notice}"), file=sys.stderr)


def _abort(context: SweepContext) -> int:
    from duesweep.handover import abort  # noqa: PLC0415

    stopped = abort(context)
    print(
        f"{context.store.source}: stopped {stopped}. Deferred messages stay in RabbitMQ, all "
        "others stay in the store. Run `handover` again to continue."
        if stopped
        else f"{context.store.source}: no handover is running."
    )
    return ExitCode.DONE


def _run(context: SweepContext, cutoff: datetime | None, options: HandoverOptions) -> int:
    from duesweep.drivers.spark import map_spark_errors, spark_session  # noqa: PLC0415
    from duesweep.handover import handover  # noqa: PLC0415
    from duesweep.operations.run import Run  # noqa: PLC0415
    from duesweep.report import progress, runs  # noqa: PLC0415
    from duesweep.sweep.spark import SparkEngine  # noqa: PLC0415

    progress.configure_logging()
    with map_spark_errors():
        engine = SparkEngine(spark_session(configuration.jars()), context.timeouts)
        with stop_on_signals(stop := Stop()):
            done = handover(
                engine, context, cutoff, progress.create_watch(context.store), stop=stop
            )
    if options.as_json:
        summary = done.summary
        run = Run(
            summary.source,
            summary.outcome,
            int(done.exit_code),
            report=summary,
            error=summary.ledger_error
            or (summary.reason if summary.outcome == "incomplete" else None),
        )
        print(json.dumps({**runs.document(run), "left_in_store": done.left}))
    else:
        runs.print_summary(done.summary, only_due=False)
    if done.left:
        print(
            f"duesweep: {count_text(done.left, 'message')} left in the store; `handover --dry-run` "
            "lists which cannot be moved, and why; those in back-off after a failure are in the "
            "ledger's `retries`, and those for paused destinations wait for `resume` (see "
            "`paused`); run `handover` again to try all others",
            file=sys.stderr,
        )
    if done.summary.ledger_error:
        print(make_printable(f"duesweep: {done.summary.ledger_error}"), file=sys.stderr)
    return done.exit_code


def _preview(context: SweepContext, cutoff: datetime | None, options: HandoverOptions) -> int:
    from duesweep.handover import preview  # noqa: PLC0415
    from duesweep.preview import PreviewEntry  # noqa: PLC0415
    from duesweep.report.preview import print_preview  # noqa: PLC0415
    from duesweep.report.progress import configure_logging  # noqa: PLC0415

    configure_logging()
    found: Counter[PreviewEntry] = preview(context, cutoff)
    own = context.store.own_queue
    if options.as_json:
        for entry, messages in sorted(found.items(), key=str):
            row = entry._asdict() | {"destination": entry.destination or own}
            print(json.dumps({**row, "messages": messages}))
    else:
        print_preview(found, own)
    return ExitCode.MESSAGES_FAILED if any(h.problem for h in found) else ExitCode.DONE
