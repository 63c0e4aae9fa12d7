"""Named statements on a session of SQL Server, on a driver that only writes down what it gets."""

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from duesweep.core.timeouts import DEFAULT_TIMEOUTS
from duesweep.drivers.sqlserver.binding import key_list, literal
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.drivers.sqlserver.session import RawSession, SqlServerSession

pytestmark = pytest.mark.usefixtures("odbc")

SWEEP = UUID("00000000-0000-0000-0000-000000000001")
COMMITTABLE = 1


class _Raw:
    """A connection and its cursor."""

    description = ("column",)
    rowcount = 3
    timeout = 10

    def __init__(self) -> None:
        self.sent: list[tuple[str, Sequence[object]]] = []
        self.sizes: list[Sequence[object]] = []

    def cursor(self) -> "_Raw":
        return self

    def close(self) -> None:
        pass

    def setinputsizes(self, sizes: Sequence[object]) -> None:
        self.sizes.append(sizes)

    def execute(self, text: str, parameters: Sequence[object] = ()) -> "_Raw":
        self.sent.append((text, parameters))
        return self

    def executemany(self, text: str, rows: Sequence[Sequence[object]]) -> None:
        self.sent += [(text, row) for row in rows]

    def fetchall(self) -> list[Any]:
        return [SimpleNamespace(found=1)]

    def fetchone(self) -> tuple[int]:
        return (COMMITTABLE,)

    def nextset(self) -> bool:
        return False


class _Watch:
    """Watches nothing."""

    def watch_answer(self) -> Any:
        return nullcontext()


def _session() -> tuple[_Raw, SqlServerSession]:
    raw, watch = _Raw(), _Watch()
    session: Any = RawSession(raw, watch)  # type: ignore[arg-type]
    dsn = OdbcDsn({"server": "db.example"})
    return raw, SqlServerSession(session, dsn, DEFAULT_TIMEOUTS.task, {})


def test_names_are_put_into_the_text_and_values_are_bound() -> None:
    raw, statements = _session()

    touched = statements.named({"bindings": "[a].[b].[c]"}).execute("unbind", source="x")

    assert touched == 3
    assert raw.sent == [("DELETE FROM [a].[b].[c] WHERE source = ?;\n", ["x"])]


def test_value_may_be_called_name() -> None:
    raw, statements = _session()

    assert statements.row("find_table", name="[a].[b].[c]").found == 1
    assert raw.sent[0][1] == ["[a].[b].[c]"]


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
    assert set(opened[1]) == {str(SWEEP), "s", "2026-03-01 12:00:00.000000", "spark", 1}
    assert set(planned[1]) == {str(SWEEP), "[1, 2]", "2026-03-01 12:00:00.000000"}


def test_many_sets_of_values_are_sent_in_the_order_of_the_statement() -> None:
    raw, statements = _session()

    statements.named({"bindings": "[s]"}).execute_many(
        "unbind", [{"source": "a"}, {"source": SWEEP}]
    )

    assert [row for _, row in raw.sent] == [["a"], [str(SWEEP)]]


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


def test_separator_of_keys_is_in_none_of_them() -> None:
    keys = ["1", "2,3", "4;5"]

    text, separator = key_list(keys)

    assert text is not None
    assert text.split(separator) == keys


def test_literal_of_a_query_for_spark_is_of_all_characters() -> None:
    assert literal("Größe d'été") == "N'Größe d''été'"
