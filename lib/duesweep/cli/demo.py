"""`duesweep demo`: shows what duesweep does, on a PostgreSQL server that it starts itself."""

import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duesweep.cli.commands import Printed, command
from duesweep.core.change import MessageFilter
from duesweep.core.errors import ConfigError, ExitCode, SparkError
from duesweep.report.tables import print_blocks
from duesweep.report.text import Column, Table

if TYPE_CHECKING:
    from duesweep.core.account import SweepReport
    from duesweep.operations.demo.traffic import Traffic
    from duesweep.operations.duesweep import Duesweep

app = typer.Typer()

_SCHEMA = "public"
_ERROR_QUEUE = "error"
# The second sweep tries the failed messages again, for the last time.
_MAX_ATTEMPTS = 2
_RETRY_SECONDS = 1.0
# Fewer than a sweep may exhaust by default.
_MOST_UNKNOWN = 200
_SHOWN = 4

# The content of each table of the ledger.
_TABLES = {
    "tombstones": "one row for every message that left the store",
    "retries": "messages that failed and are still in the store",
    "errors": "messages out of attempts, with headers and body",
    "sweeps": "one row a sweep",
}


@command(
    app,
    "demo",
    ending="run it again: it starts over",
    short="Try duesweep with its own PostgreSQL server.",
    document=None,
)
def demo(
    *,
    folder: Annotated[Path, typer.Option(help="The folder for the demonstration's data.")] = Path(
        "build/demo"
    ),
    messages: Annotated[int, typer.Option(min=100, help="How many messages to load.")] = 20_000,
) -> Printed:
    """Sweep 20,000 messages in an embedded PostgreSQL twice, and show the ledger.

    Example: duesweep demo --messages 1000
    """
    from duesweep.operations.demo.folder import clear_folder, lock_folder, write_config
    from duesweep.operations.demo.server import EmbeddedServer
    from duesweep.operations.duesweep import Duesweep
    from duesweep.operations.opening import make_spark_ready

    folder = folder.absolute()
    restart = shlex.join([sys.executable, "-m", "duesweep.operations.demo.server", str(folder)])
    server = EmbeddedServer(folder)
    with ExitStack() as running:
        running.enter_context(_end_at_hangup())
        running.enter_context(lock_folder(folder))
        # Before a server waits for it. If it cannot be, step 4 says why.
        with suppress(ConfigError, SparkError):
            make_spark_ready()
        _say(f"duesweep demo, in {folder}")
        comment = f"Written by `duesweep demo`. Start its database again: {restart}"
        config = write_config(folder / "duesweep.toml", _settings(folder, server.dsn), comment)
        # Not before the environment is known to lead to no other database.
        if clear_folder(folder):
            _say("Deleted the data of an earlier demonstration.")
        with _step("1. Starting a PostgreSQL server for the demonstration"):
            running.enter_context(server)
        is_as_expected = _show(Duesweep(config), _traffic_of(messages))
        server.stop("fast")
    ledger = folder / "ledger"
    _say("9. The PostgreSQL server is stopped. All files are still there:")
    _say(f"   ledger         {ledger}")
    _say(f"                  any reader of Delta tables shows delta.`{ledger}/tombstones`")
    _say(f"   configuration  {folder / 'duesweep.toml'}, for `sweep --config`")
    _say(f"   database       {restart}")
    _say(f"                  starts it again, until Ctrl-C: psql {shlex.quote(server.dsn)}")
    return Printed({"exit_code": ExitCode.DONE if is_as_expected else ExitCode.UNEXPECTED}, ())


def _settings(folder: Path, dsn: str) -> Mapping[str, Mapping[str, object]]:
    """The demonstration's settings; all others have their defaults."""
    from duesweep.operations.demo.traffic import ENDPOINT

    return {
        "store": {"kind": "postgresql", "dsn": dsn, "endpoint": ENDPOINT, "schema": _SCHEMA},
        "retry": {
            "max_attempts": _MAX_ATTEMPTS,
            "initial_seconds": _RETRY_SECONDS,
            "error_queue": _ERROR_QUEUE,
        },
        "ledger": {"root": str(folder / "ledger")},
    }


def _traffic_of(messages: int) -> "Traffic":
    """`messages` in all: most are due, some are not, a few cannot be delivered."""
    from duesweep.operations.demo.traffic import Traffic

    unknown = min(_MOST_UNKNOWN, max(2, messages // 1000))
    unreadable = max(1, unknown // 2)
    not_due = messages // 20
    due = messages - not_due - unknown - unreadable
    return Traffic(due, not_due=not_due, unknown=unknown, unreadable=unreadable)


def _show(stored: "Duesweep", traffic: "Traffic") -> bool:
    """Set up, load, sweep twice, show. Returns whether all is as expected."""
    from duesweep.operations.demo import traffic as tables
    from duesweep.operations.demo.traffic import DESTINATIONS, ENDPOINT, UNKNOWN_QUEUE, stored_now
    from duesweep.operations.duesweep import Duesweep
    from duesweep.operations.opening import open_spark
    from duesweep.report.views import exhausted, messages

    addresses = [*DESTINATIONS, _ERROR_QUEUE]
    dsn = stored.config.store.dsn.get_secret_value()
    with _step(
        f"2. Setting up endpoint {ENDPOINT} with `duesweep setup`, and creating other queues"
    ):
        stored.setup()
        tables.create_schemas(dsn)
        queues = _create_queues(stored, addresses)
    with _step(f"3. Loading {traffic.messages:,} delayed messages"):
        tables.load_into(dsn, f'"{_SCHEMA}"."{ENDPOINT}.Delayed"', traffic, stored_now(dsn))
    _say(f"   due, for {len(DESTINATIONS)} queues: {traffic.due:,};")
    _say(f"   due, for a queue that does not exist ({UNKNOWN_QUEUE}): {traffic.unknown:,};")
    _say(f"   due, with truncated headers: {traffic.unreadable:,};")
    _say(f"   due in some hours: {traffic.not_due:,}.")
    with _step("4. Starting Spark"):
        try:
            one, without = Duesweep(stored.config, open_spark()), None
        except (ConfigError, SparkError) as error:
            one, without = stored, error.problem
    if without is not None:
        _say(f"   This process sweeps, without it: {without.sentences}")
    _say("5. First sweep: due messages go to the queues of their destinations.")
    first = _sweep(one)
    if without is None:
        _say("   A session's first sweep is slow: Spark loads and compiles itself.")
    _say(f"   {first.failed:,} failed. They stay in the store and will be tried again later. Of")
    _say("   these, `duesweep list --failing` shows the ones due first:")
    failing = one.list(MessageFilter(is_failing=True), most=_SHOWN)
    print_blocks(messages.first_messages(failing.messages, failing.now, is_failing=True))
    time.sleep(_RETRY_SECONDS)
    _say(f"6. Second sweep: they fail again. {_MAX_ATTEMPTS} attempts are the limit here.")
    second = _sweep(one)
    _say(f"   They left the store for the ledger's table `errors` and the queue `{_ERROR_QUEUE}`.")
    _say("   `duesweep errors list` shows them in groups:")
    print_blocks(exhausted.groups(one.error_groups()))
    _say("7. The ledger, four Delta tables:")
    rows = [[name, f"{stored.table(name).num_rows:,}", holds] for name, holds in _TABLES.items()]
    print_blocks([Table([Column("table"), Column("rows", is_number=True), Column("holds")], rows)])
    _say("8. Check: the tables in the database and the ledger, and `duesweep audit`:")
    found = tables.count_rows(dsn, queues)
    expected = (traffic.due, traffic.faulty, traffic.faulty)
    is_swept = (first.dispatched, first.failed, second.exhausted) == expected
    if _show_account(stored, found, traffic.messages) and is_swept:
        _say(f"   All {traffic.messages:,} messages are accounted for; none is lost or doubled.")
        return True
    _say("   They differ. This is a defect: please report it, with the output above.")
    return False


def _create_queues(stored: "Duesweep", addresses: Sequence[str | None]) -> Sequence[str]:
    """Create the queues at these addresses; the names of their tables."""
    from duesweep.config.adapters.roles import queue_step

    step = queue_step(stored.config, addresses)
    step.install(rebind=False)
    return [str(queue.table) for queue in step.queues]


def _sweep(one: "Duesweep") -> "SweepReport":
    from duesweep.report.views import runs

    run = one.sweep()
    print_blocks(runs.run_blocks(run, one.context))
    _say(f"   That took {run.seconds:.1f} s, including the write to the ledger.")
    assert run.report is not None  # there are due messages, and no limit
    return run.report


def _show_account(one: "Duesweep", found: Mapping[str, tuple[int, int]], loaded: int) -> bool:
    """Compare each queue table with its tombstones, and the messages in the store with messages
    that have no tombstone. `found`: the rows of each queue, and how many of them are there twice.
    The table `retries` has to be empty, and an audit to find nothing. Returns whether all agrees.
    """
    audited = one.audit()
    counts = one.table("tombstones")["queue"].value_counts().to_pylist()
    recorded = {str(each["values"]): int(each["counts"]) for each in counts}
    lines = [
        *((f"queue {queue}", rows, recorded.get(queue, 0)) for queue, (rows, _) in found.items()),
        *((f"queue {queue}", 0, recorded[queue]) for queue in recorded.keys() - found.keys()),
        ("store", audited.stored, loaded - sum(recorded.values())),
        ("ledger table retries", one.table("retries").num_rows, 0),
        ("messages twice in a queue", sum(twice for _, twice in found.values()), 0),
        ("suspects of `duesweep audit`", len(audited.suspects), 0),
    ]
    columns = [
        Column("location"),
        Column("messages there", is_number=True),
        Column("the ledger says", is_number=True),
        Column(""),
    ]
    rows = [
        [name, f"{there:,}", f"{told:,}", "agrees" if there == told else "DIFFERS"]
        for name, there, told in lines
    ]
    print_blocks([Table(columns, rows)])
    return all(there == told for _, there, told in lines)


def _say(text: str, end: str = "\n") -> None:
    """Print a line at once, also into a pipe."""
    print(text, end=end, flush=True)


@contextmanager
def _step(text: str) -> Iterator[None]:
    """Print the step before the block, and its seconds after it."""
    _say(f"{text} … ", end="")
    started = time.monotonic()
    try:
        yield
    except BaseException:
        _say("")
        raise
    _say(f"{time.monotonic() - started:.1f} s")


@contextmanager
def _end_at_hangup() -> Iterator[None]:
    """End as by Ctrl-C on SIGHUP, so that the server is always stopped."""
    before = signal.signal(signal.SIGHUP, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
