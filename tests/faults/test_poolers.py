"""Behind a real PgBouncer all commands work, whether it lends the server's processes for a session
or for a transaction, and another program of the pool notices nothing. A pool that lends them for a
statement only is refused.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from duesweep.core.errors import StoreError
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
# Not the settings of a language that `setup` loads.
_SETTINGS = "SELECT name, setting FROM pg_settings WHERE name NOT LIKE '%.%' ORDER BY name"
_LOCKS = """
SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
WHERE l.locktype = 'advisory' AND d.datname = current_database()
"""


def _other(dsn: str) -> "psycopg.Connection[Any]":
    """A session of another program in the pool."""
    return psycopg.connect(dsn, autocommit=True, application_name="other", prepare_threshold=None)


def _settings(dsn: str) -> dict[str, str]:
    with closing(_other(dsn)) as other:
        return _own_settings(other)


def _own_settings(other: "psycopg.Connection[Any]") -> dict[str, str]:
    return dict(other.execute(_SETTINGS).fetchall())


@pytest.fixture
def waiting(endpoint: Endpoint) -> Endpoint:
    endpoint.set_up("Billing")
    endpoint.delay_many(20)
    return endpoint


def test_pool_that_lends_processes_for_a_statement_is_refused_before_a_setting_changes(
    waiting: Endpoint, open_folder: Path
) -> None:
    with pooler(waiting.dsn, open_folder, "statement", default_pool_size=3) as pooled:
        # It remembers the settings that it had at its start.
        before = _settings(pooled)
        for command in COMMANDS:
            ran = waiting.run(*command, store__dsn=pooled)

            assert ran.code == 2, (command, ran)
            assert "pool_mode = transaction" in ran.told, (command, ran)
            assert _settings(pooled) == before, command
        found = waiting.document("doctor", "--no-spark", code=3, store__dsn=pooled)

        assert [each["check"] for each in found["findings"] if each["severity"] == "fault"] == [
            "server-reachable"
        ]
        assert len(waiting.waiting()) == 20


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_every_command_works_through_a_pool(
    mode: str, endpoint: Endpoint, open_folder: Path
) -> None:
    with pooler(endpoint.dsn, open_folder, mode) as pooled:
        pooled_endpoint = endpoint.having(store__dsn=pooled)
        before = _settings(pooled)
        pooled_endpoint.set_up("Billing")
        pooled_endpoint.delay_many(20)
        for command in COMMANDS:
            if command[0] != "watch":
                ran = pooled_endpoint.run(*command)
                assert ran.code == (3 if command[0] == "show" else 0), (command, ran)
                assert _settings(pooled) == before, command
        report = str(endpoint.folder / "report.html")
        assert pooled_endpoint.run("report", "--out", report).code == 0
        found = pooled_endpoint.document("doctor", "--no-spark")

        assert found["worst"] == "ok"
        assert len(endpoint.queue_rows("Billing")) == 20


@pytest.mark.parametrize("size", [2, 20])
def test_sweeps_share_a_pool_with_programs_that_are_at_work(
    size: int, waiting: Endpoint, open_folder: Path
) -> None:
    waiting.delay_many(2_000)
    settings = {"default_pool_size": size, "server_round_robin": 1}
    with (
        pooler(waiting.dsn, open_folder, "transaction", **settings) as pooled,
        ThreadPoolExecutor() as pool,
        closing(_other(pooled)) as other,
    ):
        swept = waiting.having(store__dsn=pooled)
        sweeps = [pool.submit(run_sweep, swept) for _ in range(3)]
        seen = [_own_settings(other)]
        while not all(sweep.done() for sweep in sweeps):
            # The pool hands its processes round, in the middle of a sweep too.
            with other.transaction():
                seen.append(_own_settings(other))
        reports = [sweep.result() for sweep in sweeps]

    assert sum(report.dispatched for report in reports) == 2_020
    assert len(waiting.queue_rows("Billing")) == 2_020
    assert len({str(each) for each in seen}) == 1, seen
    assert not waiting.fetch(_LOCKS)


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
