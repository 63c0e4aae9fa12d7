"""`duesweep sweep`: asks the store first, and starts Spark only if there is work."""

import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from duesweep import config as configuration
from duesweep import wiring
from duesweep.cli import documents
from duesweep.context import SweepContext
from duesweep.errors import ExitCode, Problem
from duesweep.missing_queues import refuse_missing_queues
from duesweep.report.quantities import count_text

# What `--gate` returns if Spark is needed. No command exits with it.
WORK_FOR_SPARK = 10


def run(file: Path | None, overrides: Sequence[str], *, as_json: bool, gate: bool) -> int:
    """Sweep once. With `gate`: return 10 if Spark is needed, else do what can be done without."""
    config = configuration.load(file, overrides)
    context = wiring.sweep_context(config)
    is_needed, found = look(context)
    notices = [*filter(None, [configuration.route_notice(config)]), *found]
    if is_needed and gate:
        return WORK_FOR_SPARK
    for notice in notices:
        print(f"duesweep: {notice}", file=sys.stderr)
    if is_needed:
        return _sweep(context, as_json=as_json)
    _print_idle(context, as_json=as_json)
    return ExitCode.DONE


def look(context: SweepContext) -> tuple[bool, Sequence[Problem]]:
    """Whether any message is eligible or any sweep unsettled, and the store's notices.

    Raises `ConfigError` for wrong settings.
    """
    with context.store.open_driver() as session:
        session.check()
        context.queue.check(context.error_queue)
        ahead = timedelta(seconds=context.look_ahead.longest_seconds)
        has_work = session.has_work(ahead)
        if has_work:
            refuse_missing_queues(context, session, session.horizon().looking_ahead(ahead))
        return has_work, session.notices()


def _sweep(context: SweepContext, *, as_json: bool) -> int:
    # The gate loads neither rich nor Spark.
    from duesweep.report import progress, summary  # noqa: PLC0415
    from duesweep.session import spark_session  # noqa: PLC0415
    from duesweep.spark_errors import map_spark_errors  # noqa: PLC0415
    from duesweep.sweep import exit_code, sweep  # noqa: PLC0415

    progress.configure_logging()
    with map_spark_errors():
        spark = spark_session(configuration.jars())
        done = sweep(spark, context, progress.create_watch(context.store))
    code = exit_code(done)
    if as_json:
        print(json.dumps(documents.end_document(summary.as_json(done), code)))
    else:
        summary.print_summary(done, only_due=not context.look_ahead.longest_seconds)
    if done.over_limit:
        print(
            f"duesweep: {count_text(done.over_limit, 'message')} out of attempts, but kept in "
            f"the store: a sweep gives up {context.max_exhausted:,} at most; if a setting is "
            "wrong, correct it now; if not, the next sweeps give them up, or raise "
            "retry.max_exhausted_per_sweep",
            file=sys.stderr,
        )
    if done.ledger_error:
        print(f"duesweep: {done.ledger_error}", file=sys.stderr)
    return code


def _print_idle(context: SweepContext, *, as_json: bool) -> None:
    source = context.store.source
    if as_json:
        print(json.dumps(documents.idle_document(source)))
    else:
        print(f"{source}: nothing is due, and nothing is left to settle.")
