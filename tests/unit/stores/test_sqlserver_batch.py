"""The removals, exclusions and counts of a batch on SQL Server, on a table in memory."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.core.message import Message
from duesweep.drivers.statements import Named
from duesweep.stores.kinds import lock_key
from duesweep.stores.sql_task import Begun
from duesweep.stores.sqlserver_task import SqlServerTask
from duesweep.stores.task import NOBODY
from duesweep_testing.builders import message
from support.sqlserver_location import RUN, location

DUE = "2026-11-21 09:21:19.0033333"
BEGUN = Begun(0, ())
CLAIMED = [str(number) for number in range(10, 20)]


class Server:
    """A session on a delayed table, whose rows have one Due, and on the table of retry counters."""

    is_in_transaction = False

    def __init__(self, *stored: str, counters: Sequence[str] = ()) -> None:
        self.stored = list(stored)
        self.counters = counters
        self.excluded: set[str] = set()

    def named(self, _: object) -> "Server":
        return self

    def row(self, name: str, /, **given: Any) -> Any:
        if name == "remove":
            return SimpleNamespace(messages=self._remove(given["messages"]))
        values = {
            "describe_delayed": {"deletes_expressions": 1, "seeks": 1},
        }
        return SimpleNamespace(**values[name])

    def rows(self, name: str, /, **values: Any) -> list[Any]:
        if name == "remove_first":
            kept = json.loads(values["kept"])
            found = [key for key in self.stored if key not in kept][: values["rows"]]
            self.stored = [key for key in self.stored if key not in found]
        elif name == "read_some_attempts":
            found = list(self.counters[: values["most"]])
        elif name == "read_attempts":
            found = [key for key in self.counters if key in values["keys"]]
        elif name == "fence":
            return [SimpleNamespace(is_open=1, is_stopping=0, has_pauses=0, server_us=0)]
        elif name == "count_some_waiting":
            return [SimpleNamespace(waiting=0)]
        else:
            assert name == "hold"
            found = [place["key"] for place in json.loads(values["messages"])]
        return [_row(key) for key in found]

    def rows_of_each(self, *named: Named, what: str) -> list[list[Any]]:  # noqa: ARG002 - for errors
        return [self.rows(name, **values) for name, values, _ in named]

    def read_while(
        self, _: object, claim: tuple[str, Any, Any], *others: Named, what: str
    ) -> tuple[list[Any], list[list[Any]]]:
        name, values, _ = claim
        assert name == what == "claim"
        self.excluded = set(values["excluded"])
        (due,) = json.loads(values["dues"])
        rows = [_row(key) for key in self.stored if key not in self.excluded]
        # After the rows were locked.
        return rows[: due["wanted"]], self.rows_of_each(*others, what=what)

    def _remove(self, places: str) -> int:
        wanted = {place["key"] for place in json.loads(places)}
        before = len(self.stored)
        self.stored = [key for key in self.stored if key not in wanted]
        return before - len(self.stored)

    def require_transaction(self) -> None:
        pass

    @contextmanager
    def transaction(self) -> Iterator[None]:
        before, is_nested = self.stored, self.is_in_transaction
        self.is_in_transaction = True
        try:
            yield
        except BaseException:
            self.stored = before
            raise
        finally:
            self.is_in_transaction = is_nested


def _row(key: str) -> Any:
    text, body = '{"NServiceBus.MessageId":"x"}', b""
    values = {"headers": text, "body": body, "attempts": 5, "is_eligible": 1}
    return SimpleNamespace(message_key=key, due=DUE, due_us=1, instant_us=1, **values)


def _message(key: str) -> Message:
    return message()._replace(key=key)


def _holding(server: Server, *keys: str) -> SqlServerTask:
    """A session that holds these messages."""
    session: Any = server
    task = SqlServerTask(session, location())
    task.hold([lock_key(DUE, key) for key in keys], None)
    return task


@pytest.mark.parametrize("stays", [0, 1, 4])
def test_claimed_messages_are_removed_and_those_that_stay_are_not(stays: int) -> None:
    server = Server(*CLAIMED)

    removed = _holding(server, *CLAIMED).delete([*map(_message, CLAIMED[stays:])])

    assert (removed, server.stored) == (len(CLAIMED) - stays, CLAIMED[:stays])


def test_message_that_came_before_the_claimed_ones_is_not_removed() -> None:
    server = Server("1", *CLAIMED)

    removed = _holding(server, *CLAIMED).delete([*map(_message, CLAIMED)])

    assert (removed, server.stored) == (len(CLAIMED), ["1"])


def test_claim_excludes_the_messages_of_its_dues_that_it_is_to_leave_alone() -> None:
    server = Server("1", "2", "3")
    task = _holding(server, "1", "2")

    task.lock(RUN, [DUE, DUE], BEGUN, {DUE: {"1"}, "2026-11-21 09:21:20.0000000": {"9"}})
    assert server.excluded == {"1"}
    # A batch that was rolled back leaves no message that failed in it alone.
    task.lock(RUN, [DUE], BEGUN, NOBODY)
    assert server.excluded == set()


@pytest.mark.parametrize("others", [0, 1, 99, 100, 101, 5_000])
def test_counter_of_a_claimed_message_is_found_however_many_there_are(others: int) -> None:
    counters = [*(f"other {n}" for n in range(others)), "7"]
    session: Any = Server("7", counters=counters)

    claim = SqlServerTask(session, location()).claim(RUN, [DUE])

    assert [(one.key, one.attempts) for one in claim.messages] == [("7", 5)]
