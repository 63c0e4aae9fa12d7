"""`duesweep sweep`: asks the store first, and starts Spark only if there is much to do."""

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from duesweep import config as configuration
from duesweep import wiring
from duesweep.cli import documents
from duesweep.cli.signals import stop_on_signals
from duesweep.context import SweepContext
from duesweep.core.ledger_writer import LedgerWriter
from duesweep.errors import ExitCode, Problem, StoreError
from duesweep.ledger.writers import resolve_writer
from duesweep.missing_queues import refuse_missing_queues
from duesweep.report.idle import NextDue, idle_sentence
from duesweep.report.quantities import count_text
from duesweep.stop import Stop
from duesweep.stores.abilities import KnowsNextDue, NoticesTables, refuse_outdated
from duesweep.stores.base import DriverSession
from duesweep.stores.values import Horizon
from duesweep.texts import make_printable

if TYPE_CHECKING:
    from duesweep.engines.base import Engine

# What `--gate` returns if Spark is needed, and no command runs it. No other command exits with it.
WORK_FOR_SPARK = 10


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at the store found. `has_work`: any message is eligible, or any sweep unsettled;
    `needs_spark`: so much that Spark has to do it. `notices` are the store's. `next_due`: the next
    message, if there is no work, and if the store can tell.
    """

    has_work: bool
    needs_spark: bool
    notices: Sequence[Problem]
    next_due: NextDue | None = None


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """`max_seconds` count from the start of the command; with `max_messages` it claims no more.
    None: no limit. With `gate`, a sweep that
    needs Spark becomes the command that runs it.
    """

    as_json: bool = False
    gate: bool = False
    max_seconds: int | None = None
    max_messages: int | None = None


def run(file: Path | None, overrides: Sequence[str], options: SweepOptions) -> int:
    """Sweep once, until a signal or the time stops the sweep."""
    seconds = options.max_seconds
    at = None if seconds is None else configuration.started() + seconds
    stop = Stop(at, options.max_messages)
    with stop_on_signals(stop):
        return _run(configuration.load(file, overrides), options, stop)


def _run(config: configuration.Config, options: SweepOptions, stop: Stop) -> int:
    context = wiring.sweep_context(config)
    look = look_at(context, stop)
    if look.needs_spark and options.gate and not stop.is_wanted:
        return _run_spark_command()
    for notice in filter(None, [configuration.route_notice(config), *look.notices]):
        print(make_printable(f"duesweep: {notice}"), file=sys.stderr)
    if not look.has_work:
        _print_idle(context, look.next_due, as_json=options.as_json)
    elif stop.is_wanted:
        _print_unbegun(context, as_json=options.as_json)
    else:
        return _sweep(context, stop, on_spark=look.needs_spark, as_json=options.as_json)
    return ExitCode.DONE


def look_at(context: SweepContext, stop: Stop | None = None) -> Look:
    """Look whether there is work, and how much of it a sweep would do. Raises `ConfigError` for
    wrong settings.
    """
    with context.store.open_driver() as session:
        refuse_outdated(session)
        session.check()
        context.queue.check(context.error_queue)
        ahead = timedelta(seconds=context.look_ahead.longest_seconds)
        if not session.has_work(ahead):
            return Look(
                has_work=False,
                needs_spark=False,
                notices=session.notices(),
                next_due=_find_next_due(session),
            )
        horizon = session.horizon().looking_ahead(ahead)
        refuse_missing_queues(context, session, horizon)
        needs_spark = _needs_spark(context, session, horizon, stop or Stop())
        notices = [*session.notices(), *_table_notices(session, context.queue)]
        return Look(has_work=True, needs_spark=needs_spark, notices=notices)


def _table_notices(*tested: object) -> Iterator[Problem]:
    for each in tested:
        if isinstance(each, NoticesTables):
            yield from each.table_notices()


def _find_next_due(session: DriverSession) -> NextDue | None:
    if not isinstance(session, KnowsNextDue):
        return None
    try:
        horizon = session.horizon()
        instant = session.next_due(horizon)
    except StoreError:
        # Nothing is due, whether or not the store still answers.
        return None
    return None if instant is None else NextDue(instant, horizon.server_time)


def _needs_spark(
    context: SweepContext, session: DriverSession, horizon: Horizon, stop: Stop
) -> bool:
    """Whether Spark is there already, or has to write the ledger, or much is due."""
    if configuration.has_prepared_session() or not context.spark_from:
        return True
    if resolve_writer(context.ledger_writer, context.ledger_root) is LedgerWriter.SPARK:
        return True
    found = session.count_pending(horizon, most=context.spark_from)
    return stop.most_of(found) >= context.spark_from


def _run_spark_command() -> int:
    command = configuration.spark_command()
    if command is not None:
        # Python ignores it, and what it becomes would do the same.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execvp("bash", ["bash", "-c", command])
    return WORK_FOR_SPARK


def _sweep(context: SweepContext, stop: Stop, *, on_spark: bool, as_json: bool) -> int:
    # The gate loads none of these.
    from duesweep.report import progress, summary  # noqa: PLC0415
    from duesweep.sweep import exit_code, sweep  # noqa: PLC0415

    progress.configure_logging()
    watch = progress.create_watch(context.store)
    with _engine(context, on_spark=on_spark) as engine:
        done = sweep(engine, context, watch, stop=stop)
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
        print(make_printable(f"duesweep: {done.ledger_error}"), file=sys.stderr)
    return code


@contextmanager
def _engine(context: SweepContext, *, on_spark: bool) -> Iterator["Engine"]:
    if not on_spark:
        from duesweep.engines.in_process import InProcessEngine  # noqa: PLC0415

        yield InProcessEngine()
        return
    from duesweep.engines.spark import SparkEngine  # noqa: PLC0415
    from duesweep.session import spark_session  # noqa: PLC0415
    from duesweep.spark_errors import map_spark_errors  # noqa: PLC0415

    with map_spark_errors():
        yield SparkEngine(spark_session(configuration.jars()), context.timeouts)


def _print_idle(context: SweepContext, next_due: NextDue | None, *, as_json: bool) -> None:
    source = context.store.source
    if as_json:
        print(json.dumps(documents.idle_document(source, next_due)))
    else:
        print(make_printable(idle_sentence(source, next_due)))


def _print_unbegun(context: SweepContext, *, as_json: bool) -> None:
    source = context.store.source
    if as_json:
        print(json.dumps(documents.unbegun_document(source)))
    else:
        text = f"{source}: the sweep was stopped before it began; the next sweep continues."
        print(make_printable(text))
