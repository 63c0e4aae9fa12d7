"""The moved form of a batch on SQL Server, on tables in memory: the cut headers, and
unusual batches.
"""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.core.account import Account, SliceEnd
from duesweep.core.address import SqlServerTable
from duesweep.core.errors import MessageError, SweepClosedError, UnusualBatchError
from duesweep.core.headers import FORWARD_DESTINATION
from duesweep.core.message import Address
from duesweep.drivers.sqlserver.binding import adapted, size_of
from duesweep.drivers.statements import Named
from duesweep.queues.sqlserver import COLUMNS, SqlServerQueueSession, SqlServerQueueTable
from duesweep.stores.sqlserver_task import SqlServerTask
from duesweep.stores.task import Forwarded, Moved
from duesweep_testing.sweeps import move_into
from support.random_headers import careful_message, random_headers
from support.sqlserver_location import ADDRESSES, DELAYED, RUN, described, location

FIRST, SECOND, THIRD = (f"2026-11-21 09:21:{second}.0033333" for second in (19, 20, 21))
USUAL = f'{{"a":"b","{FORWARD_DESTINATION}":"Billing"}}'


def _row(key: str, due: str, headers: str | None = USUAL, destination: str | None = None) -> Any:
    return SimpleNamespace(
        message_key=key, due=due, headers=headers, destination=destination, body_bytes=5
    )


@dataclass
class Server:
    """A session on a delayed table and its queues. `refused` is how many rows a queue drops without
    an error, `came` how many come into the span after it was read, `held` how many others hold.
    `sent` are the requests as the server tells them apart: by text, and by declarations of values.
    `journal` are the names and values of the rows that it has.
    """

    stored: list[Any]
    refused: int = 0
    came: int = 0
    held: int = 0
    is_open: int = 1
    triggers: Sequence[str] = ()
    counters: Sequence[tuple[str, int]] = ()
    journal: list[tuple[str, Any]] = field(default_factory=list)
    queues: dict[str, list[tuple[str, str | None]]] = field(default_factory=dict)
    inserts: list[str] = field(default_factory=list)
    removals: list[str] = field(default_factory=list)
    sent: set[object] = field(default_factory=set)
    trips: int = 0
    seeks: int = 1

    def named(self, _: object) -> "Server":
        return self

    def transaction(self) -> AbstractContextManager[None]:
        return nullcontext()

    def row(self, name: str, /, **_: Any) -> Any:
        assert name == "describe_delayed"
        return SimpleNamespace(deletes_expressions=1, seeks=self.seeks)

    def rows(self, name: str, /, **values: Any) -> list[Any]:
        if name == "explain_unclaimed":
            (due,) = json.loads(values["dues"])
            return [SimpleNamespace(due=due["due"], present=self.held, waiting=0, failed_since=0)]
        if name == "hold":
            held = {place["key"] for place in json.loads(values["messages"])}
            return [row for row in self.stored if row.message_key in held]
        assert name == "read_some_attempts"
        return [
            SimpleNamespace(message_key=key, attempts=2, is_eligible=is_eligible)
            for key, is_eligible in self.counters
        ]

    def commit_each(self, *named: Named, what: str) -> list[list[Any]]:
        """All or nothing, but `is_open` is known before that."""
        assert named[0][0] == "fence_or_end"
        before = deepcopy(self.queues)
        try:
            return self.rows_of_each(*named, what=what)
        except UnusualBatchError:
            self.queues = before
            raise

    def rows_of_each(self, *named: Named, what: str) -> list[list[Any]]:  # noqa: ARG002 - for errors
        self.trips += 1
        self.sent.add(
            tuple(
                (name, *names.values(), *map(size_of, adapted(values).values()))
                for name, values, names in named
            )
        )
        found: list[list[Any]] = []
        for name, values, names in named:
            if name == "look_at_sweep":
                sweep = {"is_open": 1, "is_stopping": 0, "has_pauses": 0, "server_us": 1}
                found.append([SimpleNamespace(**sweep)])
            elif name == "fence_or_end":
                found.append([SimpleNamespace(is_open=self.is_open)])
                if not self.is_open:
                    break
            elif name == "set_span":
                self.span = [
                    row for row in self.stored if values["first"] <= row.due <= values["last"]
                ]
            elif name == "read_span":
                found.append(self.span[: values["most"]])
            elif name == "read_some_attempts":
                found.append(self.rows(name, **values))
            else:
                self._change(name, values, names)
        return found

    def _change(self, name: str, values: Any, names: Any) -> None:
        """Run one statement of a move, or fail as the server does."""
        if name == "refuse_triggers":
            _fail_if(not set(values["tables"]).isdisjoint(self.triggers), "a table has a trigger")
        elif name.endswith("remove_span"):
            self.removals.append(name)
            _fail_if(len(self.span) + self.came != values["messages"], "others came")
        elif name in {"journal_batch", "journal_slice"}:
            self.journal.append((name, values))
        elif name == "refuse_failures":
            _fail_if(self.counters, "messages have failed")
        elif name == "refuse_new_failures":
            counted = [key for key, _ in self.counters if key in values["keys"]]
            _fail_if(2 * len(counted) != values["failures"], "messages have failed")
        elif name not in {"refuse_dropped", "clear_attempts"}:
            self.inserts.append(name)
            stored = {row.message_key: row.headers for row in self.span}
            rows = [(key, _cut(stored[key], values["cut"])) for key in values["keys"]]
            self.queues.setdefault(names["queue"], []).extend(rows)
            _fail_if(len(rows) - self.refused != values["messages"], "did not take each message")


def _fail_if(fault: object, text: str) -> None:
    if fault:
        raise UnusualBatchError(text)


def _cut(text: str, cut: int) -> str:
    """The server's LEFT and LEN, which count units of UTF-16, and no spaces at the end."""
    if cut == 0:
        return text
    units = text.rstrip(" ").encode("utf-16-le")
    return units[: len(units) - 2 * cut].decode("utf-16-le") + "}"


def _task(server: Server, kind: str = "sqlserver") -> SqlServerTask:
    session: Any = server
    return SqlServerTask(session, location(kind))


def _into(address: Address) -> SqlServerQueueTable:
    return SqlServerQueueTable(ADDRESSES.parse(address), address == "Old")


def _move(task: SqlServerTask, *dues: str) -> Moved:
    moved = move_into(task, RUN, [Forwarded(None, dues)], _into)
    if moved.tombstones.keys:
        task.finish_moved(RUN, 0, moved, moved.server_us)
    return moved


def test_headers_are_cut_as_the_careful_form_cuts_them_or_the_batch_is_unusual() -> None:
    random, moved = Random(31), 0
    for _ in range(6_000):
        headers = random_headers(random)
        server = Server([_row("7", FIRST, headers)])
        expected = careful_message(headers)
        with suppress(UnusualBatchError):
            tombstones = _move(_task(server), FIRST).tombstones
            moved += 1
            assert not isinstance(expected.headers, MessageError), headers
            destination = expected.destination
            queue = _into(destination)
            assert server.queues == {queue.table.sql: [("7", expected.headers_text)]}
            assert tombstones.message_ids == [expected.message_id]
            assert tombstones.message_types == [expected.message_type]
            assert tombstones.destinations == ["Sales" if destination is None else destination]
            assert tombstones.queues == [str(queue)]
    assert moved > 1_500


def test_each_destination_has_one_insert_into_a_table_of_its_own_shape() -> None:
    others = [USUAL.replace("Billing", name) for name in ("Old", "Other")]
    dues = (FIRST, FIRST, SECOND, THIRD)
    texts = (USUAL, others[0], others[1], '{"a":"\N{GREEK SMALL LETTER ALPHA}"}')
    server = Server([_row(str(n), *row) for n, row in enumerate(zip(dues, texts, strict=True))])

    moved = _move(_task(server), *dues)

    assert server.inserts == ["move_span", "move_span", "move_recoverable_span", "move_span"]
    assert server.queues == {
        "[nsb].[dbo].[Sales]": [("3", texts[3])],
        "[nsb].[dbo].[Billing]": [("0", '{"a":"b"}')],
        "[nsb].[dbo].[Old]": [("1", '{"a":"b"}')],
        "[nsb].[dbo].[Other]": [("2", '{"a":"b"}')],
    }
    assert sorted(moved.tombstones.keys) == ["0", "1", "2", "3"]
    assert moved.tombstones.body_bytes == [5] * 4


def test_inserts_for_many_destinations_are_sent_one_by_one() -> None:
    rows = [_row(str(n), FIRST, USUAL.replace("Billing", f"Q{n}")) for n in range(17)]
    few, many = Server(rows[:16]), Server(rows)

    _move(_task(few), *[FIRST] * 16)
    _move(_task(many), *[FIRST] * 17)

    assert (few.trips, many.trips) == (2, 1 + 1 + 17 + 1)
    assert len(many.queues) == 17


def test_day_of_small_batches_is_a_few_requests_for_the_plans_of_the_server() -> None:
    """One for each set of destinations, whatever the number of messages."""
    random, sent = Random(51), set[object]()
    for tick in range(288):
        rows = [
            _row(f"{10**9 + n}", FIRST, USUAL.replace("Billing", random.choice("ABCD")))
            for n in range(1 + tick % 40)
        ]
        _move(_task(Server(rows, sent=sent)), *[FIRST] * len(rows))

    assert len(sent) <= 15 + len(("read",))


def test_destination_in_a_column_is_not_looked_for_in_headers() -> None:
    server = Server([_row("a", FIRST, USUAL, "Old")])

    moved = _move(_task(server, "sql-persistence"), FIRST)

    assert server.queues == {"[nsb].[dbo].[Old]": [("a", USUAL)]}
    assert moved.tombstones.destinations == ["Old"]


@pytest.mark.parametrize(("kind", "can"), [("sqlserver", 1), ("sql-persistence", 1), ("msmq", 0)])
def test_headers_that_are_rewritten_are_not_moved(kind: str, can: int) -> None:
    assert _task(Server([]), kind).can_move == bool(can)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"stored": [_row("1", FIRST), _row("2", FIRST)]}, "other messages also have these Dues"),
        (
            {"stored": [_row("1", FIRST), _row("2", SECOND), _row("3", THIRD)]},
            "other messages also have",
        ),
        ({"refused": 1}, "did not take each message"),
        ({"came": 1}, "others came"),
        ({"triggers": ["[nsb].[dbo].[Billing]"]}, "a table has a trigger"),
        ({"triggers": [DELAYED.sql]}, "a table has a trigger"),
        ({"stored": [], "held": 1}, "some rows are locked"),
        ({"counters": [("1", 0)]}, "in back-off"),
        ({"stored": [_row("1", FIRST, USUAL.replace("b", "\N{GRINNING FACE}", 1))]}, "count"),
        ({"stored": [_row("1", FIRST, None)]}, "no headers"),
        ({"stored": [_row("1", FIRST, '{"a":1}')]}, "neither text nor null"),
    ],
)
def test_batch_is_unusual(more: dict[str, Any], reason: str) -> None:
    server = Server(**{"stored": [_row("1", FIRST)], **more})
    dues = (FIRST, THIRD) if len(server.stored) > 2 else (FIRST,)

    with pytest.raises(UnusualBatchError, match=reason):
        _move(_task(server), *dues)

    assert (server.queues, server.journal) == ({}, [])


def test_sweep_that_is_closed_while_a_batch_is_prepared_moves_nothing() -> None:
    server = Server([_row("1", FIRST)], is_open=0)

    with pytest.raises(SweepClosedError):
        _move(_task(server), FIRST)

    assert (server.queues, server.journal) == ({}, [])


def test_slice_ends_in_one_request_unless_the_sweep_is_closed() -> None:
    end = SliceEnd(Account(claimed=7), None)
    open_one, closed = Server([]), Server([], is_open=0)

    _task(open_one).end_slice(RUN, 3, end)
    with pytest.raises(SweepClosedError):
        _task(closed).end_slice(RUN, 3, end)

    [(name, values)] = open_one.journal
    assert (name, values["slice"], values["claimed"]) == ("journal_slice", 3, 7)
    assert (open_one.trips, closed.trips, closed.journal) == (1, 1, [])


def test_message_that_is_not_due_by_the_horizon_makes_the_batch_unusual() -> None:
    due = "2026-11-21 10:00:00.0000000"

    with pytest.raises(UnusualBatchError, match="not due yet"):
        _move(_task(Server([_row("1", due)])), due)


def test_messages_that_are_gone_are_counted_and_the_others_moved() -> None:
    server = Server([_row("1", FIRST)])

    moved = _move(_task(server), FIRST, SECOND)

    assert (moved.tombstones.keys, moved.gone, moved.later) == (["1"], 1, 0)


@pytest.mark.parametrize(("seeks", "statement"), [(1, "seek_and_remove_span"), (0, "remove_span")])
def test_span_is_removed_by_the_index_on_due_if_there_is_one(seeks: int, statement: str) -> None:
    server = Server([_row("1", FIRST)], seeks=seeks)

    _move(_task(server), FIRST)

    assert server.removals == [statement]


def test_span_without_messages_is_not_removed() -> None:
    moved = _move(_task(Server([], came=1)), FIRST)

    assert (moved.tombstones.keys, moved.gone) == ([], 1)


def test_message_that_is_left_alone_makes_the_batch_unusual() -> None:
    """It has the Due of one that is gone, so the numbers are right."""
    task = _task(Server([_row("1", FIRST)]))

    selected = task.select(RUN, [Forwarded(None, [FIRST])], {FIRST: {"1"}})

    with pytest.raises(UnusualBatchError, match="other messages also have these Dues"), selected:
        pass


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("New", SqlServerQueueTable(SqlServerTable("nsb", "dbo", "New"), has_recoverable=False)),
        ("Old", SqlServerQueueTable(SqlServerTable("nsb", "dbo", "Old"), has_recoverable=True)),
        ("Narrow", None),
    ],
)
def test_queue_tables_that_hold_headers_as_they_are_take_moved_messages(
    address: str, expected: SqlServerQueueTable | None
) -> None:
    queues = _queues()

    assert queues.table(queues.resolve(address)) == expected


def test_queue_table_of_another_database_or_transaction_takes_no_moved_messages() -> None:
    queues = _queues()
    assert queues.table(queues.resolve("New@[dbo]@[other]")) is None
    alone = _queues(own_transaction=True)
    assert alone.table(alone.resolve("New")) is None


class Catalog:
    """A session on a server with queue tables of these shapes, and one in another database."""

    def rows(self, name: str, /, **_: Any) -> list[Any]:
        if name == "queue_tables":
            shapes = {"New": (0, 0), "Old": (1, 0), "Narrow": (0, 1)}
            return [
                SimpleNamespace(schema="dbo", table=table, has_recoverable=old, is_narrow=narrow)
                for table, (old, narrow) in shapes.items()
            ]
        if name == "describe_rights":
            return []
        assert name == "describe_table"
        columns = {column: next(iter(types)) for column, types in COLUMNS.items()}
        return described(columns | {"Headers": "nvarchar"})

    def rows_of_each(self, *named: Any, what: str) -> list[Any]:  # noqa: ARG002 - for errors
        return [self.rows(name, **values) for name, values, _ in named]

    def row(self, name: str, **_: Any) -> Any:
        assert name == "describe_catalog"
        return SimpleNamespace(found=1, is_open=1)

    def named(self, _: object) -> "Catalog":
        return self


def _queues(*, own_transaction: bool = False) -> SqlServerQueueSession:
    session: Any = Catalog()
    queues = SqlServerQueueSession(session, ADDRESSES, own_transaction=own_transaction)
    queues.read_tables()
    return queues
