"""`duesweep sweep`: asks the store first, and starts Spark only if there is much to do."""

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from duesweep import config as configuration
from duesweep.api.look import Look, look_at
from duesweep.cli import documents
from duesweep.cli.documents import End
from duesweep.cli.monitored import monitored
from duesweep.cli.signals import stop_on_signals
from duesweep.config.adapters.endpoint import sweep_context
from duesweep.core.account import held_in_sweep
from duesweep.core.errors import DuesweepError, ExitCode, NothingDueError, make_printable
from duesweep.report.held import print_held
from duesweep.report.idle import idle_sentence
from duesweep.report.quantities import count_text
from duesweep.sweep.job import SweepContext
from duesweep.sweep.stop import Stop

if TYPE_CHECKING:
    from duesweep.core.account import SweepReport

# What `--gate` returns if Spark is needed, and no command runs it. No other command exits with it.
WORK_FOR_SPARK = 10


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """`max_seconds` count from the start of the command; with `max_messages` it claims no more.
    None: no limit. With `gate`, a sweep that needs Spark becomes the command that runs it. `report`
    is the file for the report page.
    """

    as_json: bool = False
    gate: bool = False
    max_seconds: int | None = None
    max_messages: int | None = None
    report: Path | None = None


def run(files: Sequence[Path], overrides: Sequence[str], options: SweepOptions) -> int:
    """Sweep once, until a signal or the time stops the sweep. `files`: none for the default one."""
    seconds = options.max_seconds
    at = None if seconds is None else configuration.started() + seconds
    stop = Stop(at, options.max_messages)
    settings = configuration.settings_of(files)
    with stop_on_signals(stop):
        with _reported(settings, overrides, options.report):
            if len(settings) > 1:
                from duesweep.cli import fleet_sweep  # noqa: PLC0415 - one endpoint does without

                on_spark = _run_spark_command if options.gate else None
                end = fleet_sweep.run(settings, overrides, stop, on_spark, as_json=options.as_json)
            else:
                given = settings[0] if settings else None
                end = _run(configuration.load(given, overrides), options, stop)
        # Last: if a second signal ended this before, its document would be a second one.
        if end.document is not None:
            print(json.dumps(end.document))
        return end.exit_code


@contextmanager
def _reported(
    settings: Sequence[configuration.EndpointSettings],
    overrides: Sequence[str],
    file: Path | None,
) -> Iterator[None]:
    """Write the report page after the block, also after an error. What fails there fails no
    sweep.
    """
    try:
        yield
    except DuesweepError:
        _write_report(settings, overrides, file)
        raise
    _write_report(settings, overrides, file)


def _write_report(
    settings: Sequence[configuration.EndpointSettings],
    overrides: Sequence[str],
    file: Path | None,
) -> None:
    if file is None:
        return
    from duesweep.cli.report import DEFAULT_DAYS, write_page  # noqa: PLC0415 - few want it

    try:
        write_page(settings, overrides, file, DEFAULT_DAYS)
    except DuesweepError as error:
        print(make_printable(f"duesweep: {error}"), file=sys.stderr)


def _run(config: configuration.Config, options: SweepOptions, stop: Stop) -> End:
    context, as_json = sweep_context(config), options.as_json
    with monitored(config, context.store) as ending:
        look = look_at(context, stop)
        if look.needs_spark and options.gate and not stop.is_wanted:
            return End(_run_spark_command())
        for notice in filter(None, [configuration.route_notice(config), *look.notices]):
            print(make_printable(f"duesweep: {notice}"), file=sys.stderr)
        if not look.has_work:
            end = _idle(context, look, as_json=as_json)
        elif stop.is_wanted:
            end = _unbegun(context, as_json=as_json)
        else:
            ending.report, end = _sweep(context, stop, look, as_json=as_json)
        ending.code = end.exit_code
        return end


def _run_spark_command() -> int:
    command = configuration.spark_command()
    if command is not None:
        # Python ignores it, and what it becomes would do the same.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execvp("bash", ["bash", "-c", command])
    return WORK_FOR_SPARK


def _sweep(
    context: SweepContext, stop: Stop, look: Look, *, as_json: bool
) -> "tuple[SweepReport | None, End]":
    # The gate loads none of these.
    from duesweep.api.engines import opened_engine  # noqa: PLC0415
    from duesweep.objective import misses_objective  # noqa: PLC0415
    from duesweep.report import progress, summary  # noqa: PLC0415
    from duesweep.sweep.sweep import exit_code, sweep  # noqa: PLC0415

    progress.configure_logging()
    watch = progress.create_watch(context.store)
    try:
        with opened_engine(context, on_spark=look.needs_spark) as engine:
            done = sweep(engine, context, watch, look.reach(context), stop=stop)
            is_late = misses_objective(context, done)
    except NothingDueError as error:
        if not as_json:
            raise
        print(make_printable(f"duesweep: {error}"), file=sys.stderr)
        source, left = context.store.source, int(error.exit_code)
        return None, End(left, documents.unsettled_document(source, left, str(error)))
    code = exit_code(done, is_late=is_late)
    held = held_in_sweep(look.pauses, done.breakers, done.over_limit)
    document = documents.end_document(summary.as_json(done), code, held) if as_json else None
    if document is None:
        summary.print_summary(done, only_due=not context.look_ahead.longest_seconds)
        print_held(held)
    if is_late:
        print(
            f"duesweep: a message was dispatched later than {context.objective_seconds:g} s after "
            "its Due, the objective slo.lateness_seconds; sweep more often, or see whether the "
            "sweeps before this one ended well",
            file=sys.stderr,
        )
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
    return done, End(code, document)


def _idle(context: SweepContext, look: Look, *, as_json: bool) -> End:
    source, held = context.store.source, held_in_sweep(look.pauses, (), 0)
    if as_json:
        return End(ExitCode.DONE, documents.idle_document(source, look.next_due, held))
    print(make_printable(idle_sentence(source, look.next_due)))
    print_held(held)
    return End(ExitCode.DONE)


def _unbegun(context: SweepContext, *, as_json: bool) -> End:
    source = context.store.source
    if as_json:
        return End(ExitCode.DONE, documents.unbegun_document(source))
    text = f"{source}: the sweep was stopped before it began; the next sweep continues."
    print(make_printable(text))
    return End(ExitCode.DONE)
