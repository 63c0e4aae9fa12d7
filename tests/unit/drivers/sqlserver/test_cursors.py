"""The cursors that a session of SQL Server keeps, on a driver that makes as many as it is asked."""

from typing import Any

import pytest

from duesweep.drivers.sqlserver.transactions import RawSession

pytestmark = pytest.mark.usefixtures("odbc")


class _Cursor:
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


class _Raw:
    timeout = 10

    def __init__(self) -> None:
        self.made: list[_Cursor] = []

    def cursor(self) -> _Cursor:
        self.made.append(_Cursor())
        return self.made[-1]


@pytest.fixture
def raw() -> Any:
    return _Raw()


@pytest.fixture
def session(raw: Any) -> RawSession:
    watch: Any = None
    return RawSession(raw, watch, sends_arrays=True)


def test_statement_keeps_its_cursor_and_the_text_that_it_prepared(
    raw: _Raw, session: RawSession
) -> None:
    first, again = "".join(["SELECT", " 1"]), "".join(["SELECT", " 1"])

    with session.keep_cursor(first) as prepared:
        pass
    with session.keep_cursor(again) as same:
        pass

    assert same.cursor is prepared.cursor
    assert same.text is first
    assert len(raw.made) == 1


def test_statements_have_cursors_of_their_own_at_the_same_time(
    raw: _Raw, session: RawSession
) -> None:
    with session.keep_cursor("SELECT 1") as outer, session.keep_cursor("SELECT 1") as inner:
        assert outer.cursor is not inner.cursor

    assert len(raw.made) == 2


def test_cursor_with_another_time_out_is_another_one(raw: _Raw, session: RawSession) -> None:
    for raw.timeout in (10, 30, 10):
        with session.keep_cursor("SELECT 1"):
            pass

    assert len(raw.made) == 2


def test_cursor_of_a_statement_that_failed_is_closed(raw: _Raw, session: RawSession) -> None:
    with pytest.raises(ValueError, match="away"), session.keep_cursor("SELECT 1"):
        raise ValueError("away")
    with session.keep_cursor("SELECT 1"):
        pass

    assert [cursor.is_closed for cursor in raw.made] == [True, False]


def test_cursor_with_results_that_nobody_read_is_closed(raw: _Raw, session: RawSession) -> None:
    with session.keep_cursor("SELECT 1") as prepared:
        prepared.is_reusable = False

    assert raw.made[0].is_closed
    assert not session.prepared


def test_cursor_that_was_not_used_for_longest_goes_first(raw: _Raw, session: RawSession) -> None:
    for number in (*range(256), 0, 256):
        with session.keep_cursor(f"SELECT {number}"):
            pass

    assert [number for number, cursor in enumerate(raw.made) if cursor.is_closed] == [1]
