"""Named statements on a session of SQL Server, on a driver that only records its calls."""

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from duesweep.core.policy import DEFAULT_TIMEOUTS
from duesweep.drivers.sqlserver.binding import literal
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.drivers.sqlserver.session import RawSession, SqlServerSession

pytestmark = pytest.mark.usefixtures("odbc")

SWEEP = UUID("00000000-0000-0000-0000-000000000001")
COMMITTABLE = 1


class _Cursor:
    description = ("column",)
    rowcount = 3
    is_closed = False

    def __init__(self, raw: "_Raw") -> None:
        self.raw, self.timeout = raw, raw.timeout

    def close(self) -> None:
        self.is_closed = True

    def setinputsizes(self, sizes: Sequence[object]) -> None:
        pass

    def execute(self, text: str, parameters: Sequence[object] = ()) -> "_Cursor":
        self.raw.sent.append((text, parameters))
        if self.raw.is_failing:
            raise ZeroDivisionError
        return self

    def executemany(self, text: str, rows: Sequence[Sequence[object]]) -> None:
        self.raw.sent += [(text, row) for row in rows]

    def fetchall(self) -> list[Any]:
        return [SimpleNamespace(found=1)]

    def fetchone(self) -> tuple[int]:
        return (COMMITTABLE,)

    def nextset(self) -> bool:
        return False


class _Raw:
    timeout = 10
    is_failing = False

    def __init__(self) -> None:
        self.sent: list[tuple[str, Sequence[object]]] = []
        self.made: list[_Cursor] = []

    def cursor(self) -> _Cursor:
        self.made.append(_Cursor(self))
        return self.made[-1]


class _Watch:
    """Watches nothing."""

    def watch_answer(self) -> Any:
        return nullcontext()

    def restart_timer(self) -> None:
        pass


def _session() -> tuple[_Raw, SqlServerSession]:
    raw, watch = _Raw(), _Watch()
    session: Any = RawSession(raw, watch)  # type: ignore[arg-type]
    dsn = OdbcDsn({"server": "db.example"})
    return raw, SqlServerSession(session, dsn, DEFAULT_TIMEOUTS.task, {})


def test_instants_ids_flags_and_lists_go_out_as_the_server_reads_them() -> None:
    raw, statements = _session()
    values = {
        "sweep_id": SWEEP,
        "source": "s",
        "horizon": datetime(2026, 3, 1, 12, tzinfo=UTC),
        "engine": "spark",
        "attempts_changed": True,
    }

    statements.named({"sweeps": "[s]"}).execute("open_sweep", **values)
    again = {"sweep_id": SWEEP, "planned": [1, 2], "horizon": values["horizon"]}
    statements.named({"sweeps": "[s]"}).execute("set_planned", **again)

    opened, planned = raw.sent
    assert set(opened[1]) == {str(SWEEP), "s", "2026-03-01 12:00:00.0000000", "spark", 1}
    assert set(planned[1]) == {str(SWEEP), "[1, 2]", "2026-03-01 12:00:00.0000000"}


def test_names_are_put_into_the_text_and_values_are_bound_once_or_for_each_set() -> None:
    raw, statements = _session()
    bindings = statements.named({"bindings": "[a].[b].[c]"})

    touched = bindings.execute("unbind", source="x")
    bindings.execute_many("unbind", [{"source": "a"}, {"source": SWEEP}])
    found = statements.row("find_table", name="[a].[b].[c]")

    unbind, find = "DELETE FROM [a].[b].[c] WHERE source = ?;\n", raw.sent[-1]
    assert (touched, found.found, find[1]) == (3, 1, ["[a].[b].[c]"])
    assert raw.sent == [(unbind, ["x"]), (unbind, ["a"]), (unbind, [str(SWEEP)]), find]


def test_statements_with_other_names_share_the_sessions_transaction() -> None:
    raw, statements = _session()

    with statements.transaction():
        named = statements.named({"bindings": "[s]"})
        assert named.is_in_transaction
        with named.transaction():
            named.execute("unbind", source="a")

    assert [text for text, _ in raw.sent] == [
        "SET NOCOUNT OFF; BEGIN TRANSACTION",
        "SAVE TRANSACTION duesweep_1",
        "DELETE FROM [s] WHERE source = ?;\n",
        "SELECT XACT_STATE()",
        "COMMIT TRANSACTION",
    ]
    assert not statements.is_in_transaction


def test_literal_of_a_query_for_spark_is_of_all_characters() -> None:
    assert literal("Größe d'été") == "N'Größe d''été'"


def test_statement_within_itself_has_another_cursor() -> None:
    # Or the inner one would end the results of the outer one.
    raw, statements = _session()

    def wanted(_: object) -> bool:
        statements.row("find_table", name="inner")
        return False

    statements.row("find_table", name="first")
    statements.read_while(wanted, ("find_table", {"name": "outer"}, {}), what="find_table")

    assert [parameters for _, parameters in raw.sent] == [["first"], ["outer"], ["inner"]]
    assert len(raw.made) == 2


def test_statement_has_no_cursor_with_another_time_out() -> None:
    # The driver gives a cursor the time-out that its session has when it is made.
    raw, statements = _session()

    for raw.timeout in (30, 10, 30):
        statements.row("find_table", name="[a].[b].[c]")

    assert [cursor.timeout for cursor in raw.made] == [30, 10]


@pytest.mark.parametrize("has_failed", [False, True])
def test_cursor_that_failed_or_has_unread_results_is_closed_and_not_used_again(
    *, has_failed: bool
) -> None:
    raw, statements = _session()

    raw.is_failing = has_failed
    with suppress(ZeroDivisionError):
        statements.read_while(
            lambda _: False, ("find_table", {"name": "[a].[b].[c]"}, {}), what="x"
        )
    raw.is_failing = False
    statements.row("find_table", name="[a].[b].[c]")

    assert [cursor.is_closed for cursor in raw.made] == [True, False]


def test_only_so_many_cursors_are_open() -> None:
    raw, statements = _session()

    for number in range(300):
        statements.named({"bindings": f"[s{number}]"}).execute("unbind", source="x")

    assert sum(not cursor.is_closed for cursor in raw.made) == 256
