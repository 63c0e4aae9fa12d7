"""`duesweep demo`: what duesweep does, shown on a PostgreSQL that it starts itself."""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from duesweep import config as configuration
from duesweep import wiring
from duesweep.address import PostgreSqlAddresses, TableName, quoted
from duesweep.cli import report
from duesweep.config import Config
from duesweep.demo import look
from duesweep.demo.folder import Settings, configured, emptied, kept
from duesweep.demo.messages import DESTINATIONS, ENDPOINT, UNKNOWN_QUEUE, Traffic, generate, load
from duesweep.demo.messages import stored_now
from duesweep.demo.server import EmbeddedServer
from duesweep.demo.telling import say, step
from duesweep.drivers.postgresql import DRIVER_LIMITS, connect
from duesweep.errors import ExitCode
from duesweep.ledger.tables import Ledger
from duesweep.session import spark_session
from duesweep.sql import statement
from duesweep.stores.base import SweepSummary
from duesweep.sweep import sweep

_SCHEMA = "public"
_ERROR_QUEUE = "error"
_MAX_ATTEMPTS = 2
_RETRY_SECONDS = 1.0
_MOST_UNKNOWN = 200
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class _Stage:
    """What the steps share."""

    folder: Path
    traffic: Traffic
    config: Config

    @property
    def dsn(self) -> str:
        return self.config.store.dsn.get_secret_value()

    @property
    def delayed(self) -> TableName:
        return wiring.store(self.config).delayed

    @property
    def queues(self) -> Sequence[TableName]:
        addresses = PostgreSqlAddresses(ENDPOINT, _SCHEMA)
        return [addresses.parse(address) for address in (*DESTINATIONS, _ERROR_QUEUE)]


def run(folder: Path, messages: int) -> int:
    """Load `messages` messages, sweep twice, look at the ledger; 0 when all came as it should."""
    report.configure_logging()
    folder = folder.absolute()
    try:
        with _signals_as_interrupts(), kept(folder):
            return _run(folder, _traffic(messages))
    except KeyboardInterrupt:
        say("\nInterrupted; its PostgreSQL is stopped.")
        return _INTERRUPTED


def _run(folder: Path, traffic: Traffic) -> int:
    say(f"duesweep demo, in {folder}")
    if emptied(folder):
        say("What an earlier demonstration left there is deleted: this one starts anew.")
    server = EmbeddedServer(folder)
    config = configured(
        folder / "duesweep.toml",
        _settings(folder, server),
        f"Written by `duesweep demo`. Start its database again: {_restart_command(folder)}",
    )
    stage = _Stage(folder, traffic, config)
    with ExitStack() as running:
        with step("1. Starting a PostgreSQL of its own"):
            running.enter_context(server)
        is_as_expected = _show(stage)
        server.stop("fast")
    _tell_where(stage)
    return ExitCode.DONE if is_as_expected else ExitCode.UNEXPECTED


def _show(stage: _Stage) -> bool:
    _prepare(stage)
    with step("4. Starting Spark"):
        ledger = Ledger(spark_session(configuration.jars()), wiring.parts(stage.config).ledger_root)
        # PySpark's own handler calls into the JVM, in the middle of another call.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    say("5. First sweep: what is due goes to the queue that it is addressed to.")
    first = _sweep(stage, ledger)
    say("   A session's first sweep is slow: Spark loads and compiles itself.")
    say(f"   {first.failed:,} failed. They stay in the store and are tried again {_RETRY_SECONDS:.0f} s"
        " later at the earliest:")
    look.show(ledger, look.RETRIES)
    time.sleep(_RETRY_SECONDS)
    say(f"6. Second sweep: they fail again, and {_MAX_ATTEMPTS} attempts are all that they get here.")
    second = _sweep(stage, ledger)
    say("   They left the store, each of them whole, for the ledger's table `errors` and, as "
        f"NServiceBus does it, for the queue `{_ERROR_QUEUE}`.")
    say("7. The ledger, four Delta tables. `retries` is empty again; the others:")
    for each in (look.TOMBSTONES, look.ERRORS, look.SWEEPS):
        look.show(ledger, each)
    return _is_as_expected(stage, ledger, first, second)


def _prepare(stage: _Stage) -> None:
    traffic = stage.traffic
    with step(f"2. Setting up endpoint {ENDPOINT} as `duesweep setup` does, and the queues beside it"):
        wiring.installer(stage.config).install(rebind=False)
        with connect(stage.dsn, DRIVER_LIMITS) as connection:
            for queue in stage.queues:
                connection.script(f"CREATE SCHEMA IF NOT EXISTS {quoted(queue.schema)}")
                connection.script(statement("postgresql", "create_queue").format(queue=queue))
    with step(f"3. Loading {traffic.messages:,} delayed messages"):
        rows = generate(traffic, stored_now(stage.dsn))
        with psycopg.connect(stage.dsn) as raw:
            load(raw, stage.delayed, rows)
            raw.execute(f"ANALYZE {stage.delayed}".encode())
    say(f"   {traffic.due:,} are due, to {len(DESTINATIONS)} queues; {traffic.unknown:,} are due to "
        f"a queue that does not exist ({UNKNOWN_QUEUE});")
    say(f"   {traffic.unreadable:,} are due, but their headers are cut short; {traffic.not_due:,} are "
        "not due for hours.")


def _sweep(stage: _Stage, ledger: Ledger) -> SweepSummary:
    parts = wiring.parts(stage.config)
    started = time.monotonic()
    summary = sweep(ledger.spark, parts, report.progress(parts.store))
    report.print_summary(summary)
    say(f"   That took {time.monotonic() - started:.1f} s, the writing of the ledger included.")
    return summary


def _is_as_expected(
    stage: _Stage, ledger: Ledger, first: SweepSummary, second: SweepSummary
) -> bool:
    traffic = stage.traffic
    entries = look.account(ledger, stage.dsn, stage.delayed, stage.queues, traffic.messages)
    say("8. Is it true? The database's tables against the ledger:")
    look.show_account(entries)
    expected = (traffic.due, traffic.faulty, traffic.faulty)
    agrees = all(entry.agrees for entry in entries)
    agrees = agrees and (first.dispatched, first.failed, second.exhausted) == expected
    if agrees:
        say(f"   Yes: all {traffic.messages:,} messages are accounted for, none is lost or doubled.")
    else:
        say("   NO. This should never be: please report it, with the output above.")
    return agrees


def _tell_where(stage: _Stage) -> None:
    ledger = wiring.ledger_root(stage.config.ledger.root)
    say("9. Its PostgreSQL is stopped. All of it is still there:")
    say(f"   ledger         {ledger}")
    say(f"                  any reader of Delta tables: SELECT * FROM delta.`{ledger}/tombstones`")
    say(f"   configuration  {stage.folder / 'duesweep.toml'}, for `sweep --config`")
    say(f"   database       {_restart_command(stage.folder)}")
    say(f"                  starts it again, until Ctrl-C: psql {stage.dsn}")


def _traffic(messages: int) -> Traffic:
    unknown = min(_MOST_UNKNOWN, max(2, messages // 1000))
    unreadable = max(1, unknown // 2)
    not_due = messages // 20
    due = messages - not_due - unknown - unreadable
    return Traffic(due, not_due=not_due, unknown=unknown, unreadable=unreadable)


def _settings(folder: Path, server: EmbeddedServer) -> Settings:
    return {
        "store": {"kind": "postgresql", "dsn": server.dsn, "endpoint": ENDPOINT, "schema": _SCHEMA},
        "retry": {
            "max_attempts": _MAX_ATTEMPTS,
            "initial_seconds": _RETRY_SECONDS,
            "error_queue": _ERROR_QUEUE,
        },
        "ledger": {"root": str(folder / "ledger")},
    }


def _restart_command(folder: Path) -> str:
    return f"{sys.executable} -m duesweep.demo {folder}"


@contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """End as by Ctrl-C when the terminal is closed or somebody says `kill`: the server must not stay."""
    signals = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(each, signal.default_int_handler) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)
