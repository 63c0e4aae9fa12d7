"""Leases: a sweep lives as long as its process renews them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn
from uuid import UUID

import pytest

from duesweep.core.errors import StoreError
from duesweep.stores import leases
from duesweep.stores.store import SqlDriver, SqlStore
from duesweep_testing.contract.stores.steps import is_alive
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.waiting import until

pytestmark = ON_BOTH_SERVERS

_OPENS_A_SWEEP = """
import sys
from pathlib import Path
from duesweep.config import load
from duesweep.config.adapters.context import sweep_context
with sweep_context(load(Path(sys.argv[1]))).store.open_driver() as driver:
    print(driver.sweeps.open(driver.due.horizon()).sweep_id, flush=True)
    input()
"""


@pytest.fixture
def stored(endpoint: Endpoint) -> Endpoint:
    return endpoint.set_up("Billing")


@pytest.fixture
def driver(stored: Endpoint) -> Iterator[SqlDriver]:
    with _opened(stored) as driver:
        yield driver


@pytest.fixture
def other(stored: Endpoint) -> Iterator[SqlDriver]:
    with _opened(stored) as other:
        yield other


def _opened(stored: Endpoint) -> SqlDriver:
    driver = stored.context().store.open_driver()
    assert isinstance(driver, SqlDriver)
    return driver


def _leases(stored: Endpoint) -> list[Any]:
    return stored.fetch(f"SELECT * FROM {stored.own_table('leases')}")


def _set(stored: Endpoint, **values: str) -> None:
    texts = ", ".join(f"{name} = {value}" for name, value in values.items())
    stored.execute(f"UPDATE {stored.own_table('leases')} SET {texts}")


def _renew(driver: SqlDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look, long after the last time."""
    monkeypatch.setattr(leases, "RENEWAL_SECONDS", 0.0)
    driver.due.horizon()


def test_sweep_whose_process_is_frozen_for_longer_than_a_lease_is_dead(
    stored: Endpoint, driver: SqlDriver, other: SqlDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = driver.sweeps.open(driver.due.horizon())
    before = is_alive(other, run.sweep_id)
    _set(stored, until_at="'2026-01-01'", mark="'another machine'")

    assert (before, is_alive(other, run.sweep_id)) == (True, False)
    with other.journal.settling() as settler:
        assert settler is None
        assert other.journal.adopt(run.sweep_id)
        # It thaws: what another one has is not taken from it.
        _renew(driver, monkeypatch)
        assert is_alive(driver, run.sweep_id)
    assert not is_alive(driver, run.sweep_id)


def test_sweep_that_was_frozen_goes_on_if_no_other_took_it_for_dead(
    stored: Endpoint, driver: SqlDriver, other: SqlDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = driver.sweeps.open(driver.due.horizon())
    _set(stored, until_at="'2026-01-01'")

    _renew(driver, monkeypatch)

    assert is_alive(other, run.sweep_id)


def test_sweep_that_lives_again_is_not_closed_by_a_settler_that_was_frozen(
    stored: Endpoint, driver: SqlDriver, other: SqlDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = driver.sweeps.open(driver.due.horizon())
    _set(stored, until_at="'2026-01-01'")
    with other.journal.settling():
        assert other.journal.adopt(run.sweep_id)
        _set(stored, until_at="'2026-01-01'")
        _renew(driver, monkeypatch)

        close = other.sweeps.close
        assert not close(run.sweep_id, abandoned=True, remaining=0, waits=False)

    (sweep,) = other.journal.unsettled()
    assert (sweep.is_closed, sweep.is_alive) == (False, True)


def test_lease_that_another_one_took_and_gave_back_is_taken_again(
    stored: Endpoint, driver: SqlDriver, other: SqlDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = driver.sweeps.open(driver.due.horizon())
    _set(stored, until_at="'2026-01-01'")
    with other.journal.settling():
        assert other.journal.adopt(run.sweep_id)
    before = is_alive(other, run.sweep_id)

    _renew(driver, monkeypatch)

    assert (before, is_alive(other, run.sweep_id)) == (False, True)


def test_looks_renew_leases_of_their_own_session_only(
    stored: Endpoint, driver: SqlDriver, other: SqlDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, others = (each.sweeps.open(each.due.horizon()) for each in (driver, other))
    _set(stored, until_at="'2026-01-01'")

    _renew(driver, monkeypatch)

    alive = [is_alive(driver, run.sweep_id) for run in (mine, others)]
    assert alive == [True, False]


def test_sweep_of_a_process_of_this_machine_that_was_killed_is_dead_at_once(
    stored: Endpoint, other: SqlDriver
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OPENS_A_SWEEP, str(stored.config_file())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        sweep_id = UUID(process.stdout.readline().strip())
        before = is_alive(other, sweep_id)
        process.kill()
        process.wait()
    after = is_alive(other, sweep_id)
    with other.journal.settling() as settler:
        is_settling = settler is None

    assert (before, after, is_settling) == (True, False, True)
    assert len(_leases(stored)) == 1


def test_lease_is_renewed_while_its_session_waits_for_something_else(
    stored: Endpoint, driver: SqlDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RENEWAL_SECONDS", 0.1)
    driver.sweeps.open(driver.due.horizon())
    [before] = _leases(stored)

    until(lambda: _leases(stored)[0].until_at > before.until_at)

    assert _leases(stored)[0].taken_at == before.taken_at


def test_looks_renew_a_lease_without_another_session(
    stored: Endpoint, driver: SqlDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.sweeps.open(driver.due.horizon())
    [before] = _leases(stored)
    driver.due.horizon()
    [early] = _leases(stored)
    _renew(driver, monkeypatch)
    [after] = _leases(stored)

    assert early.until_at == before.until_at < after.until_at


def test_sessions_end_and_a_forgotten_sweep_leave_no_lease(stored: Endpoint) -> None:
    with _opened(stored) as driver:
        kept, closed = (driver.sweeps.open(driver.due.horizon()) for _ in range(2))
        driver.sweeps.close(closed.sweep_id, abandoned=False, remaining=0)
        driver.journal.delete_settled(closed.sweep_id)
        names = [row.name for row in _leases(stored)]
    assert names == [f"sweep {kept.sweep_id}"]

    assert _leases(stored) == []


def _lose(*_: Any, **__: Any) -> NoReturn:
    raise StoreError("the connection was lost", transient=True)


def test_sweep_whose_session_was_lost_is_dead_to_its_own_process_when_that_is_closed(
    stored: Endpoint, other: SqlDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _opened(stored) as driver:
        sweep_id = driver.sweeps.open(driver.due.horizon()).sweep_id
        # No other session can give the lease back.
        store = stored.context().store
        assert isinstance(store, SqlStore)
        monkeypatch.setattr(type(store.dialect), "connect", _lose)
        driver.connection.__exit__()
        before = is_alive(other, sweep_id)

    assert (before, is_alive(other, sweep_id)) == (True, False)
    assert [row.name for row in _leases(stored)] == [f"sweep {sweep_id}"]


def test_lease_of_a_lost_session_is_given_back_when_the_server_has_started_again(
    stored: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stored.context().store
    assert isinstance(store, SqlStore)
    kind, attempts = type(store.dialect), list[object]()
    connect = kind.connect

    def refuse_once(*asked: Any) -> Any:
        attempts.append(asked)
        return _lose() if len(attempts) == 1 else connect(*asked)

    with _opened(stored) as driver:
        driver.sweeps.open(driver.due.horizon())
        monkeypatch.setattr(kind, "connect", staticmethod(refuse_once))
        driver.connection.__exit__()

    until(lambda: _leases(stored) == [])
    assert len(attempts) > 1


@pytest.mark.parametrize("is_answered", [True, False], ids=["held", "asked for"])
def test_lease_of_a_lost_session_is_given_back_by_another_one_of_its_process(
    stored: Endpoint, monkeypatch: pytest.MonkeyPatch, *, is_answered: bool
) -> None:
    """A notebook, whose process lives on, must not keep the next sweep waiting."""
    with _opened(stored) as driver, suppress(StoreError):
        if is_answered:
            driver.sweeps.open(driver.due.horizon())
        else:
            rows, horizon = driver.connection.rows, driver.due.horizon()

            def rows_in_vain(*asked: Any, **values: Any) -> NoReturn:
                rows(*asked, **values)
                _lose()

            monkeypatch.setattr(driver.connection, "rows", rows_in_vain)
            driver.sweeps.open(horizon)
        driver.connection.__exit__()

    until(lambda: _leases(stored) == [])


def test_leases_that_were_over_long_ago_are_removed(stored: Endpoint, driver: SqlDriver) -> None:
    driver.sweeps.open(driver.due.horizon())
    _set(stored, until_at="'2026-01-01'")

    with driver.journal.settling():
        assert len(_leases(stored)) == 2

    assert _leases(stored) == []


def test_sweep_that_another_session_settled_leaves_no_lease(
    stored: Endpoint, driver: SqlDriver, other: SqlDriver
) -> None:
    run = driver.sweeps.open(driver.due.horizon())
    other.sweeps.close(run.sweep_id, abandoned=True, remaining=0)

    other.journal.delete_settled(run.sweep_id)

    assert _leases(stored) == []


def test_settler_is_told_by_its_process(
    stored: Endpoint, driver: SqlDriver, other: SqlDriver
) -> None:
    with driver.journal.settling(), other.journal.settling() as settler:
        [lease] = _leases(stored)

    assert settler is not None
    assert settler.startswith(
        f"Process {lease.process}, with the lease since {lease.taken_at:%F %T}"
    )
