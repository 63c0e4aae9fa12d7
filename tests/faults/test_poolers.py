"""Behind a real PgBouncer: with a process for each session all commands work. Any other mode is
refused, before another program of the pool notices anything.
"""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from duesweep.core.errors import PoolerError, StoreError
from duesweep.core.policy import DEFAULT_TIMEOUTS
from duesweep.drivers.postgresql import pooler as checks
from duesweep.drivers.postgresql.session import connect
from duesweep.operations.watch import Ticker
from duesweep.sweep.stop import Stop
from support.endpoint import Endpoint
from support.pooler import pooler
from support.ports import free_port
from support.sweeps import run_sweep

if TYPE_CHECKING:
    from duesweep.sweep.job import Engine

# Each opens a session.
COMMANDS: Sequence[Sequence[str]] = (
    ["setup"],
    ["sweep"],
    ["watch"],
    ["plan"],
    ["list"],
    ["show", "--message-id", "none"],
    ["cancel", "--all", "--reason", "a test", "--yes"],
    ["reschedule", "--all", "--by", "1h", "--reason", "a test", "--yes"],
    ["pause", "Billing", "--reason", "a test"],
    ["paused"],
    ["audit"],
    ["queue", "send", "Billing", "--delay", "1h"],
    ["queue", "peek", "Billing"],
)
_SETTINGS = "SELECT name, setting FROM pg_settings ORDER BY name"
_LOCKS = """
SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
WHERE l.locktype = 'advisory' AND d.datname = current_database()
"""


def _other(dsn: str) -> "psycopg.Connection[Any]":
    """A session of another program in the pool."""
    return psycopg.connect(dsn, autocommit=True, application_name="other")


def _settings(dsn: str) -> dict[str, str]:
    with closing(_other(dsn)) as other:
        return dict(other.execute(_SETTINGS).fetchall())


@pytest.fixture
def waiting(endpoint: Endpoint) -> Endpoint:
    endpoint.set_up("Billing")
    endpoint.delay_many(20)
    return endpoint


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_pool_that_lends_processes_to_others_is_refused_before_a_setting_changes(
    mode: str, waiting: Endpoint, open_folder: Path
) -> None:
    with pooler(waiting.dsn, open_folder, mode, default_pool_size=3) as pooled:
        # It remembers the settings that it had at its start.
        before = _settings(pooled)
        for command in COMMANDS:
            ran = waiting.run(*command, store__dsn=pooled)

            assert ran.code == 2, (command, ran)
            assert "pool_mode = session" in ran.told, (command, ran)
            assert _settings(pooled) == before, command
        found = waiting.document("doctor", "--no-spark", code=3, store__dsn=pooled)

        assert [each["check"] for each in found["findings"] if each["severity"] == "fault"] == [
            "pooler"
        ]
        assert not waiting.fetch(_LOCKS)
        assert len(waiting.waiting()) == 20


def test_pool_of_a_queues_server_is_looked_at_too(waiting: Endpoint, open_folder: Path) -> None:
    queues = {"queues__default__kind": "postgresql"}
    with pooler(waiting.dsn, open_folder, "transaction") as pooled:
        ran = waiting.run("sweep", **queues, queues__default__dsn=pooled)

    assert ran.code == 2, ran
    assert "pool_mode = session" in ran.told


@pytest.mark.parametrize("size", [1, 2, 20])
@pytest.mark.parametrize("is_fair", [0, 1], ids=["last in first out", "round robin"])
def test_mode_is_known_for_certain_while_others_work(
    size: int, is_fair: int, database: str, open_folder: Path
) -> None:
    settings = {"default_pool_size": size, "server_round_robin": is_fair}
    with pooler(database, open_folder, "transaction", **settings) as pooled, ExitStack() as stack:
        # They keep all processes but one busy in turn.
        others = [stack.enter_context(closing(_other(pooled))) for _ in range(min(size, 4))]
        for turn in range(10):
            for number, other in enumerate(others[1:]):
                other.execute("BEGIN" if (turn + number) % 3 else "SELECT 1")
            with pytest.raises(PoolerError):
                connect(pooled, DEFAULT_TIMEOUTS.task)
            for other in others:
                other.rollback()


def test_process_of_a_pooler_that_shares_its_port_is_not_taken_for_a_sessions_own(
    database: str, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second session may get to another pooler than the first one."""
    monkeypatch.setattr(checks, "DELIVERY_SECONDS", 0.5)
    with (
        pooler(database, open_folder, "transaction") as first,
        pooler(database, open_folder, "transaction") as second,
        closing(_other(first)) as raw,
        pytest.raises(PoolerError),
    ):
        checks.refuse_shared(raw, None, lambda: _other(second))


def test_every_command_works_in_session_mode_by_pgbouncers_defaults(
    endpoint: Endpoint, open_folder: Path
) -> None:
    with pooler(endpoint.dsn, open_folder, "session") as pooled:
        pooled_endpoint = endpoint.having(store__dsn=pooled)
        pooled_endpoint.set_up("Billing")
        pooled_endpoint.delay_many(20)
        for command in COMMANDS:
            if command[0] != "watch":
                ran = pooled_endpoint.run(*command)
                assert ran.code == (3 if command[0] == "show" else 0), (command, ran)
        report = str(endpoint.folder / "report.html")
        assert pooled_endpoint.run("report", "--out", report).code == 0
        found = pooled_endpoint.document("doctor", "--no-spark")

        assert found["worst"] == "ok"
        assert len(endpoint.queue_rows("Billing")) == 20


@pytest.mark.parametrize("engine", [None, pytest.param("spark", marks=pytest.mark.on_spark)])
def test_sessions_leave_a_pool_as_it_was_where_it_puts_nothing_back_itself(
    engine: str | None, waiting: Endpoint, open_folder: Path, request: pytest.FixtureRequest
) -> None:
    on: Engine | None = None
    if engine:
        from duesweep.sweep.spark import SparkEngine  # noqa: PLC0415 - loads Spark

        on = SparkEngine(request.getfixturevalue("spark"))
    settings = {"server_reset_query": "", "default_pool_size": 10}
    with pooler(waiting.dsn, open_folder, "session", **settings) as pooled:
        with ExitStack() as stack:
            others = [stack.enter_context(closing(_other(pooled))) for _ in range(10)]
            for number, other in enumerate(others):
                other.execute(f"SET lock_timeout = {number + 77_000}".encode())
                other.execute(b"SET search_path = public")
        report = run_sweep(waiting.having(store__dsn=pooled), on)

        assert report.dispatched == 20
        assert not waiting.fetch(_LOCKS)
        with ExitStack() as stack:
            others = [stack.enter_context(closing(_other(pooled))) for _ in range(10)]
            found = [dict(other.execute(_SETTINGS).fetchall()) for other in others]
        assert sorted(each["lock_timeout"] for each in found) == [
            str(number + 77_000) for number in range(10)
        ]
        assert {each["search_path"] for each in found} == {"public"}
        assert {each["statement_timeout"] for each in found} == {"0"}
        assert {each["idle_in_transaction_session_timeout"] for each in found} == {"0"}


def test_watcher_delivers_again_when_the_pool_is_back(waiting: Endpoint, open_folder: Path) -> None:
    port = free_port()
    with pooler(waiting.dsn, open_folder, "session", port=port, query_wait_timeout=1) as pooled:
        ticker = Ticker(waiting.having(store__dsn=pooled).context(), Stop(), has_spark=False)
        assert ticker.tick().has_moved
    with pytest.raises(StoreError) as gone:
        ticker.tick()
    with (
        pooler(waiting.dsn, open_folder, "session", port=port, max_client_conn=1) as pooled,
        closing(_other(pooled)),
        pytest.raises(StoreError) as full,
    ):
        ticker.tick()
    waiting.delay()
    with pooler(waiting.dsn, open_folder, "session", port=port):
        again = ticker.tick()
        ticker.close()

    assert (gone.value.transient, full.value.transient) == (True, True)
    assert "no more connections allowed (max_client_conn)" in str(full.value)
    assert "password" not in str(full.value)
    assert again.has_moved
