"""`duesweep demo`: shows what duesweep does, on a PostgreSQL server that it starts itself."""

import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from duesweep import config as configuration
from duesweep.config.adapters.endpoint import ledger_root, sweep_context
from duesweep.core.account import SweepSummary
from duesweep.core.errors import ExitCode
from duesweep.demo import ledger_view
from duesweep.demo.console import say, step
from duesweep.demo.stage import (
    ERROR_QUEUE,
    MAX_ATTEMPTS,
    RETRY_SECONDS,
    Stage,
    create_tables,
    load_messages,
    settings,
    traffic_of,
)
from duesweep.drivers.spark import spark_session
from duesweep.ledger.spark import SparkTables
from duesweep.report.progress import configure_logging, create_watch
from duesweep.report.runs import print_summary
from duesweep.sweep.spark import SparkEngine
from duesweep.sweep.sweep import sweep
from duesweep_testing.folder import clear_folder, lock_folder, write_config
from duesweep_testing.server import EmbeddedServer
from duesweep_testing.traffic import (
    DESTINATIONS,
    ENDPOINT,
    UNKNOWN_QUEUE,
    Traffic,
)

_INTERRUPTED = 130


def run(folder: Path, messages: int) -> int:
    """Load `messages` messages, sweep twice, show the ledger. Returns 0 if all is as expected."""
    configure_logging()
    folder = folder.absolute()
    try:
        with _interrupt_on_signals(), lock_folder(folder):
            return _run(folder, traffic_of(messages))
    except KeyboardInterrupt:
        say("\nInterrupted. The PostgreSQL server is stopped.")
        return _INTERRUPTED


def _run(folder: Path, traffic: Traffic) -> int:
    say(f"duesweep demo, in {folder}")
    if clear_folder(folder):
        say("Deleted what an earlier demonstration left there.")
    server = EmbeddedServer(folder)
    config = write_config(
        folder / "duesweep.toml",
        settings(folder, server.dsn),
        f"Written by `duesweep demo`. Start its database again: {_restart_command(folder)}",
    )
    stage = Stage(folder, traffic, config)
    with ExitStack() as running:
        with step("1. Starting a PostgreSQL server for the demonstration"):
            running.enter_context(server)
        is_as_expected = _show(stage)
        server.stop("fast")
    _print_locations(stage)
    return ExitCode.DONE if is_as_expected else ExitCode.UNEXPECTED


def _show(stage: Stage) -> bool:
    _prepare(stage)
    with step("4. Starting Spark"):
        ledger = SparkTables(
            spark_session(configuration.jars()), sweep_context(stage.config).ledger_root
        )
        # PySpark's own handler calls the JVM while another call to the JVM may be running.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    say("5. First sweep: due messages go to the queues of their destinations.")
    first = _sweep(stage, ledger)
    say("   A session's first sweep is slow: Spark loads and compiles itself.")
    say(f"   {first.failed:,} failed. They stay in the store and will be tried again later:")
    ledger_view.show(ledger, ledger_view.RETRIES)
    time.sleep(RETRY_SECONDS)
    say(f"6. Second sweep: they fail again. {MAX_ATTEMPTS} attempts are the limit here.")
    second = _sweep(stage, ledger)
    say(f"   They left the store for the ledger's table `errors` and the queue `{ERROR_QUEUE}`.")
    say("7. The ledger, four Delta tables. `retries` is empty again; the others:")
    for each in (ledger_view.TOMBSTONES, ledger_view.ERRORS, ledger_view.SWEEPS):
        ledger_view.show(ledger, each)
    return _is_as_expected(stage, ledger, first, second)


def _prepare(stage: Stage) -> None:
    with step(
        f"2. Setting up endpoint {ENDPOINT} with `duesweep setup`, and creating other queues"
    ):
        create_tables(stage)
    with step(f"3. Loading {stage.traffic.messages:,} delayed messages"):
        load_messages(stage)
    traffic = stage.traffic
    say(f"   {traffic.due:,} are due, to {len(DESTINATIONS)} queues;")
    say(f"   {traffic.unknown:,} are due, but to a queue that does not exist ({UNKNOWN_QUEUE});")
    say(f"   {traffic.unreadable:,} are due, but their headers are cut short;")
    say(f"   {traffic.not_due:,} are not due for hours.")


def _sweep(stage: Stage, ledger: SparkTables) -> SweepSummary:
    context = sweep_context(stage.config)
    started = time.monotonic()
    summary = sweep(SparkEngine(ledger.spark), context, create_watch(context.store))
    print_summary(summary)
    say(f"   That took {time.monotonic() - started:.1f} s, including the write to the ledger.")
    return summary


def _is_as_expected(
    stage: Stage, ledger: SparkTables, first: SweepSummary, second: SweepSummary
) -> bool:
    traffic = stage.traffic
    entries = ledger_view.account(
        ledger, stage.dsn, stage.delayed, stage.queues, loaded=traffic.messages
    )
    say("8. Check: the tables in the database and the ledger:")
    ledger_view.show_account(entries)
    expected = (traffic.due, traffic.faulty, traffic.faulty)
    agrees = all(entry.agrees for entry in entries)
    agrees = agrees and (first.dispatched, first.failed, second.exhausted) == expected
    if agrees:
        say(f"   All {traffic.messages:,} messages are accounted for; none is lost or doubled.")
    else:
        say("   They differ. This is a defect: please report it, with the output above.")
    return agrees


def _print_locations(stage: Stage) -> None:
    ledger = ledger_root(stage.config.ledger.root)
    say("9. The PostgreSQL server is stopped. All files are still there:")
    say(f"   ledger         {ledger}")
    say(f"                  any reader of Delta tables: SELECT * FROM delta.`{ledger}/tombstones`")
    say(f"   configuration  {stage.folder / 'duesweep.toml'}, for `sweep --config`")
    say(f"   database       {_restart_command(stage.folder)}")
    say(f"                  starts it again, until Ctrl-C: psql {stage.dsn}")


def _restart_command(folder: Path) -> str:
    return shlex.join([sys.executable, "-m", "duesweep_testing.server", str(folder)])


@contextmanager
def _interrupt_on_signals() -> Iterator[None]:
    """End as by Ctrl-C on SIGTERM and SIGHUP, so that the server is always stopped."""
    signals = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(each, signal.default_int_handler) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)
