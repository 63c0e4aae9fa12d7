"""The cursors that a session of SQL Server keeps, on a driver that makes as many as it is asked."""

from contextlib import suppress
from typing import Any

import pytest

from duesweep.drivers.sqlserver.session import RawSession

pytestmark = pytest.mark.usefixtures("odbc")


class _Cursor:
    is_closed = False

    def __init__(self, timeout: int) -> None:
        self.timeout = timeout

    def close(self) -> None:
        self.is_closed = True


class _Raw:
    timeout = 10

    def __init__(self) -> None:
        self.made: list[_Cursor] = []

    def cursor(self) -> _Cursor:
        self.made.append(_Cursor(self.timeout))
        return self.made[-1]


@pytest.fixture
def raw() -> Any:
    return _Raw()


@pytest.fixture
def session(raw: Any) -> RawSession:
    watch: Any = None
    return RawSession(raw, watch)


def test_statement_that_runs_again_has_the_cursor_that_is_prepared_for_it(
    raw: _Raw, session: RawSession
) -> None:
    for _ in range(3):
        with session.keep_cursor("SELECT 1"):
            pass

    assert len(raw.made) == 1


def test_statement_within_itself_has_another_cursor(session: RawSession) -> None:
    # Or the inner one would end the results of the outer one.
    with session.keep_cursor("SELECT 1"):
        pass
    with session.keep_cursor("SELECT 1") as outer, session.keep_cursor("SELECT 1") as inner:
        assert outer.cursor is not inner.cursor


def test_statement_has_no_cursor_with_another_time_out(raw: _Raw, session: RawSession) -> None:
    # The driver gives a cursor the time-out that its session has when it is made.
    found = []
    for raw.timeout in (30, 10, 30):
        with session.keep_cursor("SELECT 1") as prepared:
            found.append(prepared.cursor.timeout)

    assert found == [30, 10, 30]


@pytest.mark.parametrize("has_failed", [False, True])
def test_cursor_that_failed_or_has_unread_results_is_closed_and_not_used_again(
    raw: _Raw, session: RawSession, *, has_failed: bool
) -> None:
    with suppress(ZeroDivisionError), session.keep_cursor("SELECT 1") as prepared:
        if has_failed:
            raise ZeroDivisionError
        prepared.is_reusable = False
    with session.keep_cursor("SELECT 1"):
        pass

    assert [cursor.is_closed for cursor in raw.made] == [True, False]


def test_only_so_many_cursors_are_open(raw: _Raw, session: RawSession) -> None:
    for number in range(300):
        with session.keep_cursor(f"SELECT {number}"):
            pass

    assert sum(not cursor.is_closed for cursor in raw.made) == 256
