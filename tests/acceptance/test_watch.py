"""`duesweep watch`, as systemd or a container runs it."""

import http.client
import json
import resource
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from duesweep.core.world import LEDGER, SettableClock, World
from duesweep.operations.demo.server import EmbeddedServer
from duesweep.operations.watch import MOST_TICK_SECONDS, Ticker
from duesweep.report.metrics import Metrics, Sample
from duesweep.stores.base import DriverSession, Store
from duesweep.stores.sql_due import SqlDue
from duesweep.sweep.stop import Stop
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.ledger_reader import LedgerReader
from support.ports import free_port
from support.postgresql_server import endpoint_in_postgresql
from support.slow_clients import slow_clients
from support.waiting import until
from support.watcher import Watcher, watching

# Triggers that make each batch into a queue take a while; Babelfish has no WAITFOR.
_SLOW = {
    "postgresql": "CREATE FUNCTION wait_a_while() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN PERFORM pg_sleep(0.2); RETURN NULL; END $$;"
    " CREATE TRIGGER slow AFTER INSERT ON {queue} FOR EACH STATEMENT"
    " EXECUTE FUNCTION wait_a_while()",
    "sqlserver": "CREATE TRIGGER slow ON {queue} AFTER INSERT AS BEGIN SET NOCOUNT ON;"
    " DECLARE @end datetime2 = DATEADD(millisecond, 200, SYSUTCDATETIME());"
    " WHILE SYSUTCDATETIME() < @end SET @end = @end END",
}


def _assert_one_tombstone_each_and_none_early(ledger: LedgerReader, keys: Sequence[str]) -> None:
    tombstones = ledger.rows("tombstones")
    assert sorted(row.message_key for row in tombstones) == sorted(keys)
    early = [row for row in tombstones if row.dispatched_at < row.due]
    assert early == []


@ON_BOTH_SERVERS
def test_messages_leave_when_they_are_due_and_sigterm_ends_it_with_0(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    keys = [endpoint.delay(due_in_seconds=seconds) for seconds in (-60, 2, 3)]
    endpoint.delay(due_in_seconds=86_400)
    file = endpoint.folder / "healthy"

    with watching(endpoint.config_file(), "--port", "0", "--health-file", str(file)) as watcher:
        until(lambda: len(endpoint.queue_rows("Billing")) == 3)
        until(lambda: watcher.health()[1]["sources"][0]["dispatched"] == 3)
        until(lambda: watcher.metrics().get("dispatched_messages_total") == 3)
        status, health = watcher.health()
        metrics = watcher.metrics()
        page = watcher.page("/")
        assert "Comes due in the next 24 hours" in page
        assert "refreshes itself every 30 seconds" in page
        assert watcher.end() == 0

    assert (status, health["is_well"], health["sources"][0]["error"]) == (200, True, None)
    assert metrics["run_exit_code"] == 0
    assert (metrics["lateness_max_seconds"] >= 60, metrics["due_messages"] >= 0) == (True, True)
    assert file.exists()
    assert len(endpoint.waiting()) == 1
    _assert_one_tombstone_each_and_none_early(ledger, keys)
    assert sum(each["dispatched"] for each in watcher.events("swept")) == 3


@ON_BOTH_SERVERS
def test_signal_finishes_the_batch_in_hand_and_leaves_the_rest(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(500)
    # A batch takes a while, so that the sweep is not done before it is stopped.
    billing = endpoint.server.sql(endpoint.schema, "Billing")
    endpoint.execute(_SLOW[endpoint.kind].format(queue=billing))

    with watching(endpoint.config_file(sweep__batch_rows=5)) as watcher:
        until(lambda: endpoint.queue_rows("Billing"))
        assert watcher.end(signal.SIGINT) == 0

    sent, left = len(endpoint.queue_rows("Billing")), len(endpoint.waiting())
    assert (sent + left, 0 < left < 500) == (500, True)
    assert ledger.count("tombstones") == sent


def test_what_a_slow_look_found_is_swept_all_the_same(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing").delay()
    clock = SettableClock()
    context = replace(endpoint.context(), world=World(clock))
    open_driver = type(context.store).open_driver

    def open_slowly(store: Store) -> DriverSession:
        # The first session is the look's.
        if not clock.seconds():
            clock.advance(10 * MOST_TICK_SECONDS)
        return open_driver(store)

    monkeypatch.setattr(type(context.store), "open_driver", open_slowly)
    ticker = Ticker(context, Stop(clock=clock), has_spark=False)

    tick = ticker.tick()
    ticker.close()

    assert (tick.has_moved, endpoint.waiting()) == (True, [])


def test_tick_that_misses_the_objective_is_told(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay("Billing", due_in_seconds=-60)
    context = endpoint.having(slo__lateness_seconds=50).context()
    ticker, metrics = Ticker(context, Stop(), has_spark=False), Metrics(context.store)

    late = ticker.tick()
    metrics(late)
    told = [
        metrics.figures[Sample(f"duesweep_{name}")] for name in ("run_exit_code", "late_runs_total")
    ]
    in_time = ticker.tick()
    ticker.close()

    assert (late.is_late, late.exit_code, told) == (True, 5, [5, 1])
    assert (in_time.is_late, in_time.exit_code) == (False, 0)


def test_wait_for_the_ledger_is_over_when_others_have_settled(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing").delay(due_in_seconds=3_600)
    monkeypatch.setattr("duesweep.core.world.LONG_SECONDS", -1)
    stop = Stop()
    stop.waits.begin(LEDGER, "Process 7 has held the lock")
    before = [each.what for each in stop.waits.long()]
    ticker = Ticker(endpoint.context(), stop, has_spark=False)

    ticker.tick()
    ticker.close()

    assert (before, stop.waits.long()) == ([LEDGER], [])


def test_slow_clients_of_the_port_stop_no_deliveries(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    with watching(endpoint.config_file(), "--port", "0") as watcher:
        until(lambda: watcher.events("listening"))
        # Fewer than the clients would take.
        resource.prlimit(watcher.process.pid, resource.RLIMIT_NOFILE, (256, 256))
        with slow_clients(watcher.port):
            for count in range(1, 4):
                endpoint.delay_many(20)
                until(lambda count=count: len(endpoint.queue_rows("Billing")) == 20 * count)
                assert json.loads(watcher.page("/live")) == {"is_live": True}
        assert watcher.events("trouble") == []
        assert watcher.end() == 0


@ON_BOTH_SERVERS
def test_one_of_two_that_is_killed_leaves_all_to_the_other(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    with (
        watching(endpoint.config_file(sweep__batch_rows=20), name="first") as first,
        watching(endpoint.config_file(sweep__batch_rows=20), name="second") as second,
    ):
        keys = endpoint.delay_many(2_000)
        until(lambda: endpoint.queue_rows("Billing"))
        first.end(signal.SIGKILL)
        keys += [endpoint.delay(), endpoint.delay(due_in_seconds=1)]
        until(lambda: len(endpoint.queue_rows("Billing")) >= 2_002)
        # The living one settles the work of the dead one.
        until(lambda: ledger.count("tombstones") == 2_002)
        assert second.end() == 0

    _assert_one_tombstone_each_and_none_early(ledger, keys)
    assert len(endpoint.queue_rows("Billing")) == 2_002


def test_server_that_restarts_is_waited_for_and_told_once(
    open_folder: Path, tmp_path: Path
) -> None:
    with EmbeddedServer(open_folder, port=free_port(), trusts_all=True, TimeZone="UTC") as server:
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            endpoint = endpoint_in_postgresql(server.dsn, tmp_path, admin)
            endpoint.set_up("Billing")
            endpoint.delay()
        with watching(endpoint.config_file(), "--port", "0") as watcher:
            until(lambda: watcher.health()[1]["sources"][0]["dispatched"] == 1)
            server.stop()
            until(lambda: watcher.events("trouble"))
            until(lambda: watcher.health()[1]["sources"][0]["error"])
            server.start()
            with psycopg.connect(server.dsn, autocommit=True) as admin:
                endpoint = endpoint_in_postgresql(server.dsn, tmp_path, admin)
                endpoint.delay()
                until(lambda: len(endpoint.queue_rows("Billing")) == 2)
            until(lambda: watcher.events("trouble_is_over"))
            until(lambda: watcher.health()[1]["sources"][0]["error"] is None)
            assert watcher.end() == 0


@ON_BOTH_SERVERS
def test_wrong_setting_ends_it_with_2_and_a_sentence(endpoint: Endpoint) -> None:
    with watching(endpoint.config_file()) as watcher:
        code = watcher.process.wait(120)

    assert code == 2
    assert "duesweep: " in (endpoint.folder / "watch.log").read_text().splitlines()[-1]


def test_large_backlog_is_swept_in_the_watchers_process_and_sighup_ends_it_with_0(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    with watching(endpoint.config_file(sweep__spark_from=100)) as watcher:
        keys = endpoint.delay_many(2_000)
        until(lambda: len(endpoint.queue_rows("Billing")) == 2_000)
        assert watcher.end(signal.SIGHUP) == 0

    assert {row.engine for row in ledger.rows("sweeps")} == {"in-process"}
    _assert_one_tombstone_each_and_none_early(ledger, keys)


def test_tick_of_a_large_backlog_ends_and_the_next_one_continues(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing").delay_many(200)
    billing = endpoint.server.sql(endpoint.schema, "Billing")
    endpoint.execute(_SLOW[endpoint.kind].format(queue=billing))
    monkeypatch.setattr("duesweep.operations.watch.MOST_TICK_SECONDS", 0.5)
    ticker = Ticker(endpoint.context(sweep__batch_rows=5), Stop(), has_spark=False)

    ticks = [ticker.tick(), ticker.tick()]
    ticker.close()

    assert [tick.has_moved for tick in ticks] == [True, True]
    assert 0 < len(endpoint.waiting()) < 200


def test_tick_whose_plan_takes_longer_than_a_tick_delivers(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing").delay_many(200)
    plan = SqlDue.plan_at_once

    calls: list[object] = []

    def slow(session: SqlDue, *arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            # The look leaves the plan to the sweep.
            return None
        threading.Event().wait(1.2)
        return plan(session, *arguments)

    monkeypatch.setattr(SqlDue, "plan_at_once", slow)
    monkeypatch.setattr("duesweep.operations.watch.MOST_TICK_SECONDS", 1)
    ticker = Ticker(endpoint.context(), Stop(), has_spark=False)

    tick = ticker.tick()
    ticker.close()

    assert tick.has_moved
    assert endpoint.waiting() == []


def _status(watcher: Watcher, path: str, method: str = "GET") -> int:
    port = watcher.events("listening")[0]["port"]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path)
        return connection.getresponse().status
    finally:
        connection.close()


@contextmanager
def _unanswered(endpoint: Endpoint) -> Iterator[None]:
    """Within the block, no statement on the delayed table is answered."""
    with psycopg.connect(endpoint.dsn) as other:
        other.execute(f"LOCK TABLE {endpoint.delayed} IN ACCESS EXCLUSIVE MODE")
        yield


def test_watcher_is_unhealthy_without_answers_of_its_store_and_lives_and_ends_all_the_same(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay()
    with watching(endpoint.config_file(), "--port", "0") as watcher:
        with _unanswered(endpoint):
            until(lambda: watcher.events("waiting"))
            assert (_status(watcher, "/health"), _status(watcher, "/live")) == (503, 200)
            waiting = watcher.health()[1]["sources"][0]["waiting"]
            assert [each["for"] for each in waiting] == ["store"]
            assert watcher.metrics()["waiting_seconds"] > 2
        until(lambda: _status(watcher, "/health", "HEAD") == 200)
        until(lambda: endpoint.queue_rows("Billing"))
        until(lambda: watcher.events("waited"))
        with _unanswered(endpoint):
            until(lambda: _status(watcher, "/health", "HEAD") == 503)
            assert _status(watcher, "/live", "HEAD") == 200
            # It holds no messages, so it does not wait for the answer.
            assert watcher.end() == 0
