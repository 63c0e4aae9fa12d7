"""The index on Due of a table that is there: created, or told why not."""

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.core.errors import Problem, StoreError
from duesweep.stores.kinds import SQL_SERVER_KINDS
from duesweep.stores.setup import create_index
from support.sqlserver_location import DELAYED, described, location


class Server:
    """A session on a server with the delayed table, whose indexes begin with these columns."""

    def __init__(self, kind: str, indexed: str | None, error: StoreError | None = None) -> None:
        self.kind, self.indexed, self.error = SQL_SERVER_KINDS[kind], indexed, error
        self.ran: list[str] = []
        self.patience: list[float] = []

    def named(self, _: object) -> "Server":
        return self

    def rows(self, name: str, /, **_: object) -> list[Any]:
        if name == "describe_table":
            return described(self.kind.columns)
        assert name == "describe_indexes"
        # Some servers tell the column in lower case.
        column = (self.indexed or "").lower()
        return [SimpleNamespace(column_name=column, is_partial=0)] if column else []

    def rows_of_each(self, *named: Any, what: str) -> list[Any]:  # noqa: ARG002 - for errors
        return [self.rows(name, **values) for name, values, _ in named]

    def row(self, name: str, /, **_: object) -> Any:
        assert name == "estimate_rows"
        return SimpleNamespace(rows=2_000_000)

    def wait_longer(self, seconds: float) -> AbstractContextManager[None]:
        self.patience.append(seconds)
        return nullcontext()

    def script(self, text: str) -> None:
        self.ran.append(text)
        if self.error is not None:
            raise self.error


def _create(kind: str, server: Server) -> list[object]:
    connection: Any = server
    return list(create_index(connection, location(kind), DELAYED))


@pytest.mark.parametrize(("kind", "index"), [("sqlserver", "Index_Due"), ("msmq", "Index_Time")])
def test_missing_index_is_created_with_time_for_all_rows(kind: str, index: str) -> None:
    server = Server(kind, indexed=None)

    assert _create(kind, server) == [f"created index {index} on {DELAYED.sql}"]

    (text,) = server.ran
    assert f"CREATE NONCLUSTERED INDEX [{index}] ON {DELAYED.sql}" in text
    assert server.patience[0] > 200


@pytest.mark.parametrize(
    ("kind", "indexed"), [("sqlserver", "Due"), ("msmq", "Time"), ("sql-persistence", None)]
)
def test_index_that_is_there_or_another_products_table_is_left_alone(
    kind: str, indexed: str | None
) -> None:
    server = Server(kind, indexed)

    assert _create(kind, server) == []
    assert server.ran == []


def test_index_that_this_user_may_not_create_is_told_with_the_reason_and_the_statement() -> None:
    error = StoreError("Cannot find the object, or no permissions (1088)", transient=False)

    (told,) = _create("sqlserver", Server("sqlserver", None, error))

    assert isinstance(told, Problem)
    assert told.text.endswith(
        "It cannot be created: Cannot find the object, or no permissions (1088)"
    )
    assert told.advice == (
        "have the table's owner run CREATE NONCLUSTERED INDEX [Index_Due] ON "
        "[nsb].[dbo].[Sales.Delayed] ([Due])"
    )


def test_server_that_is_busy_is_no_reason_to_do_without_the_index() -> None:
    with pytest.raises(StoreError, match="busy"):
        _create("sqlserver", Server("sqlserver", None, StoreError("busy", transient=True)))
