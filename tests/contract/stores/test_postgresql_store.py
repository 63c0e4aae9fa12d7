"""Rules of a PostgreSQL store beyond the contract."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import psycopg
import pytest

from duesweep.core.errors import ExitCode, StoreError
from duesweep.core.message import Delivered
from duesweep.core.policy import DEFAULT_TIMEOUTS, Slicing, Timeouts
from duesweep.core.result import exit_code_of
from duesweep.drivers.postgresql import session as driver
from duesweep.drivers.postgresql.session import PostgreSqlSession, connect
from duesweep.stores import sql_due
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import TaskSession
from duesweep.stores.zone import horizon_in
from duesweep.sweep.claim_keys import read_claim_keys
from duesweep_testing.builders import DelayedRow
from duesweep_testing.sweeps import open_sweep
from support.contract.store_subjects import DelayedTableUnderTest
from support.endpoint import Endpoint
from support.sweeps import run_sweep
from support.waiting import until

LOCK_WAIT_SECONDS = 0.3
# Whose lock was waited for, which PostgreSQL does not say.
_LOCKED = r"claim on .*Sales\.Orders\.Delayed.*55P03.*another session holds a lock"


@pytest.fixture(autouse=True)
def _short_lock_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = replace(DEFAULT_TIMEOUTS.task, lock_seconds=LOCK_WAIT_SECONDS)
    monkeypatch.setattr(Timeouts, "task", waits)


@pytest.fixture
def subject(endpoint: Endpoint) -> DelayedTableUnderTest:
    return DelayedTableUnderTest(endpoint.set_up("Billing"))


def _deliver_all(session: TaskSession, run: SweepRun, keys: list[str]) -> None:
    claim = session.claim(run, keys)
    outcomes = [Delivered(m, "Billing") for m in claim.messages]
    session.finish(run, 0, outcomes, claim.server_us)


def test_trigger_that_keeps_a_claimed_row_undoes_its_batch(subject: DelayedTableUnderTest) -> None:
    endpoint = subject.endpoint
    keys = endpoint.delay_many(3)
    run = open_sweep(subject.store)
    keep = f"IF OLD.id = '{keys[1]}' THEN RETURN NULL; END IF; RETURN OLD;"
    endpoint.server.add_trigger("BEFORE DELETE", endpoint.delayed, keep)

    with (
        subject.store.open_task() as session,
        pytest.raises(StoreError, match="removed 2 of 3 rows") as failure,
        session.transaction(),
    ):
        _deliver_all(session, run, keys)

    assert not failure.value.transient
    assert subject.waiting() == set(keys)
    assert subject.journal(run) == []


def test_sweep_whose_end_a_trigger_drops_is_not_closed_and_says_so(
    subject: DelayedTableUnderTest,
) -> None:
    endpoint = subject.endpoint
    sweeps = endpoint.own_table("sweeps")
    endpoint.server.add_trigger("BEFORE UPDATE", sweeps, "RETURN NULL;")

    with subject.store.open_driver() as session:
        run = session.sweeps.open(session.due.horizon())
        with pytest.raises(StoreError, match="did not take a row") as failure:
            session.sweeps.close(run.sweep_id, abandoned=False, remaining=0)

    assert exit_code_of(failure.value) is ExitCode.CONFIGURATION


def test_locked_delayed_table_is_a_passing_fault_after_the_lock_time_out(
    subject: DelayedTableUnderTest,
) -> None:
    key = subject.endpoint.delay()
    run = open_sweep(subject.store)
    with subject.store.open_task() as session, psycopg.connect(subject.endpoint.dsn) as other:
        other.execute(f"LOCK TABLE {subject.endpoint.delayed}".encode())

        began = time.monotonic()
        with pytest.raises(StoreError, match=_LOCKED) as failure, session.transaction():
            session.claim(run, [key])

    assert failure.value.transient
    assert LOCK_WAIT_SECONDS <= time.monotonic() - began < LOCK_WAIT_SECONDS + 60


def test_connection_that_is_killed_in_a_batch_is_a_passing_fault_and_frees_its_rows(
    subject: DelayedTableUnderTest,
) -> None:
    key = subject.endpoint.delay()
    run = open_sweep(subject.store)

    def finish_over_a_killed_connection() -> None:
        with subject.store.open_task() as session, session.transaction():
            claim = session.claim(run, [key])
            subject.endpoint.server.kill_sessions()
            outcomes = [Delivered(claim.messages[0], "Billing")]
            session.finish(run, 0, outcomes, claim.server_us)

    with pytest.raises(StoreError) as failure:
        finish_over_a_killed_connection()
    with subject.store.open_task() as session, session.transaction():
        again = session.claim(run, [key])

    assert failure.value.transient
    assert [m.key for m in again.messages] == [key]
    assert subject.journal(run) == []


def test_message_due_before_the_year_one_is_claimed_and_journalled(
    subject: DelayedTableUnderTest,
) -> None:
    endpoint = subject.endpoint
    row = DelayedRow()
    endpoint.load([row])
    endpoint.execute(f"UPDATE {endpoint.delayed} SET due = '0044-03-15 00:00 BC'")
    run = open_sweep(subject.store)

    with subject.store.open_task() as session, session.transaction():
        _deliver_all(session, run, [row.key])

    assert subject.waiting() == set()


def test_sessions_are_in_utc_whatever_role_and_process_say(
    subject: DelayedTableUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = subject.endpoint
    endpoint.execute(
        f"ALTER DATABASE {endpoint.server.admin.info.dbname} SET TimeZone = 'Asia/Kolkata'"
    )
    monkeypatch.setenv("PGTZ", "America/New_York")

    with connect(endpoint.dsn, DEFAULT_TIMEOUTS.task) as connection:
        assert connection.row("session_zone").zone == "UTC"


def test_setup_lets_no_server_compress_tombstones_again(endpoint: Endpoint) -> None:
    endpoint.set_up()

    stored = endpoint.fetch(
        "SELECT attname FROM pg_attribute"
        " WHERE attrelid = 'duesweep_journal'::regclass AND attnum > 0 AND attstorage = 'e'"
        " ORDER BY attnum"
    )

    assert [row.attname for row in stored] == ["lateness_ms", "outcomes"]


def test_index_on_due_finds_the_next_one(
    subject: DelayedTableUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = subject.endpoint
    endpoint.delay_many(2_000, due_in_seconds=3_600)
    endpoint.execute(f"ANALYZE {endpoint.delayed}")
    original = driver.statement
    monkeypatch.setattr(driver, "statement", lambda *of: f"EXPLAIN {original(*of)}")

    with subject.store.open_task() as session:
        named = session.connection.named(subject.store.names())
        plan = named.rows("next_due", since=subject.server_time(), zone="UTC")

    lines = [line for (line,) in plan]
    assert any("Index" in line and "_Due" in line for line in lines), lines
    assert not any("Seq Scan" in line for line in lines), lines


@pytest.mark.parametrize("form", ["moved", "careful"])
def test_batches_do_not_read_deleted_rows_that_a_snapshot_still_sees(
    endpoint: Endpoint, form: str
) -> None:
    """The statistics are of an empty table: each index looks as good."""
    endpoint.set_up("Billing")
    dead, due = 2_000, 300
    with psycopg.connect(endpoint.server.dsn) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("SELECT FROM pg_class")
        endpoint.delay_many(dead)
        endpoint.execute(f"DELETE FROM {endpoint.delayed}")
        endpoint.execute(f"VACUUM (ANALYZE) {endpoint.delayed}")
        endpoint.delay_many(due)
        before = _read_by_due(endpoint)
        own = {} if form == "moved" else {"queues__default__dsn": endpoint.server.dsn}

        assert run_sweep(endpoint, sweep__batch_rows=10, **own).dispatched == due
        # A session's numbers are there when it has ended.
        until(lambda: endpoint.server.sessions() == 0)

        # Its look and its plan pass over them, but not its 30 batches.
        assert 0 < _read_by_due(endpoint) - before < 15 * dead


def _read_by_due(endpoint: Endpoint) -> int:
    """How many entries of the index on Due were read."""
    [row] = endpoint.fetch(
        "SELECT sum(idx_tup_read)::bigint AS read FROM pg_stat_all_indexes"
        " WHERE indexrelname LIKE '%_Due' AND schemaname = current_schema()"
    )
    return int(row.read)


@pytest.mark.parametrize("zone", ["UTC", "europe/berlin", "<+03>-03"])
def test_horizon_in_a_time_zone_leaves_the_sessions_zone_as_it_is(
    endpoint: Endpoint, zone: str
) -> None:
    assert _zone_after_horizon(endpoint, zone) == "UTC"


def test_session_that_is_lost_meanwhile_is_no_wrong_time_zone(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = PostgreSqlSession.row

    def killed(self: PostgreSqlSession, name: str, *arguments: Any, **values: object) -> object:
        if name == "set_zone":
            endpoint.server.kill_sessions()
        return row(self, name, *arguments, **values)

    monkeypatch.setattr(PostgreSqlSession, "row", killed)
    with pytest.raises(StoreError) as failure:
        _zone_after_horizon(endpoint, "Europe/Berlin")

    assert failure.value.transient


def _zone_after_horizon(endpoint: Endpoint, zone: str) -> str:
    """The session's zone after a horizon in the writers' zone."""
    with connect(endpoint.dsn, DEFAULT_TIMEOUTS.driver) as connection:
        assert horizon_in(connection, zone).zone == zone
        return str(connection.row("session_zone").zone)


# By the name that PostgreSQL has for each; the last two are not known to all of its versions.
NAMES = (
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
)
WAITS = Timeouts().task
WANTED = {
    "statement_timeout": "15s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "2min",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
}
# Spark's sessions hold no lock: they may rest between two pages.
SPARKS = {"statement_timeout": "1min", "idle_in_transaction_session_timeout": "10min"}


@pytest.fixture
def hurried(endpoint: Endpoint) -> Iterator[str]:
    """The dsn of a role whose sessions end as soon as may be."""
    dsn = endpoint.server.role("hurried")
    role = psycopg.conninfo.conninfo_to_dict(dsn)["user"]
    for name in _known(endpoint):
        endpoint.execute(f"ALTER ROLE {role} SET {name} = '1s'")
    yield dsn
    endpoint.execute(f"DROP ROLE {role}")


def _known(endpoint: Endpoint) -> set[str]:
    rows = endpoint.fetch("SELECT name FROM pg_settings WHERE name = ANY($1)", list(NAMES))
    return {row.name for row in rows}


def test_session_has_its_own_time_outs(endpoint: Endpoint, hurried: str) -> None:
    with connect(hurried, WAITS) as connection:
        for name in _known(endpoint):
            connection.script(
                f"DO $$ BEGIN ASSERT current_setting('{name}') = '{WANTED[name]}',"
                f" current_setting('{name}'); END $$"
            )


def test_session_over_jdbc_has_its_own_time_outs(endpoint: Endpoint, hurried: str) -> None:
    with connect(hurried, WAITS) as connection:
        url, properties = connection.jdbc_address(80, None)
    with psycopg.connect(hurried) as other:
        other.execute(properties["sessionInitStatement"].encode())
        found = {
            name: other.execute("SELECT current_setting(%s)", [name]).fetchone()
            for name in _known(endpoint)
        }

    assert found == {name: (value,) for name, value in (WANTED | SPARKS).items() if name in found}
    assert len(found) >= 3
    told = dict(parse_qsl(urlsplit(url.removeprefix("jdbc:")).query))
    assert (told["socketTimeout"], told["connectTimeout"]) == ("80", "10")
    assert told["loginTimeout"] == told["cancelSignalTimeout"] == "10"


@pytest.mark.parametrize(("rows", "every", "pages"), [(2_000, 1, 60), (8_000, 125, 90)])
def test_slice_of_one_due_reads_its_own_part_or_by_the_index_if_that_is_less(
    subject: DelayedTableUnderTest, rows: int, every: int, pages: int
) -> None:
    """The tables have 286 pages and 1,143; there are 8 slices."""
    endpoint = subject.endpoint
    endpoint.execute(
        f"INSERT INTO {endpoint.delayed} (headers, body, due)"
        " SELECT '{}', convert_to(repeat('x', 1000), 'UTF8'), timestamptz '2026-01-01 00:00Z'"
        f" + CASE WHEN n % {every} = 0 THEN interval '0' ELSE interval '90 years' END"
        f" FROM generate_series(1, {rows}) AS n"
    )
    with subject.store.open_driver() as session:
        query = session.due.plan(session.due.horizon(), Slicing(8)).claim_keys_query
    read = []
    for number in range(8):
        slice_of = f"SELECT * FROM ({query}) AS due_messages WHERE slice = {number}"
        ((explained,),) = endpoint.fetch(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {slice_of}")
        read.append(sum(_pages_of_messages(explained[0]["Plan"])))

    assert max(read) <= pages, read


def test_slice_of_one_due_reads_the_counters_once_also_without_statistics(
    subject: DelayedTableUnderTest,
) -> None:
    endpoint = subject.endpoint
    endpoint.execute(
        f"INSERT INTO {endpoint.delayed} (headers, body, due)"
        " SELECT '{}', 'x', timestamptz '2026-01-01 00:00Z' FROM generate_series(1, 12000)"
    )
    endpoint.execute(
        f"INSERT INTO {endpoint.own_table('attempts')} (source, message_key, attempts,"
        " first_failed_at, last_failed_at, next_attempt_at, error_class, error_text)"
        f" SELECT '{subject.store.source}', id, 1, now(), now(), now() + interval '1 hour', '', ''"
        f" FROM {endpoint.delayed} LIMIT 6000"
    )
    with subject.store.open_driver() as session:
        plan = session.due.plan(session.due.horizon(), Slicing(3))
    slice_of = f"SELECT * FROM ({plan.claim_keys_query}) AS due_messages WHERE slice = 1"
    ((explained,),) = endpoint.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {slice_of}")

    assert plan.planned == (2_000, 2_000, 2_000)
    assert max(node["Actual Loops"] for node in _nodes(explained[0])) == 1


@pytest.mark.parametrize("moves", ["UPDATE {} SET headers = headers || ' '", "VACUUM FULL {}"])
@pytest.mark.parametrize("step", ["0 s", "1 us"])
def test_row_that_moves_before_it_is_read_is_in_a_slice_nevertheless(
    subject: DelayedTableUnderTest, moves: str, step: str
) -> None:
    endpoint = subject.endpoint
    load = (
        f"INSERT INTO {endpoint.delayed} (headers, body, due) SELECT '{{}}', 'x',"
        f" timestamptz '2026-01-01 00:00Z' + n * interval '{step}' FROM generate_series(1, 600) n"
    )
    for statement in (load, f"DELETE FROM {endpoint.delayed}", load):
        endpoint.execute(statement)
    with subject.store.open_driver() as session:
        plan = session.due.plan(session.due.horizon(), Slicing(3))
        endpoint.execute(moves.format(endpoint.delayed))
        slices = [read_claim_keys(session.due.claim_keys(plan, number)).keys for number in range(3)]

    assert ("true)" in plan.claim_keys_query) is (step == "0 s")
    assert sorted(key[:36] for keys in slices for key in keys) == endpoint.waiting()


def _nodes(explained: Any) -> Iterator[Any]:
    """The nodes of a recorded plan."""
    for node in explained.get("Plans", (explained["Plan"],) if "Plan" in explained else ()):
        yield node
        yield from _nodes(node)


def _pages_of_messages(node: Any) -> Iterator[int]:
    """The pages of the delayed table, and of its index, that were read."""
    if node.get("Relation Name") == "Sales.Orders.Delayed":
        yield node["Shared Hit Blocks"] + node["Shared Read Blocks"]
    for child in node.get("Plans", ()):
        yield from _pages_of_messages(child)


def test_plan_at_once_is_cut_into_slices_that_fit_into_memory(
    subject: DelayedTableUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_due, "_CHUNK_ROWS", 3)
    keys = subject.endpoint.delay_many(25)

    with subject.store.open_driver() as session:
        plan = session.due.plan_at_once(session.due.horizon(), Slicing(1, most_rows=10), 25)
        assert plan is not None
        read = [
            [key[:36] for key in read_claim_keys(session.due.claim_keys(plan, number)).keys]
            for number in range(3)
        ]

    assert plan.planned == tuple(map(len, read)) == (9, 9, 7)
    assert sorted(chain.from_iterable(read)) == sorted(keys)


def test_plan_at_once_reads_one_message_too_many_at_most(subject: DelayedTableUnderTest) -> None:
    """The server expects fewer messages than there are, because they are small."""
    endpoint = subject.endpoint
    endpoint.delay_many(20)
    with subject.store.open_driver() as session:
        plan = session.due.plan_at_once(session.due.horizon(), Slicing(1), 20)
        assert plan is not None
        endpoint.delay_many(10)
        again = session.due.plan_at_once(session.due.horizon(), Slicing(1), 20)
    totals = {row.total for row in endpoint.fetch(plan.claim_keys_query)}

    assert again is None
    assert totals == {21}
