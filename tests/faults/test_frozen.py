"""A process that is frozen keeps its leases for ten seconds, and a lock of a file for as long as it
is: no delivery may wait for it.
"""

import fcntl
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from support.commands import run, run_python
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import end_leases
from support.trials.points import FREEZE, Plan
from support.trials.processes import SweepCommand
from support.waiting import until
from support.watcher import watching

# Other points: bench/run frozen.
_HOLDING_BOTH_LOCKS = "before LedgerTables.write(tombstones)"
_ON_TWO_CONNECTIONS = """
queues.here.kind = "postgresql"
queues.there.dsn = "{dsn}"
route = [
  {{ destination = "Billing", connection = "here" }},
  {{ destination = "Slow*", connection = "there" }},
]
"""


@contextmanager
def _frozen(
    endpoint: Endpoint, folder: Path, point: str, words: Sequence[str] = ("sweep",)
) -> Iterator[SweepCommand]:
    """A command, such as a sweep, that is frozen at a point; in the end it continues."""
    plan = Plan(str(folder), point, action=FREEZE)
    command = SweepCommand(folder, plan, [*words, "--config", str(endpoint.config_file())])
    try:
        until(lambda: plan.fired.exists() and _is_stopped(command.pid))
        yield command
    finally:
        if not command.is_over:
            os.kill(command.pid, signal.SIGCONT)
        assert command.wait(120).code is not None


@contextmanager
def _locked_ledger(endpoint: Endpoint) -> Iterator[None]:
    root = endpoint.folder / "ledger"
    root.mkdir(exist_ok=True)
    with (root / ".duesweep.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _sweep(endpoint: Endpoint) -> int:
    return endpoint.run("sweep").code


@pytest.mark.parametrize(
    "point", ["before Sweeps.close", "after Journal.seal", "before Journal.delete_settled"]
)
def test_sweep_that_is_frozen_for_longer_than_a_lease_is_settled_once_by_another_one(
    point: str, endpoint: Endpoint, ledger: LedgerReader, tmp_path: Path
) -> None:
    endpoint.set_up("Billing")
    keys = endpoint.delay_many(5)
    with _frozen(endpoint, tmp_path, point):
        end_leases(endpoint)
        keys.append(endpoint.delay())

        assert _sweep(endpoint) == 0

        assert sorted(row.message_key for row in ledger.rows("tombstones")) == sorted(keys)
        assert endpoint.fetch("SELECT FROM duesweep_sweeps") == []
    assert sorted(row.message_key for row in ledger.rows("tombstones")) == sorted(keys)
    assert ledger.count("sweeps") == 2
    assert len(endpoint.queue_rows("Billing")) == 6
    assert endpoint.document("audit")["findings"] == []


@pytest.mark.parametrize("other_is_over", [False, True])
def test_restore_that_was_frozen_before_it_began_puts_no_message_back_twice(
    endpoint: Endpoint, tmp_path: Path, *, other_is_over: bool
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(3)
    cancelled = endpoint.document("cancel", "--all", "--reason", "a test", "--yes")
    words = ["restore", "--command", cancelled["command_id"], "--reason", "a test", "--yes"]
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    with _frozen(endpoint, folders[0], "before Sweeps.open", words) as first:
        end_leases(endpoint)
        if other_is_over:
            assert endpoint.run(*words).code == 0
            os.kill(first.pid, signal.SIGCONT)
            first.wait(120)
        else:
            with _frozen(endpoint, folders[1], "before Sweeps.close", words):
                os.kill(first.pid, signal.SIGCONT)
                assert first.wait(120).code == 4

    assert len(endpoint.waiting()) == 3
    assert _sweep(endpoint) == 0
    assert len(endpoint.queue_rows("Billing")) == 3
    assert endpoint.document("audit")["findings"] == []


def test_abort_stops_a_sweep_that_is_frozen_for_longer_than_a_lease(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(30)
    batches = endpoint.having(sweep__batch_rows=10, sweep__slices=1)
    with _frozen(batches, tmp_path, "after COMMIT of TaskSession.transaction"):
        end_leases(endpoint)
        delivered = len(endpoint.queue_rows("Billing"))

        assert endpoint.document("handover", "--abort")["stopped"] == 1

    assert len(endpoint.queue_rows("Billing")) == delivered < 30


def test_watcher_beside_a_frozen_settler_delivers_and_settles_later(
    endpoint: Endpoint, ledger: LedgerReader, tmp_path: Path
) -> None:
    endpoint.set_up("Billing")
    keys = [endpoint.delay()]
    with _frozen(endpoint, tmp_path, _HOLDING_BOTH_LOCKS):
        with watching(endpoint.config_file(), "--port", "0") as watcher:
            for count in range(2, 6):
                keys.append(endpoint.delay())
                until(lambda wanted=count: len(endpoint.queue_rows("Billing")) == wanted)
            until(lambda: watcher.events("waiting"))
            assert watcher.health()[0] == 200
            # All that it swept by then waits in few sweeps for the ledger.
            assert len(endpoint.fetch("SELECT FROM duesweep_sweeps")) <= 3
            assert watcher.end() == 0
        assert "since" in watcher.events("waiting")[0]["reason"]
        assert ledger.count("tombstones") == 0
    assert _sweep(endpoint) in {0, 4}
    assert _sweep(endpoint) == 0

    assert sorted(row.message_key for row in ledger.rows("tombstones")) == sorted(keys)
    assert endpoint.fetch("SELECT FROM duesweep_sweeps") == []
    assert endpoint.run("audit").code == 0


def test_watcher_without_its_ledger_sweeps_what_was_due_before_and_survives_its_session(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing", "Late")
    endpoint.delay()
    assert _sweep(endpoint) == 0
    with watching(endpoint.config_file()) as watcher:
        with _locked_ledger(endpoint):
            for count in range(2, 6):
                endpoint.delay(due_in_seconds=0)
                until(lambda wanted=count: len(endpoint.queue_rows("Billing")) == wanted)
            endpoint.delay("Late", due_in_seconds=-3600)
            until(lambda: len(endpoint.queue_rows("Late")) == 1)
            endpoint.server.kill_sessions()
            endpoint.delay("Late", due_in_seconds=0)
            until(lambda: len(endpoint.queue_rows("Late")) == 2)
        until(lambda: ledger.count("tombstones") == 7)
        assert watcher.end() == 0
    assert _sweep(endpoint) == 0

    assert "abandoned" not in {row.outcome for row in ledger.rows("sweeps")}
    assert endpoint.run("audit").code == 0


@pytest.mark.parametrize("point", ["after Journal.seal", _HOLDING_BOTH_LOCKS])
def test_sweep_beside_a_frozen_settler_dispatches_and_names_it(
    endpoint: Endpoint,
    ledger: LedgerReader,
    tmp_path: Path,
    point: str,
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay()
    with _frozen(endpoint, tmp_path, point) as frozen:
        endpoint.delay()

        swept = endpoint.run("sweep")

        assert (swept.code, f"Process {frozen.pid} on " in swept.err) == (4, True)
        assert "since 20" in swept.err
        assert len(endpoint.queue_rows("Billing")) == 2
        assert ledger.count("tombstones") == 0
    assert _sweep(endpoint) == 0
    assert ledger.count("tombstones") == 2


def test_sweep_that_can_only_settle_and_cannot_is_one_document(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    other = endpoint.named("Other").set_up()
    endpoint.delay()
    assert _sweep(endpoint) == 0
    endpoint.delay()
    fleet = endpoint.fleet_file(*(f'store.endpoint = "{one.name}"' for one in (endpoint, other)))
    with _locked_ledger(endpoint):
        assert _sweep(endpoint) == 4

        alone = endpoint.document("sweep", code=4)
        swept = run("sweep", "--json", "--config", str(fleet))

    assert swept.code == 4
    both = swept.document
    of_fleet = next(each for each in both["sources"] if each["exit_code"] == 4)
    for document in (alone, of_fleet):
        assert (document["outcome"], document["dispatched"]) == ("idle", 0)
        assert "lock of the ledger" in document["ledger_error"]
        assert document["error"] == document["ledger_error"]


def test_first_sweep_whose_ledger_is_locked_dispatches_nothing(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    endpoint.delay()
    with _locked_ledger(endpoint):
        assert _sweep(endpoint) == 4

    assert endpoint.queue_rows("Billing") == []
    assert _sweep(endpoint) == 0


def test_ledger_is_not_locked_while_the_journal_is_read(
    endpoint: Endpoint, ledger: LedgerReader, tmp_path: Path
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay()
    with _frozen(endpoint, tmp_path, "after Journal.seal"):
        lock = ledger.root / ".duesweep.lock"
        script = (
            "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        )

        assert run_python("-c", script, lock).code == 0


def test_batch_that_waits_for_another_server_is_not_taken_for_a_frozen_one(
    endpoint: Endpoint,
) -> None:
    destinations = ("Billing", "Slow", "Slower")
    endpoint.set_up(*destinations)
    file = endpoint.config_file(breaker__trigger_seconds=1)
    with file.open("a") as text:
        text.write(_ON_TWO_CONNECTIONS.format(dsn=endpoint.dsn))
    for destination in destinations:
        endpoint.delay(destination)
    with psycopg.connect(endpoint.dsn) as other:
        # The store's session has nothing to do until both have been given up.
        for destination in destinations[1:]:
            table = endpoint.server.sql(endpoint.schema, destination)
            other.execute(f"LOCK TABLE {table} IN SHARE MODE")

        assert run("sweep", "--config", str(file)).code == 4

    assert len(endpoint.queue_rows("Billing")) == 1
    assert _sweep(endpoint) == 0


@pytest.mark.parametrize(
    "point",
    [
        "after TaskSession.claim",
        "after QueueSession.deliver",
        "before COMMIT of TaskSession.transaction",
    ],
)
def test_sweep_that_was_frozen_in_a_batch_does_it_again_on_a_new_session(
    endpoint: Endpoint, tmp_path: Path, point: str
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(2)
    with _frozen(endpoint, tmp_path, point) as frozen:
        # Until the server has taken the messages from it.
        until(
            lambda: (
                not endpoint.fetch(
                    "SELECT FROM pg_stat_activity"
                    " WHERE datname = current_database() AND state = 'idle in transaction'"
                )
            )
        )

    assert frozen.wait(0).code == 0
    assert len(endpoint.queue_rows("Billing")) == 2
