"""What a batch on SQL Server removes, excludes and counts, on a table in memory."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.core.address import SqlServerAddresses, SqlServerTable
from duesweep.core.message import Message
from duesweep.stores.dialect import Location
from duesweep.stores.kinds import SQL_SERVER_KINDS
from duesweep.stores.sqlserver import SQL_SERVER
from duesweep.stores.sqlserver.account import SqlServerAccount
from duesweep.stores.sqlserver.claimed import ClaimedRows
from duesweep.stores.sqlserver.removal import RemovalByDue
from duesweep.stores.values import Excluded
from duesweep_testing.builders import message

DUE = "2026-11-21 09:21:19.0033333"
CLAIMED = [str(number) for number in range(10, 20)]


class Server:
    """A session on a delayed table, whose rows have one Due, and on the table of retry counters."""

    def __init__(self, *stored: str, counters: Sequence[str] = ()) -> None:
        self.stored = list(stored)
        self.counters = counters

    def rows(self, name: str, /, **values: Any) -> list[Any]:
        if name == "remove_first":
            kept = json.loads(values["kept"])
            gone = [key for key in self.stored if key not in kept][: values["rows"]]
            self.stored = [key for key in self.stored if key not in gone]
        elif name == "read_some_attempts":
            gone = list(self.counters[: values["most"]])
        else:
            assert name == "read_attempts"
            wanted = values["keys"].split(values["separator"])
            gone = [key for key in self.counters if key in wanted]
        return [SimpleNamespace(message_key=key) for key in gone]

    def execute(self, name: str, /, **values: Any) -> int:
        assert name == "remove"
        wanted = {place["key"] for place in json.loads(values["messages"])}
        before = len(self.stored)
        self.stored = [key for key in self.stored if key not in wanted]
        return before - len(self.stored)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        before = self.stored
        try:
            yield
        except BaseException:
            self.stored = before
            raise


def _message(key: str) -> Message:
    return message()._replace(key=key)


def _claim(*keys: str) -> ClaimedRows:
    claimed = ClaimedRows()
    claimed.begin()
    claimed.add(SimpleNamespace(message_key=key, due=DUE) for key in keys)
    return claimed


def _removal(server: Server, claimed: ClaimedRows) -> RemovalByDue:
    session: Any = server
    return RemovalByDue(session, "nsb", claimed, removes_firsts=True)


@pytest.mark.parametrize("stays", [0, 1, 4])
def test_claimed_messages_are_removed_and_those_that_stay_are_not(stays: int) -> None:
    server = Server(*CLAIMED)

    removed = _removal(server, _claim(*CLAIMED)).remove([*map(_message, CLAIMED[stays:])])

    assert (removed, server.stored) == (len(CLAIMED) - stays, CLAIMED[:stays])


def test_message_that_came_before_the_claimed_ones_is_not_removed() -> None:
    server = Server("1", *CLAIMED)

    removed = _removal(server, _claim(*CLAIMED)).remove([*map(_message, CLAIMED)])

    assert (removed, server.stored) == (len(CLAIMED), ["1"])


def test_message_that_fails_is_excluded_only_when_its_transaction_is_committed() -> None:
    claimed = _claim("1", "2")
    claimed.exclude([Excluded(DUE, "1")])

    claimed.fail([_message("2")])

    # A batch that is rolled back is claimed again, with what failed in it.
    assert claimed.excluded([DUE]) == {"1"}
    claimed.exclude_failed()
    assert claimed.excluded([DUE]) == {"1", "2"}


@pytest.mark.parametrize("others", [0, 1, 99, 100, 101, 5_000])
def test_counter_of_a_claimed_message_is_found_however_many_there_are(others: int) -> None:
    session: Any = Server(counters=[*(f"other {n}" for n in range(others)), "7"])
    delayed = SqlServerTable("nsb", "dbo", "Sales.Delayed")
    addresses = SqlServerAddresses("Sales", "dbo", "nsb")
    store = Location(
        dialect=SQL_SERVER,
        dsn="Server=h",
        source="nsb",
        candidates=(delayed,),
        addresses=addresses,
        kind=SQL_SERVER_KINDS["sqlserver"],
    )

    found = SqlServerAccount(session, store, _claim("7")).read_attempts(["7"])

    assert "7" in found
